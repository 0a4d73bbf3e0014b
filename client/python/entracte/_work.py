"""One piece of work that a worker executes: the tool's body, what it writes meanwhile, what it comes to."""

import asyncio
import contextvars
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from entracte import _json
from entracte._connection import Connection
from entracte._errors import (
    EntracteError,
    InvalidArgument,
    Unavailable,
    WorkCancelled,
    WorkCompleted,
    WorkNotFound,
    WorkOutputFull,
    WorkReassigned,
)
from entracte._options_codec import to_duration
from entracte._retry import Deadline
from entracte._worker_tools import Suspended, WorkContext, WorkerTool
from entracte.v1 import worker_service_pb2 as pb

log = logging.getLogger("entracte")

MAX_WAITING = 1024
"""How many values an asynchronous tool may write before the server has them."""

ENOUGH = 128
"""From how many on a synchronous tool waits; and as many are sent at once."""

MAX_BYTES = 4 * 1024 * 1024
"""How much is sent at once."""

ANSWER_TIME = 900.0
"""How long it is tried to hand in an outcome, in seconds."""

_OVER = (WorkCancelled, WorkCompleted, WorkNotFound, WorkReassigned)


class Work:
    """See the module. Owned by the worker, which runs `execute` in a task."""

    def __init__(
        self, item: pb.WorkItem, tool: WorkerTool, connection: Connection, threads: ThreadPoolExecutor
    ) -> None:
        self.item = item
        self.begun = False
        """Whether the tool was entered."""
        self._tool = tool
        self._connection = connection
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._context = WorkContext(item, self._write, self._extend)
        self._waiting: list[pb.WorkOutput] = []
        self._number = 0
        self._timeout: float | None = None
        self._reporter: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._room.set()

    def cancel(self) -> None:
        """Nobody wants it any more."""
        self._context._cancelled.set()

    async def execute(self) -> None:
        """Execute the tool and hand in what it came to. Raises nothing but cancellation."""
        try:
            request = await self._outcome()
            await self._reported()
            if not self._context.cancelled:
                await self._hand_in(request)
        finally:
            if self._reporter is not None and not self._reporter.done():
                self._reporter.cancel()
                await asyncio.wait([self._reporter])

    # ---- the body ----

    async def _outcome(self) -> pb.CompleteWorkRequest:
        request = pb.CompleteWorkRequest(work_id=self.item.work_id, token=self.item.token)
        self.begun = True
        try:
            value = await self._call()
            request.result.text = _json.dump(value)
        except Suspended as suspended:
            try:
                self._suspend(request.suspended, suspended)
            except Exception as error:
                request.error = f"What {self._tool.name} asks cannot be sent: {error}"
        except Exception as error:
            log.info("tool %s raised", self._tool.name, exc_info=True)
            request.error = (str(error) or type(error).__name__)[:16_000]
        return request

    async def _call(self) -> Any:
        arguments = _json.parse(self.item.tool.args.text)
        if self._tool.takes_context:
            arguments["ctx"] = self._context
        if self._tool.is_async:
            return await self._tool.function(**arguments)
        context = contextvars.copy_context()
        call: Callable[[], Any] = lambda: context.run(self._tool.function, **arguments)  # noqa: E731
        value = await self._loop.run_in_executor(self._threads, call)
        return await value if hasattr(value, "__await__") else value

    def _suspend(self, message: pb.ToolSuspension, suspended: Suspended) -> None:
        message.payload.text = _json.dump(suspended.payload)
        if suspended.resume_schema is not None:
            message.resume_schema.CopyFrom(_json.schema_to_json(suspended.resume_schema))
        if self._context.state:
            message.state.text = _json.dump(self._context.state)

    async def _hand_in(self, request: pb.CompleteWorkRequest) -> None:
        deadline = Deadline(ANSWER_TIME)
        while True:
            try:
                await self._connection.call(
                    self._connection.workers.CompleteWork, request, within=deadline.remaining()
                )
                return
            except _OVER as error:
                log.info("the outcome of %s is not wanted: %s", self._tool.name, error)
                return
            except InvalidArgument as error:
                if request.WhichOneof("outcome") == "error":
                    log.error("the outcome of %s was refused: %s", self._tool.name, error)
                    return
                request.error = f"What {self._tool.name} returned cannot be used: {error}"
            except Unavailable:
                await asyncio.sleep(1.0)
            except EntracteError as error:
                log.error("the outcome of %s could not be handed in: %s", self._tool.name, error)
                return

    # ---- what it writes meanwhile ----

    def _write(self, text: str, name: str, id: str) -> None:
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            if len(self._waiting) >= MAX_WAITING:
                raise BufferError(f"{MAX_WAITING} values were written faster than the server takes them")
            self._add(text, name, id)
        else:
            asyncio.run_coroutine_threadsafe(self._add_and_wait(text, name, id), self._loop).result()

    async def _add_and_wait(self, text: str, name: str, id: str) -> None:
        self._add(text, name, id)
        await self._room.wait()

    def _add(self, text: str, name: str, id: str) -> None:
        self._number += 1
        output = pb.WorkOutput(number=self._number, name=name, id=id)
        output.value.text = text
        self._waiting.append(output)
        if len(self._waiting) >= ENOUGH:
            self._room.clear()
        self._report()

    def _extend(self, seconds: float) -> None:
        def note() -> None:
            self._timeout = seconds
            self._report()

        self._loop.call_soon_threadsafe(note)

    def _report(self) -> None:
        if self._reporter is None or self._reporter.done():
            self._reporter = self._loop.create_task(self._send())

    async def _send(self) -> None:
        """Send what waits, until nothing does."""
        try:
            while (self._waiting or self._timeout is not None) and not self._context.cancelled:
                request = pb.ExtendWorkRequest(work_id=self.item.work_id, token=self.item.token)
                if self._timeout is not None:
                    request.timeout.CopyFrom(to_duration(self._timeout))
                    self._timeout = None
                count = size = 0
                for output in self._waiting[:ENOUGH]:
                    size += output.ByteSize()
                    if count and size > MAX_BYTES:
                        break
                    count += 1
                request.output.extend(self._waiting[:count])
                if not await self._sent(request):
                    self._waiting.clear()
                    return
                del self._waiting[:count]
                if len(self._waiting) < ENOUGH:
                    self._room.set()
        finally:
            self._room.set()

    async def _sent(self, request: pb.ExtendWorkRequest) -> bool:
        deadline = Deadline(ANSWER_TIME)
        while True:
            try:
                await self._connection.call(
                    self._connection.workers.ExtendWork, request, within=deadline.remaining()
                )
                return True
            except WorkOutputFull as full:
                await asyncio.sleep(0.2 if full.retry_after is None else full.retry_after.total_seconds())
            except Unavailable:
                await asyncio.sleep(1.0)
            except EntracteError as error:
                log.warning("what %s wrote is lost: %s", self._tool.name, error)
                return False

    async def _reported(self) -> None:
        """All that was written is there, before the outcome."""
        await asyncio.sleep(0)
        while self._reporter is not None and not self._reporter.done():
            await asyncio.wait([self._reporter])
