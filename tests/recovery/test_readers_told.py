"""Readers of a run find out what became of it, and of the database, whatever they were told before."""

import asyncio
from pathlib import Path

import grpc.aio
import pytest

from entracte_server import Agent, App, tool
from entracte_server.engine import keeper
from entracte_server.engine.keeper import Keeper
from entracte_server.engine.reading import Reader
from entracte_server.engine.runlog import RunLog
from entracte_server.store.base import LeaseLost, RunFilter
from entracte_server.testing import scripted, serve
from tests.cases.support import Caller, chunks_of, finish_of, kind_of, read_refusal, reason_name, until
from tests.recovery.test_across import Work, begun, two

NO_FILTER = RunFilter()


def _take_away(database: Path) -> None:
    for file in database.parent.glob(f"{database.name}*"):
        file.rename(file.with_name(f"away-{file.name}"))


async def test_a_database_that_stays_away_for_longer_than_the_lease_ends_the_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the run is executed by another process: without a lease no round looks at the runs any
    more, and what cannot be seen must not look like a run that is quiet."""
    monkeypatch.setattr(keeper, "ROUND", 0.4)
    work = Work()
    async with two(tmp_path, work.app, lease=1, keep_alive=0.2) as (_, first, other, second):
        run_id = await begun(first, work)
        watching = chunks_of(second.open_watch(run_id))
        await anext(watching)
        await until(lambda: other.engine.hub.remote != [])
        _take_away(tmp_path / "db")
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            async for _ in watching:
                pass
        assert read_refusal(ended.value).reason == "STORE_UNAVAILABLE"


async def test_what_a_reader_was_told_before_does_not_outlive_a_look_into_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slow reader has not yet taken in that the run goes on here when it has gone on, and parked, in
    another process; rounds have seen that, and tell nobody again."""
    monkeypatch.setattr(keeper, "ROUND", 3600.0)
    work = Work()
    async with serve(work.app) as server, Caller(server.address, agent="parks") as caller:
        parked = (await caller.generate()).run
        (row, *_), _ = await server.store.list_runs("local", NO_FILTER, cursor="", limit=1)
        engine, key = server.engine, (row.tenant, row.run_id)
        with Reader(engine, *key, after=parked.last_sequence) as reader:
            engine.hub.publish(key, None, "running")
            engine.hub.look_again(key)
            async with asyncio.timeout(10):
                assert [entry async for entry in reader.follow(row)] == []


async def test_a_run_that_is_cancelled_between_two_steps_ends_in_a_first_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was handed over when a step had ended, and nobody has begun the next one."""

    @tool
    async def plain() -> str:
        """Needs nobody."""
        return "done"

    async def nothing(_: Keeper) -> None:
        """Nobody takes it over."""

    check = RunLog.check
    checks: list[RunLog] = []

    def ends_before_the_second_step(log: RunLog) -> None:
        checks.append(log)
        if len(checks) == 4:
            raise LeaseLost("the lease may be over")
        check(log)

    monkeypatch.setattr(RunLog, "check", ends_before_the_second_step)
    model = scripted([[{"tool": "plain", "id": "c"}], [{"text": "end"}]], position="transcript")
    app = App(agents=[Agent(id="agent", model=model, tools=[plain])])
    async with serve(app, keep_alive=0.1) as server, Caller(server.address) as caller:
        monkeypatch.setattr(Keeper, "take_over", nothing)
        rpc = caller.open_stream()
        chunks = []
        async for chunk in chunks_of(rpc):
            chunks.append(chunk)
            if kind_of(chunk) == "step_finish":
                await caller.cancel(chunk.run_id)
        assert reason_name(finish_of(chunks).reason) == "aborted"
        assert [chunk.sequence for chunk in chunks if chunk.step and not chunk.attempt] == []
