"""A new message on a thread whose run is parked, taken as the answer to what the run asks.

A model reads what was asked and what was said, and names the question that is answered and the answer as
data. That is a decision like any other: checked against the question's own schema, and made by
compare-and-set, in the transaction that adds the message to the thread. Where it is not clear, nothing is
decided and nothing saved. Approvals are never given this way.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from entracte_server.domain import json_text
from entracte_server.domain.data import Data
from entracte_server.domain.errors import Refusal
from entracte_server.domain.ids import new_id
from entracte_server.domain.messages import Message, text_message
from entracte_server.domain.options import StructuredOutput
from entracte_server.domain.results import Usage
from entracte_server.domain.runs import PendingRow, RunRow
from entracte_server.domain.threads import ThreadMessage, ThreadRun
from entracte_server.engine import decisions, history
from entracte_server.engine.decisions import Ref, Verdict
from entracte_server.engine.object_text import Unfit, read_object
from entracte_server.engine.questions import ask
from entracte_server.engine.remembering import called_alike
from entracte_server.engine.runlog import now_ms
from entracte_server.engine.starting import Start
from entracte_server.engine.stored_agents import Lacking
from entracte_server.engine.structured_request import with_schema
from entracte_server.models.base import ModelError, ModelRequest
from entracte_server.store.base import Decided, NotFound

if TYPE_CHECKING:
    from entracte_server.engine.engine import Engine

TIMEOUT = 60.0
"""Seconds a model may take to find the answer in a message."""

_TOLD = """\
A program asked a person one or more questions and waits. The person has written something. Say which \
question it answers, and give the answer as data that fits that question's schema.

Where a question offers choices, people name them in words of their own ("the first one", "the cheap one"): \
give the choice as it is offered. Take an answer only where the person gives one: if they ask something \
back, talk of something else, or leave out what the schema requires, give no match. Make nothing up. Where \
it could be the answer to more than one question, give all that it could be.

The questions, as JSON:
{questions}"""

_LEFT_OPEN = "The call waits as before; answer it with Resume, or say it in other words."


class Reading(Data, frozen=True):
    """What a model took from a message: the answer to `pending`, as JSON text. `spent` is what that used, by
    the names of the models."""

    pending: PendingRow
    data: str
    spent: Mapping[str, Usage]


class Unanswered(Data, frozen=True):
    """The message decided nothing: `error` says why, `run` is the run that goes on waiting."""

    run: RunRow
    error: str


async def parked_run(engine: "Engine", start: Start) -> ThreadRun | None:
    """The parked run that a new message may answer, where there is one. Raises `Refusal` where it is
    another resource's."""
    memory = start.options.memory
    if memory is None:
        return None
    try:
        view = await engine.store.get_thread(start.tenant, memory.thread_id)
    except NotFound:
        return None
    if view.thread.resource_id != memory.resource_id:
        raise Refusal(
            "THREAD_OF_OTHER_RESOURCE",
            f"The thread {memory.thread_id!r} belongs to another resource than memory.resource says.",
            thread_id=memory.thread_id,
        )
    holder = view.holder
    return holder if holder is not None and holder.state == "suspended" else None


async def answer(engine: "Engine", start: Start, holder: ThreadRun) -> Decided | Unanswered | None:
    """Decide a call of the run that has the thread with what the message says; None where that run does not
    wait any more. Raises `Refusal`, as a decision does that cannot be made here and a run that cannot start.
    """
    try:
        run, found, _ = await engine.store.pending_of_run(start.tenant, holder.run_id)
    except NotFound:  # it was deleted
        return None
    if not found:  # it was decided just now
        return None
    if run.agent_id != start.agent_id:
        raise Refusal(
            "THREAD_PARKED",
            f"The run {run.run_id} that has the thread is one of the agent {run.agent_id!r}.",
            thread_id=run.thread_id,
            run_id=run.run_id,
            pending_call_ids=",".join(row.pending_call_id for row, _ in found),
        )
    asked = [row for row, _ in found if row.kind == "suspension"]
    if not asked:
        return Unanswered(run, f"No call of the run takes an answer from a message. {_LEFT_OPEN}")
    try:
        with engine.room_for(start):
            async with asyncio.timeout(TIMEOUT):
                reading = await _matched(engine, run, asked, start.input)
    except TimeoutError:
        return Unanswered(run, f"The model took too long to read the message. {_LEFT_OPEN}")
    except ModelError as failure:
        return Unanswered(run, f"The model could not be asked: {failure.error.message} {_LEFT_OPEN}")
    except ValueError as fault:
        return Unanswered(run, f"{fault} {_LEFT_OPEN}")
    said = await _said(engine, start, run)
    try:
        return await decisions.decide(
            engine,
            tenant=start.tenant,
            principal=start.principal,
            ref=Ref(reading.pending.pending_call_id),
            verdict=Verdict("resume", data=reading.data, comment=_comment(reading)),
            request=start.request,
            messages=said,
            spent=reading.spent,
        )
    except Refusal as refusal:
        if refusal.reason != "RESUME_DATA_INVALID":
            raise
        return Unanswered(run, f"The message does not fit the question: {refusal.message} {_LEFT_OPEN}")


