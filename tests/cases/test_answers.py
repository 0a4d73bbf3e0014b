"""Answers arrive at the call they name, unchanged, and every JSON value is one."""

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import pydantic
import pytest

from entracte.v1 import chunk_pb2, json_pb2, pending_call_pb2
from entracte_server import ToolContext, ask_user, tool
from entracte_server.testing import scripted
from tests.cases.support import (
    app_of,
    finish_of,
    payloads,
    reason_name,
    refused,
    serving,
    told_calls,
    told_results,
    value_of,
)

INVALID = grpc.StatusCode.INVALID_ARGUMENT
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION

got: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_got() -> None:
    got.clear()


@tool
async def ask(about: str, ctx: ToolContext) -> dict[str, Any]:
    """Asks without a schema, so that anything is an answer."""
    if not ctx.resumed:
        ctx.suspend({"about": about})
    got.append((about, ctx.resume_data))
    return {"about": about, "answer": ctx.resume_data}


def asking(id: str, about: str) -> dict[str, Any]:
    return {"tool": "ask", "id": id, "args": {"about": about}}


FALSY = ["false", "0", "0.0", '""', "[]", "{}", "null"]
OTHERS = ["9007199254740993", "18446744073709551616", '"\\u0000x"', '{"b":1,"a":[1.0,1]}']


@pytest.mark.parametrize("answer", [*FALSY, *OTHERS])
async def test_every_json_value_is_an_answer(answer: str) -> None:
    """SR-03: presence is what counts: falsy values, and null above all, reach the tool unchanged."""
    model = scripted([[asking("c1", "x")], [{"text": "end"}]])
    async with serving(app_of(model, [ask])) as caller:
        waiting = (await caller.generate()).result.pending_calls[0]
        done = await caller.resume(waiting, json_pb2.Json(text=answer))
        assert not done.result.pending_calls
        value = json.loads(answer)
        assert [(about, json.dumps(data)) for about, data in got] == [("x", json.dumps(value))]
        told = json.loads(told_results(model.requests[-1])[0][1])
        assert json.dumps(told) == json.dumps({"about": "x", "answer": value})
        assert done.decision.data.text == answer


async def test_no_answer_is_not_null() -> None:
    """SR-03: an absent answer is refused, and the call still waits."""
    model = scripted([[asking("c1", "x")], [{"text": "end"}]])
    async with serving(app_of(model, [ask])) as caller:
        waiting = (await caller.generate()).result.pending_calls[0]
        for bad in ("", "nul", '{"a":1,"a":2}', "NaN", '"\\ud800"'):
            with refused(INVALID, "JSON_INVALID"):
                await caller.resume(waiting, json_pb2.Json(text=bad))
        from entracte.v1 import agent_service_pb2

        request = agent_service_pb2.ResumeRequest(
            call=pending_call_pb2.CallRef(pending_call_id=waiting.pending_call_id)
        )
        with refused(INVALID, "REQUEST_INVALID") as refusal:
            await caller.agents.Resume(request, timeout=5)
        assert refusal.fields == ["resume_data"]
        assert await caller.pending()
        assert not got


async def test_two_calls_of_one_tool_are_answered_apart() -> None:
    """SR-04: the second of two calls of a tool is answered first; both results stand under their ids."""
    model = scripted([[asking("c1", "first"), asking("c2", "second")], [{"text": "end"}]])
    async with serving(app_of(model, [ask])) as caller:
        one, two = (await caller.generate()).result.pending_calls
        await caller.resume(two, 2)
        done = await caller.resume(one, 1)
        assert got == [("second", 2), ("first", 1)]
        results = told_results(model.requests[-1])
        assert [(i, json.loads(o)["answer"]) for i, o in results] == [("c1", 1), ("c2", 2)]
        by_id = {r.tool_result.tool_call_id: value_of(r.tool_result.result) for r in done.result.tool_results}
        assert {i: r["answer"] for i, r in by_id.items()} == {"c1": 1, "c2": 2}


