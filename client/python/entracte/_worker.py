"""A worker: executes tools for agents of a server."""

import asyncio
import logging
import random
import signal
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import grpc.aio

from entracte._client import Client
from entracte._connection import Connection
from entracte._errors import EntracteError, WorkerSessionReplaced
from entracte._ids import new_id
from entracte._outcomes import duration_of
from entracte._retry import FIRST_PAUSE, LONGEST_PAUSE
from entracte._status import error_of
from entracte._work import Work
from entracte._worker_tools import WorkerTool
from entracte.v1 import worker_service_pb2 as pb

log = logging.getLogger("entracte")

FIRST_ATTEMPTS = 4
"""How often a server that never answered is tried."""

FIRST_ANSWER = 30.0
"""Seconds within which a server says that a session is registered."""

_PASSING = frozenset(
    {"UNAVAILABLE", "CANCELLED", "UNKNOWN", "INTERNAL", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"}
)


class Worker:
    """Executes tools in this process, for whichever agents have them.

        worker = Worker(client, tools=[refund])
        await worker.run()

    At most `concurrency` calls at once; synchronous functions run in threads. The connection may break and
    the server restart: what was begun goes on, and its outcome is handed in when the server is back.
    `drain_timeout` (seconds) is what calls that run get to end when the worker is stopped; what has not
    ended then is given to another worker, if the tool is idempotent, or else somebody is asked about it.
    """

    def __init__(
        self,
        client: Client,
        *,
        tools: Iterable[WorkerTool],
        concurrency: int = 10,
        drain_timeout: float | timedelta = 30.0,
    ) -> None:
        self.tools = {(tool.name, tool.version): tool for tool in tools}
        if not self.tools:
            raise ValueError("a worker needs at least one tool")
        if not 1 <= concurrency <= 1000:
            raise ValueError("concurrency must be from 1 to 1000")
        self.session_id = new_id()
        """Names this worker to the server, over all its connections."""
        self._connection: Connection = client._connection
        self._concurrency = concurrency
        drain = drain_timeout.total_seconds() if isinstance(drain_timeout, timedelta) else drain_timeout
        self._drain_timeout = drain
        self._work: dict[str, Work] = {}
        self._tasks: dict[asyncio.Task[None], Work | None] = {}
        """Calls that run; None is one that is given back."""
        self._stopping = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._registered = asyncio.Event()
        self._stream: Any = None
        self._silence = FIRST_ANSWER
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="entracte-tool")

    async def run(self, *, handle_signals: bool = True) -> None:
        """Execute calls until `stop`, or SIGTERM or SIGINT with `handle_signals`; then let what runs end.

        Raises what a server refuses for good: `WorkerToolExists`, `RoleRequired`, `InvalidArgument` and
        others, and `ServerUnreachable` where none ever answered. Once registered it waits for a server
        that is away as long as it takes.
        """
        loop = asyncio.get_running_loop()
        signals = (signal.SIGTERM, signal.SIGINT) if handle_signals else ()
        for number in signals:
            loop.add_signal_handler(number, self.stop)
        puller = asyncio.create_task(self._pull(), name="worker-pull")
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([puller, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not puller.done():
                await self._drain(puller)
            if puller.done() and not puller.cancelled():
                puller.result()
        finally:
            for number in signals:
                loop.remove_signal_handler(number)
            await self._end([puller, stopping])

    def stop(self) -> None:
        """Take nothing more, and end when what runs has ended. Idempotent."""
        self._stopping.set()

    async def registered(self) -> None:
        """Wait until the server knows this worker and its tools."""
        await self._registered.wait()

    @property
    def executing(self) -> int:
        """How many calls run now."""
        return len(self._tasks)

    async def _drain(self, puller: "asyncio.Task[None]") -> None:
        if self._stream is not None:  # it is opened again, and takes nothing
            self._stream.cancel()
        idle = asyncio.create_task(self._idle.wait())
        await asyncio.wait([idle, puller], timeout=self._drain_timeout, return_when=asyncio.FIRST_COMPLETED)
        await self._end([idle])

    async def _end(self, tasks: "list[asyncio.Task[Any]]") -> None:
        for work in self._work.values():
            work.cancel()
        ending = [*tasks, *self._tasks]
        for task in ending:
            task.cancel()
        await asyncio.wait(ending, timeout=5.0)
        self._threads.shutdown(wait=False, cancel_futures=True)

    # ---- the stream ----

    async def _pull(self) -> None:
        failures = 0
        while not (self._stopping.is_set() and self._idle.is_set()):
            error = await self._follow()
            if self._stopping.is_set() and self._idle.is_set():
                return
            if error is None:
                failures = 0
                continue
            if isinstance(error, WorkerSessionReplaced) or (error.reason and error.code not in _PASSING):
                raise error
            failures += 1
            if not self._registered.is_set() and (error.code not in _PASSING or failures >= FIRST_ATTEMPTS):
                raise error
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures - 1, 16)) * random.uniform(0.5, 1.0)
            if error.retry_after is not None:
                pause = max(pause, error.retry_after.total_seconds())
            log.info("the worker connects again in %.1f s: %s", pause, error)
            await asyncio.sleep(pause)

    async def _follow(self) -> EntracteError | None:
        """One stream, to its end; None where it had come to something."""
        stopping = self._stopping.is_set()
        request = pb.PullWorkRequest(
            session_id=self.session_id,
            tools=[tool.message() for tool in self.tools.values()],
            credit=0 if stopping else self._concurrency,
        )
        stream: Any = self._connection.workers.PullWork(request, metadata=self._connection.metadata())
        self._stream, self._silence, heard = stream, FIRST_ANSWER, False
        try:
            while True:
                async with asyncio.timeout(self._silence):
                    response = await stream.read()
                if response is grpc.aio.EOF:
                    return EntracteError("the stream ended", code="UNAVAILABLE")
                for event in response.events:
                    heard = self._take(event) or heard
        except grpc.aio.AioRpcError as failure:
            error = error_of(failure)
        except TimeoutError:
            error = EntracteError("the server fell silent", code="UNAVAILABLE")
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            error = EntracteError("the stream was cut off", code="CANCELLED")
        finally:
            stream.cancel()
            self._stream = None
        if self._stopping.is_set() and not stopping:
            return None
        return None if heard and error.code in _PASSING and not error.retry_after else error

    def _take(self, event: pb.WorkEvent) -> bool:
        """Take in what is told; whether it says that the session is registered."""
        kind = event.WhichOneof("event")
        if kind == "registered":
            self._silence = max(5.0, 2.5 * duration_of(event.registered.keep_alive).total_seconds())
            self._connection.answered()
            self._registered.set()
            return True
        if kind == "item":
            self._begin(event.item)
        elif kind == "cancelled":
            work = self._work.get(event.cancelled.work_id)
            if work is not None and work.item.token == event.cancelled.token:
                self._cancel(work)
        return False

    # ---- the work ----

    def _begin(self, item: pb.WorkItem) -> None:
        known = self._work.get(item.work_id)
        if known is not None:
            if known.item.token == item.token:
                return
            self._cancel(known)
        tool = self.tools.get((item.tool.name, item.tool.version)) if item.HasField("tool") else None
        work: Work | None = None
        if tool is None or self._stopping.is_set():
            body = self._abandon(item)
        else:
            self._work[item.work_id] = work = Work(item, tool, self._connection, self._threads)
            body = work.execute()
        task = asyncio.create_task(body, name=f"work:{item.tool.name}")
        self._tasks[task] = work
        self._idle.clear()
        task.add_done_callback(self._ended)

    async def _abandon(self, item: pb.WorkItem) -> None:
        request = pb.AbandonWorkRequest(work_id=item.work_id, token=item.token)
        try:
            await self._connection.call(self._connection.workers.AbandonWork, request, within=30.0)
        except EntracteError as error:
            log.info("work was not given back: %s", error)

    def _cancel(self, work: Work) -> None:
        work.cancel()
        for task, one in self._tasks.items():
            if one is work:
                task.cancel()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        work = self._tasks.pop(task, None)
        if work is not None and self._work.get(work.item.work_id) is work:
            del self._work[work.item.work_id]
        if not self._tasks:
            self._idle.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a tool's execution failed", exc_info=error)
