"""Approval policies as data: who is asked, over suspensions and restarts, and what happens when a policy
cannot be had."""

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from entracte import Client, ToolApproval
from entracte._options_codec import to_options
from entracte_server import Agent, App, ApprovalPolicy, ApprovalRequest, Tool, Toolset, tool
from entracte_server.testing import scripted, serve
from tests.rpc.support import generate, peer_of
from tests.stores import default_store

entered: list[tuple[str, Any]] = []


@pytest.fixture(autouse=True)
def nothing_entered() -> None:
    entered.clear()


@tool
async def refund(cents: int, note: str = "") -> int:
    """Pays back."""
    entered.append(("refund", cents))
    return cents


@tool
async def wipe(path: str) -> str:
    """Deletes."""
    entered.append(("wipe", path))
    return path


@tool(requires_approval=True)
async def sign(what: str) -> str:
    """Signs."""
    entered.append(("sign", what))
    return what


def calling(*parts: dict[str, Any], steps: int = 1) -> Any:
    """A model that makes these calls in each of `steps` steps, then says something."""

    def play(request: Any) -> Sequence[dict[str, Any]]:
        done = sum(1 for message in request.messages if message.role == "tool")
        return parts if done < steps else [{"text": "done"}]

    return scripted(play)


def refunds(*cents: Any) -> list[dict[str, Any]]:
    return [{"tool": "refund", "args": {"cents": each}} for each in cents]


def large(request: ApprovalRequest) -> bool:
    return request.tool_name == "refund" and request.args["cents"] > request.request_context.get("limit", 100)


def app_of(
    *parts: dict[str, Any],
    steps: int = 1,
    policy: ApprovalPolicy | None = None,
    predicates: dict[str, Callable[[ApprovalRequest], bool]] | None = None,
    tools: Sequence[Tool] = (refund, wipe, sign),
) -> App:
    agent = Agent(
        id="agent", model=calling(*parts, steps=steps), tools=tools, require_tool_approval=policy or False
    )
    return App(agents=[agent], approval_predicates={"large": large} if predicates is None else predicates)


@asynccontextmanager
async def serving(app: App, **settings: Any) -> AsyncIterator[Client]:
    async with serve(app, **{**default_store(), **settings}) as server, Client(server.address) as client:
        yield client


async def asked(client: Client, **options: Any) -> list[Any]:
    """The arguments of the calls that a person is asked about."""
    result = await client.agent("agent").generate("go", **options)
    for call in result.pending_calls:
        assert call.kind == "approval"
    return [call.args for call in result.pending_calls]


WIPE = {"tool": "wipe", "args": {"path": "/etc"}}

RULES: dict[str, tuple[ToolApproval, list[Any]]] = {
    "by name": (ToolApproval(names=["wipe"]), [{"path": "/etc"}]),
    "by pattern": (ToolApproval(patterns=["ref*"]), [{"cents": 50}, {"cents": 5000}]),
    "by predicate": (ToolApproval(predicates=["large"]), [{"cents": 5000}]),
    "by expression": (ToolApproval(expressions={"refund": "args.cents > 100"}), [{"cents": 5000}]),
    "by two expressions": (
        ToolApproval(expressions={"refund": "args.cents > 100", "w*": "args.path.startsWith('/etc')"}),
        [{"cents": 5000}, {"path": "/etc"}],
    ),
    "by the tool's name in an expression": (
        ToolApproval(expressions={"*": "tool == 'wipe'"}),
        [{"path": "/etc"}],
    ),
    "by the caller's values": (ToolApproval(expressions={"*": "request_context.limit == 100"}), ["all"]),
    "an expression that fails": (
        ToolApproval(expressions={"*": "args.cents > 100"}),
        [{"cents": 5000}, {"path": "/etc"}],
    ),
    "an expression of another tool": (ToolApproval(expressions={"sign": "true"}), []),
}


