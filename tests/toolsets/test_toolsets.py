"""Toolsets: chosen by agents and by callers, by names the model can use, over restarts."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from entracte import AgentUnavailable, Client, ClientTool, InvalidArgument, ToolApproval
from entracte_server import Agent, App, ApprovalPolicy, DefaultAnswer, Tool, ToolContext, Toolset, tool
from entracte_server.testing import scripted, serve
from tests.stores import default_store


@tool(requires_approval=True)
async def refund(cents: int) -> int:
    """Pays back."""
    return cents


@tool
async def look(what: str) -> str:
    """Looks."""
    return what.upper()


@tool(resume_schema={"type": "boolean"})
async def confirm(ctx: ToolContext[bool]) -> bool:
    """Asks."""
    if not ctx.resumed:
        ctx.suspend({"sure": True})
    return ctx.resume_data


def calling(name: str, args: dict[str, Any]) -> Any:
    def play(request: Any) -> Sequence[dict[str, Any]]:
        if any(message.role == "tool" for message in request.messages):
            return [{"text": "done"}]
        return [{"tool": name, "args": args}]

    return scripted(play)


BILLING = Toolset("billing", tools=[refund, look, confirm])
SHOP = Toolset("shop", tools={"find": look})


def app_of(
    model: Any, *, toolsets: Sequence[Toolset] = (BILLING, SHOP), tools: Sequence[Tool] = (), **settings: Any
) -> App:
    return App(agents=[Agent(id="agent", model=model, tools=tools, **settings)], toolsets=toolsets)


async def test_the_tools_of_an_agent_and_of_a_run() -> None:
    """Offered to the model under qualified names, and called by them; without the option, those of the
    agent alone."""
    model = calling("shop__find", {"what": "teapot"})
    app = app_of(model, tools=[look], toolsets=[BILLING, SHOP])
    async with serve(app) as server, Client(server.address) as client:
        agent = client.agent("agent")
        result = await agent.generate("go", toolsets=["shop", "shop"])
        assert [item.result for item in result.tool_results] == ["TEAPOT"]
        assert result.text == "done"
        assert [spec.name for spec in model.requests[0].tools] == ["look", "shop__find"]
        assert model.requests[0].tools[1].description == "Looks."
        result = await agent.generate("go")
        [told] = model.requests[-1].messages[-1].parts
        assert told.output == "There is no tool 'shop__find'. Available tools: look."
        assert [spec.name for spec in model.requests[-1].tools] == ["look"]
    model = calling("shop__find", {"what": "teapot"})
    async with serve(app_of(model, toolsets=[BILLING, SHOP])) as server, Client(server.address) as client:
        result = await client.agent("agent").generate("go", toolsets=["shop", "billing"])
        names = ["shop__find", "billing__refund", "billing__look", "billing__confirm"]
        assert [spec.name for spec in model.requests[0].tools] == names
        active: Any = {"toolsets": ["shop", "billing"], "active_tools": ["billing__look"]}
        await client.agent("agent").generate("go", **active, tool_choice={"tool": "billing__look"})
        assert [spec.name for spec in model.requests[-1].tools] == ["billing__look"]


@pytest.mark.usefixtures("each_store")
@pytest.mark.parametrize("by", ["the agent", "the caller"])
async def test_a_gated_tool_of_a_toolset_over_a_restart(by: str, tmp_path: Path) -> None:
    store = default_store().get("store") or str(tmp_path / "db")

    def app() -> App:
        settings: Any = {"toolsets": ["billing"]} if by == "the agent" else {}
        agent = Agent(id="agent", model=calling("billing__refund", {"cents": 7}), **settings)
        return App(agents=[agent], toolsets=[BILLING])

    options: Any = {} if by == "the agent" else {"toolsets": ["billing"]}
    async with serve(app(), store=store) as server, Client(server.address) as client:
        [call] = (await client.agent("agent").generate("go", **options)).pending_calls
        assert (call.tool_name, call.args, call.tool_description) == (
            "billing__refund",
            {"cents": 7},
            "Pays back.",
        )
    async with serve(app(), store=store) as server, Client(server.address) as client:
        result = await client.agent("agent").approve(call, edited_args={"cents": 5})
        assert [item.result for item in result.tool_results] == [5]
        assert result.text == "done"


async def test_a_tool_of_a_toolset_that_asks(tmp_path: Path) -> None:
    """The answer is checked against its schema, though the agent itself has no such tool."""
    store = str(tmp_path / "db")
    async with (
        serve(app_of(calling("billing__confirm", {})), store=store) as server,
        Client(server.address) as client,
    ):
        [call] = (await client.agent("agent").generate("go", toolsets=["billing"])).pending_calls
    async with (
        serve(app_of(calling("billing__confirm", {})), store=store) as server,
        Client(server.address) as client,
    ):
        with pytest.raises(InvalidArgument, match="resume_data"):
            await client.agent("agent").resume(call, "perhaps")
        result = await client.agent("agent").resume(call, True)
        assert [item.result for item in result.tool_results] == [True]


@pytest.mark.usefixtures("each_store")
async def test_a_run_whose_toolset_is_not_registered_stays_parked(tmp_path: Path) -> None:
    """As one whose agent is not; a process that has the toolset goes on with it."""
    store = default_store().get("store") or str(tmp_path / "db")
    model = calling("look", {"what": "a"})
    gated = app_of(model, tools=[look], require_tool_approval=True)
    async with serve(gated, store=store) as server, Client(server.address) as client:
        [call] = (await client.agent("agent").generate("go", toolsets=["shop"])).pending_calls
    without = app_of(model, tools=[look], toolsets=[BILLING], require_tool_approval=True)
    async with serve(without, store=store) as server, Client(server.address) as client:
        with pytest.raises(AgentUnavailable, match="the toolset shop, which is not registered here"):
            await client.agent("agent").approve(call)
        assert (await client.runs.get(call.run_id)).state == "suspended"
    async with serve(gated, store=store) as server, Client(server.address) as client:
        assert (await client.agent("agent").approve(call)).text == "done"


async def test_a_policy_by_toolset() -> None:
    model = calling("shop__find", {"what": "a"})
    async with serve(app_of(model, tools=[look])) as server, Client(server.address) as client:
        agent = client.agent("agent")
        for asked, waits in ((["shop"], True), (["billing"], False)):
            rules = ToolApproval(toolsets=asked)
            result = await agent.generate("go", toolsets=["shop"], require_tool_approval=rules)
            assert (result.finish_reason == "suspended") is waits
    policy = ApprovalPolicy(toolsets=["shop"])
    app = App(
        agents=[Agent(id="agent", model=model, toolsets=["shop"], require_tool_approval=policy)],
        toolsets=[SHOP],
    )
    async with serve(app) as server, Client(server.address) as client:
        assert (await client.agent("agent").generate("go")).finish_reason == "suspended"


async def test_what_callers_cannot_choose() -> None:
    clash = Tool(name="shop__find", execute=lambda: 1)
    async with (
        serve(app_of(scripted([[{"text": "x"}]]), tools=[clash])) as server,
        Client(server.address) as client,
    ):
        for options, words in (
            (
                {"toolsets": ["billing", "shops"]},
                "options.toolsets[1]: there is no toolset 'shops'; there are: billing, shop",
            ),
            (
                {"toolsets": ["shop"]},
                "the toolset 'shop' and the agent 'agent' both have a tool 'shop__find'",
            ),
            (
                {"toolsets": ["billing"], "client_tools": [ClientTool("billing__look", "Looks.")]},
                "options.client_tools[0].name: the agent has a tool 'billing__look' already",
            ),
            ({"active_tools": ["billing__look"]}, "options.active_tools.names[0]: the agent has no tool"),
        ):
            with pytest.raises(InvalidArgument, match=re.escape(words)):
                await client.agent("agent").generate("go", **options)


def _agent(**settings: Any) -> Agent:
    return Agent(id="agent", model=scripted([[{"text": "x"}]]), **settings)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Toolset("a__b", tools=[]), "toolset name 'a__b'"),
        (lambda: Toolset("a_", tools=[]), "toolset name 'a_'"),
        (lambda: Toolset("", tools=[]), "toolset name ''"),
        (lambda: Toolset("x" * 33, tools=[]), "use 1 to 32 characters"),
        (lambda: Toolset("a", tools=[look, look]), "toolset a: two tools are called 'look'"),
        (lambda: Toolset("a", tools={"b" * 62: look}), "at most 64 in all"),
        (lambda: App(agents=[], toolsets=[SHOP, SHOP]), "two toolsets are called 'shop'"),
        (
            lambda: App(agents=[_agent(toolsets=["shops"])], toolsets=[SHOP]),
            "agent agent: there is no toolset 'shops'; registered are: shop",
        ),
        (
            lambda: App(
                agents=[_agent(toolsets=["shop"], tools={"shop__find": look})],
                toolsets=[SHOP],
            ),
            "agent agent: its tool 'shop__find' is called as one of the toolset 'shop'",
        ),
        (lambda: _agent(toolsets="shop"), "toolsets is a list of names, not the text 'shop'"),
        (
            lambda: App(
                agents=[_agent(toolsets=["billing"], expires_after=5, on_expiry=DefaultAnswer(True))],
                toolsets=[BILLING],
            ),
            "agent agent: tool billing__refund: it requires approval, and an expiry approves nothing",
        ),
    ],
)
def test_what_authors_cannot_make(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        make()
