"""A run's chunks as an async iterable."""

import asyncio
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from types import AsyncGeneratorType, TracebackType
from typing import Any, Self

from entracte import _json
from entracte._callbacks import Callbacks, Observer
from entracte._chunks import Chunk, FinishChunk, OpenCall, ToolCallSuspendedChunk
from entracte._client_tools import ClientTool, execute, submission
from entracte._connection import Connection
from entracte._errors import (
    EntracteError,
    PendingCallAlreadyDecided,
    PendingCallExpired,
    RunFinished,
)
from entracte._fold import Fold
from entracte._follow import Follower
from entracte._late import late
from entracte._result_codec import result_of
from entracte._results import Decision, GenerateResult
from entracte._retry import Deadline
from entracte.v1 import agent_service_pb2, inbox_service_pb2, run_service_pb2

TITLE_SECONDS = 30.0
"""How many seconds the end of a stream waits for a title that it is to tell of."""


@dataclass(slots=True)
class Beginning:
    """How a stream began: what follows the run, and the decision it began with."""

    follower: Follower
    decision: Decision | None = None


class RunStream:
    """The chunks of a run, from where it starts or goes on to where it parks or ends.

        async for chunk in agent.stream("Hello"):
            ...

    Nothing is sent before the first chunk is asked for. A broken connection, a stopping server or a
    reader that was too slow are no end: the stream attaches again after the last chunk, so that each
    chunk comes once and none is left out. After a broken attempt of a step the model's answer starts
    over, with a `step-start` of a higher `attempt`; `text` and `fold` drop what it made void.

    Leaving the loop, or the `async with` block around it, stops following and leaves the run alone.
    Another loop, or `result()`, goes on after the last chunk that was handed out. One loop at a time
    may read a stream.

    Raises EntracteError when a chunk is asked for: what the server refused, DeadlineExceeded when
    the `timeout` passed, Unavailable when no server could be reached for too long, StreamError for
    a stream that is not what the contract says.
    """

    def __init__(
        self,
        connection: Connection,
        begin: Callable[[], Awaitable[Beginning]],
        *,
        run_id: str = "",
        callbacks: Callbacks | None = None,
        client_tools: Iterable[ClientTool] = (),
        object_type: Any = None,
    ) -> None:
        self._connection = connection
        self._begin = begin
        self._run_id = run_id
        self._observer = Observer(callbacks or {}, in_threads=connection.callbacks_in_threads)
        self._tools = {tool.name: tool for tool in client_tools if tool.function is not None}
        self._beginning: Beginning | None = None
        self._finish: FinishChunk | None = None
        self._announced: dict[str, ToolCallSuspendedChunk] = {}
        self._submissions: dict[str, agent_service_pb2.SubmitToolResultRequest] = {}
        self._answered: set[str] = set()
        self._ended = False
        self._failed = False
        self._result: GenerateResult | None = None
        self._object_type = object_type
        self._active: weakref.ref[AsyncGeneratorType[Chunk, None]] | None = None
        self.fold = Fold()
        """What the chunks so far add up to."""

    @property
    def run_id(self) -> str:
        """The run's id. Known from the start, except where only the server knows it: then it is
        empty until a decision by a bare pending call id was made, or until the first chunk of a run
        that was started with a `request_id` and without a `run_id`."""
        return self._beginning.follower.run_id if self._beginning is not None else self._run_id

    @property
    def text(self) -> str:
        """The text so far, void attempts and drafts left out."""
        return self.fold.text

    @property
    def decision(self) -> Decision | None:
        """The decision this stream began with, once it was made; None for other streams."""
        return self._beginning.decision if self._beginning is not None else None

    @property
    def position(self) -> int:
        """The sequence of the last chunk that was handed out, to follow the run from elsewhere."""
        return self._beginning.follower.position if self._beginning is not None else 0

    @property
    def text_stream(self) -> AsyncGenerator[str, None]:
        """The pieces of the answer's text as they come, in place of the chunks."""
        return self._texts()

    async def commit(self) -> Decision:
        """Make the decision this stream begins with and return at once, without following the run;
        a decision that was made is returned as it is. Raises RuntimeError for other streams."""
        decision = (await self._begun()).decision
        if decision is None:
            raise RuntimeError("this stream does not begin with a decision")
        return decision

    async def result(self) -> GenerateResult:
        """What the run has come to, after reading the stream to its end.

        Raises what reading raises, and ResultTooLarge for a result beyond 16 MiB.
        """
        if not self._ended:
            async with aclosing(self.__aiter__()) as chunks:
                async for _ in chunks:
                    pass
        if self._result is None:
            self._result = await self._read_result()
        return self._result

    async def aclose(self) -> None:
        """Stop following. The run goes on, unless it has `cancel_on_disconnect`."""
        if self._beginning is not None:
            self._beginning.follower.stop()
        active = self._active() if self._active is not None else None
        if active is not None and not active.ag_running:
            await active.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncGenerator[Chunk, None]:
        # The generator is not kept here: when a loop is left, it must be the last one to hold it, so
        # that it is closed and the call with it.
        active = self._active() if self._active is not None else None
        if active is not None and active.ag_frame is not None:
            raise RuntimeError("the stream is being read already")
        chunks = self._chunks()
        assert isinstance(chunks, AsyncGeneratorType)
        self._active = weakref.ref(chunks)
        return chunks

    async def _begun(self) -> Beginning:
        if self._beginning is None:
            self._beginning = await self._begin()
        return self._beginning

    async def _texts(self) -> AsyncGenerator[str, None]:
        async with aclosing(self.__aiter__()) as chunks:
            async for chunk in chunks:
                if chunk.type == "text-delta" and not chunk.agent_path:
                    yield chunk.text

    async def _chunks(self) -> AsyncGenerator[Chunk, None]:
        try:
            follower = (await self._begun()).follower
            while True:
                async with aclosing(follower.chunks()) as chunks:
                    async for chunk in chunks:
                        self._take_in(chunk)
                        yield chunk
                calls = self._calls_to_answer()
                if not calls:
                    break
                if await self._answer_all(calls):
                    follower.expect_more()
            self._ended = not follower.stopped
            if follower.is_over() and not self._failed and self._observer.wants("on_finish"):
                self._result = await self._read_result()
                self._observer.emit("on_finish", self._result)
            if follower.is_over() and not self._failed and self._observer.wants("on_title_generated"):
                await self._wait_for_title()
        except EntracteError as error:
            self._observer.emit("on_error", error)
            raise
        finally:
            await self._observer.drain()

    async def _wait_for_title(self) -> None:
        """Tell of the title that the run's thread is given. When it cannot be heard of in time, it is not
        told: the run itself has been read to its end."""
        deadline = Deadline(TITLE_SECONDS)
        with suppress(EntracteError):
            async with aclosing(late(self._connection, self.run_id, self.position, deadline)) as settled:
                async for job in settled:
                    if job.title is not None:
                        self._observer.emit("on_title_generated", job.title)
                        return

    def _take_in(self, chunk: Chunk) -> None:
        observer = self._observer
        observer.emit("on_chunk", chunk)
        step = self.fold.add(chunk)
        if step is not None:
            observer.emit("on_step_finish", step)
        if chunk.type == "tool-call-suspended" and chunk.kind == "client-tool":
            self._announced[chunk.pending_call_id] = chunk
        if chunk.agent_path:
            return
        self._finish = chunk if chunk.type == "finish" else None
        if chunk.type == "error":
            self._failed = True
            observer.emit("on_error", chunk.error)
        elif chunk.type == "abort":
            self._failed = True
            observer.emit("on_abort", chunk)

    def _calls_to_answer(self) -> list[OpenCall]:
        if self._finish is None:
            return []
        return [
            call
            for call in self._finish.open_calls
            if call.kind == "client-tool"
            and call.tool_name in self._tools
            and call.pending_call_id not in self._answered
        ]

    async def _answer_all(self, calls: list[OpenCall]) -> bool:
        """Run the functions that are called and hand in what they return. False when all calls had
        been settled otherwise."""
        outcomes = await asyncio.gather(*map(self._answer, calls), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return any(outcomes)

    async def _answer(self, call: OpenCall) -> bool:
        connection = self._connection
        # Kept, so that a function runs once even if handing in what it returned fails at first.
        request = self._submissions.get(call.pending_call_id)
        if request is None:
            outcome = await execute(self._tools[call.tool_name], await self._args_of(call))
            request = submission(call.pending_call_id, outcome)
            self._submissions[call.pending_call_id] = request
        try:
            await connection.call(connection.agents.SubmitToolResult, request, within=connection.timeout)
            fresh = True
        except (PendingCallAlreadyDecided, PendingCallExpired, RunFinished):
            fresh = False
        self._answered.add(call.pending_call_id)
        return fresh

    async def _args_of(self, call: OpenCall) -> Any:
        announced = self._announced.get(call.pending_call_id)
        if announced is not None:
            return announced.args
        connection = self._connection
        response = await connection.call(
            connection.inbox.GetPendingCall,
            inbox_service_pb2.GetPendingCallRequest(pending_call_id=call.pending_call_id),
            within=connection.timeout,
        )
        return _json.parse(response.pending_call.args.text or "{}")

    async def _read_result(self) -> GenerateResult:
        connection = self._connection
        request = run_service_pb2.GetRunRequest(run_id=self.run_id)
        response = await connection.call(connection.runs.GetRun, request, within=connection.timeout)
        assert self._beginning is not None
        response.result.auto_resume_error = self._beginning.follower.auto_resume_error
        return result_of(response.result, self._object_type)