@pytest.mark.parametrize("case", RULES)
async def test_who_is_asked(case: str) -> None:
    """By the caller and by the agent alike."""
    rules, expected = RULES[case]
    calls = [*refunds(50, 5000), WIPE]
    if expected == ["all"]:
        expected = [call["args"] for call in calls]
    context = {"limit": 100}
    async with serving(app_of(*calls)) as client:
        found = await asked(client, require_tool_approval=rules, request_context=context)
    by_caller = [(args.get("cents"), args.get("path")) for args in found]
    assert by_caller == [(args.get("cents"), args.get("path")) for args in expected]
    policy = ApprovalPolicy(
        names=rules.names, patterns=rules.patterns, predicates=rules.predicates, expressions=rules.expressions
    )
    async with serving(app_of(*calls, policy=policy)) as client:
        assert await asked(client, request_context=context) == found


async def test_the_demand_of_a_tool_is_a_floor() -> None:
    """No policy that says no lifts it, and neither does the caller."""
    nothing = ApprovalPolicy(expressions={"*": "false"}, predicates=["never"])
    app = app_of(
        {"tool": "sign", "args": {"what": "it"}}, policy=nothing, predicates={"never": lambda _: False}
    )
    async with serving(app) as client:
        for rules in (False, ToolApproval(expressions={"*": "false"})):
            assert await asked(client, require_tool_approval=rules) == [{"what": "it"}]
    assert entered == []


def _raises(_: ApprovalRequest) -> bool:
    raise SystemExit("no")


@pytest.mark.parametrize("predicate", [_raises, lambda request: request.args["no"]], ids=["exits", "fails"])
async def test_a_predicate_that_fails_asks(predicate: Any) -> None:
    async with serving(app_of(*refunds(1), predicates={"large": predicate})) as client:
        assert len(await asked(client, require_tool_approval=ToolApproval(predicates=["large"]))) == 1


async def test_arguments_too_large_to_judge_ask() -> None:
    calls = [{"tool": "refund", "args": {"cents": 1, "note": "x" * 20_000}}]
    async with serving(app_of(*calls)) as client:
        assert (
            len(await asked(client, require_tool_approval=ToolApproval(expressions={"*": "args.cents > 2"})))
            == 1
        )


HOLDING = {
    "names": ToolApproval(names=["refund"]),
    "predicates": ToolApproval(predicates=["large"]),
    "expressions": ToolApproval(expressions={"refund": "args.cents > 100 && request_context.limit == 100"}),
}


@pytest.mark.usefixtures("each_store")
@pytest.mark.parametrize("case", HOLDING)
async def test_a_policy_holds_over_suspension_and_restart(case: str, tmp_path: Path) -> None:
    """The second step is asked about as the first was, in another process."""
    store = default_store().get("store") or str(tmp_path / "db")
    calls = refunds(5000, 7) if case != "names" else refunds(5000)
    async with serving(app_of(*calls, steps=2), store=store) as client:
        options: Any = {"require_tool_approval": HOLDING[case], "request_context": {"limit": 100}}
        result = await client.agent("agent").generate("go", **options)
        [call] = result.pending_calls
    async with serving(app_of(*calls, steps=2), store=store) as client:
        result = await client.agent("agent").approve(call)
        [call] = result.pending_calls
        assert call.args["cents"] == 5000
    async with serving(app_of(*calls, steps=2), store=store) as client:
        result = await client.agent("agent").approve(call)
        assert result.text == "done"
    assert sorted(entered) == sorted([("refund", part["args"]["cents"]) for part in calls] * 2)


