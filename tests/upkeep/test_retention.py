"""Retention: what is old goes by itself, and what is left says so; deleting leaves nothing behind."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import psycopg.rows
import pytest
from msgspec.structs import replace

from entracte import Client, RunNotFound, SequenceAhead, SequenceTrimmed
from entracte_server import ask_user, tool
from entracte_server.engine import upkeep
from entracte_server.engine.runlog import now_ms
from entracte_server.store.base import CreateRun
from entracte_server.testing import scripted
from tests.upkeep.support import app_of, calling, decisions, parked, serving, until

SHORT = 0.2

PAY = {"tool": "pay", "id": "c-pay", "args": {"cents": 7}}


@tool(requires_approval=True)
async def pay(cents: int) -> dict[str, int]:
    """Pays."""
    return {"paid": cents}


async def approved(client: Client, **options: Any) -> str:
    """A run that was approved and has ended: its id."""
    call = (await parked(client, **options))["pay"]
    result = await client.agent("agent").approve(call, request_id="approve-it")
    assert result.text == "done"
    return call.run_id


async def watch_fails(client: Client, run_id: str, after: int = 0) -> SequenceTrimmed | None:
    """Why the run cannot be watched from there any more, once it cannot."""
    try:
        async for _ in client.runs.watch(run_id, after=after):
            pass
    except SequenceTrimmed as error:
        return error
    return None


async def gone(client: Client, run_id: str) -> bool:
    try:
        await client.runs.get(run_id)
    except RunNotFound:
        return True
    return False


class TestChunks:
    async def test_the_log_goes_and_the_run_stays(self, store: str) -> None:
        app = app_of(calling(PAY), pay)
        async with serving(app, store=store, retain_chunks=SHORT) as (_, client):
            options: dict[str, Any] = {"request_id": "start-it", "run_id": "r"}
            run_id = await approved(client, **options)
            waiting = (await parked(client))["pay"]
            error = await until(lambda: watch_fails(client, run_id), "the log is trimmed")
            run = await client.runs.get(run_id)
            last = run.last_sequence
            assert error.code == "OUT_OF_RANGE"
            assert error.metadata == {"run_id": run_id, "first_sequence": str(last + 1)}
            # From the middle it is the same, and at the end there is nothing more to come.
            assert await watch_fails(client, run_id, after=last - 1) is not None
            assert [chunk async for chunk in client.runs.watch(run_id, after=last)] == []
            with pytest.raises(SequenceAhead):
                await anext(aiter(client.runs.watch(run_id, after=last + 1)))
            # What it came to, and who decided what.
            assert run.result is not None
            assert (run.state, run.result.text) == ("succeeded", "done")
            assert [result.result for result in run.result.tool_results] == [{"paid": 7}]
            assert (await decisions(client, run_id))["pay"].verb == "approve"
            # Repeated requests.
            agent = client.agent("agent")
            assert (await agent.generate("go", **options)).text == "done"
            [call] = [call async for call in client.inbox.list(run_id=run_id, include_decided=True)]
            assert (await agent.approve(call, request_id="approve-it")).text == "done"
            # The log of a run that waits is as long as ever.
            await asyncio.sleep(2 * SHORT)
            chunks = [chunk async for chunk in client.runs.watch(waiting.run_id)]
            assert [chunk.sequence for chunk in chunks] == list(range(1, len(chunks) + 1))
            assert (await agent.approve(waiting)).text == "done"

    async def test_a_repeated_stream_says_that_its_chunks_are_gone(self) -> None:
        """Its run has ended; what it came to can be read."""
        async with serving(app_of(calling()), retain_chunks=SHORT) as (_, client):
            agent = client.agent("agent")
            options: dict[str, Any] = {"request_id": "start-it", "run_id": "r"}
            assert [chunk async for chunk in agent.stream("go", **options)][-1].type == "finish"
            await until(lambda: watch_fails(client, "r"), "the log is trimmed")
            again = agent.stream("go", **options)
            with pytest.raises(SequenceTrimmed):
                await again.result()
            run = await client.runs.get("r")
            assert run.result is not None
            assert run.result.finish_reason == "stop"


class TestRuns:
    async def test_a_run_goes_with_all_it_has(self, store: str) -> None:
        app = app_of(calling(PAY), pay)
        async with serving(app, store=store, retain_runs=SHORT) as (_, client):
            run_id = await approved(client, request_id="start-it", run_id="r")
            waiting = (await parked(client))["pay"]
            await until(lambda: gone(client, run_id), "the run is deleted")
            assert [run.run_id async for run in client.runs.list()] == [waiting.run_id]
            assert [decision async for decision in client.inbox.decisions()] == []
            [call] = [call async for call in client.inbox.list(include_decided=True)]
            assert call == waiting
            with pytest.raises(RunNotFound):
                await anext(aiter(client.runs.watch(run_id)))
            # The request is known, and what it made is not there any more.
            with pytest.raises(RunNotFound):
                await client.agent("agent").generate("go", request_id="start-it", run_id="r")
            assert (await client.agent("agent").approve(waiting)).text == "done"

    async def test_cancelled_and_failed_runs_go_as_well(self) -> None:
        model = scripted(lambda request: [PAY] if "pay" in str(request.messages) else [{"error": "broken"}])
        async with serving(app_of(model, pay), retain_runs=SHORT) as (_, client):
            agent = client.agent("agent")
            assert (await agent.generate("pay", run_id="cancelled")).finish_reason == "suspended"
            await client.runs.cancel("cancelled")
            assert (await agent.generate("fail", run_id="failed")).finish_reason == "error"
            for run_id in ("cancelled", "failed"):
                await until(lambda run_id=run_id: gone(client, run_id), f"run {run_id} is deleted")  # type: ignore[misc]


class TestRequests:
    async def test_a_request_is_forgotten_and_a_decision_is_not(self, store: str) -> None:
        app = app_of(calling(PAY), pay)
        async with serving(app, store=store, retain_requests=SHORT) as (_, client):
            agent = client.agent("agent")
            first = (await parked(client, request_id="start-it"))["pay"]
            assert (await agent.approve(first, request_id="approve-it")).text == "done"

            async def starts_another() -> bool:
                result = await agent.generate("go", request_id="start-it")
                return result.run_id != first.run_id

            await until(starts_another, "the request is forgotten")
            assert (await agent.approve(first, request_id="approve-it")).text == "done"

    async def test_by_default_requests_go_after_a_week_and_nothing_else(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Seen from a year later."""
        app = app_of(calling(PAY), pay)
        async with serving(app) as (_, client):
            run_id = await approved(client, request_id="start-it", run_id="r")
            before = await client.runs.get(run_id)
            chunks = [chunk async for chunk in client.runs.watch(run_id)]

            async def start_another() -> str:
                return (await client.agent("agent").generate("go", request_id="other")).run_id

            first = await start_another()
            monkeypatch.setattr(upkeep, "now_ms", lambda: now_ms() + 6 * 86_400_000)
            await asyncio.sleep(3 * SHORT)
            assert await start_another() == first
            monkeypatch.setattr(upkeep, "now_ms", lambda: now_ms() + 365 * 86_400_000)

            async def forgotten() -> bool:
                return await start_another() != first

            await until(forgotten, "the request is forgotten")
            assert await client.runs.get(run_id) == before
            assert [chunk async for chunk in client.runs.watch(run_id)] == chunks


