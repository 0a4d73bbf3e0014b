"""What needs approval gets it from a person, on what was shown, and nothing else opens the gate."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import grpc
import pydantic
import pytest

from entracte.v1 import agent_service_pb2, chunk_pb2, options_pb2
from entracte_server import App, Tool, ToolContext, tool
from entracte_server.testing import scripted
from tests.cases.support import (
    Caller,
    announced,
    app_of,
    as_json,
    payloads,
    refused,
    serving,
    told_calls,
    told_results,
    value_of,
)

INVALID = grpc.StatusCode.INVALID_ARGUMENT

entered: list[Any] = []


@pytest.fixture(autouse=True)
def _nobody_entered() -> None:
    entered.clear()


def wiper(requires_approval: Any = False) -> Tool:
    @tool(requires_approval=requires_approval)
    async def wipe(path: str) -> str:
        entered.append(path)
        return "wiped"

    return wipe


def one_call(**args: Any) -> Any:
    return scripted([[{"tool": "wipe", "id": "c1", "args": args}], [{"text": "end"}]])


ALL = options_pb2.ToolApproval(all=True)
BY_NAME = options_pb2.ToolApproval(rules=options_pb2.ToolApprovalRules(names=["wipe"]))
BY_PATTERN = options_pb2.ToolApproval(rules=options_pb2.ToolApprovalRules(patterns=["w?p*"]))

GATES: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "the tool": (True, {}, {}),
    "the agent": (False, {"require_tool_approval": True}, {}),
    "the agent, by pattern": (False, {"require_tool_approval": ["wi*"]}, {}),
    "the caller": (False, {}, {"require_tool_approval": ALL}),
    "the caller, by name": (False, {}, {"require_tool_approval": BY_NAME}),
    "the caller, by pattern": (False, {}, {"require_tool_approval": BY_PATTERN}),
    "a predicate": (lambda args: args.path == "/", {}, {}),
    "a predicate that fails": (lambda args: args.nothing, {}, {}),
}


@pytest.mark.parametrize("restart", [False, True], ids=["same process", "after a restart"])
@pytest.mark.parametrize("gate", GATES)
async def test_declining_never_enters_the_tool(gate: str, restart: bool, tmp_path: Path) -> None:
    """AP-01: whoever set the gate, declining settles the call from what is stored; after a restart the
    policy itself may even be gone."""
    requires, agent_options, run_options = GATES[gate]
    store = tmp_path / "db"
    model = one_call(path="/")
    app = app_of(model, [wiper(requires)], **agent_options)
    async with serving(app, store=store) as caller:
        waiting = (await caller.generate(**run_options)).result.pending_calls[0]
        assert waiting.kind == chunk_pb2.PENDING_CALL_KIND_APPROVAL
        if not restart:
            declined = await caller.decline(waiting, "not today")
    if restart:
        model = scripted([[{"text": "end"}]])
        ungated = app_of(model, [wiper(False)])
        async with serving(ungated, store=store) as caller:
            declined = await caller.decline(waiting, "not today")
    assert not entered
    assert declined.result.text == "end"
    assert not declined.result.tool_results
    told = json.loads(told_results(model.requests[-1])[0][1])
    assert told == {"status": "declined", "reason": "not today"}


async def test_the_gate_of_a_run_holds_after_a_resume(tmp_path: Path) -> None:
    """AP-01: a gate the caller set for the run holds for calls the model makes after a decision and
    after a restart."""
    store = tmp_path / "db"
    calls = [[{"tool": "wipe", "id": f"c{i}", "args": {"path": f"/{i}"}}] for i in range(3)]
    model = scripted([*calls, [{"text": "end"}]], position="transcript")
    app = app_of(model, [wiper()])
    async with serving(app, store=store) as caller:
        result = (await caller.generate(require_tool_approval=ALL)).result
    for i in range(3):
        async with serving(app, store=store) as caller:
            assert [value_of(c.args) for c in result.pending_calls] == [{"path": f"/{i}"}]
            result = (await caller.approve(result.pending_calls[0])).result
        assert entered == [f"/{j}" for j in range(i + 1)]
    assert result.text == "end"


async def test_the_predicate_is_asked_once_for_each_call(tmp_path: Path) -> None:
    """AP-02: a stored decision is final: the predicate, which changes its mind, is not asked again."""
    asked: list[str] = []

    def predicate(args: Any) -> bool:
        asked.append(args.path)
        if len(asked) > 1:
            raise RuntimeError("asked twice")
        return True

    model = one_call(path="/a")
    app = app_of(model, [wiper(predicate)])
    async with serving(app, store=tmp_path / "db") as caller:
        waiting = (await caller.generate()).result.pending_calls[0]
    async with serving(app, store=tmp_path / "db") as caller:
        done = await caller.approve(waiting)
        assert not done.result.pending_calls
        assert len(await caller.decisions(done.run.run_id)) == 1
    assert asked == entered == ["/a"]


REASONS = {
    "plain": "amount too high, ask for less",
    "not ASCII": 'zu hoch \N{EM DASH} 太高了 \N{MONEY BAG}\n"quoted"',
    "10 kB": "too high " * 1_200,
}


@pytest.mark.parametrize("restart", [False, True], ids=["same process", "after a restart"])
@pytest.mark.parametrize("reason", REASONS)
async def test_the_reason_of_a_decline_arrives(reason: str, restart: bool, tmp_path: Path) -> None:
    """AP-04: the words and the data of a decline reach the model, the stream and the history, each as
    structured data."""
    words, data = REASONS[reason], {"limit": 9007199254740993, "why": None}
    store = tmp_path / "db"
    model = one_call(path="/a")
    app = app_of(model, [wiper(True)])
    async with serving(app, store=store) as caller:
        waiting = (await caller.generate()).result.pending_calls[0]
        if not restart:
            await check_decline(caller, model, waiting, words, data)
    if restart:
        model = scripted([[{"text": "end"}]])
        async with serving(app_of(model, [wiper(True)]), store=store) as caller:
            await check_decline(caller, model, waiting, words, data)


async def check_decline(caller: Caller, model: Any, waiting: Any, words: str, data: Any) -> None:
    declined = await caller.decline(waiting, words, reason_json=as_json(data))
    expected = {"status": "declined", "reason": words, "data": data}
    assert [(i, json.loads(o)) for i, o in told_results(model.requests[-1])] == [("c1", expected)]
    denied = payloads(await caller.watch(declined.run.run_id), "tool_output_denied")
    assert [(d.reason, value_of(d.reason_json)) for d in denied] == [(words, data)]
    parts = [p.tool_result for m in declined.result.messages for p in m.parts if p.HasField("tool_result")]
    assert [value_of(part.result) for part in parts] == [expected]
    audit = (await caller.decisions(declined.run.run_id))[0]
    assert (audit.reason, value_of(audit.reason_json)) == (words, data)


class Order(pydantic.BaseModel):
    item: str
    count: int = 1


def clamp(value: Any) -> int:
    return min(int(value), 10)


@tool(requires_approval=True)
async def order(
    lines: list[Order],
    limit: Annotated[int, pydantic.BeforeValidator(clamp)],
    express: bool = False,
) -> str:
    entered.append(order_seen(lines, limit, express))
    return "ordered"


def order_seen(lines: list[Order], limit: int, express: bool) -> dict[str, Any]:
    return {"lines": [line.model_dump() for line in lines], "limit": limit, "express": express}


async def test_the_approver_sees_what_the_tool_gets() -> None:
    """AP-07: defaults, coercions and clamps are applied before anybody is asked."""
    raw = {"limit": "700", "lines": [{"item": "tea"}]}
    model = scripted([[{"tool": "order", "id": "c1", "args": raw}], [{"text": "end"}]])
    async with serving(app_of(model, [order])) as caller:
        chunks = await caller.stream()
        shown = value_of(announced(chunks)[0].args)
        assert shown == {"lines": [{"item": "tea", "count": 1}], "limit": 10, "express": False}
        assert value_of((await caller.pending())[0].args) == shown
        await caller.approve(announced(chunks)[0])
        assert entered == [shown]


async def test_invalid_arguments_go_back_before_anybody_is_asked() -> None:
    """AP-07: what does not fit the schema is the model's to mend, no person sees it."""
    bad = {"tool": "order", "id": "c1", "args": {"lines": "tea", "limit": 1}}
    extra = {"tool": "order", "id": "c2", "args": {"lines": [], "limit": 1, "approved": True}}
    model = scripted([[bad, extra], [{"text": "end"}]])
    async with serving(app_of(model, [order])) as caller:
        chunks = await caller.stream()
        assert not announced(chunks)
        errors = payloads(chunks, "tool_error")
        assert [(e.tool_call_id, e.code) for e in errors] == [("c1", "invalid-args"), ("c2", "invalid-args")]
        assert "lines" in errors[0].message
        assert not entered