@pytest.mark.usefixtures("each_store")
async def test_a_predicate_that_is_not_registered_any_more_asks(tmp_path: Path) -> None:
    store = default_store().get("store") or str(tmp_path / "db")
    never = {"careful": lambda _: False}
    first = [{"tool": "sign", "args": {"what": "it"}}]
    app = app_of(*first, *refunds(1), steps=2, predicates=never)
    async with serving(app, store=store) as client:
        options: Any = {"require_tool_approval": ToolApproval(predicates=["careful"])}
        result = await client.agent("agent").generate("go", **options)
        [call] = result.pending_calls
        assert call.tool_name == "sign"
    async with serving(app_of(*first, *refunds(1), steps=2, predicates={}), store=store) as client:
        result = await client.agent("agent").approve(call)
        assert [call.tool_name for call in result.pending_calls] == ["sign", "refund"]
    assert entered == [("refund", 1), ("sign", "it")]


# ---- what is refused ----

FIELD = "options.require_tool_approval.rules"
WRONG = {
    "no such predicate": (
        ToolApproval(predicates=["large", "larg"]),
        f"{FIELD}.predicates[1]",
        "there is no predicate 'larg'; there are: large",
    ),
    "no such toolset": (
        ToolApproval(toolsets=["files"]),
        f"{FIELD}.toolsets[0]",
        "there is no toolset 'files'; no toolset is registered",
    ),
    "no condition": (
        ToolApproval(expressions={"a": "true", "b": "args.x >"}),
        f"{FIELD}.expressions[1].expression",
        "at character 9: mismatched input '<EOF>'",
    ),
    "too many": (
        ToolApproval(expressions={str(n): "true" for n in range(17)}),
        f"{FIELD}.expressions",
        "at most 16",
    ),
    "too many names": (ToolApproval(names=["a"] * 257), f"{FIELD}.names", "at most 256"),
    "too many predicates": (ToolApproval(predicates=["large"] * 257), f"{FIELD}.predicates", "at most 256"),
    "too many patterns": (ToolApproval(patterns=["a*"] * 257), f"{FIELD}.patterns", "at most 256"),
    "patterns too long together": (
        ToolApproval(patterns=["*[ab]" * 400], expressions={"*[ab]" * 401: "true"}),
        f"{FIELD}.patterns",
        "at most 4000 characters together, with those of expressions",
    ),
    "too long together": (
        ToolApproval(expressions={str(n): "true" + " " * 900 for n in range(5)}),
        f"{FIELD}.expressions",
        "at most 4000 characters together",
    ),
}


async def test_what_is_refused() -> None:
    """Before the run exists, with the field and what there is."""
    async with serve(app_of(*refunds(1))) as server, peer_of(server.address) as peer:
        for case, (rules, field, words) in WRONG.items():
            options = to_options({"require_tool_approval": rules})
            request = generate("agent", require_tool_approval=options.require_tool_approval)
            refusal = await peer.refuse("Generate", request)
            assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "REQUEST_INVALID"), case
            assert refusal.violations == {field: words}, case


async def _coroutine(_: ApprovalRequest) -> bool:
    return False


REFUSED_HERE: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: ApprovalPolicy(expressions={"x": "nope"}),
        "expressions: 'x': at character 1: undeclared reference to 'nope'",
    ),
    (lambda: ApprovalPolicy(names="refund"), "names: give a list of names, not the text 'refund'"),
    (
        lambda: app_of(policy=ApprovalPolicy(predicates=["p"])),
        "agent agent: there is no approval predicate 'p'; registered are: large",
    ),
    (
        lambda: app_of(policy=ApprovalPolicy(toolsets=["t"])),
        "agent agent: there is no toolset 't'; none is registered",
    ),
    (lambda: app_of(predicates={"p": _coroutine}), "'p' must be a plain function"),  # type: ignore[dict-item]
    (lambda: app_of(predicates={"": large}), "a predicate needs a name"),
    (lambda: Toolset("a b", tools=[]), "toolset name 'a b'"),
]


@pytest.mark.parametrize(("make", "words"), REFUSED_HERE, ids=[words for _, words in REFUSED_HERE])
def test_what_authors_cannot_make(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        make()