def tables(store: str) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table."""
    if "://" in store:
        with psycopg.connect(store, row_factory=psycopg.rows.dict_row) as connection:
            query = "SELECT table_name AS name FROM information_schema.tables WHERE table_schema = 'entracte'"
            found = [f"entracte.{row['name']}" for row in connection.execute(query)]
            return {
                name.removeprefix("entracte."): connection.execute(f"SELECT * FROM {name}").fetchall()
                for name in found
            }
    raw = sqlite3.connect(store)
    raw.row_factory = sqlite3.Row
    try:
        names = [row[0] for row in raw.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {name: [dict(row) for row in raw.execute(f"SELECT * FROM {name}")] for name in names}
    finally:
        raw.close()


OF_NO_RUN = {"meta", "schema_version", "processes", "duties", "sqlite_sequence"}


class TestNothingIsLeft:
    async def test_deleting_leaves_the_request_id_only(self, store: str) -> None:
        """In every table there is: of the run, of its sub-agents' runs, of what waits and was decided."""
        asks = {"tool": "ask_user", "id": "c-ask", "args": {"question": "marked-question"}}
        app = app_of(calling(PAY, asks, {"text": "marked-text"}), pay, ask_user)
        async with serving(app, store=store) as (server, client):
            before = {name: len(rows) for name, rows in tables(store).items()}
            calls = await parked(client, run_id="marked-run", request_id="marked-request")
            decision = await client.agent("agent").approve_stream(calls["pay"]).commit()
            root = await server.store.get_run("local", "marked-run")
            child = replace(root, run_id="marked-child", root_run_id="marked-run", parent_run_id="marked-run")
            snapshot = await server.store.load("local", "marked-run")
            await server.store.create_run(CreateRun(replace(child, last_sequence=0), snapshot.spec))

            async def at_rest() -> bool:
                return (await client.runs.get("marked-run")).state == "suspended"

            await until(at_rest, "the run parks again")
            filled = {name: len(rows) for name, rows in tables(store).items()}
            for name in ("runs", "run_specs", "steps", "tool_calls", "pending_calls", "decisions", "chunks"):
                assert filled[name] > before[name], f"{name} holds something of the run"
            await client.runs.delete("marked-run", force=True, request_id="delete-it")
        left = tables(store)
        kept = {row["request_id"] for row in left.pop("requests")}
        assert kept == {"marked-request", decision.request_id, "delete-it"}
        for name, rows in left.items():
            assert not [row for row in rows if "marked" in str(row)], name
            assert rows == [] or name in OF_NO_RUN, name

    async def test_the_file_does_not_grow_for_ever(self, tmp_path: Path) -> None:
        """Room that was given back is used again: after the first round the file stays as large as it is."""
        path = tmp_path / "store.db"
        text = "".join(f"{number:x}" for number in range(20_000))
        model = scripted(lambda request: [{"text": text}])
        sizes = []
        async with serving(app_of(model), store=path, retain_runs=0.05) as (server, client):
            agent = client.agent("agent")
            for _ in range(5):
                await asyncio.gather(*(agent.generate("go") for _ in range(20)))

                async def empty() -> bool:
                    return not [run async for run in client.runs.list()]

                await until(empty, "the runs are deleted")
                await server.store._writer._database.call(  # type: ignore[attr-defined]
                    lambda raw: raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                )
                sizes.append(path.stat().st_size)
        assert sizes[0] > 500_000
        assert max(sizes[1:]) < 1.5 * sizes[0], sizes