class Colour(pydantic.BaseModel):
    colour: str


class Size(pydantic.BaseModel):
    size: int


@tool(resume_schema=Colour)
async def ask_colour(ctx: ToolContext[Colour]) -> str:
    if not ctx.resumed:
        ctx.suspend("colour?")
    got.append(ctx.resume_data)
    return ctx.resume_data.colour


@tool(resume_schema=Size)
async def ask_size(ctx: ToolContext[Size]) -> int:
    if not ctx.resumed:
        ctx.suspend("size?")
    got.append(ctx.resume_data)
    return ctx.resume_data.size


async def test_answers_of_two_tools_do_not_cross(tmp_path: Path) -> None:
    """SR-05: two tools wait at once; each takes only its own answer, over a restart between them, and a
    run's name alone is no name while two wait."""
    calls = [{"tool": "ask_colour", "id": "a"}, {"tool": "ask_size", "id": "b"}]
    model = scripted([calls, [{"text": "end"}]], position="transcript")
    app = app_of(model, [ask_colour, ask_size])
    store = tmp_path / "db"
    async with serving(app, store=store) as caller:
        started = await caller.generate()
        colour, size = started.result.pending_calls
        by_run = pending_call_pb2.CallRef(run_id=started.run.run_id)
        with refused(PRECONDITION, "PENDING_CALL_AMBIGUOUS") as refusal:
            await caller.resume(by_run, {"size": 1})
        assert set(refusal.metadata["pending_call_ids"].split(",")) == {
            colour.pending_call_id,
            size.pending_call_id,
        }
        for waiting, wrong in ((colour, {"size": 1}), (size, {"colour": "red"}), (size, {"size": "1x"})):
            with refused(INVALID, "RESUME_DATA_INVALID") as refusal:
                await caller.resume(waiting, wrong)
            assert all(field.startswith("resume_data") for field in refusal.fields)
        assert not got
        await caller.resume(size, {"size": 4})
        assert got == [Size(size=4)]
    async with serving(app, store=store) as caller:
        done = await caller.resume(colour, {"colour": "red"})
        assert got == [Size(size=4), Colour(colour="red")]
        assert done.result.text == "end"
    assert [(i, json.loads(o)) for i, o in told_results(model.requests[-1])] == [("a", "red"), ("b", 4)]


@tool(requires_approval=True)
async def pay(cents: int) -> str:
    return "paid"


async def test_the_inbox_tells_enough_to_answer() -> None:
    """SR-18: one approval, one suspension, one question and one client tool wait; each entry has what a
    stranger needs to answer it."""
    kind = chunk_pb2.PendingCallKind
    model = scripted(
        [
            [
                {"tool": "pay", "id": "a", "args": {"cents": 1}},
                {"tool": "ask", "id": "s", "args": {"about": "x"}},
                {"tool": "ask_user", "id": "q", "args": {"question": "Q?", "options": [{"label": "A"}]}},
                {"tool": "browser", "id": "t", "args": {"url": "u"}},
            ],
            [{"text": "end"}],
        ]
    )
    schema = json_pb2.Json(text='{"type":"object","properties":{"url":{"type":"string"}}}')
    from entracte.v1 import options_pb2

    browser = options_pb2.ClientTool(name="browser", description="Opens a page", input_schema=schema)
    async with serving(app_of(model, [pay, ask, ask_user])) as caller:
        run_id = (await caller.generate(client_tools=[browser])).run.run_id
        waiting = {c.tool_call_id: c for c in await caller.pending()}
        assert set(waiting) == {"a", "s", "q", "t"}
        for entry in waiting.values():
            assert (entry.run_id, entry.agent_id, entry.round) == (run_id, "agent", 1)
            assert entry.pending_call_id
            assert entry.state == pending_call_pb2.PENDING_CALL_STATE_OPEN
            assert entry.create_time.seconds > 1_600_000_000
            assert not entry.HasField("expire_time")
        assert {i: (c.tool_name, c.kind, value_of(c.args)) for i, c in waiting.items()} == {
            "a": ("pay", kind.PENDING_CALL_KIND_APPROVAL, {"cents": 1}),
            "s": ("ask", kind.PENDING_CALL_KIND_SUSPENSION, {"about": "x"}),
            "q": (
                "ask_user",
                kind.PENDING_CALL_KIND_SUSPENSION,
                value_of(waiting["q"].args) | {"question": "Q?"},
            ),
            "t": ("browser", kind.PENDING_CALL_KIND_CLIENT_TOOL, {"url": "u"}),
        }
        assert value_of(waiting["s"].suspend_payload) == {"about": "x"}
        question = value_of(waiting["q"].suspend_payload)
        assert question["question"] == "Q?"
        assert question["selection_mode"] == "single_select"
        assert value_of(waiting["q"].resume_schema)["enum"] == ["A"]
        assert not waiting["s"].HasField("resume_schema")
        assert waiting["t"].tool_description == "Opens a page"


