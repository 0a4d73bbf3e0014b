"""When to try again, and how long to wait before."""

import asyncio
import random
from time import monotonic

from entracte._errors import DeadlineExceeded, EntracteError

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
FIRST_ATTEMPTS = 4
"""How often a server that never answered is tried."""

# What proxies and the transport say when a connection breaks; the server's own statuses have a reason.
_BROKEN = frozenset({"UNKNOWN", "INTERNAL"})


class Deadline:
    """The end of a wait. `timeout` is in seconds; None waits for ever."""

    def __init__(self, timeout: float | None) -> None:
        self._end = None if timeout is None else monotonic() + timeout

    def remaining(self) -> float | None:
        """Seconds left, None without end. Raises DeadlineExceeded when there are none."""
        if self._end is None:
            return None
        left = self._end - monotonic()
        if left <= 0:
            raise DeadlineExceeded("the timeout passed; the run goes on")
        return left

    def allows(self, pause: float) -> bool:
        """Whether there is time for a pause."""
        return self._end is None or monotonic() + pause < self._end


class Backoff:
    """Pauses between attempts: growing, with jitter, never shorter than the server asked for.

    Gives up after FIRST_ATTEMPTS where the server never answered, and after `patience` seconds
    without progress where it did, in this call or before (`reached`), or asks to come back.
    """

    def __init__(self, patience: float, deadline: Deadline, *, reached: bool = False) -> None:
        self._patience = patience
        self._deadline = deadline
        self._failures = 0
        self._since: float | None = None
        self._begun = monotonic()
        self._attached = False
        self._reached = reached

    def begin(self) -> None:
        """An attempt begins."""
        self._begun = monotonic()

    def answered(self) -> None:
        """The server answered. That alone is progress only when the attempt has lasted a while, or
        else one that answers and fails, over and over, would be tried for ever."""
        self._attached = True
        if monotonic() - self._begun > LONGEST_PAUSE:
            self.progress()

    def progress(self) -> None:
        """Something new arrived: the count starts again."""
        self._attached = True
        self._failures = 0
        self._since = None

    def may_try_again(self, error: EntracteError) -> bool:
        """Whether a call that failed may be made again: the server was unavailable, or the connection
        to one that had answered broke, or one that had taken this call said when to come back."""
        if error.code == "UNAVAILABLE":
            return True
        if not error.reason and error.code == "CANCELLED":
            # The first call of a connection gets this too: gRPC cancels what arrives as a server stops.
            return True
        if not error.reason and error.code in _BROKEN:
            return self._attached or self._reached
        return self._attached and error.retry_after is not None

    async def pause(self, error: EntracteError) -> None:
        """Wait before the next attempt. Raises `error` when there is to be none."""
        now = monotonic()
        self._failures += 1
        if self._since is None:
            self._since = now
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(self._failures - 1, 16)) * random.uniform(0.5, 1.0)
        if error.retry_after is not None:
            pause = max(pause, error.retry_after.total_seconds())
        elif not (self._attached or self._reached) and self._failures >= FIRST_ATTEMPTS:
            raise error
        if now + pause - self._since > self._patience or not self._deadline.allows(pause):
            raise error
        await asyncio.sleep(pause)
