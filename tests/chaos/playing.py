"""Plays: a fleet under load, processes that die where the matrix says, and a verdict on every run."""

import asyncio
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.databases import Databases
from tests.chaos.fleet import LEASE, Fleet, fleet
from tests.chaos.matrix import Blow, Play
from tests.chaos.people import Life
from tests.chaos.plans import PLANS, Plan
from tests.chaos.stories import Story, story_of
from tests.chaos.verdict import check, read

LOAD = 4
"""Runs at a time in each fleet."""

BREAK = 0.2
"""Seconds between two of them, at most."""

AT_ONCE = 6
"""Fleets at a time."""

CATCH_SECONDS = 30.0
"""How long the load goes on until somebody comes to a trap."""

PROGRESS_SECONDS = 30.0
"""How long a run may take to get further after a kill."""


@dataclass
class Report:
    """What came of plays."""

    blows: Counter[str] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)
    deaths: int = 0
    drains: int = 0
    runs: int = 0
    recoveries: int = 0
    leases_lost: int = 0
    reattached: int = 0
    seconds: float = 0.0

    def add(self, other: "Report") -> None:
        """Count another one in."""
        self.blows += other.blows
        self.missed += other.missed
        self.deaths += other.deaths
        self.drains += other.drains
        self.runs += other.runs
        self.recoveries += other.recoveries
        self.leases_lost += other.leases_lost
        self.reattached += other.reattached

    def deeds(self, deed: str) -> int:
        """How many blows of a kind."""
        return sum(count for name, count in self.blows.items() if name.startswith(f"{deed}:"))

    def __str__(self) -> str:
        return (
            f"{self.deaths} processes killed, {self.deeds('stop')} put to sleep, {self.drains} drained, "
            f"{self.deeds('fail')} faults of the store, at {len(self.blows)} points; {self.runs} runs, "
            f"{self.recoveries} calls recovered by people, {self.reattached} times attached, "
            f"{self.leases_lost} leases lost, traps nobody came to: {len(self.missed)} "
            f"{' '.join(self.missed)}; {self.seconds:.0f} s"
        )


class Load:
    """Runs that come one after the other, `LOAD` at a time, until told to stop."""

    def __init__(self, fleet: Fleet, name: str, rng: random.Random) -> None:
        self.fleet = fleet
        self.lives: list[Life] = []
        self.wanted: str = ""
        self._name = name
        self._rng = rng
        self._stopping = False

    def stop(self) -> None:
        """No new runs."""
        self._stopping = True

    async def go(self) -> None:
        """Until told to stop and the last run has ended. Raises what goes wrong in any of them."""
        async with asyncio.TaskGroup() as group:
            for _ in range(LOAD):
                group.create_task(self._one_after_the_other())

    async def _one_after_the_other(self) -> None:
        while not self._stopping:
            plan = self._choose()
            life = Life(self.fleet, plan, f"{self._name}-{len(self.lives)}", self._name)
            self.lives.append(life)
            await asyncio.sleep(self._rng.uniform(0.0, BREAK))
            try:
                await life.live()
            except Exception as error:
                error.add_note(f"run {life}")
                raise

    def _choose(self) -> Plan:
        """Any plan, but more often one that comes to the point that is wanted."""
        fitting = {
            "cancel": [plan for plan in PLANS if plan.cancel],
            "expire": [plan for plan in PLANS if plan.expires],
            "attempt": [plan for plan in PLANS if plan.name == "text"],  # an answer that is long
        }.get(self.wanted)
        return self._rng.choice(fitting if fitting and self._rng.random() < 0.7 else PLANS)

    async def gets_further(self) -> None:
        """Until every run of this moment has got further, in a way that no takeover takes back."""
        stood = [(life, life.progress) for life in self.lives if not life.done]
        end = time.monotonic() + PROGRESS_SECONDS
        while any(not life.done and life.progress == progress for life, progress in stood):
            assert time.monotonic() < end, "stuck: " + ", ".join(
                str(life) for life, progress in stood if not life.done and life.progress == progress
            )
            await asyncio.sleep(0.01)


