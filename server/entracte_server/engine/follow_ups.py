"""What happens after the end of a run: jobs that were stored with it, done by any process that can.

A process that ends a run with jobs looks for them at once, every process looks now and then. Whoever
claims one has it for a time; what fails is tried again, up to a limit. What a job consists of, its kind's
runner knows.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import msgspec
import structlog

from entracte_server.domain.data import Data
from entracte_server.domain.follow_ups import FollowUpKind, FollowUpRow, FollowUpState
from entracte_server.domain.results import Usage
from entracte_server.domain.runs import Snapshot
from entracte_server.engine.runlog import now_ms
from entracte_server.store.base import ClaimFollowUps, NotFound, StoreError

if TYPE_CHECKING:
    from entracte_server.engine.engine import Engine

_log = structlog.get_logger(__name__)

AT_ONCE = 16
"""Jobs that a process does at the same time."""

LOOK_SECONDS = 5.0
"""How often a process looks for jobs that nobody told it of."""

LOOK_SELDOM = 60.0
"""As `LOOK_SECONDS`, for a process that can do none: it only gives up what nobody does."""

MARGIN = 30.0
"""How long a process has a job beyond the time the job may take."""

DELAYS = (2.0, 30.0)
"""Seconds from a failed attempt to the next; there are no more attempts than that."""

GIVEN_UP = 24 * 3600.0
"""Seconds after which a job that no process can do is given up."""


class Attempt(Data, frozen=True):
    """What an attempt at a job came to: to an `error`, or else it is done, or `skipped` because it is not to
    be done any more. `usage` is what models used."""

    error: str = ""
    skipped: bool = False
    score: float | None = None
    reason: str = ""
    title: str = ""
    usage: Usage = Usage()
    duration_ms: int = 0


class FollowUpRunner(Protocol):
    """Does the jobs of one kind, for a process."""

    @property
    def handlers(self) -> frozenset[str]:
        """Those of its jobs that it can do, by their `handler`."""
        ...

    @property
    def longest(self) -> float:
        """Seconds that an attempt takes at most."""
        ...

    def lacks(self, row: FollowUpRow) -> str:
        """Why this process cannot do a job; empty when it can."""
        ...

    def lost(self, row: FollowUpRow) -> str:
        """What is said of a job all of whose attempts ended with their process."""
        ...

    async def run(self, row: FollowUpRow, snapshot: Snapshot) -> Attempt:
        """Do it once. `snapshot` is its run, with what that remembers. Raises `StoreError`."""
        ...


class FollowUps:
    """See the module. Its owner calls `tick` after each `pause`, and `stop` at the end."""

    def __init__(self, engine: "Engine", runners: Mapping[FollowUpKind, FollowUpRunner]) -> None:
        self._engine = engine
        self._runners = runners
        self._handlers = frozenset[str]().union(*(runner.handlers for runner in runners.values()))
        self._lease = max(runner.longest for runner in runners.values()) + MARGIN
        self._tasks: set[asyncio.Task[None]] = set()
        self._more = False
        self._look = asyncio.Event()
        self._look.set()

    def look(self) -> None:
        """There may be something to do."""
        self._look.set()

    async def pause(self) -> None:
        """Until there may be something to do, or for a while."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS if self._handlers else LOOK_SELDOM):
                await self._look.wait()
        self._look.clear()

    async def tick(self) -> None:
        """Begin as many jobs as there is room for. Raises `StoreError`."""
        engine, room = self._engine, AT_ONCE - len(self._tasks)
        if engine.draining or not engine.lease.process_id or room < 1:
            return
        now = now_ms()
        claimed = await engine.store.claim_follow_ups(
            ClaimFollowUps(
                process_id=engine.lease.process_id,
                handlers=self._handlers,
                now=now,
                until=now + int(self._lease * 1000),
                limit=room,
                given_up=now - int(GIVEN_UP * 1000),
            )
        )
        self._more = len(claimed) == room
        for row in claimed:
            task = asyncio.create_task(self._do(row), name=f"follow-up:{row.name}")
            self._tasks.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._more:  # it was full
            self._look.set()

    async def stop(self) -> None:
        """Cut off what is being done, and leave it to others."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
            try:
                await self._engine.store.release_follow_ups(self._engine.lease.process_id)
            except StoreError as error:  # they are others' when this process is gone
                _log.warning("follow_ups_not_released", error=str(error))

    async def _do(self, row: FollowUpRow) -> None:
        told = {"run_id": row.run_id, "follow_up": row.name}
        try:
            attempt = await self._attempt(row)
            if await self._engine.store.settle_follow_up(self._settled(row, attempt)):
                # Those who wait for it look again, in every process.
                self._engine.hub.publish((row.tenant, row.run_id), None, None)
        except NotFound:  # the run was deleted
            return
        except StoreError as error:  # it is due again when this process's time for it is over
            _log.warning("follow_up_failed", error=str(error), **told)
        except Exception:
            _log.exception("follow_up_failed", **told)

    async def _attempt(self, row: FollowUpRow) -> Attempt:
        engine, runner = self._engine, self._runners[row.kind]
        if row.attempts > 1 + len(DELAYS):
            return Attempt(runner.lost(row))
        if lacking := runner.lacks(row):
            return Attempt(lacking)
        snapshot = await engine.recollected(await engine.store.load(row.tenant, row.run_id))
        with engine.telemetry.afterwards(snapshot, await engine.agents.agent_of(snapshot)):
            try:
                return await runner.run(row, snapshot)
            except StoreError:
                raise
            except Exception:
                _log.exception("follow_up_failed", run_id=row.run_id, follow_up=row.name)
                return Attempt("The server failed.")

    def _settled(self, row: FollowUpRow, attempt: Attempt) -> FollowUpRow:
        """The job after an attempt that came to this."""
        now = now_ms()
        row = msgspec.structs.replace(
            row,
            owner="",
            due_time=0,
            score=attempt.score,
            reason=attempt.reason,
            title=attempt.title,
            error=attempt.error,
            usage=row.usage + attempt.usage,
            duration_ms=attempt.duration_ms,
        )
        if not attempt.error:
            state: FollowUpState = "skipped" if attempt.skipped else "succeeded"
            return msgspec.structs.replace(row, state=state, finish_time=now)
        if row.attempts > len(DELAYS) or self._runners[row.kind].lacks(row):
            _log.warning("follow_up_given_up", run_id=row.run_id, follow_up=row.name, error=row.error[:300])
            return msgspec.structs.replace(row, state="failed", finish_time=now)
        delay = DELAYS[row.attempts - 1]
        asyncio.get_running_loop().call_later(delay, self._look.set)
        return msgspec.structs.replace(row, due_time=now + int(delay * 1000))
