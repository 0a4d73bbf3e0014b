"""The lease of this process: that it is alive, and may go on with the runs it owns.

The lease is a row in the store. Here it is watched with this process's own clock, which started to
count before the store's did: when it says that the lease has ended, another process may own the runs,
and nothing of theirs is written or entered any more, whatever the store would say. A process that lost
its lease is another process from then on, with an id of its own.
"""

import asyncio
import sys
import time
from collections.abc import Callable

import structlog

from entracte_server.domain.errors import Refusal
from entracte_server.domain.ids import new_id
from entracte_server.store.base import Store, StoreError

_log = structlog.get_logger(__name__)

RENEWALS = 3
"""How many times a lease is renewed before it would end."""

MARGIN = 0.1
"""The part of a lease that must be left for a tool to be entered."""

if sys.platform == "linux":

    def _now() -> float:
        """Seconds, counted while the machine sleeps as well."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    _now = time.monotonic


class Lease:
    """See the module. `seconds` is how long it lasts without a renewal. `lost` is called, once for each
    loss, with the process id under which nothing may be done any more."""

    def __init__(self, store: Store, seconds: float, lost: Callable[[str], None]) -> None:
        self.process_id = ""
        """Who this process is for the store; empty while it has no lease."""
        self.gone = asyncio.Event()
        """Set while a lease that was lost is not replaced."""
        self._store = store
        self._seconds = seconds
        self._lost = lost
        self._ends = 0.0

    @property
    def interval(self) -> float:
        """Seconds between renewals."""
        return self._seconds / RENEWALS

    @property
    def owner(self) -> str:
        """The process id to own runs under. Raises `Refusal` STORE_UNAVAILABLE when there is no lease, or
        not enough of it to begin something."""
        if not self.held(margin=True):
            raise Refusal(
                "STORE_UNAVAILABLE",
                "This server has lost touch with its database; try again.",
                retry_after=1.0,
            )
        return self.process_id

    def held(self, process_id: str | None = None, *, margin: bool = False) -> bool:
        """Whether the lease lasts (still that of `process_id`, where it is given); with `margin`, long
        enough to begin something that cannot be taken back."""
        if not self.process_id or process_id not in (None, self.process_id):
            return False
        return _now() + (self._seconds * MARGIN if margin else 0.0) < self._ends

    async def take(self) -> None:
        """Begin a lease under a new process id. Raises `StoreError`."""
        process_id = new_id()
        begun = _now()
        await self._store.enter(process_id, self._seconds)
        self.process_id = process_id
        self._ends = begun + self._seconds
        self.gone.clear()

    async def renew(self) -> None:
        """Make the lease last, or begin another when it was lost. Never raises `StoreError`: what
        cannot be renewed ends by itself."""
        if self.check():
            process_id, begun = self.process_id, _now()
            try:
                renewed = await self._store.renew(process_id, self._seconds)
            except StoreError as error:
                _log.warning("lease_not_renewed", process_id=process_id, error=str(error))
            else:
                # It may have been lost meanwhile, and who was told so cannot be told otherwise.
                if process_id == self.process_id:
                    self._ends = max(self._ends, begun + self._seconds) if renewed else 0.0
        if not self.check():
            try:
                await self.take()
                _log.info("lease_taken", process_id=self.process_id)
            except StoreError as error:
                _log.warning("lease_not_taken", error=str(error))

    def check(self) -> bool:
        """Whether the lease lasts. Tells of a loss."""
        if self.held():
            return True
        if self.process_id:
            process_id, self.process_id = self.process_id, ""
            self.gone.set()
            _log.error("lease_lost", process_id=process_id)
            self._lost(process_id)
        return False

    async def give_up(self) -> None:
        """End the lease at once, so that others need not wait for it. Never raises `StoreError`."""
        process_id, self.process_id, self._ends = self.process_id, "", 0.0
        if process_id:
            try:
                await self._store.leave(process_id)
            except StoreError as error:
                _log.warning("lease_not_given_up", process_id=process_id, error=str(error))
