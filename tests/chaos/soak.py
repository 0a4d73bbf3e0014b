"""The soak: mixed traffic on `entracte serve --workers N`, while workers and clients are killed, and in
the end nothing is lost, stuck or leaked.

python -m tests.chaos.soak --seconds 600 --store sqlite --workers 2
"""

import argparse
import asyncio
import os
import random
import signal
import statistics
import tempfile
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.cases.support import until
from tests.chaos.databases import Databases, on_postgres, on_sqlite
from tests.chaos.deserters import start_and_die
from tests.chaos.people import Life
from tests.chaos.plans import PLANS
from tests.chaos.playing import play_quietly
from tests.chaos.served import Figures, Served, served
from tests.chaos.stories import Story
from tests.chaos.verdict import SYSTEM, check
from tests.postgres import Postgres

SETTINGS = {"lease": 5, "log_level": "info", "keep_alive": 1, "disconnect_grace": 1, "worker_failures": 0}

LIVES = 6
"""Runs at a time."""

BREAK = 0.5
"""Seconds between two of them, at most."""

DESERTIONS = 0.03
"""The share of runs whose first client is killed."""

ABANDONED = 0.02
"""The share of runs that are to be cancelled when nobody follows them, and whose only client is killed."""

ABANDONED_SECONDS = 30.0
"""How long such a run may go on."""

SAMPLE_SECONDS = 1.0
KILL_SECONDS = 60.0

WARM_UP = 0.4
"""The share of a worker's life in which its memory may grow as it likes."""

GROWTH = 1.08
"""How much more memory a worker may have at its end than after its warm-up."""

REST_SECONDS = 3.0
RESTS = 10
"""After the last client has gone, until nothing may be left of it."""

LEFT = 6
"""Descriptors, threads and tasks each that a worker may have beyond those it started with: there are
some that come with the first use of something."""


@dataclass
class Worker:
    """What was seen of one worker process."""

    pid: int
    first: Figures
    tasks: int
    memory: list[int] = field(default_factory=list)
    last: Figures | None = None
    tasks_left: int = 0
    names: str = ""
    killed: bool = False

    def growth(self) -> float | None:
        """How much its memory grew after its warm-up; None when it did not live long enough to tell."""
        settled = self.memory[int(len(self.memory) * WARM_UP) :]
        if len(settled) < 15:
            return None
        third = len(settled) // 3
        return statistics.median(settled[-third:]) / statistics.median(settled[:third])

    def __str__(self) -> str:
        growth, last = self.growth(), self.last or self.first
        return (
            f"worker {self.pid}: {len(self.memory)} s, "
            f"memory {self.first.memory // 1024} -> {max(self.memory, default=0) // 1024} MiB"
            + (f" (grew by {100 * (growth - 1):.1f} % after its warm-up)" if growth else "")
            + (
                ", killed"
                if self.killed
                else f"; at rest {last.descriptors} descriptors (at first {self.first.descriptors}), "
                f"{last.threads} threads ({self.first.threads}), {self.tasks_left} tasks ({self.tasks})"
            )
        )