OPTIONS = [{"label": "red"}, {"label": "green"}, {"label": "blue"}]


def question(**more: Any) -> dict[str, Any]:
    return {"tool": "ask_user", "id": "q", "args": {"question": "Which?", **more}}


MULTI = {"options": OPTIONS, "selection_mode": "multi_select"}
REFUSED_ANSWERS: list[tuple[dict[str, Any], Any]] = [
    (MULTI, []),
    (MULTI, ["red", "violet"]),
    (MULTI, ["red", "red"]),
    (MULTI, "red"),
    (MULTI, [1]),
    ({"options": OPTIONS}, ["red"]),
    ({"options": OPTIONS}, "violet"),
    ({"options": OPTIONS}, "Red"),
    ({"options": OPTIONS}, ""),
    ({}, ""),
    ({}, "  \n"),
    ({}, ["text"]),
    ({}, None),
]
TAKEN_ANSWERS: list[tuple[dict[str, Any], Any]] = [
    (MULTI, ["blue", "red"]),
    (MULTI, ["green"]),
    ({"options": OPTIONS}, "red"),
    ({}, "anything at all"),
    ({**MULTI, "allow_free_text": True}, ["red", "mauve"]),
    ({"options": OPTIONS, "allow_free_text": True}, "mauve"),
]


@pytest.mark.parametrize(("asked", "answer"), REFUSED_ANSWERS)
async def test_answers_beside_the_question_are_refused(asked: dict[str, Any], answer: Any) -> None:
    """AQ-01: unknown, empty, repeated and wrongly shaped choices are refused before anything is
    written; the question stays open."""
    async with serving(app_of(scripted([[question(**asked)], [{"text": "end"}]]), [ask_user])) as caller:
        waiting = (await caller.generate()).result.pending_calls[0]
        with refused(INVALID, "RESUME_DATA_INVALID") as refusal:
            await caller.resume(waiting, answer)
        assert refusal.fields
        assert [c.pending_call_id for c in await caller.pending()] == [waiting.pending_call_id]


@pytest.mark.parametrize(("asked", "answer"), TAKEN_ANSWERS)
async def test_a_choice_stays_what_it_is(asked: dict[str, Any], answer: Any) -> None:
    """AQ-01: a list stays a list for the model and in the history; free text is taken where welcome."""
    model = scripted([[question(**asked)], [{"text": "end"}]])
    async with serving(app_of(model, [ask_user])) as caller:
        waiting = (await caller.generate()).result.pending_calls[0]
        done = await caller.resume(waiting, answer)
        assert json.loads(told_results(model.requests[-1])[0][1])["answer"] == answer
        assert value_of(done.result.tool_results[0].tool_result.result)["answer"] == answer


