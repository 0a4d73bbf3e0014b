"""What a server does by itself, about once a second: decide calls that have expired, delete what is old,
count what waits where somebody wants to know.

Each duty is held by one process at a time, so that they do not all do the same; should two of them
believe that they have it, the store still lets one of them win. Expiry is a duty of those that serve
the same agents and tools, since a run goes on where it was decided.
"""

import asyncio
import contextlib
import hashlib
from typing import TYPE_CHECKING

import structlog

from entracte_server.agents.agent import App
from entracte_server.domain import json_text
from entracte_server.domain.errors import Refusal
from entracte_server.domain.runs import PendingRow
from entracte_server.engine.endings import QUEUED_TOO_LONG
from entracte_server.engine.expired import decide_expired
from entracte_server.engine.lease import RENEWALS
from entracte_server.engine.runlog import now_ms
from entracte_server.engine.settings import EngineSettings
from entracte_server.store.base import Cancel, NotFound, Refused, Retention, StoreError

if TYPE_CHECKING:
    from entracte_server.engine.engine import Engine

_log = structlog.get_logger(__name__)

DUTY_SECONDS = 15.0
"""How long a process that fell silent keeps a duty, where it does not lose its runs before."""

ASK_SECONDS = 5.0
"""How often a duty is extended, or asked for."""

MAX_EXPIRED = 100
"""Expired calls decided in one tick; their runs go on at once, and not more than so many a second."""

AT_ONCE = 8
"""Of these, how many at the same time."""

LATER_SECONDS = 30.0
"""How long a call that could not be decided is left alone."""

MAX_LATER = 1000

TRIM_BATCH = 50
"""Runs, and request ids, in one transaction of deleting."""

TRIM_SECONDS = 0.25
"""How long one tick goes on deleting. What is left waits for the next."""

TRIM_PAUSE = 60.0
"""Seconds until it is looked again, when nothing old was left."""


MAX_SWEPT = 500
"""Pieces of work that are looked at in one tick."""

BACKLOG_SECONDS = 15.0
"""How often it is counted what waits."""


class Duty:
    """What one process does for all."""

    def __init__(self, engine: "Engine", name: str) -> None:
        self._engine = engine
        self._name = name
        self._asked_as = ""
        self._ask_again = 0.0
        self._mine = False

    async def mine(self) -> bool:
        """Whether this process has it. Raises `StoreError`."""
        process_id = self._engine.lease.process_id
        now = asyncio.get_running_loop().time()
        if process_id != self._asked_as or now >= self._ask_again:
            self._mine = False
            lease = self._engine.settings.lease
            if process_id:
                self._mine = await self._engine.store.lead(self._name, process_id, min(DUTY_SECONDS, lease))
            self._asked_as, self._ask_again = process_id, now + min(ASK_SECONDS, lease / RENEWALS)
        return self._mine


def same_app(app: App) -> str:
    """Tells whether two processes serve the same agents and toolsets with the same tools."""
    owners = [
        *((f"agent {agent.id}", agent.tools) for agent in app.every_agent.values()),
        *((f"toolset {toolset.name}", toolset.tools) for toolset in app.toolsets.values()),
        *([("tools", app.tools)] if app.tools else []),
    ]
    served = [
        (owner, sorted((name, tool.digest.hex()) for name, tool in tools.items())) for owner, tools in owners
    ]
    return hashlib.sha256(json_text.dump(sorted(served)).encode()).hexdigest()[:16]