@dataclass
class Soaking:
    """A soak while it goes on, and its figures."""

    server: Served
    references: Mapping[str, Story]
    rng: random.Random
    seconds: float
    workers: dict[int, Worker] = field(default_factory=dict)
    ended: Counter[str] = field(default_factory=Counter)
    decisions: int = 0
    recovered: int = 0
    attached: int = 0
    deserted: int = 0
    abandoned: int = 0
    kills: int = 0
    connections: int = 0
    _number: int = 0
    _over: bool = False

    async def go(self) -> None:
        """All of it. Raises what goes wrong."""
        await self._watch_once()
        async with asyncio.TaskGroup() as group:
            lives = [group.create_task(self._one_after_the_other()) for _ in range(LIVES)]
            watching = group.create_task(self._watch())
            killing = group.create_task(self._kill())
            await asyncio.sleep(self.seconds)
            self._over = True
            killing.cancel()
            await asyncio.gather(*lives)
            watching.cancel()
        await self._nothing_waits()
        await self.server.disconnect()
        for _ in range(RESTS):  # a busy machine takes longer to see that clients are gone
            await asyncio.sleep(REST_SECONDS)
            self.connections = self.server.connections()
            if all(self._is_at_rest(pid) for pid in self.server.workers):
                break
        for pid in self.server.workers:
            worker = self.workers[pid]
            counts = await self.server.tasks(pid)
            worker.last, worker.tasks_left = self.server.figures(pid), counts["tasks"]
            worker.names = f"{counts['names']} {Counter(self.server.open_files(pid))}"

    def _is_at_rest(self, pid: int) -> bool:
        now = self.server.figures(pid)
        return now is not None and (
            now.descriptors - self.connections <= self.workers[pid].first.descriptors + LEFT
        )

    # ---- traffic ----

    async def _one_after_the_other(self) -> None:
        while not self._over:
            await asyncio.sleep(self.rng.uniform(0.0, BREAK))
            self._number += 1
            if self.rng.random() < ABANDONED:
                await self._abandon(f"soak-{self._number}")
                continue
            deserted = self.rng.random() < DESERTIONS
            plan = self.rng.choice([plan for plan in PLANS if not (deserted and plan.name == "cut")])
            life = Life(self.server, plan, f"soak-{self._number}", str(self.rng.random()))
            try:
                await self._live(life, deserted)
            except Exception as error:
                error.add_note(f"run {life}")
                raise

    async def _live(self, life: Life, deserted: bool) -> None:
        if deserted:
            life.streamed = life.is_started = True
            self.deserted += 1
            dying = asyncio.create_task(start_and_die(self.server.address, life.start(), self.rng))
            await asyncio.gather(dying, life.live())
        else:
            await life.live()
        interruptions = self.kills + self.server.leases_lost
        self.recovered += await check(life, self.references, interruptions=interruptions)
        self.ended[life.plan.name] += 1
        self.decisions += len(life.made)
        self.attached += sum(reader.attached for reader in life.readers)

    async def _abandon(self, run_id: str) -> None:
        """A run whose client dies is cancelled by the server, whichever worker executes it."""
        (plan,) = (plan for plan in PLANS if plan.name == "cut")
        start = {"messages": plan.message(run_id), "run_id": run_id, "cancel_on_disconnect": True}
        await start_and_die(self.server.address, start, self.rng)
        self.abandoned += 1
        async with self.server.client() as client:

            async def cancelled() -> bool:
                return (await client.runs.get(run_id, omit_result=True)).state == "cancelled"

            await until(cancelled, ABANDONED_SECONDS)

    async def _nothing_waits(self) -> None:
        """Every run has ended."""
        async with self.server.client() as client:
            left = [run async for run in client.runs.list(states=["queued", "running", "suspended"])]
            assert not left, left
            assert [call async for call in client.inbox.list()] == []
            decisions = [decision async for decision in client.inbox.decisions(page_size=1000)]
            of_people = [decision for decision in decisions if decision.principal != SYSTEM]
            assert len(of_people) == self.decisions, "decisions are lost"

    # ---- workers ----

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            await self._watch_once()

    async def _watch_once(self) -> None:
        for pid in self.server.workers:
            figures = self.server.figures(pid)
            if figures is None:
                continue
            if pid not in self.workers:
                tasks = (await self.server.tasks(pid))["tasks"]
                self.workers[pid] = Worker(pid, figures, tasks)
            self.workers[pid].memory.append(figures.memory)

    async def _kill(self) -> None:
        """A worker a minute, and at least one."""
        while True:
            await asyncio.sleep(min(KILL_SECONDS, self.seconds / 3))
            pid = self.server.workers[-1]  # the oldest one lives, to show how it grows
            self.kills += 1
            if pid in self.workers:
                self.workers[pid].killed = True
            os.kill(pid, signal.SIGKILL)

    # ---- the end ----

    def report(self) -> str:
        """The figures."""
        runs = sum(self.ended.values())
        lines = [
            f"{runs} runs ({', '.join(f'{count} {name}' for name, count in sorted(self.ended.items()))})",
            f"{self.decisions} decisions, none lost; {self.recovered} calls recovered by people",
            f"{self.attached} times attached; {self.deserted + self.abandoned} clients killed, "
            f"{self.abandoned} of their runs cancelled for it; {self.kills} workers killed; "
            f"{self.server.leases_lost} leases lost",
            *map(str, self.workers.values()),
            f"{self.connections} connections that clients still held at rest",
        ]
        return "\n".join(lines)

    def judge(self) -> None:
        """Nothing has leaked."""
        for worker in self.workers.values():
            growth = worker.growth()
            assert growth is None or growth < GROWTH, f"memory: {worker}"
            if worker.last is None:
                continue
            descriptors = worker.last.descriptors - self.connections
            assert descriptors <= worker.first.descriptors + LEFT, f"descriptors: {worker} {worker.names}"
            assert worker.last.threads <= worker.first.threads + LEFT, f"threads: {worker}"
            assert worker.tasks_left <= worker.tasks + LEFT, f"tasks: {worker} {worker.names}"


async def soak(
    databases: Databases, references: Mapping[str, Story], *, seconds: float, workers: int, seed: int
) -> str:
    """Soak for so long; the report. Raises what went wrong."""
    with tempfile.TemporaryDirectory() as folder, databases(Path(folder)) as store:
        async with served(Path(folder), store, workers, SETTINGS) as server:
            soaking = Soaking(server, references, random.Random(seed), seconds)
            try:
                await soaking.go()
                soaking.judge()
                assert await server.stop() == 0
                assert "Traceback" not in server.output
            except BaseException as error:
                # What matters comes last, where it is read.
                error.add_note(f"{server.output}\nseed {seed}\n{soaking.report()}\n{error!r}")
                raise
            return soaking.report()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        references = asyncio.run(play_quietly(Path(folder), f"sqlite:///{folder}/db"))
        databases = on_sqlite if given.store == "sqlite" else on_postgres(stack.enter_context(Postgres()))
        print(
            asyncio.run(
                soak(databases, references, seconds=given.seconds, workers=given.workers, seed=given.seed)
            )
        )


if __name__ == "__main__":
    main()
