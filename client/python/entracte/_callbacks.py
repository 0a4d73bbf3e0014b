"""Callbacks that observe a run. They cannot hold up or change what they observe."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypedDict, TypeVar

from entracte._chunks import AbortChunk, Chunk
from entracte._errors import EntracteError
from entracte._outcomes import RunError
from entracte._results import GenerateResult, StepResult

log = logging.getLogger("entracte")

T = TypeVar("T")
Callback = Callable[[T], Awaitable[object] | object]
"""A function or coroutine function; what it returns is not looked at."""

GRACE = 5.0
"""How many seconds the end of a stream waits for callbacks that are behind."""


class Callbacks(TypedDict, total=False):
    """Functions that are told what happens; all may be coroutine functions.

    They are called in order, beside the stream: one that is slow does not slow it down, one that
    raises is logged (logger `entracte`). At the end those still behind get 5 seconds.
    """

    on_chunk: Callback[Chunk]
    """Every chunk, sub-agents' too."""
    on_step_finish: Callback[StepResult]
    """Each step of the run's own agent, when it has ended."""
    on_finish: Callback[GenerateResult]
    """The result, once, when the run has ended other than by an error or a cancellation. A run that
    parks has not ended."""
    on_error: Callback[RunError | EntracteError]
    """Why the run failed, or why its stream could not be read."""
    on_abort: Callback[AbortChunk]
    """The run was cancelled."""
    on_title_generated: Callback[str]
    """The title that the run's thread was given, if it was given one. The end of the stream waits for it,
    for 30 seconds at most; after that it is in `client.threads.get` and `client.runs.follow_ups`."""


NAMES = frozenset(Callbacks.__annotations__)


def callbacks_in(options: Any) -> Callbacks:
    """The callbacks among keyword arguments."""
    found: Any = {name: options[name] for name in NAMES if options.get(name) is not None}
    return found  # type: ignore[no-any-return]


class Observer:
    """Calls callbacks, one after the other, in a task of its own."""

    def __init__(self, callbacks: Callbacks, *, in_threads: bool) -> None:
        self._callbacks = callbacks
        self._in_threads = in_threads
        self._queue: asyncio.Queue[tuple[str, Any] | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    def wants(self, name: str) -> bool:
        """Whether there is such a callback."""
        return name in self._callbacks

    def emit(self, name: str, value: Any) -> None:
        """Have a callback called, if there is one."""
        if name not in self._callbacks:
            return
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="entracte callbacks")
        self._queue.put_nowait((name, value))

    async def drain(self) -> None:
        """Wait until all were called, for GRACE seconds at most."""
        task, self._task = self._task, None
        if task is None:
            return
        self._queue.put_nowait(None)
        try:
            done, _ = await asyncio.wait({task}, timeout=GRACE)
            if not done:
                log.warning("callbacks did not end within %s seconds and were given up", GRACE)
        finally:
            task.cancel()

    async def _run(self) -> None:
        while (item := await self._queue.get()) is not None:
            name, value = item
            callback: Any = self._callbacks[name]  # type: ignore[literal-required]
            try:
                if self._in_threads and not inspect.iscoroutinefunction(callback):
                    outcome = await asyncio.to_thread(callback, value)
                else:
                    outcome = callback(value)
                if inspect.isawaitable(outcome):
                    await outcome
            except Exception:
                log.exception("callback %s raised", name)
