"""A process that sleeps for longer than its lease, at an exact point: others go on with its runs, and when
it wakes it writes nothing for them any more, enters no tool, asks no model, says so, and goes on serving
as somebody else."""

import asyncio
import re
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cases.support import gap_free, text_of, until
from tests.chaos.fleet import LEASE, Fleet, Member, fleet
from tests.chaos.following import read_away
from tests.chaos.people import Life
from tests.chaos.plans import PLANS
from tests.chaos.stories import Story
from tests.chaos.traps import Action, Trap, When
from tests.chaos.verdict import check
from tests.invariants.world import plan

SLEEP = LEASE + 1.0
"""Longer than the lease, and than it takes others to look for runs that nobody executes."""


@dataclass(frozen=True)
class Case:
    """Where a process falls asleep, and in which plan. `decides` says that it is the one people decide
    through, not the one that executes the run."""

    plan: str
    point: str
    when: When
    count: int = 1
    decides: bool = False


CASES = (
    Case("text", "create", "before"),
    Case("text", "create", "after"),
    Case("text", "chunks", "before", count=2),
    Case("text", "chunks", "after", count=2),
    Case("text", "end", "before"),
    Case("text", "end", "after"),
    Case("tools", "step", "before"),
    Case("tools", "step", "after"),
    Case("tools", "started", "before"),
    Case("tools", "started", "after"),
    Case("tools", "body", "during"),
    Case("tools", "done", "before"),
    Case("tools", "done", "after"),
    Case("approvals", "opened", "before"),
    Case("approvals", "park", "after"),
    Case("questions", "decide", "before", decides=True),
    Case("questions", "decide", "after", decides=True),
    Case("cut", "cancel", "before"),
    Case("cancelled", "cancel", "after"),
)


def woken(member: Member, it: Fleet, since: float, run_id: str) -> list[str]:
    """What a process did to the world for a run since it woke."""
    return [
        trace["event"]
        for trace in it.traces(run_id)
        if trace["pid"] == member.pid and trace["time"] > since and trace["event"] in ("enter", "asked")
    ]


async def sleep_at(case: Case, folder: Path, store: str, references: dict[str, Story]) -> None:
    """Play one case."""
    async with fleet(folder, store, 2, log_level="info") as it:
        sleeper = it.members[0]
        (plan,) = (plan for plan in PLANS if plan.name == case.plan)
        # The first starts the run and cancels it; the second decides and follows it.
        at = (1, 0) if case.decides else (0, 1)
        life = Life(it, plan, "run", at=at, readers_at=1)
        trap = Trap(case.point, case.when, member=sleeper.name)
        it.trapper.set(trap, Action("stop", case.count))
        living = asyncio.create_task(life.live())
        try:
            assert await it.trapper.caught(trap, 10.0), f"nobody came to {trap.name}"
            await sleeper.paused()
            await asyncio.sleep(SLEEP)
            awake = time.monotonic()
            sleeper.send(signal.SIGCONT)
            await until(lambda: "lease_taken" in sleeper.output)
            assert "lease_lost" in sleeper.output
            if not case.decides:
                assert woken(sleeper, it, awake, "run") == []
            await living
            identities = re.findall(r'"process_id":"(\w+)".*?"lease_(?:lost|taken)', sleeper.output)
            assert len(set(identities)) >= 2, identities
        finally:
            living.cancel()
            await asyncio.gather(living, return_exceptions=True)
        await check(life, references, interruptions=1)
        # It serves again, under its new identity.
        again = Life(it, PLANS[1], "again", at=(0, 0), readers_at=0)
        await again.live()
        assert woken(sleeper, it, awake, "again"), "it executes nothing any more"
        await check(again, references, interruptions=1)


@pytest.mark.timeout(120)
async def test_a_process_that_slept_too_long_gives_its_runs_up(
    tmp_path: Path, references: dict[str, Story]
) -> None:
    """Every case on two processes of its own."""
    places = asyncio.Semaphore(8)

    async def one(number: int, case: Case) -> None:
        async with places:
            folder = tmp_path / str(number)
            folder.mkdir()
            try:
                await sleep_at(case, folder, f"sqlite:///{folder}/db", references)
            except BaseException as error:
                error.add_note(str(case))
                raise

    async with asyncio.TaskGroup() as group:
        for number, case in enumerate(CASES):
            group.create_task(one(number, case))


async def test_a_process_that_sleeps_while_it_hands_over(tmp_path: Path) -> None:
    """What it gives up after it woke is not its any more: the next owner keeps the run."""
    async with fleet(tmp_path, f"sqlite:///{tmp_path}/db", 2) as it:
        sleeper = it.members[0]
        process = sleeper.process
        assert process is not None
        trap = Trap("release", "before", "run")
        it.trapper.set(trap, Action("stop"))
        message = plan([{"text": "Slowly. "}, {"delay": 3000}, {"text": "Done."}], name="run")
        starting = asyncio.create_task(read_away(it.only(0).open_stream(message, run_id="run")))
        await until(lambda: it.traces("run") != [])
        sleeper.send(signal.SIGTERM)
        assert await it.trapper.caught(trap, 10.0), "it hands nothing over"
        await sleeper.paused()
        await until(lambda: len(it.traces("run")) == 2, 20.0)  # the other one asks the model again
        sleeper.send(signal.SIGCONT)
        assert await process.ended() == 0, sleeper.output
        chunks = await it.only(1).watch("run", until_finished=True)
        assert [trace["step"] for trace in it.traces("run")] == [1, 1]
        assert gap_free(chunks)
        assert text_of(chunks).startswith("Slowly. Done.")
        await starting
