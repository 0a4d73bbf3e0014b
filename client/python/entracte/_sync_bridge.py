"""Calling async code from blocking code: an event loop in a thread of its own."""

import asyncio
import functools
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_END: Any = object()


class LoopThread:
    """An event loop that runs in a daemon thread until it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="entracte", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether the loop was stopped."""
        return self._loop.is_closed()

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Wait for a coroutine. When the waiting is interrupted, the coroutine is cancelled.

        Raises RuntimeError when the loop is closed or waits for itself.
        """
        if threading.current_thread() is self._thread or self._loop.is_closed():
            work.close()
            raise RuntimeError("the client is closed, or is used from one of its own coroutines")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()

    def iterate(self, make: Callable[[], AsyncGenerator[T, None]]) -> Generator[T, None, None]:
        """The items of an async generator. Leaving the loop closes it."""
        items = make()
        step: asyncio.Task[Any] | None = None

        async def advance() -> T:
            nonlocal step
            step = asyncio.current_task()
            return await anext(items, _END)

        async def close() -> None:
            if step is not None and not step.done():
                step.cancel()
                await asyncio.wait({step})
            await items.aclose()

        try:
            while (item := self.run(advance())) is not _END:
                yield item
        finally:
            self._finish(close())

    def _finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Like `run`, for what must be done on any thread and even after the end."""
        if self._loop.is_closed():
            work.close()
        elif threading.current_thread() is self._thread:
            # A generator that was thrown away is closed wherever it is found, here too.
            task = self._loop.create_task(work)
            self._last = task
        else:
            self.run(work)

    def close(self) -> None:
        """Stop the loop and its thread."""
        if self._loop.is_closed():
            return
        self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Face:
    """The blocking side of an async object."""

    def __init__(self, loop: LoopThread, inner: Any) -> None:
        self._loop = loop
        self._inner = inner


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], R]:
    """The blocking form of a coroutine method, with its signature and documentation."""

    @functools.wraps(method)
    def call(self: Face, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._loop.run(method(self._inner, *args, **kwargs))

    return call


def iterating(
    method: Callable[Concatenate[Any, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Any, P], Generator[T, None, None]]:
    """The blocking form of a method that returns an async generator."""

    @functools.wraps(method)
    def call(self: Face, /, *args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        return self._loop.iterate(lambda: method(self._inner, *args, **kwargs))

    return call
