"""Reading a model's answer in a run that has processors: what they make of it, and what is shown when."""

from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING

import msgspec

from entracte_server.agents.processors.views import CachedAnswer
from entracte_server.domain import chunks as c
from entracte_server.domain.messages import ReasoningPart, TextPart
from entracte_server.domain.runs import StepRecord
from entracte_server.engine.answer import Answer
from entracte_server.engine.object_text import PartialObject
from entracte_server.engine.processing import Processing
from entracte_server.models.base import Model, ModelError, ModelEvent, ModelFinish, ModelRequest
from entracte_server.models.streams import closing

if TYPE_CHECKING:
    from entracte_server.engine.run import RunExecution

_TEXT = (c.TextStart, c.TextDelta, c.TextEnd)
_REASONING = (
    c.ReasoningStart,
    c.ReasoningDelta,
    c.ReasoningEnd,
    c.ReasoningSignature,
    c.RedactedReasoning,
)


async def read(
    run: "RunExecution",
    processing: Processing,
    model: Model,
    request: ModelRequest,
    answer: Answer,
    partial: PartialObject | None,
) -> Answer:
    """The answer to a request as it is after its processing: `answer` filled, or another. `partial` shows
    the object in it as it grows. Raises `ModelError`, `Vetoed`, `ProcessorFailed`."""
    asked = await processing.request(model.name, request.messages)
    processing.sent = None if asked == tuple(request.messages) or isinstance(asked, CachedAnswer) else asked
    if isinstance(asked, CachedAnswer):
        stream = _cached(asked)
    else:
        request = msgspec.structs.replace(request, messages=asked)
        stream = model.stream(request)
    held: list[c.Payload] = []
    holds = processing.holds_answers or processing.holds_results
    async with closing(stream) as batches:
        async for batch in batches:
            finish = [event for event in batch if type(event) is ModelFinish]
            if finish:  # what an answer cost counts, whatever becomes of it
                answer.finish = finish[0]
            # What the server itself says while it waits is nobody's answer, and is shown at once.
            if waits := [event for event in batch if type(event) is c.Custom]:
                run.log.extend(waits)
                run.log.flush()
            parts = await processing.parts(
                [event for event in batch if type(event) not in (ModelFinish, c.Custom)],  # type: ignore[misc]
                ends=bool(finish),
            )
            shown = answer.add([*parts, *finish])
            if partial is not None:
                shown = partial.shown_with(shown)
            if holds:
                held += shown
            elif finish:  # the end of the answer is written with what follows from it
                run.log.extend(shown)
            else:
                run.log.extend(shown)
                run.log.flush()
                await run.log.room()
    if (fault := answer.fault()) is not None:
        raise ModelError(fault)
    record = answer.record(step=run.step, attempt=run.attempt, message_id="", model=model.name)
    calls = answer.call_rows(run.step)
    said = await processing.answer(record, calls, request.messages)
    processing.keep()  # what cannot be kept fails the run before the answer is shown
    text, thoughts = _said(record, TextPart), _said(record, ReasoningPart)
    if said.text != text:
        held = _with_text(held, said.text)
    if said.reasoning_text != thoughts:
        held = _replaced(held, _REASONING, _reasoning(said.reasoning_text))
    if (said.text, said.reasoning_text) != (text, thoughts):
        rewritten = Answer()
        assert answer.finish is not None
        rewritten.add([*held, answer.finish])
        answer = rewritten
    if processing.holds_results and all(call.provider_executed for call in calls):
        processing.held = held
    elif holds:
        run.log.extend(held)
    return answer


async def _cached(answer: CachedAnswer) -> AsyncIterator[list[ModelEvent]]:
    yield [*_text(answer.text), ModelFinish("stop")]


def _said(record: StepRecord, kind: type[TextPart] | type[ReasoningPart]) -> str:
    return "".join(part.text for part in record.parts if isinstance(part, kind))


def _text(text: str, block: str = "text") -> list[c.Payload]:
    return [c.TextStart(block), c.TextDelta(block, text), c.TextEnd(block)] if text else []


def _reasoning(text: str, block: str = "reasoning") -> list[c.Payload]:
    return [c.ReasoningStart(block), c.ReasoningDelta(block, text), c.ReasoningEnd(block)] if text else []


def _with_text(parts: Iterable[c.Payload], text: str) -> list[c.Payload]:
    """The parts with another text, and without the object as it grew in the one before."""
    return _replaced([part for part in parts if type(part) is not c.Object], _TEXT, _text(text))


def _replaced(
    parts: Iterable[c.Payload], kinds: tuple[type, ...], others: list[c.Payload]
) -> list[c.Payload]:
    """The parts with `others` in place of those of these kinds, where the first of them is."""
    out: list[c.Payload] = []
    done = False
    for part in parts:
        if not isinstance(part, kinds):
            out.append(part)
        elif not done:
            out += others
            done = True
    return out if done else [*others, *out]


def hold(run: "RunExecution", record: StepRecord, payload: c.Payload) -> None:
    """Add a chunk to those of an answer that is held."""
    assert run.processing is not None
    if run.processing.held is None:  # it was another process that received the answer
        run.processing.held = _again(run, record)
    run.processing.held.append(payload)


def rewrite_held(run: "RunExecution", text: str) -> None:
    """What is held has another text."""
    assert run.processing is not None
    if run.processing.held is not None:  # else it is made of the record, which has the text
        run.processing.held = _with_text(run.processing.held, text)


def release(run: "RunExecution", record: StepRecord) -> StepRecord:
    """Show an answer that was held, now that it has passed."""
    assert run.processing is not None
    parts = run.processing.held
    run.processing.held = None
    run.log.extend(parts if parts is not None else _again(run, record))
    return msgspec.structs.replace(record, held=False)


def _again(run: "RunExecution", record: StepRecord) -> list[c.Payload]:
    """The chunks of an answer, from what is stored."""
    out: list[c.Payload] = []
    for index, part in enumerate(record.parts):
        if isinstance(part, TextPart):
            out += _text(part.text, f"t{index}")
        elif isinstance(part, ReasoningPart):
            block = f"r{index}"
            out.append(c.ReasoningStart(block))
            if part.text:
                out.append(c.ReasoningDelta(block, part.text))
            if part.signature is not None:
                out.append(c.ReasoningSignature(block, part.signature))
            if part.redacted is not None:
                out.append(c.RedactedReasoning(block, part.redacted))
            out.append(c.ReasoningEnd(block, part.provider_metadata))
    out += (
        c.ToolCall(call.call_id, call.tool_name, call.args, call.invalid_args, provider_executed=True)
        for call in run.calls_of(record.step)
    )
    if (made := record.structured) is not None and made.object is not None:
        out.append(c.ObjectResult(made.object, made.is_fallback, made.model))
    out += (c.Source(s.id, s.url, s.title, s.provider_metadata) for s in record.sources)
    out += (c.File(f.media_type, f.data, f.url) for f in record.files)
    return out


def withheld(record: StepRecord) -> StepRecord:
    """The record of an answer that did not pass: nothing of what was said is left."""
    response = msgspec.structs.replace(record.response, provider_metadata=None)
    return msgspec.structs.replace(
        record,
        parts=(),
        sources=(),
        files=(),
        structured=None,
        metadata=None,
        requested_tools=False,
        response=response,
        held=False,
    )
