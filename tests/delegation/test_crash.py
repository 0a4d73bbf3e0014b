"""A process that dies while a tool of a sub-agent runs."""

import asyncio
from pathlib import Path

import pytest

from entracte import Client
from tests.cases.process import forked
from tests.delegation.support import results, serving, way
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
