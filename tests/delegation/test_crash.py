"""A process that dies while a tool of a sub-agent runs."""

import asyncio
from pathlib import Path

import pytest

from entracte import AgentUnavailable, Client
from entracte_server import App, tool
from tests.cases.process import forked
from tests.delegation.support import agent, call, delegate, results, says, serving, way
from tests.delegation.world import DIED, app


async def test_a_tool_below_that_was_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks what became of it, under its own path; its agent goes on from there, and what else waits below
    is as it was. Nothing that was done is done again."""
    journal, store = tmp_path / "journal", tmp_path / "db"
    monkeypatch.setenv(DIED, str(journal))
    async with (
        forked("tests.delegation.world:app", store, environment={DIED: str(journal)}) as server,
        Client(server.address) as client,
    ):
        reading = asyncio.create_task(client.agent("root").stream("go", run_id="r").result())
        await server.ended()
        reading.cancel()
        await asyncio.wait({reading})
    async with serving(app, str(store)) as client:
        chunks = [c async for c in client.runs.watch("r")]
        result = (await client.runs.get("r")).result
        assert result is not None
        calls = {way(c): c for c in result.pending_calls}
        assert {path: (c.kind, c.tool_name) for path, c in calls.items()} == {
            "helper": ("recovery", "deadly"),
            "other": ("approval", "gated"),
        }
        result = await client.agent("root").approve(calls["helper"])  # run it again
        assert [c.tool_name for c in result.pending_calls] == ["gated"]
        result = await client.agent("root").approve(calls["other"])
        assert result.text == "end"
        assert {name: it["text"] for name, it in results(result.tool_results).items()} == {
            "agent-helper": "helped",
            "agent-other": "other done",
        }
        assert journal.read_text().split() == ["plain", "deadly", "deadly"]
        chunks = [c async for c in client.runs.watch("r")]
        assert [c.sequence for c in chunks] == list(range(1, len(chunks) + 1))
        assert {way(c) for c in chunks if c.type == "step-start" and c.attempt > 1} == set()


async def test_who_has_not_every_agent_leaves_a_tree_alone(tmp_path: Path) -> None:
    """It takes over no run whose sub-agent it does not have, so that a process that has it can."""
    entered = asyncio.Event()
    store = str(tmp_path / "db")

    @tool(idempotent=True)
    async def once() -> str:
        """Hangs the first time."""
        if not entered.is_set():
            entered.set()
            await asyncio.sleep(60)
        return "done"

    helper = agent("helper", [[call("once")], says("helped")], tools=[once])
    whole = App(agents=[agent("root", [[delegate("helper")], says("end")], agents=[helper])])
    async with serving(App(agents=[agent("root", [says("never")])]), store) as other:
        async with serving(whole, store) as client:
            stream = client.agent("root").stream("go", run_id="r")
            reading = asyncio.create_task(stream.result())
            await asyncio.wait_for(entered.wait(), 20)
            reading.cancel()
            await asyncio.wait({reading})
        with pytest.raises(AgentUnavailable):
            async with asyncio.timeout(30):
                await other.runs.watch("r", until_finished=True).result()
        async with serving(whole, store) as client, asyncio.timeout(30):
            [*_, last] = [c async for c in client.runs.watch("r", until_finished=True)]
            assert last.type == "finish"
            assert last.reason == "stop"
        found = await other.runs.get("r")
        assert (found.state, found.result and found.result.text) == ("succeeded", "end")