class Upkeep:
    """See the module. Its owner calls `tick` again and again, one at a time."""

    def __init__(self, engine: "Engine", settings: EngineSettings) -> None:
        self._engine = engine
        self._settings = settings
        self._agents = frozenset(engine.app.every_agent)
        self._expiring = Duty(engine, f"expiry {same_app(engine.app)}")
        self._trimming = Duty(engine, "retention")
        self._counting = Duty(engine, "backlog")
        self._threads = Duty(engine, "threads")
        self._working = Duty(engine, "work")
        self._count_again = 0.0
        self._later: dict[str, float] = {}
        self._trim_again = 0.0

    async def tick(self) -> None:
        """A bounded piece of work. Raises `StoreError`; what fails for one call is logged."""
        try:
            await self._expire()
        except StoreError as error:
            _log.warning("expiry_failed", error=str(error))
        await self._look_after_threads()
        await self._sweep_work()
        await self._trim()
        if self._engine.telemetry.reads_backlog:
            await self._count()

    async def _count(self) -> None:
        engine, loop = self._engine, asyncio.get_running_loop()
        if not await self._counting.mine():
            self._count_again = 0.0
            engine.telemetry.backlog(None)
        elif loop.time() >= self._count_again:
            self._count_again = loop.time() + BACKLOG_SECONDS
            waiting: dict[str, tuple[int, int]] = {}
            for row in await engine.store.backlog():
                agent = engine.app.every_agent.get(row.agent_id)
                name = row.agent_id if agent is None else agent.name
                calls, oldest = waiting.get(name, (0, row.oldest))
                waiting[name] = (calls + row.calls, min(oldest, row.oldest))
            engine.telemetry.backlog(waiting)

    # ---- expiry ----

    async def _expire(self) -> None:
        if self._engine.draining or not await self._expiring.mine():
            return
        loop_now, now = asyncio.get_running_loop().time(), now_ms()
        self._later = {key: until for key, until in self._later.items() if until > loop_now}
        found = await self._engine.store.expired(
            now, agents=self._agents, limit=MAX_EXPIRED + len(self._later)
        )
        due = [row for row in found if row.pending_call_id not in self._later][:MAX_EXPIRED]
        for start in range(0, len(due), AT_ONCE):
            await asyncio.gather(*(self._decide(row, now) for row in due[start : start + AT_ONCE]))

    async def _decide(self, row: PendingRow, now: int) -> None:
        told = {"run_id": row.run_id, "pending_call_id": row.pending_call_id, "tool": row.tool_name}
        try:
            if await decide_expired(self._engine, row, now):
                _log.info("call_expired", **told)
                return
        except (Refused, NotFound):  # somebody was quicker, or the run is gone
            return
        except (Refusal, StoreError) as error:
            _log.warning("expiry_failed", error=str(error), **told)
            return
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException:  # a tool's validators are their author's code, which may raise anything
            _log.exception("expiry_failed", **told)
        if len(self._later) >= MAX_LATER:
            self._later.clear()
        self._later[row.pending_call_id] = asyncio.get_running_loop().time() + LATER_SECONDS

    # ---- threads ----

    async def _look_after_threads(self) -> None:
        """End the runs that have waited for their threads for too long, and delete what deleted threads
        left behind."""
        engine = self._engine
        if engine.draining or not await self._threads.mine():
            return
        now = now_ms()
        for row in await engine.store.overdue(now, limit=MAX_EXPIRED):
            op = Cancel(row.tenant, row.run_id, QUEUED_TOO_LONG, engine.owner, now)
            with contextlib.suppress(NotFound):
                await engine.cancel(op)
        loop = asyncio.get_running_loop()
        end = loop.time() + TRIM_SECONDS
        while await engine.store.sweep_threads(limit=TRIM_BATCH) and loop.time() < end:
            pass

    # ---- work ----

    async def _sweep_work(self) -> None:
        """Give out again, or give up, work whose time or whose worker is gone."""
        engine = self._engine
        if engine.draining or not await self._working.mine():
            return
        if await engine.store.is_work_due():
            engine.desk.swept(await engine.store.sweep_work(limit=MAX_SWEPT))

    # ---- retention ----

    async def _trim(self) -> None:
        loop = asyncio.get_running_loop()
        old = self._old()
        if old == Retention() or loop.time() < self._trim_again or not await self._trimming.mine():
            return
        end = loop.time() + TRIM_SECONDS
        while await self._engine.store.trim(old, limit=TRIM_BATCH):
            if loop.time() >= end:
                return
        self._trim_again = loop.time() + TRIM_PAUSE

    def _old(self) -> Retention:
        now, settings = now_ms(), self._settings

        def before(seconds: float | None) -> int:
            return 0 if seconds is None else now - int(seconds * 1000)

        return Retention(
            chunks=before(settings.retain_chunks),
            runs=before(settings.retain_runs),
            requests=before(settings.retain_requests),
        )