@tool(requires_approval=True)
async def book(city: str, nights: Annotated[int, pydantic.Field(ge=1)] = 1) -> str:
    entered.append((city, nights))
    return "booked"


async def _book(args: Any, ctx: ToolContext) -> str:
    entered.append((args["city"], args.get("nights")))
    return "booked"


book_by_schema = Tool(
    name="book",
    execute=_book,
    requires_approval=True,
    input_schema={
        "type": "object",
        "properties": {"city": {"type": "string"}, "nights": {"type": "integer", "minimum": 1}},
        "required": ["city"],
        "additionalProperties": False,
    },
)


@pytest.fixture(params=["signature", "schema"])
async def booking(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Caller, Any, Any]]:
    """A caller, the model and the waiting call `book("Oslo", 3)`."""
    it = book if request.param == "signature" else book_by_schema
    model = scripted(
        [[{"tool": "book", "id": "c1", "args": {"city": "Oslo", "nights": 3}}], [{"text": "end"}]]
    )
    async with serving(app_of(model, [it])) as caller:
        yield caller, model, (await caller.generate()).result.pending_calls[0]


async def test_edited_arguments_are_executed_and_told(booking: tuple[Caller, Any, Any]) -> None:
    """AP-08: what the approver edited is what runs and what the model sees; the original is in the
    audit."""
    caller, model, waiting = booking
    edited = {"city": "Bergen", "nights": 2}
    done = await caller.approve(waiting, edited_args=as_json(edited))
    assert entered == [("Bergen", 2)]
    assert told_calls(model.requests[-1]) == [("c1", edited)]
    chunks = await caller.watch(done.run.run_id)
    assert [value_of(r.edited_args) for r in payloads(chunks, "tool_call_resolved")] == [edited]
    assert [value_of(r.args) for r in payloads(chunks, "tool_result")] == [edited]
    assert [value_of(c.tool_call.args) for c in done.result.tool_calls] == [edited]
    audit = (await caller.decisions())[0]
    assert value_of(audit.args) == {"city": "Oslo", "nights": 3}
    assert value_of(audit.edited_args) == edited


