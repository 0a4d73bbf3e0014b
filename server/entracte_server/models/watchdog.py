"""A limit on silence that costs a stream next to nothing."""

import asyncio
from collections.abc import Awaitable, Callable

_CLOSE_LIMIT = 5.0


class Watchdog:
    """Closes a stream of bytes that has stopped. Times are in seconds.

    While its owner waits for bytes, `idle` bounds the silence, keep-alives included, and `patience`
    the time without progress: until the first progress, only `patience` counts. There is one timer,
    set again when it fires too early, and no task until there is something to close. Closing makes
    the owner's read fail; `fired` tells why, and `silent` whether it was for silence in an answer.
    """

    def __init__(self, close: Callable[[], Awaitable[None]], idle: float, patience: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._close = close
        self._idle = idle
        self._patience = patience
        self._waiting = False
        self._started = False
        self._since = self._progress_at = self._loop.time()
        self._progress = False
        self._closing: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(min(idle, patience), self._check)
        self.fired = False
        self.silent = False

    def wait(self) -> None:
        """The owner begins to wait for bytes."""
        self._waiting = True
        self._since = self._loop.time()
        if self._progress:
            self._progress = False
            self._progress_at = self._since

    def received(self, progress: bool) -> None:
        """Bytes have come; with `progress` they brought the answer forward."""
        self._waiting = False
        if progress:
            self._progress = self._started = True

    def hurry(self, idle: float) -> None:
        """From now on silence may last no longer than this."""
        if idle < self._idle:
            self._idle = idle
            self._timer.cancel()
            self._timer = self._loop.call_later(idle, self._check)

    async def stop(self) -> None:
        """Stops watching."""
        self._timer.cancel()
        if self._closing is not None:
            await asyncio.wait([self._closing], timeout=_CLOSE_LIMIT)

    def _check(self) -> None:
        now = self._loop.time()
        if not self._waiting:
            # The owner is busy with what came: silence is not the stream's fault, and does not count.
            self._timer = self._loop.call_at(now + self._idle, self._check)
            return
        deadline = self._progress_at + self._patience
        silent = self._started and self._since + self._idle < deadline
        if silent:
            deadline = self._since + self._idle
        if now < deadline:
            self._timer = self._loop.call_at(deadline, self._check)
        else:
            self.fired = True
            self.silent = silent
            self._closing = self._loop.create_task(self._run_close())

    async def _run_close(self) -> None:
        await self._close()
