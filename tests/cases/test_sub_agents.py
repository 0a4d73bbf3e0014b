"""Calls that wait inside sub-agents."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from entracte_server import App, ToolContext, ask_user, tool
from tests.delegation.support import (
    agent,
    call,
    counting,
    delegate,
    model_of,
    results,
    says,
    serving,
    way,
)


async def test_a_sub_agent_goes_on_where_it_stood(tmp_path: Path) -> None:
    """AP-11: after a restart the approved tool runs once, and nothing before it again."""
    entered: list[str] = []
    child = agent(
        "child",
        [[call("plain")], [call("gated")], says("done")],
        tools=[counting("plain", entered), counting("gated", entered, gated=True)],
    )
    parent = agent("parent", [[delegate("child")], says("end")], agents=[child])
    app, store = App(agents=[parent]), str(tmp_path / "db")
    async with serving(app, store) as client:
        parked = await client.agent("parent").generate("go")
        assert model_of(child).calls == 2
    async with serving(app, store) as client:
        result = await client.agent("parent").approve(parked.pending_calls[0])
        assert (result.text, entered) == ("end", ["plain", "gated"])
        assert (model_of(child).calls, model_of(parent).calls) == (3, 2)
        runs = [r async for r in client.runs.list(include_children=True)]
        assert [(r.agent_id, r.parent_run_id) for r in runs] == [("child", parked.run_id), ("parent", "")]


async def test_what_is_shown_is_the_inner_call(tmp_path: Path) -> None:
    """AP-09: tool, arguments and path, in the event, the result and the inbox."""

    @tool(requires_approval=True)
    async def charge_card(amount: int, ctx: ToolContext[Any]) -> str:
        """Charges."""
        return f"charged {amount}"

    child = agent("child", [[call("charge_card", amount=100)], says("done")], tools=[charge_card])
    parent = agent("parent", [[delegate("child")], says("end")], agents=[child])
    async with serving(App(agents=[parent]), str(tmp_path / "db")) as client:
        stream = client.agent("parent").stream("go")
        [event] = [c async for c in stream if c.type == "tool-call-approval"]
        [pending] = (await stream.result()).pending_calls
        [listed] = [c async for c in client.inbox.list()]
        for shown in (event, pending, listed):
            assert (shown.tool_name, shown.args, way(shown)) == ("charge_card", {"amount": 100}, "child")
        assert listed == pending
        assert (pending.agent_id, pending.run_id) == ("child", stream.run_id)


async def test_an_answer_inside_stays_what_it_was(tmp_path: Path) -> None:
    """SR-20: the record of the inner call is not that of the delegation, and each keeps its own."""
    question = call("ask_user", question="Which?", options=[{"label": "a"}, {"label": "b"}])
    child = agent("child", [[question], says("a it is")], tools=[ask_user])
    parent = agent("parent", [[delegate("child")], says("end")], agents=[child])
    async with serving(App(agents=[parent]), str(tmp_path / "db")) as client:
        parked = await client.agent("parent").generate("go")
        [pending] = parked.pending_calls
        result = await client.agent("parent").resume(pending, "a")
        outer = results(result.tool_results)
        inner = (await client.runs.get(outer["agent-child"]["run_id"])).result
        assert inner is not None
        [answered] = inner.tool_results
        assert (answered.tool_name, answered.tool_call_id) == ("ask_user", pending.tool_call_id)
        assert "a" in str(answered.result)
        assert outer["agent-child"]["text"] == "a it is"
        assert (await client.inbox.get(pending.pending_call_id)).decision is not None


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
async def test_at_any_depth(tmp_path: Path, depth: int) -> None:
    """AP-12: the gated tool runs once, by Generate and by Stream."""
    entered: list[str] = []
    it = agent(
        f"a{depth}",
        [[call("gated")], says("done")] * 2,
        tools=[counting("gated", entered, gated=True)],
    )
    for level in range(depth - 1, -1, -1):
        it = agent(f"a{level}", [[delegate(it.id)], says("done")] * 2, agents=[it])
    async with serving(App(agents=[it]), str(tmp_path / "db")) as client:
        parked = await client.agent("a0").generate("go")
        assert [len(c.agent_path) for c in parked.pending_calls] == [depth]
        result = await client.agent("a0").approve(parked.pending_calls[0])
        assert (result.text, entered) == ("done", ["gated"])
        stream = client.agent("a0").stream("go")
        [pending] = (await stream.result()).pending_calls
        async with asyncio.timeout(30):
            result = await client.agent("a0").approve_stream(pending).result()
        assert (result.text, entered) == ("done", ["gated", "gated"])
