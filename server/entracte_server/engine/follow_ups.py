"""What happens after the end of a run: jobs that were stored with it, done by any process that can.

A process that ends a run with jobs looks for them at once, every process looks now and then. Whoever
claims one has it for a time; what fails is tried again, up to a limit.
"""

import asyncio
import contextlib
import hashlib
from typing import TYPE_CHECKING

import msgspec
import structlog

from entracte_server.agents.agent import Agent
from entracte_server.domain.follow_ups import FollowUpRow
from entracte_server.domain.options import RunOptions
from entracte_server.engine import prompt
from entracte_server.engine.runlog import now_ms
from entracte_server.engine.scoring import Scored, ScorerRunner, scorer_input
from entracte_server.engine.settings import EngineSettings
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
"""Seconds after which a job that no process has the scorer for is given up."""


def scorer_handler(name: str) -> str:
    """What a process must have to run a scorer."""
    return f"score {name}"


def sampled(run_id: str, key: str, ratio: float | None) -> bool:
    """Whether a run is among the share that a scorer runs on. Always the same for a run, whoever asks
    and however often."""
    if ratio is None:
        return True
    drawn = hashlib.sha256(f"{run_id}\0{key}".encode()).digest()
    return int.from_bytes(drawn[:8]) < ratio * 2**64


def follow_ups_of(
    agent: Agent, options: RunOptions, tenant: str, run_id: str, *, succeeded: bool
) -> tuple[FollowUpRow, ...]:
    """The jobs of a run that ends now. Only results are scored: what failed or was cancelled is not."""
    scorers = agent.scorers if options.scorers is None else options.scorers
    if not scorers or not succeeded:
        return ()
    now = now_ms()
    rows = []
    for choice in scorers:
        drawn = sampled(run_id, choice.key, choice.ratio)
        rows.append(
            FollowUpRow(
                tenant=tenant,
                run_id=run_id,
                kind="score",
                name=choice.key,
                handler=scorer_handler(choice.scorer),
                state="waiting" if drawn else "skipped",
                create_time=now,
                due_time=now if drawn else 0,
                subject=choice.scorer,
                ratio=choice.ratio,
                finish_time=0 if drawn else now,
            )
        )
    return tuple(rows)


class FollowUps:
    """See the module. Its owner calls `tick` after each `pause`, and `stop` at the end."""

    def __init__(self, engine: "Engine", settings: EngineSettings, runner: ScorerRunner) -> None:
        self._engine = engine
        self._runner = runner
        scorers = engine.app.scorers.values()
        self._handlers = frozenset(scorer_handler(scorer.name) for scorer in scorers)
        longest = max((scorer.timeout or 0.0 for scorer in scorers), default=0.0)
        self._lease = max(longest, settings.scorer_timeout) + MARGIN
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
            outcome = await self._outcome(row)
            if await self._engine.store.settle_follow_up(self._settled(row, outcome)):
                # Those who wait for it look again, in every process.
                self._engine.hub.publish((row.tenant, row.run_id), None, None)
        except NotFound:  # the run was deleted
            return
        except StoreError as error:  # it is due again when this process's time for it is over
            _log.warning("follow_up_failed", error=str(error), **told)
        except Exception:
            _log.exception("follow_up_failed", **told)

    async def _outcome(self, row: FollowUpRow) -> Scored:
        engine = self._engine
        if row.attempts > 1 + len(DELAYS):
            return Scored(row.name, error="The processes that ran the scorer died.")
        scorer = engine.app.scorers.get(row.subject)
        if scorer is None:
            return Scored(row.name, error=f"No server has a scorer called {row.subject!r}.")
        snapshot = await engine.recollected(await engine.store.load(row.tenant, row.run_id))
        try:
            spec = prompt.processed(snapshot.spec, snapshot.processing)
            given = scorer_input(snapshot.run, spec, snapshot.steps, snapshot.calls)
        except Exception:
            _log.exception("follow_up_failed", run_id=row.run_id, follow_up=row.name)
            return Scored(row.name, error="The server failed.")
        with engine.telemetry.afterwards(snapshot, engine.app.agents.get(snapshot.run.agent_id)):
            return await self._runner.run(scorer, given)

    def _settled(self, row: FollowUpRow, outcome: Scored) -> FollowUpRow:
        """The job after an attempt that came to this."""
        now = now_ms()
        row = msgspec.structs.replace(
            row,
            owner="",
            due_time=0,
            score=outcome.score,
            reason=outcome.reason,
            error=outcome.error,
            usage=row.usage + outcome.usage,
            duration_ms=outcome.duration_ms,
        )
        if outcome.score is not None:
            return msgspec.structs.replace(row, state="succeeded", finish_time=now)
        if row.attempts > len(DELAYS) or row.subject not in self._engine.app.scorers:
            _log.warning("follow_up_given_up", run_id=row.run_id, follow_up=row.name, error=row.error[:300])
            return msgspec.structs.replace(row, state="failed", finish_time=now)
        delay = DELAYS[row.attempts - 1]
        asyncio.get_running_loop().call_later(delay, self._look.set)
        return msgspec.structs.replace(row, due_time=now + int(delay * 1000))
