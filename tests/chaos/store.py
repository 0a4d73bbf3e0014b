"""A store with traps around each operation that changes something."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from entracte_server.store.base import Cancel, CreateRun, Decide, RunWrite, Store, Written
from tests.chaos.traps import Traps

T = TypeVar("T")


def points_of(op: RunWrite) -> list[str]:
    """What a write of a run's owner is: all that holds of it, or `chunks` when it has nothing else."""
    points = {
        "step": bool(op.steps),
        "started": any(call.state == "started" for call in op.calls),
        "done": any(call.state == "done" for call in op.calls),
        "opened": bool(op.opened),
        "attempt": op.patch is not None and (op.patch.attempt or 0) > 1,
        "park": op.park is not None,
        "end": op.end is not None,
        "release": op.release is not None,
    }
    return [point for point, holds in points.items() if holds] or ["chunks"]


class TrappedStore:
    """A `Store` over another one; what is not below passes unchanged."""

    def __init__(self, store: Store, traps: Traps) -> None:
        self._store = store
        self._traps = traps

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def _pass(
        self,
        points: list[str],
        run: str,
        work: Callable[[], Awaitable[T]],
        counts: Callable[[T], bool] = lambda _: True,
    ) -> T:
        """Do `work` with the traps of `points` around it. `counts` tells whether it did anything."""
        await self._traps.at(points, "before", run)
        doing = asyncio.ensure_future(work())
        self._traps.during(points, run)
        result = await doing
        if counts(result):
            await self._traps.at(points, "after", run)
        return result

    async def create_run(self, op: CreateRun) -> Any:
        """See `Store.create_run`."""
        return await self._pass(["create"], op.run.run_id, lambda: self._store.create_run(op))

    def submit(self, op: RunWrite) -> "asyncio.Future[Written]":
        """See `Store.submit`. A run has one write under way at a time, so that they stay in order."""
        if not self._traps.any():
            return self._store.submit(op)
        return asyncio.ensure_future(self.write(op))

    async def write(self, op: RunWrite) -> Written:
        """See `Store.write`."""
        return await self._pass(points_of(op), op.run_id, lambda: self._store.submit(op))

    async def decide(self, op: Decide) -> Any:
        """See `Store.decide`."""
        point = "expire" if op.expiry else "decide"
        return await self._pass([point], op.decision.run_id, lambda: self._store.decide(op))

    async def cancel(self, op: Cancel) -> Any:
        """See `Store.cancel`."""
        return await self._pass(["cancel"], op.run_id, lambda: self._store.cancel(op))

    async def take_over(self, tenant: str, run_id: str, **how: Any) -> Any:
        """See `Store.take_over`."""
        return await self._pass(
            ["take_over"],
            run_id,
            lambda: self._store.take_over(tenant, run_id, **how),
            lambda taken: taken is not None,
        )

    async def enter(self, process_id: str, seconds: float) -> None:
        """See `Store.enter`."""
        await self._pass(["enter"], "", lambda: self._store.enter(process_id, seconds))

    async def renew(self, process_id: str, seconds: float) -> bool:
        """See `Store.renew`."""
        return await self._pass(["renew"], "", lambda: self._store.renew(process_id, seconds))


def set_traps() -> None:
    """Have the servers of this process work on stores with traps."""
    from entracte_server.app import running
    from entracte_server.store.opening import open_store
    from tests.chaos.traps import traps

    async def open_trapped(*arguments: Any, **more: Any) -> TrappedStore:
        return TrappedStore(await open_store(*arguments, **more), traps)

    running.open_store = open_trapped  # type: ignore[attr-defined]