BAD_QUESTIONS: list[dict[str, Any]] = [
    {"selection_mode": "multi_select"},
    {"selection_mode": "single_select", "options": []},
    {"question": " "},
    {"options": [{"label": "a"}, {"label": "a"}]},
    {"options": [{"label": ""}]},
    {"options": ["red"], "multi": True},
    {"options": OPTIONS, "selection_mode": "all"},
]


@pytest.mark.parametrize("bad", BAD_QUESTIONS)
async def test_bad_questions_go_back_to_the_model(bad: dict[str, Any]) -> None:
    """AQ-01: a question nobody could answer is the model's to mend; a tool beside it runs."""
    model = scripted([[question(**bad), {"tool": "note", "id": "n"}], [{"text": "end"}]])

    @tool
    async def note() -> str:
        got.append("noted")
        return "noted"

    async with serving(app_of(model, [ask_user, note])) as caller:
        chunks = await caller.stream()
        assert [(e.tool_call_id, e.code) for e in payloads(chunks, "tool_error")] == [("q", "invalid-args")]
        assert reason_name(finish_of(chunks).reason) == "stop"
        assert got == ["noted"]


async def outcome_of_asking(settle: str) -> tuple[str, Any, str]:
    """Run state, what the model was told, and the verb on record, for one way to settle a question."""
    model = scripted([[asking("c1", "x")], [{"text": "end"}]])
    async with serving(app_of(model, [ask])) as caller:
        started = await caller.generate()
        waiting, run_id = started.result.pending_calls[0], started.run.run_id
        if settle == "decline":
            await caller.decline(waiting)
        elif settle == "cancel":
            await caller.cancel(run_id)
        else:
            await caller.resume(waiting, json_pb2.Json(text=settle))
        told = told_results(model.requests[-1])[0][1] if len(model.requests) > 1 else None
        verb = chunk_pb2.DecisionVerb.Name((await caller.decisions())[0].verb)
        return await caller.state(run_id), told, verb


async def test_ways_not_to_answer_are_told_apart() -> None:
    """AQ-02: null, empty text, empty list, a decline and a cancellation are five outcomes."""
    outcomes = await asyncio.gather(*map(outcome_of_asking, ("null", '""', "[]", "decline", "cancel")))
    null, text, array, declined, cancelled = outcomes
    verbs = [verb for _, _, verb in outcomes]
    answered = "DECISION_VERB_RESUME"
    assert verbs == [answered] * 3 + ["DECISION_VERB_DECLINE", "DECISION_VERB_CANCEL"]
    assert [json.loads(told)["answer"] for _, told, _ in (null, text, array)] == [None, "", []]
    assert json.loads(declined[1])["status"] == "declined"
    assert cancelled == ("CANCELLED", None, "DECISION_VERB_CANCEL")
    assert [state for state, _, _ in outcomes[:4]] == ["SUCCEEDED"] * 4


async def test_only_a_suspension_parks() -> None:
    """SR-27: a tool that may suspend and returns instead is done: its value goes to the model."""

    @tool(resume_schema=Colour)
    async def pick(name: str, ctx: ToolContext[Colour]) -> dict[str, str]:
        if not name:
            return {"error": "no name"}
        if not ctx.resumed:
            ctx.suspend(name)
        return {"picked": ctx.resume_data.colour}

    calls = (
        [{"tool": "pick", "id": "bad", "args": {"name": ""}}],
        [{"tool": "pick", "id": "good", "args": {"name": "n"}}],
    )
    model = scripted([*calls, [{"text": "end"}]])
    async with serving(app_of(model, [pick])) as caller:
        parked = (await caller.generate()).result
        assert [c.tool_call_id for c in parked.pending_calls] == ["good"]
        assert told_results(model.requests[1]) == [("bad", '{"error":"no name"}')]
        await caller.resume(parked.pending_calls[0], {"colour": "red"})
        assert told_results(model.requests[2])[1] == ("good", '{"picked":"red"}')
        assert [i for i, _ in told_calls(model.requests[2])] == ["bad", "good"]
