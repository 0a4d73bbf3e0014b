"""Trying again: what may pass by itself is tried again for a while, on another connection if need be.

The database may be restarted, fail over to another server, be out of connections, or have chosen a
transaction as the victim of a deadlock. Operations recognise what an attempt before them did, so the
loss of an acknowledgement is a reason like the others.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from entracte_server.store.postgres.errors import (
    ConnectionLost,
    DatabaseError,
    is_callers_fault,
    is_passing,
    leaves_doubt,
    unavailable,
)

T = TypeVar("T")

PATIENCE_SECONDS = 5.0
"""How long it is tried, from the first attempt on."""

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds between attempts: the pause doubles."""


class Patience:
    """When to stop trying. One for all attempts at one thing."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + PATIENCE_SECONDS
        self._pause = FIRST_PAUSE

    async def after(self, error: DatabaseError | ConnectionLost) -> None:
        """Pause before the next attempt. Raises what the callers are to be told when there is none:
        `StoreUnavailable`, or `error` itself when the values they gave are to blame."""
        if isinstance(error, DatabaseError) and is_callers_fault(error):
            raise error
        if not is_passing(error) or self._loop.time() + self._pause > self._deadline:
            raise unavailable(error)
        await asyncio.sleep(self._pause * random.uniform(0.5, 1.0))
        self._pause = min(2 * self._pause, LONGEST_PAUSE)


async def insist(attempt: Callable[[bool], Awaitable[T]]) -> T:
    """The outcome of the first attempt that has one. `attempt` gets whether there was one before it that
    may have been committed. Raises `StoreUnavailable`, and what the attempts raise."""
    patience = Patience()
    again = False
    while True:
        try:
            return await attempt(again)
        except (DatabaseError, ConnectionLost) as error:
            again = again or leaves_doubt(error)
            await patience.after(error)
