"""A server that plays a log: real servicers on real TCP, without an agent behind them."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from entracte.v1 import (
    agent_service_pb2,
    agent_service_pb2_grpc,
    chunk_pb2,
    generate_result_pb2,
    inbox_service_pb2,
    inbox_service_pb2_grpc,
    json_pb2,
    pending_call_pb2,
    result_pb2,
    run_pb2,
    run_service_pb2,
    run_service_pb2_grpc,
    thread_service_pb2,
    thread_service_pb2_grpc,
    working_memory_pb2,
)

Context = Any
Handler = Callable[[Any, Context], Awaitable[Any]]


def js(text: str) -> json_pb2.Json:
    """A JSON text as its message."""
    return json_pb2.Json(text=text)


@dataclass
class Refuse:
    """Ends an RPC with a status: after this many chunks, where it is a stream."""

    code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE
    reason: str = ""
    message: str = "no"
    metadata: dict[str, str] = field(default_factory=dict)
    violations: dict[str, str] = field(default_factory=dict)
    retry_after: float | None = None
    after: int = 0
    take_first: bool = False
    """Whether the request is carried out before."""

    async def do(self, context: Context) -> None:
        """Abort the RPC."""
        details: list[Any] = []
        if self.reason:
            details.append(
                error_details_pb2.ErrorInfo(reason=self.reason, domain="entracte.dev", metadata=self.metadata)
            )
        if self.violations:
            bad = error_details_pb2.BadRequest()
            for name, description in self.violations.items():
                bad.field_violations.add(field=name, description=description)
            details.append(bad)
        if self.retry_after is not None:
            delay = duration_pb2.Duration()
            delay.FromMilliseconds(int(self.retry_after * 1000))
            details.append(error_details_pb2.RetryInfo(retry_delay=delay))
        packed = []
        for detail in details:
            wrapped = any_pb2.Any()
            wrapped.Pack(detail)
            packed.append(wrapped)
        if not packed:
            await context.abort(self.code, self.message)
        status = status_pb2.Status(code=self.code.value[0], message=self.message, details=packed)
        converted = rpc_status.to_status(status)
        await context.abort(converted.code, converted.details, converted.trailing_metadata)


class Log:
    """The chunks of a run as they are written down, numbered from 1."""

    def __init__(self, run_id: str = "r1") -> None:
        self.run_id = run_id
        self.chunks: list[chunk_pb2.Chunk] = []

    def add(
        self, name: str, step: int = 1, attempt: int = 1, path: Iterable[str] = (), **fields: Any
    ) -> "Log":
        """Append a chunk with the payload `name`."""
        chunk = chunk_pb2.Chunk(
            run_id=self.run_id,
            sequence=len(self.chunks) + 1,
            source=chunk_pb2.CHUNK_SOURCE_AGENT,
            step=step,
            attempt=attempt,
            agent_path=[chunk_pb2.PathElement(agent_id=agent, tool_call_id="d1") for agent in path],
        )
        chunk.emit_time.FromJsonString("2026-01-02T03:04:05.678901Z")
        payload = getattr(chunk, name)
        payload.SetInParent()
        payload.MergeFrom(type(payload)(**fields))
        self.chunks.append(chunk)
        return self

    def text(self, *pieces: str, step: int = 1, attempt: int = 1) -> "Log":
        """Append a text in pieces."""
        self.add("text_start", step, attempt, id="t")
        for piece in pieces:
            self.add("text_delta", step, attempt, id="t", text=piece)
        return self.add("text_end", step, attempt, id="t")

    def finish(self, reason: str = "STOP", cause: str = "MODEL_FINISHED") -> "Log":
        """Append the end."""
        return self.add(
            "finish",
            reason=result_pb2.FinishReason.Value(f"FINISH_REASON_{reason}"),
            stop_cause=result_pb2.StopCause.Value(f"STOP_CAUSE_{cause}"),
            usage=result_pb2.Usage(input_tokens=10, output_tokens=5, total_tokens=15),
        )

    def park(self, *calls: tuple[str, str, str]) -> "Log":
        """Append a parking with open calls: pending call id, tool, kind."""
        return self.add(
            "finish",
            reason=result_pb2.FINISH_REASON_SUSPENDED,
            stop_cause=result_pb2.STOP_CAUSE_SUSPENDED,
            open_calls=[
                chunk_pb2.OpenCall(
                    pending_call_id=pending,
                    tool_call_id=f"c-{pending}",
                    tool_name=tool,
                    kind=chunk_pb2.PendingCallKind.Value(f"PENDING_CALL_KIND_{kind}"),
                )
                for pending, tool, kind in calls
            ],
        )

    def wait_for(self, pending: str, tool: str, kind: str, args: str = "{}", **fields: Any) -> "Log":
        """Append the announcement of a waiting call."""
        common: dict[str, Any] = {
            "pending_call_id": pending,
            "tool_call_id": f"c-{pending}",
            "tool_name": tool,
        }
        digest = f"digest of {pending}".encode()
        if kind == "APPROVAL":
            return self.add("tool_call_approval", args=js(args), args_digest=digest, **common, **fields)
        number = chunk_pb2.PendingCallKind.Value(f"PENDING_CALL_KIND_{kind}")
        return self.add(
            "tool_call_suspended", args=js(args), kind=number, args_digest=digest, **common, **fields
        )

    def resolved(self, pending: str, verb: str) -> "Log":
        """Append the outcome of a decision."""
        return self.add(
            "tool_call_resolved",
            pending_call_id=pending,
            tool_call_id=f"c-{pending}",
            verb=chunk_pb2.DecisionVerb.Value(f"DECISION_VERB_{verb}"),
            principal="anna",
            decision_id=f"d-{pending}",
        )


def simple_log(run_id: str = "r1") -> Log:
    """A run that says "Hello, world!" in one step."""
    log = Log(run_id).add("start", step=0, agent_id="support", message_id="m1")
    log.add("step_start", message_id="m1", model="scripted/one")
    log.text("Hello", ", ", "world", "!")
    log.add(
        "step_finish",
        reason=result_pb2.FINISH_REASON_STOP,
        usage=result_pb2.Usage(input_tokens=10, output_tokens=5, total_tokens=15),
    )
    return log.finish()


class FakeServer:
    """Plays `log` to whoever starts or follows a run; decisions reveal what comes after a parking.

    `plans` has, by method, what happens to its next calls: a Refuse, or None for nothing special.
    `handlers` replaces unary methods. `calls` has everything that was asked.
    """

    def __init__(self, log: Log | None = None) -> None:
        self.log = log or simple_log()
        self.shown = self._next_rest(0)
        self.batch = 1
        self.result = generate_result_pb2.GenerateResult()
        self.plans: dict[str, list[Refuse | None]] = defaultdict(list)
        self.handlers: dict[str, Handler] = {}
        self.calls: list[tuple[str, Any]] = []
        self.metadata: list[dict[str, str]] = []
        self.decided: dict[str, str] = {}
        self.replays: set[str] = set()
        self.cancelled: list[str] = []
        self.hold_after: int | None = None
        """Streams stop here and wait, as if the run took its time."""
        self.keep_alive = False
        self.changed = asyncio.Event()
        self.address = ""

    def asked(self, method: str) -> list[Any]:
        """The requests of one method."""
        return [request for name, request in self.calls if name == method]

    @asynccontextmanager
    async def running(self) -> AsyncIterator["FakeServer"]:
        """The server, listening."""
        limits = [(f"grpc.max_{way}_message_length", 16 * 1024 * 1024) for way in ("send", "receive")]
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0), *limits])
        agent_service_pb2_grpc.add_AgentServiceServicer_to_server(_Agents(self), server)
        run_service_pb2_grpc.add_RunServiceServicer_to_server(_Runs(self), server)
        inbox_service_pb2_grpc.add_InboxServiceServicer_to_server(_Inbox(self), server)
        thread_service_pb2_grpc.add_ThreadServiceServicer_to_server(_Threads(self), server)
        self.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        try:
            yield self
        finally:
            await server.stop(None)

    def _next_rest(self, position: int) -> int:
        for index in range(position, len(self.log.chunks)):
            if self.log.chunks[index].WhichOneof("payload") == "finish":
                return index + 1
        return len(self.log.chunks)

    def go_on(self) -> None:
        """Reveal what comes after the parking."""
        self.shown = self._next_rest(self.shown)
        self.changed.set()

    def get_run(self, request: Any) -> run_pb2.Run:
        """The run as it is now."""
        return run_pb2.Run(
            run_id=self.log.run_id,
            agent_id="support",
            state=run_pb2.RUN_STATE_SUCCEEDED,
            last_sequence=self.shown,
        )

    def note(self, method: str, request: Any, context: Context) -> Refuse | None:
        """Write a call down; what its plan is."""
        self.calls.append((method, request))
        self.metadata.append({key: value for key, value in context.invocation_metadata()})
        plan = self.plans[method]
        return plan.pop(0) if plan else None

    async def unary(self, method: str, request: Any, context: Context, answer: Callable[[], Any]) -> Any:
        """What all unary methods do."""
        plan = self.note(method, request, context)
        if plan is not None and not plan.take_first:
            await plan.do(context)
        if method in self.handlers:
            response = await self.handlers[method](request, context)
        else:
            response = answer()
        if plan is not None:
            await plan.do(context)
        return response

    def decide(self, request: Any, response: type[Any]) -> Any:
        """Take a decision: one answer for a request id, whatever is asked how often."""
        replayed = request.request_id in self.replays
        self.replays.add(request.request_id)
        position = self.shown
        if not replayed:
            self.decided[request.call.pending_call_id] = request.request_id
            self.go_on()
        return response(
            run=run_pb2.Run(run_id=self.log.run_id, last_sequence=self.shown if replayed else position),
            decision=pending_call_pb2.Decision(
                decision_id=f"d-{request.call.pending_call_id}",
                pending_call_id=request.call.pending_call_id,
                run_id=self.log.run_id,
            ),
            result=self.result if request.wait else None,
            replayed=replayed,
        )

    async def follow(
        self, method: str, request: Any, context: Context, response: type[Any], after: int = 0
    ) -> None:
        """Write chunks until the run rests."""
        plan = self.note(method, request, context)
        if plan is not None and plan.after == 0 and not plan.take_first:
            await plan.do(context)
        await context.send_initial_metadata((("entracte-run-id", self.log.run_id),))
        if self.keep_alive:
            await context.write(response(through_sequence=after))
        if plan is not None and plan.after == 0:
            await plan.do(context)
        position, sent = after, 0
        until_finished = getattr(request, "until_finished", False)
        try:
            while True:
                while position < self.shown:
                    if self.hold_after is not None and position >= self.hold_after:
                        await asyncio.sleep(60)
                    size = self.batch if plan is None else min(self.batch, plan.after - sent)
                    chunks = self.log.chunks[position : min(position + size, self.shown)]
                    await context.write(response(chunks=chunks))
                    position, sent = position + len(chunks), sent + len(chunks)
                    if plan is not None and sent >= plan.after:
                        await plan.do(context)
                last = self.log.chunks[position - 1].finish if position else None
                parked = last is not None and last.reason == result_pb2.FINISH_REASON_SUSPENDED
                if not (parked and until_finished):
                    return
                self.changed.clear()
                await self.changed.wait()
        except asyncio.CancelledError:
            self.cancelled.append(method)
            raise


class _Agents(agent_service_pb2_grpc.AgentServiceServicer):
    def __init__(self, server: FakeServer) -> None:
        self.server = server

    async def Generate(self, request: Any, context: Context) -> Any:
        def answer() -> Any:
            return agent_service_pb2.GenerateResponse(
                run=self.server.get_run(request), result=self.server.result
            )

        return await self.server.unary("Generate", request, context, answer)

    async def Stream(self, request: Any, context: Context) -> None:  # type: ignore[override]
        await self.server.follow("Stream", request, context, agent_service_pb2.StreamResponse)

    async def Resume(self, request: Any, context: Context) -> Any:
        return await self._decide("Resume", request, context, agent_service_pb2.ResumeResponse)

    async def Approve(self, request: Any, context: Context) -> Any:
        return await self._decide("Approve", request, context, agent_service_pb2.ApproveResponse)

    async def Decline(self, request: Any, context: Context) -> Any:
        return await self._decide("Decline", request, context, agent_service_pb2.DeclineResponse)

    async def SubmitToolResult(self, request: Any, context: Context) -> Any:
        response = agent_service_pb2.SubmitToolResultResponse
        return await self._decide("SubmitToolResult", request, context, response)

    async def _decide(self, method: str, request: Any, context: Context, response: type[Any]) -> Any:
        return await self.server.unary(
            method, request, context, lambda: self.server.decide(request, response)
        )


class _Runs(run_service_pb2_grpc.RunServiceServicer):
    def __init__(self, server: FakeServer) -> None:
        self.server = server

    async def GetRun(self, request: Any, context: Context) -> Any:
        def answer() -> Any:
            result = None if request.omit_result else self.server.result
            return run_service_pb2.GetRunResponse(run=self.server.get_run(request), result=result)

        return await self.server.unary("GetRun", request, context, answer)

    async def ListRuns(self, request: Any, context: Context) -> Any:
        return await self.server.unary("ListRuns", request, context, run_service_pb2.ListRunsResponse)

    async def WatchRun(self, request: Any, context: Context) -> None:  # type: ignore[override]
        await self.server.follow(
            "WatchRun", request, context, run_service_pb2.WatchRunResponse, request.after_sequence
        )

    async def CancelRun(self, request: Any, context: Context) -> Any:
        def answer() -> Any:
            return run_service_pb2.CancelRunResponse(run=self.server.get_run(request))

        return await self.server.unary("CancelRun", request, context, answer)

    async def DeleteRun(self, request: Any, context: Context) -> Any:
        return await self.server.unary("DeleteRun", request, context, run_service_pb2.DeleteRunResponse)


class _Inbox(inbox_service_pb2_grpc.InboxServiceServicer):
    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self.watches: list[list[Any]] = []

    async def ListPendingCalls(self, request: Any, context: Context) -> Any:
        answer = inbox_service_pb2.ListPendingCallsResponse
        return await self.server.unary("ListPendingCalls", request, context, answer)

    async def GetPendingCall(self, request: Any, context: Context) -> Any:
        answer = inbox_service_pb2.GetPendingCallResponse
        return await self.server.unary("GetPendingCall", request, context, answer)

    async def WatchPendingCalls(self, request: Any, context: Context) -> None:  # type: ignore[override]
        plan = self.server.note("WatchPendingCalls", request, context)
        try:
            await self.server.handlers["WatchPendingCalls"](request, context)
        except asyncio.CancelledError:
            self.server.cancelled.append("WatchPendingCalls")
            raise
        if plan is not None:
            await plan.do(context)

    async def ClaimPendingCall(self, request: Any, context: Context) -> Any:
        answer = inbox_service_pb2.ClaimPendingCallResponse
        return await self.server.unary("ClaimPendingCall", request, context, answer)

    async def ReleasePendingCall(self, request: Any, context: Context) -> Any:
        answer = inbox_service_pb2.ReleasePendingCallResponse
        return await self.server.unary("ReleasePendingCall", request, context, answer)

    async def ListDecisions(self, request: Any, context: Context) -> Any:
        answer = inbox_service_pb2.ListDecisionsResponse
        return await self.server.unary("ListDecisions", request, context, answer)


class _Threads(thread_service_pb2_grpc.ThreadServiceServicer):
    def __init__(self, server: FakeServer) -> None:
        self.server = server

    async def CreateThread(self, request: Any, context: Context) -> Any:
        answer = thread_service_pb2.CreateThreadResponse
        return await self.server.unary("CreateThread", request, context, answer)

    async def GetThread(self, request: Any, context: Context) -> Any:
        return await self.server.unary("GetThread", request, context, thread_service_pb2.GetThreadResponse)

    async def ListThreads(self, request: Any, context: Context) -> Any:
        answer = thread_service_pb2.ListThreadsResponse
        return await self.server.unary("ListThreads", request, context, answer)

    async def UpdateThread(self, request: Any, context: Context) -> Any:
        answer = thread_service_pb2.UpdateThreadResponse
        return await self.server.unary("UpdateThread", request, context, answer)

    async def DeleteThread(self, request: Any, context: Context) -> Any:
        answer = thread_service_pb2.DeleteThreadResponse
        return await self.server.unary("DeleteThread", request, context, answer)

    async def ListThreadMessages(self, request: Any, context: Context) -> Any:
        answer = thread_service_pb2.ListThreadMessagesResponse
        return await self.server.unary("ListThreadMessages", request, context, answer)

    async def GetWorkingMemory(self, request: Any, context: Context) -> Any:
        answer = working_memory_pb2.GetWorkingMemoryResponse
        return await self.server.unary("GetWorkingMemory", request, context, answer)

    async def UpdateWorkingMemory(self, request: Any, context: Context) -> Any:
        answer = working_memory_pb2.UpdateWorkingMemoryResponse
        return await self.server.unary("UpdateWorkingMemory", request, context, answer)