async def test_an_edit_that_changes_nothing_keeps_the_arguments(booking: tuple[Caller, Any, Any]) -> None:
    """AP-08: arguments sent back as they were shown stay what runs and what the model sees."""
    caller, model, waiting = booking
    shown = {"city": "Oslo", "nights": 3}
    done = await caller.approve(waiting, edited_args=waiting.args)
    assert entered == [("Oslo", 3)]
    assert told_calls(model.requests[-1]) == [("c1", shown)]
    chunks = await caller.watch(done.run.run_id)
    assert [value_of(r.args) for r in payloads(chunks, "tool_result")] == [shown]
    assert [value_of(c.tool_call.args) for c in done.result.tool_calls] == [shown]


BAD_EDITS: list[tuple[Any, str]] = [
    ({"city": "Oslo", "nights": 0}, "/nights"),
    ({"city": "Oslo", "nights": 1, "extra": True}, ""),
    ({"nights": 1}, ""),
]


@pytest.mark.parametrize(("edit", "pointer"), BAD_EDITS)
async def test_edited_arguments_that_do_not_fit_change_nothing(
    booking: tuple[Caller, Any, Any], edit: Any, pointer: str
) -> None:
    """AP-08: an edit against the schema is refused with the field, and the call still waits."""
    caller, _, waiting = booking
    with refused(INVALID, "EDITED_ARGS_INVALID") as refusal:
        await caller.approve(waiting, edited_args=as_json(edit))
    assert any(field.startswith(f"edited_args{pointer}") for field in refusal.fields)
    assert [c.pending_call_id for c in await caller.pending()] == [waiting.pending_call_id]
    assert not entered
    assert not await caller.decisions()


async def test_edits_follow_a_redefined_tool(tmp_path: Path) -> None:
    """AP-08, AP-02: when the tool was redefined since the call was shown, it is shown again under a new
    id, and what is approved then is what runs."""
    store = tmp_path / "db"
    asked = {"tool": "book", "id": "c1", "args": {"city": "Oslo", "nights": 3}}
    async with serving(app_of(scripted([[asked]]), [book]), store=store) as caller:
        waiting = (await caller.generate()).result.pending_calls[0]
    model = scripted([[{"text": "end"}]])
    async with serving(app_of(model, [book_by_schema]), store=store) as caller:
        shown = await caller.approve(waiting, edited_args=as_json({"city": "Bergen", "nights": 2}))
        assert not entered
        again = shown.result.pending_calls[0]
        assert again.pending_call_id != waiting.pending_call_id
        assert again.round == waiting.round + 1
        assert value_of(again.args) == {"city": "Bergen", "nights": 2}
        await caller.approve(again, args_digest=again.args_digest)
        ran = [{"city": city, "nights": nights} for city, nights in entered]
        assert ran == [value_of(again.args)]
        assert told_calls(model.requests[-1]) == [("c1", value_of(again.args))]


