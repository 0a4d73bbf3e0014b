"""The rounds of a process: once a second it looks for itself at what others may have told it.

A round is: what others want of the runs that are executed here (decisions, cancellations), how the
runs stand that are executed elsewhere and followed here, and which runs nobody executes any more.
Signals make all of this quick; the rounds make it certain. The lease is renewed by a task of its own,
so that nothing a round waits for can cost it.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import structlog

from entracte_server.domain.errors import Reason
from entracte_server.domain.runs import RunRow
from entracte_server.engine import claiming
from entracte_server.engine.follow_ups import FollowUps
from entracte_server.engine.hub import RunKey
from entracte_server.store.base import NotFound, StoreError
from entracte_server.store.signals import FREE_RUNS, followed_topic, read_topic

if TYPE_CHECKING:
    from entracte_server.engine.engine import Engine

_log = structlog.get_logger(__name__)

ROUND = 1.0
"""Seconds between rounds."""

PAGE = 500
"""Runs that are looked at in one read."""

MAX_TAKEN = 64
"""Runs that are taken over in one round; others may take the rest meanwhile."""

OWN_ROUNDS = 5
"""Every how many rounds a process looks for runs that it owns and does not execute."""

PATIENCE = 3
"""Rounds in which nobody may take a run over before its readers are told that nobody here can."""

MAX_FAILED_ROUNDS = 5
"""Rounds that may fail in a row before readers are sent to the store, which tells them why."""


class Keeper:
    """Owns the rounds of an engine. `upkeep` is done about once a second as well, and `follow_ups` when
    there are any, each by itself."""

    def __init__(
        self,
        engine: "Engine",
        upkeep: Callable[[], Awaitable[None]] | None = None,
        follow_ups: FollowUps | None = None,
    ) -> None:
        self._engine = engine
        self._upkeep = upkeep
        self._follow_ups = follow_ups
        self._tasks: list[asyncio.Task[None]] = []
        self._rounds = 0
        self._failed_rounds = 0
        self._free_runs = asyncio.Event()
        self._alone: dict[RunKey, int] = {}
        self._unattended: dict[RunKey, Reason] = {}
        self._beyond: dict[RunKey, int] = {}
        """Runs that nobody owns and that cannot be executed here, with the fence when that was seen."""

    def start(self) -> None:
        """Begin the rounds."""
        signals, lease = self._engine.store.signals, self._engine.lease
        signals.listen(self._heard)
        signals.watch(FREE_RUNS)
        steps: list[tuple[str, Callable[[], Awaitable[None]], Callable[[], Awaitable[None]]]] = [
            ("lease", lease.renew, self._until_renewal),
            # Nothing that a round waits for may keep a loss of the lease from being noticed.
            ("watch", self._watch_lease, lambda: asyncio.sleep(ROUND)),
            ("rounds", self.round, self._until_next_round),
            ("work", self._engine.desk.look, lambda: asyncio.sleep(ROUND)),
        ]
        if self._upkeep is not None:
            steps.append(("upkeep", self._upkeep, lambda: asyncio.sleep(ROUND)))
        if self._follow_ups is not None:
            steps.append(("follow_ups", self._follow_ups.tick, self._follow_ups.pause))
        self._tasks = [
            asyncio.create_task(_again_and_again(name, step, pause), name=name) for name, step, pause in steps
        ]

    async def stop_rounds(self) -> None:
        """Take over nothing more, and do no more upkeep; the lease is still renewed."""
        await _end(self._tasks[2:])

    async def stop(self) -> None:
        """Stop everything. Idempotent."""
        self._engine.store.signals.listen(_deaf)
        await _end(self._tasks)

    async def _until_renewal(self) -> None:
        """A part of the lease, or until it is lost; when it cannot be had, about a second."""
        lease = self._engine.lease
        if lease.process_id:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(lease.interval):
                    await lease.gone.wait()
        else:
            await asyncio.sleep(ROUND)

    async def _watch_lease(self) -> None:
        self._engine.lease.check()

    async def _until_next_round(self) -> None:
        """About a second, so that processes do not go in step; or until there are runs to take over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ROUND * random.uniform(0.8, 1.2)):
                await self._free_runs.wait()
        self._free_runs.clear()

    def look(self) -> None:
        """There may be runs to take over."""
        self._free_runs.set()

    # ---- what others tell ----

    def _heard(self, topic: str) -> None:
        kind, tenant, run_id = read_topic(topic)
        key = (tenant, run_id)
        if kind == "run":
            self._engine.hub.look_again(key)
        elif kind == "command":
            self._engine.take_up(key)
        elif kind == "followed":
            self._engine.followed_elsewhere(key)
        elif kind == "inbox":
            self._engine.hub.inbox.changed_elsewhere(tenant)
        elif kind == "work":
            self._engine.desk.heard(tenant, run_id)
        elif kind == "seen":
            self._engine.outside.look(tenant, run_id)
        elif topic == FREE_RUNS:
            self._free_runs.set()

    # ---- what a round does ----

    async def round(self) -> None:
        """One round. Raises `StoreError`. When rounds keep failing, or there is no lease to do them with,
        those who follow what happens elsewhere find out for themselves that it cannot be seen any more."""
        self._failed_rounds += 1
        if self._engine.lease.check():
            try:
                await self._round()
                self._failed_rounds = 0
            except StoreError:
                self._send_readers()
                raise
        else:
            self._send_readers()

    def _send_readers(self) -> None:
        if self._failed_rounds > MAX_FAILED_ROUNDS:
            for key in self._engine.hub.remote:
                self._engine.hub.look_again(key)

    async def _round(self) -> None:
        engine = self._engine
        self._rounds += 1
        for key in await engine.store.commands(engine.lease.process_id):
            engine.take_up(key)
        await self._look_around()
        await self.take_over()

    async def _look_around(self) -> None:
        """At the runs that are followed here and executed elsewhere, or nowhere."""
        engine = self._engine
        keys = engine.hub.remote
        alone: dict[RunKey, int] = {}
        for start in range(0, len(keys), PAGE):
            page = keys[start : start + PAGE]
            seen = await engine.store.peek(page)
            engine.hub.saw(seen)
            for gone in set(page) - {(sighting.tenant, sighting.run_id) for sighting in seen}:
                engine.hub.look_again(gone)
            for sighting in seen:
                key = (sighting.tenant, sighting.run_id)
                if sighting.alive:
                    if engine.hub.followers(key):
                        engine.store.signals.send(sighting.owner, followed_topic(*key))
                elif sighting.state == "running":
                    alone[key] = self._alone.get(key, 0) + 1
        self._alone = alone
        self._unattended = {key: why for key, why in self._unattended.items() if key in alone}
        for key, rounds in alone.items():
            if rounds > PATIENCE and key not in self._unattended:
                with contextlib.suppress(NotFound):
                    run = await engine.store.get_run(*key)
                    if key not in self._beyond and await engine.agents.knows(run.tenant, run.agent_id):
                        continue
                    self._unattended[key] = "AGENT_UNAVAILABLE"
                    engine.hub.wake(key)

    def unattended(self, key: RunKey) -> Reason | None:
        """Why nobody goes on with a run that is followed here, where that is known."""
        return self._unattended.get(key)

    async def take_over(self) -> None:
        """Take over runs that no living process owns and, now and then, those that this one owns but
        does not execute. Raises `StoreError`."""
        engine = self._engine
        owner = engine.lease.process_id
        # Those that cannot be executed here must not hide the others.
        limit = MAX_TAKEN + len(self._beyond)
        free = await engine.store.orphans(frozenset(engine.app.agents), limit=limit)
        seen = {(row.tenant, row.run_id) for row in free}
        self._beyond = {key: fence for key, fence in self._beyond.items() if key in seen}
        lost = [row for row in free if await self._can_execute(row)]
        if self._rounds % OWN_ROUNDS == 0:
            lost += [row for row in await engine.store.owned(owner) if engine.idle((row.tenant, row.run_id))]
        for row in lost:
            # A run of this process was given up because the store failed, which is no fault of its own,
            # or because executing it failed in a way that nobody foresaw.
            key = (row.tenant, row.run_id)
            counted = row.owner != owner or key in engine.broken
            taken = await engine.store.take_over(*key, fence=row.fence, owner=owner, counted=counted)
            if taken is not None:
                engine.broken.discard(key)
                engine.recover(taken)

    def cannot(self, key: RunKey, fence: int) -> None:
        """What a run needs is not here; it is left to others."""
        self._beyond[key] = fence

    async def _can_execute(self, row: RunRow) -> bool:
        key = (row.tenant, row.run_id)
        if row.cancel_reason is not None:
            return True
        if self._beyond.get(key) == row.fence:
            return False
        try:
            lacking = await claiming.lacking(self._engine, row)
        except NotFound:  # it was deleted
            return False
        if lacking is not None:
            _log.warning("run_left_alone", run_id=row.run_id, agent_id=row.agent_id, missing=lacking)
            self.cannot(key, row.fence)
        return lacking is None


async def _again_and_again(
    name: str, step: Callable[[], Awaitable[None]], pause: Callable[[], Awaitable[None]]
) -> None:
    while True:
        await pause()
        try:
            await step()
        except StoreError as error:
            _log.warning(f"{name}_failed", error=str(error))
        except Exception:
            _log.exception(f"{name}_failed")


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


def _deaf(topic: str) -> None:
    """Nobody listens."""