class Reviver:
    """Starts again who was killed."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def go(self) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as group:
            for member in self._fleet.members:
                group.create_task(self._watch(member))

    async def _watch(self, member: Any) -> None:
        while True:
            if not member.alive:
                member.died()
                await member.start()
            await asyncio.sleep(0.005)


@asynccontextmanager
async def under_load(it: Fleet, name: str, rng: random.Random) -> AsyncIterator[Load]:
    """Runs come and the dead come back while the context lasts; at its end the runs come to theirs."""
    load = Load(it, name, rng)
    try:
        async with asyncio.TaskGroup() as group:
            reviving = group.create_task(Reviver(it).go())
            going = group.create_task(load.go())
            yield load
            load.stop()
            await going
            reviving.cancel()
    except BaseException as error:
        error.add_note("\n".join(f"--- {member.name}\n{member.output}" for member in it.members))
        raise


async def play(it: Play, folder: Path, store: str, seed: int, references: Mapping[str, Story]) -> Report:
    """One play. Raises what went wrong; says what it came to."""
    rng = random.Random(f"{seed} {it.number}")
    report = Report()
    async with fleet(folder, store, it.size) as group:
        async with under_load(group, f"p{it.number}", rng) as load:
            for chain in _chains(it.blows):
                await _strike(chain, group, load, rng, report)
                await load.gets_further()
        await judge(load, report, references)
    return report


async def judge(load: Load, report: Report, references: Mapping[str, Story]) -> None:
    """Check every run of a load that came to its end; the figures go to the report."""
    group = load.fleet
    logs = "".join(member.output for member in group.members)
    report.leases_lost = logs.count("lease_lost")
    report.deaths, report.drains = group.deaths, group.drains
    report.runs = len(load.lives)
    interruptions = report.deaths + report.drains + report.leases_lost
    for life in load.lives:
        try:
            report.recoveries += await check(life, references, interruptions=interruptions)
        except BaseException as error:
            error.add_note(f"run {life}\n{logs}")
            raise
        report.reattached += sum(reader.attached for reader in life.readers)


def _chains(blows: Sequence[Blow]) -> list[list[Blow]]:
    """Blows, each with those that can only hit somebody who takes over after it."""
    chains: list[list[Blow]] = []
    for blow in blows:
        if blow.recovering and chains:
            chains[-1].append(blow)
        else:
            chains.append([blow])
    return chains


async def _strike(
    chain: Sequence[Blow], group: Fleet, load: Load, rng: random.Random, report: Report
) -> None:
    """Set the traps of a chain and wait until each has caught somebody."""
    points = {blow.point for blow in chain}
    load.wanted = next((point for point in ("attempt", "cancel", "expire") if point in points), "")
    for blow in chain:
        if blow.point != "moment":
            group.trapper.set(blow.trap, blow.action)
    for blow in chain:
        if blow.point == "moment":
            await asyncio.sleep(blow.delay)
            _hit(blow, group, rng)
        elif not await _caught(blow, group, rng):
            group.trapper.clear(blow.trap)
            report.missed.append(str(blow))
            continue
        elif blow.deed == "stop":
            await asyncio.sleep(LEASE + blow.delay)
            for member in group.living:
                member.send(signal.SIGCONT)
        group.trapper.clear(blow.trap)
        report.blows[f"{blow.deed}:{blow.trap.name}"] += 1
    load.wanted = ""


async def _caught(blow: Blow, group: Fleet, rng: random.Random) -> bool:
    """Whether somebody came to a trap."""
    if not blow.recovering and blow.point != "release":
        return await group.trapper.caught(blow.trap, CATCH_SECONDS)
    # Where nobody had left anything behind, somebody dies again, or stops again; and so on. What is left
    # behind by the dead is found when their lease is over, what is handed over at once.
    attempts = 12 if blow.point == "release" else 6
    for attempt in range(attempts):
        if attempt or blow.point == "release":
            _hit(blow, group, rng)
        if await group.trapper.caught(blow.trap, CATCH_SECONDS / attempts):
            return True
    return False


def _hit(blow: Blow, group: Fleet, rng: random.Random) -> None:
    """Kill one of the living, or tell it to stop."""
    if group.living:
        member = rng.choice(group.living)
        if blow.deed == "drain" or blow.point == "release":
            member.drain()
        else:
            member.send(signal.SIGKILL)


async def play_quietly(folder: Path, store: str) -> dict[str, Story]:
    """The story of each plan when nothing interrupts it."""
    async with fleet(folder, store, 1) as it:
        lives = {plan.name: Life(it, plan, f"quiet-{plan.name}") for plan in PLANS}
        async with asyncio.TaskGroup() as group:
            for life in lives.values():
                group.create_task(life.live())
        stories = {}
        for name, life in lives.items():
            ended = await read(it, life.run_id, life.readers, cancelled=bool(life.plan.cancel))
            stories[name] = story_of(ended.chunks, ended.result)
        for life in lives.values():
            await check(life, stories, interruptions=0)
        return stories


async def play_all(
    plays: Sequence[Play],
    databases: Databases,
    seed: int,
    references: Mapping[str, Story],
    *,
    repeat: str,
    at_once: int = AT_ONCE,
) -> Report:
    """Plays side by side. Raises what went wrong in any of them, with the command that repeats it: `repeat`
    and the number of the play."""
    begun = time.monotonic()
    total = Report()
    places = asyncio.Semaphore(at_once)

    async def one(it: Play) -> None:
        async with places:
            with tempfile.TemporaryDirectory() as folder, databases(Path(folder)) as store:
                try:
                    total.add(await play(it, Path(folder), store, seed, references))
                except BaseException as error:
                    error.add_note(f"{it}\nrepeat it: make chaos ARGS='{repeat} --play {it.number}'")
                    raise

    async with asyncio.TaskGroup() as group:
        for it in plays:
            group.create_task(one(it))
    total.seconds = time.monotonic() - begun
    return total