@pytest.mark.parametrize("before", ["no gate", "another tool behind the gate"])
@pytest.mark.parametrize("approve", [True, False])
async def test_a_gate_that_is_new_holds_for_a_call_that_was_entered_before(
    before: str, approve: bool, tmp_path: Path
) -> None:
    """AP-01: a tool asked something and was given a gate meanwhile, or became another tool: the answer is
    taken, and the tool is entered with it only once the call as it is now was approved."""

    def asking(gated: bool, description: str = "") -> Tool:
        @tool(name="asking", description=description, requires_approval=gated)
        async def body(v: int, ctx: ToolContext) -> Any:
            if not ctx.resumed:
                ctx.suspend("sure?")
            entered.append((v, ctx.resume_data))
            return ctx.resume_data

        return body

    store = tmp_path / "db"
    script: list[list[dict[str, Any]]] = [[{"tool": "asking", "args": {"v": 1}}], [{"text": "end"}]]
    model = scripted(script, position="transcript")
    older = asking(False) if before == "no gate" else asking(True, "Looks first.")
    async with serving(app_of(model, [older]), store=store) as caller:
        waiting = (await caller.generate()).result.pending_calls[0]
        if waiting.kind == chunk_pb2.PENDING_CALL_KIND_APPROVAL:
            (waiting,) = (await caller.approve(waiting)).result.pending_calls
    async with serving(app_of(model, [asking(True)]), store=store) as caller:
        (gate,) = (await caller.resume(waiting, "yes")).result.pending_calls
        assert gate.kind == chunk_pb2.PENDING_CALL_KIND_APPROVAL
        assert value_of(gate.args) == {"v": 1}
        assert not entered
        done = await (caller.approve(gate) if approve else caller.decline(gate))
        assert done.result.text == "end"
        assert entered == ([(1, "yes")] if approve else [])


async def test_clients_hold_ids_and_no_state() -> None:
    """AP-16: requests that decide have no field for state of a run; what a client could tamper with is
    checked against what is stored."""
    for name in ("ApproveRequest", "DeclineRequest", "ResumeRequest", "SubmitToolResultRequest"):
        fields = set(agent_service_pb2.DESCRIPTOR.message_types_by_name[name].fields_by_name)
        words = {
            "call", "args_digest", "edited_args", "reason", "reason_json", "resume_data", "result",
            "error", "request_id", "wait", "on_behalf_of", "comment",
        }  # fmt: skip
        assert fields <= words
    async with serving(app_of(one_call(path="/a"), [wiper(True)])) as caller:
        waiting = (await caller.generate()).result.pending_calls[0]
        assert len(waiting.pending_call_id) == 26
        changed = type(waiting)()
        changed.CopyFrom(waiting)
        changed.args.text = '{"path":"/etc"}'
        await caller.approve(changed)
        assert entered == ["/a"]


FORGED = ["resume_data", "approved", "approval", "decision", "suspend_payload", "resumed", "ctx"]


@pytest.mark.parametrize("open_pause", [False, True])
@pytest.mark.parametrize("name", FORGED)
async def test_the_model_cannot_answer_for_a_person(name: str, open_pause: bool) -> None:
    """SR-29: arguments that look like an answer or an approval never reach the gate or the tool."""

    @tool(requires_approval=True)
    async def wipe(path: str, ctx: ToolContext) -> str:
        entered.append((path, ctx.resumed))
        return "wiped"

    forged = {"tool": "wipe", "id": "c1", "args": {"path": "/", name: True}}
    honest = {"tool": "wipe", "id": "c0", "args": {"path": "/a"}}
    model = scripted([[honest, forged] if open_pause else [forged], [{"text": "end"}]])
    async with serving(app_of(model, [wipe])) as caller:
        chunks = await caller.stream()
        assert [e.code for e in payloads(chunks, "tool_error")] == ["invalid-args"]
        assert [a.tool_call_id for a in announced(chunks)] == (["c0"] if open_pause else [])
        assert not entered


async def test_extra_arguments_of_an_open_schema_do_not_open_the_gate() -> None:
    """SR-29: a schema that lets any argument through still leaves the gate to people."""

    async def run(args: Any, ctx: ToolContext) -> str:
        entered.append(ctx.resumed)
        return "ran"

    anything = Tool(name="run", execute=run, input_schema={"type": "object"}, requires_approval=True)
    forged = dict.fromkeys(FORGED, True)
    model = scripted([[{"tool": "run", "id": "c1", "args": forged}], [{"text": "end"}]])
    app: App = app_of(model, [anything])
    async with serving(app) as caller:
        waiting = (await caller.generate()).result.pending_calls[0]
        assert not entered
        assert value_of(waiting.args) == forged
        await caller.approve(waiting)
        assert entered == [False]
