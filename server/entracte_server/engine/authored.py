"""Entering code that authors wrote: coroutines in tasks, other functions in threads of their own.

Nothing that such code raises ends the server, and nothing of it holds up the event loop.
"""

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
import structlog

from entracte_server.domain.data import Data

_log = structlog.get_logger(__name__)

T = TypeVar("T")
D = TypeVar("D", bound=Data)


class AuthoredCode:
    """Runs what authors wrote, for a process. Threads are at most `threads` at a time; one that cannot
    be stopped is left behind and what it gives dropped, but it keeps its place until it ends. A cancelled
    task gets `cancel_grace` seconds to end before it is left behind. Both raise what the code raises."""

    def __init__(self, threads: int, cancel_grace: float) -> None:
        self._threads = asyncio.Semaphore(threads)
        self._cancel_grace = cancel_grace
        self._left_behind: set[asyncio.Task[Any]] = set()

    async def in_task(
        self, body: Callable[[], Awaitable[T]], name: str, on_cancel: Callable[[], None] | None = None
    ) -> T:
        """What `body` gives. `on_cancel` is called before the task is cancelled."""
        task = asyncio.create_task(_guard(body), name=name)
        try:
            value, error = await asyncio.shield(task)
        except asyncio.CancelledError:
            if on_cancel is not None:
                on_cancel()
            task.cancel()
            if not task.done():
                await asyncio.wait((task,), timeout=self._cancel_grace)
            if not task.done():
                _log.warning("left_behind", task=name)
                self._left_behind.add(task)
                task.add_done_callback(self._forget)
            elif not task.cancelled():
                task.exception()
            raise
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._left_behind.discard(task)
        if not task.cancelled():
            task.exception()

    async def in_thread(self, body: Callable[[], T], name: str) -> T:
        """What `body` gives, in a thread."""
        await self._threads.acquire()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()
        context = contextvars.copy_context()

        def finish(outcome: tuple[T | None, BaseException | None]) -> None:
            self._threads.release()
            if not done.done():
                done.set_result(outcome)

        def work() -> None:
            outcome: tuple[T | None, BaseException | None]
            try:
                outcome = (context.run(body), None)
            except BaseException as error:
                outcome = (None, error)
            try:
                loop.call_soon_threadsafe(finish, outcome)
            except RuntimeError:  # the loop was closed: nobody waits any more
                return

        try:
            threading.Thread(target=work, name=name, daemon=True).start()
        except BaseException:
            self._threads.release()
            raise
        value, error = await done
        if error is not None:
            raise error
        return value  # type: ignore[return-value]


def message_of(error: BaseException) -> str:
    """What an error that such code raised says, or else its type."""
    try:
        return str(error) or type(error).__name__
    except BaseException:  # an exception's text is its author's code
        return type(error).__name__


def as_stored(answer: D) -> D:
    """What such code answered as it is read from the store again, so that nothing is stored that cannot be
    read, and nothing is used that is another thing after a restart. Raises `ValueError`."""
    try:
        return msgspec.msgpack.decode(msgspec.msgpack.encode(answer), type=type(answer))
    except Exception as error:  # of what is in it the types are anybody's guess
        raise ValueError(f"its answer cannot be used: {message_of(error)}") from None


async def _guard(body: Callable[[], Awaitable[T]]) -> tuple[T | None, BaseException | None]:
    """The body's value or what it raised. A task must not raise SystemExit or KeyboardInterrupt
    (asyncio would stop the loop), and a cancellation the code made itself must not look like ours."""
    try:
        return await body(), None
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return None, error
