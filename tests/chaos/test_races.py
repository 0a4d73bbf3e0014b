"""Two things happen to one run at once, in several processes, in every order: no wake-up is lost, no run
is stuck, one wins."""

import asyncio
import signal
from pathlib import Path

import pytest

from tests.cases.support import gap_free, kinds, until
from tests.chaos.fleet import fleet
from tests.chaos.races import between_people, run_races, with_drain, with_take_over
from tests.chaos.traps import Action, Trap
from tests.invariants.world import plan


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/db"
    url: str = request.getfixturevalue("postgres_url")
    return url


async def test_races_between_people(tmp_path: Path, store: str) -> None:
    """Decisions, cancellations and expiry, with parking, the end and each other."""
    async with fleet(tmp_path, store, 3, lease=15) as it:
        await run_races(it, between_people())


async def test_races_with_a_take_over(tmp_path: Path, store: str) -> None:
    """The same with a process that takes over from one that was killed."""
    async with fleet(tmp_path, store, 3, lease=2) as it:

        async def kill() -> None:
            owner = it.members[-1]
            assert owner.process is not None
            await owner.process.kill()

        await run_races(it, with_take_over(), then=kill)


async def test_races_with_a_drain(tmp_path: Path, store: str) -> None:
    """The same with a process that was told to stop, which ends in good order."""
    async with fleet(tmp_path, store, 3, lease=15, grace=30) as it:
        owner = it.members[-1].process
        assert owner is not None

        async def stop() -> None:
            owner.send(signal.SIGTERM)

        await run_races(it, with_drain(), then=stop)
        assert await owner.ended(20.0) == 0, owner.output


async def test_a_cancellation_while_parking_waits_for_another_write(tmp_path: Path) -> None:
    """A run that is cancelled when it was about to park, with a write under way, ends; the parking that
    was prepared is not written with it."""
    calls = [
        {"tool": "gated", "id": "a", "args": {"v": 1}},
        {"tool": "reports", "id": "b", "args": {"v": 2, "lines": 1}},
    ]
    async with fleet(tmp_path, f"sqlite:///{tmp_path}/db", 1) as it:
        caller = it.only(0)
        trap = Trap("chunks", "before", "run")
        body = Trap("body", "before", "run")
        it.trapper.set(body, Action("hold"))
        reading = asyncio.create_task(caller.stream(plan(calls, name="run"), run_id="run"))
        assert await it.trapper.caught(body, 10.0)
        it.trapper.set(trap, Action("hold"))
        it.trapper.clear(body)
        assert await it.trapper.caught(trap, 10.0)
        await until(lambda: any(trace["event"] == "leave" for trace in it.traces("run")))
        await asyncio.sleep(0.1)  # the run has put its parking behind the write that is held
        await caller.cancel("run", "enough", wait=False)
        await asyncio.sleep(0.1)
        it.trapper.clear(trap)
        chunks = await reading
        assert kinds(chunks)[-2:] == ["abort", "finish"]
        assert gap_free(chunks)
        assert "write_failed" not in it.members[0].output