async def _said(engine: "Engine", start: Start, run: RunRow) -> tuple[ThreadMessage, ...]:
    """The message as the thread is to keep it, if it is to: what was said by the same id stays."""
    memory = start.options.memory
    if memory is None or not memory.save_messages:
        return ()
    known = await called_alike(engine.store, start.tenant, memory, start.input)
    own = [msgspec.structs.replace(it, id="") if it.id in known else it for it in start.input]
    said = history.from_input(own, prefix=new_id(), run_id=run.run_id, author=start.principal, time=now_ms())
    return tuple(said)


def _comment(reading: Reading) -> str:
    """What the audit says of such a decision."""
    return f"Taken from a message on the thread by {' and '.join(reading.spent) or 'a model'}."


async def _matched(
    engine: "Engine", run: RunRow, asked: list[PendingRow], said: tuple[Message, ...]
) -> Reading:
    """The call that is answered, and the answer. Raises `ModelError`, `ValueError` where it is not clear."""
    by_name = {f"q{number}": row for number, row in enumerate(asked, 1)}
    schema, spent = _schema(list(by_name)), dict[str, Usage]()
    text = await _ask(engine, run, by_name, schema, said, spent)
    try:
        matches = json_text.parse(read_object(text, schema))["matches"]
    except Unfit:
        raise ValueError("The model's reading of the message is none that can be used.") from None
    if not matches:
        raise ValueError("The message answers nothing that was asked.")
    if len(matches) > 1:
        raise ValueError("The message could be the answer to more than one question.")
    return Reading(by_name[matches[0]["call"]], json_text.dump(matches[0]["data"]), spent)


def _schema(names: list[str]) -> str:
    """What a reading fits."""
    return json_text.dump(
        {
            "type": "object",
            "properties": {
                "matches": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"call": {"type": "string", "enum": names}, "data": {}},
                        "required": ["call", "data"],
                    },
                }
            },
            "required": ["matches"],
        }
    )


async def _ask(
    engine: "Engine",
    run: RunRow,
    by_name: dict[str, PendingRow],
    schema: str,
    said: tuple[Message, ...],
    spent: dict[str, Usage],
) -> str:
    questions = [_question(name, row) for name, row in by_name.items()]
    told = text_message("system", _TOLD.format(questions=json_text.dump(questions)))
    request = ModelRequest(messages=[told, *(m for m in said if m.role == "user")])
    try:
        tree = await engine.agents.tree_of(run, next(iter(by_name.values())))
    except Lacking as lacking:
        raise ValueError(f"This server cannot read the message: {lacking}.") from None
    models = engine.agents.models_of(tree.agent)
    wanted = with_schema(StructuredOutput(schema, injection="system"), request, models[0], False)
    return await ask(models, wanted, spent)


def _question(name: str, row: PendingRow) -> dict[str, Any]:
    question: dict[str, Any] = {"call": name, "tool": row.tool_name}
    if row.tool_description:
        question["about"] = row.tool_description
    if row.suspend_payload is not None:
        question["asked"] = json_text.parse_stored(row.suspend_payload)
    if row.resume_schema is not None:
        question["schema"] = json_text.parse_stored(row.resume_schema)
    return question
