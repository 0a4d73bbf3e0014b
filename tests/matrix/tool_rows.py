"""Options of tools, their approval, and what they are given."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from entracte import ToolApproval
from entracte_server import (
    Agent,
    ApprovalRequest,
    Delegation,
    DelegationInfo,
    Hook,
    Skip,
    ToolCallDone,
    ToolCallInfo,
    ToolContext,
    Toolset,
    tool,
)
from entracte_server.testing import scripted
from tests.matrix.course import MODEL, Course, World
from tests.matrix.prompt_rows import constant
from tests.matrix.row import Row, Seen

# ---- which tools there are ----


def _call_extra(course: Course) -> None:
    course.call("second", "extra", "cx")


def _active(course: Course) -> Mapping[str, Any]:
    return {"active_tools": sorted(course.tools - {"extra"})}


def _only_active(seen: Seen) -> None:
    active = _active(seen.course)["active_tools"]
    for names in seen.tools(since=1):
        assert sorted(names) == active
    assert "cx" not in seen.entered()


def _call_kit(course: Course) -> None:
    course.call("plain", "kit__look", "k1")
    course.call("second", "kit__look", "k2")


def _kit(world: World) -> Mapping[str, Any]:
    @tool
    async def look(id: str, ctx: ToolContext) -> str:
        """Of a toolset."""
        world.note("entered", (id, dict(ctx.request_context)))
        return f"look {id}"

    return {"toolsets": [Toolset("kit", tools=[look])]}


def _kit_is_there(seen: Seen) -> None:
    assert all("kit__look" in names for names in seen.tools(since=1))
    assert [seen.outcome(call_id) for call_id in ("k1", "k2")] == ["look k1", "look k2"]
    assert {"k1", "k2"} <= seen.entered(since=1).keys()


CLIENT_TOOL = {
    "name": "outside",
    "description": "Runs at the caller.",
    "input_schema": {"type": "object", "properties": {"id": {"type": "string"}}},
}
FROM_CLIENT = {"from": "client"}
"""What the caller gives for calls of its own tool."""


def _call_outside(course: Course) -> None:
    course.call("plain", "outside", "o1")
    course.call("second", "outside", "o2")


def _outside(seen: Seen) -> None:
    for request in seen.requests(since=1):
        [spec] = [spec for spec in request.tools if spec.name == "outside"]
        assert (spec.description, '"id"' in spec.input_schema) == ("Runs at the caller.", True)
    for call_id in ("o1", "o2"):
        assert seen.pending[call_id].kind == "client-tool"
        assert seen.outcome(call_id) == FROM_CLIENT


def _call_busy(course: Course) -> None:
    for step in ("plain", "second"):
        for number in (1, 2):
            course.call(step, "busy", f"{step}-b{number}")


def _one_by_one(seen: Seen) -> None:
    assert seen.world.of("busy", since=1) == [1, 1, 1, 1]


# ---- who is asked ----


def _plain_waits(seen: Seen) -> None:
    assert seen.pending["c2"].kind == "approval"
    assert seen.answered["c2"] > seen.answered["c1"]
    assert "c2" in seen.entered(since=2)
    assert seen.outcome("c2") == "plain c2"


def _everything_waits(seen: Seen) -> None:
    _plain_waits(seen)
    own = {call_id for call_id, _ in seen.world.of("entered")}
    assert own <= seen.pending.keys()


def _kit_waits(seen: Seen) -> None:
    assert {seen.pending[call_id].kind for call_id in ("k1", "k2")} == {"approval"}
    assert {"k1", "k2"} <= seen.entered(since=2).keys()
    assert "c2" not in seen.pending


def _predicates(world: World) -> Mapping[str, Any]:
    def is_second(request: ApprovalRequest) -> bool:
        return bool(request.args.get("id") == "c2")

    return {"approval_predicates": {"is-second": is_second}}


def _approval(**rules: Any) -> Any:
    return constant(require_tool_approval=ToolApproval(**rules))


def _kit_approval(_: Course) -> Mapping[str, Any]:
    return {"toolsets": ["kit"], "require_tool_approval": ToolApproval(toolsets=["kit"])}


DAY = timedelta(days=1)


def _expires(seen: Seen) -> None:
    assert {"c1", "c3"} <= seen.pending.keys()
    for call in seen.pending.values():
        assert call.create_time is not None
        assert call.expire_time is not None
        assert call.expire_time - call.create_time == DAY
        assert call.on_expiry == "fail"


# ---- around and within calls ----


def _around(world: World) -> Mapping[str, Any]:
    def before(info: ToolCallInfo) -> Skip | None:
        world.note("before", info.tool_call_id)
        return Skip({"skipped": True}) if info.tool_call_id == "c3" else None

    def after(info: ToolCallDone) -> None:
        world.note("after", info.use.tool_call_id)

    return {
        "hooks": [
            Hook(kind="before_tool_call", name="before", function=before),
            Hook(kind="after_tool_call", name="after", function=after),
        ]
    }


def _delegate(course: Course) -> None:
    course.tools.add("agent-aide")
    course.steps["second"].append({"tool": "agent-aide", "id": "cd", "args": {"prompt": "help"}})


def _aide(_: World) -> Mapping[str, Any]:
    return {"agents": [Agent(id="aide", model=scripted([[{"text": "helped"}]], name=MODEL))]}


def _rejecting(world: World) -> Mapping[str, Any]:
    def start(info: DelegationInfo) -> Delegation:
        world.note("start", info.prompt)
        return Delegation(reject="not now")

    return {"hooks": [Hook(kind="delegation_start", name="start", function=start)]}


def _not_delegated(seen: Seen) -> None:
    assert seen.world.of("start", since=1) == ["help"]
    assert seen.outcome("cd") == "[Delegation Rejected] not now"


def _hooked(seen: Seen) -> None:
    """Before a call that was approved in the server that makes it; and what is skipped is not made."""
    for kind in ("before", "after"):
        assert {"c1", "c2"} <= set(seen.world.of(kind, since=1))
    assert "c3" in seen.world.of("before", since=2)
    assert "c3" not in seen.world.of("after")
    assert "c3" not in seen.entered()
    assert seen.outcome("c3") == {"skipped": True}


CONTEXT = {"who": "ada", "deep": {"n": [1, None]}}


def _request_context(seen: Seen) -> None:
    entered = seen.entered(since=1)
    assert {"c1", "c2"} <= entered.keys()
    assert all(context == CONTEXT for context in entered.values())


ROWS = [
    Row("active_tools", _only_active, _active, course=_call_extra),
    Row("toolsets", _kit_is_there, constant(toolsets=["kit"]), course=_call_kit, app=_kit),
    Row("client_tools", _outside, constant(client_tools=[CLIENT_TOOL]), course=_call_outside),
    Row("tool_call_concurrency", _one_by_one, constant(tool_call_concurrency=1), course=_call_busy),
    Row("require_tool_approval:all", _everything_waits, constant(require_tool_approval=True)),
    Row("require_tool_approval:names", _plain_waits, _approval(names=["plain"])),
    Row("require_tool_approval:patterns", _plain_waits, _approval(patterns=["pl?in"])),
    Row("require_tool_approval:toolsets", _kit_waits, _kit_approval, course=_call_kit, app=_kit),
    Row(
        "require_tool_approval:predicates",
        _plain_waits,
        _approval(predicates=["is-second"]),
        app=_predicates,
    ),
    Row(
        "require_tool_approval:expressions",
        _plain_waits,
        _approval(expressions={"pl*": "args.id == 'c2'"}),
    ),
    Row(
        "pending_call_expiry",
        _expires,
        constant(pending_call_expiry={"after": DAY, "action": "fail"}),
    ),
    Row(
        "hooks",
        _hooked,
        constant(hooks={"before_tool_call": "before", "after_tool_call": "after"}),
        app=_around,
    ),
    Row(
        "delegation",
        _not_delegated,
        constant(delegation={"on_delegation_start": "start"}),
        course=_delegate,
        agent=_aide,
        app=_rejecting,
    ),
    Row("request_context", _request_context, constant(request_context=CONTEXT)),
]
