"""A caller of a server over real RPCs, and readers of what it gets back."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any, Self

import grpc
import grpc.aio
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from entracte.v1 import agent_service_pb2 as agents_pb
from entracte.v1 import (
    chunk_pb2,
    generate_result_pb2,
    json_pb2,
    message_pb2,
    options_pb2,
    pending_call_pb2,
    result_pb2,
    run_pb2,
)
from entracte.v1 import inbox_service_pb2 as inbox_pb
from entracte.v1 import run_service_pb2 as runs_pb
from entracte.v1.agent_service_pb2_grpc import AgentServiceStub
from entracte.v1.inbox_service_pb2_grpc import InboxServiceStub
from entracte.v1.run_service_pb2_grpc import RunServiceStub
from entracte_server import Agent, App, Tool
from entracte_server.domain.messages import ToolCallPart, ToolResultPart
from entracte_server.models.base import ModelRequest
from entracte_server.testing import TestServer, serve
from tests.stores import default_store

Chunk = chunk_pb2.Chunk
PendingCall = pending_call_pb2.PendingCall
Result = generate_result_pb2.GenerateResult

WAIT = 20.0
"""Deadline of an RPC in seconds: a hang is a failure, not a longer wait."""

CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
    ("grpc.max_send_message_length", 16 * 1024 * 1024),
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own for each caller
)


def user(text: str) -> message_pb2.Message:
    """A message of a user."""
    part = message_pb2.MessagePart(text=message_pb2.TextPart(text=text))
    return message_pb2.Message(role=message_pb2.ROLE_USER, parts=[part])


def as_json(value: Any) -> json_pb2.Json:
    """A value as the contract's JSON."""
    return json_pb2.Json(text=json.dumps(value))


def value_of(message: json_pb2.Json) -> Any:
    """The value of the contract's JSON."""
    return json.loads(message.text)


def call_ref(call: Any) -> pending_call_pb2.CallRef:
    """Names a call: by a pending call id, a `CallRef`, or anything with a `pending_call_id`."""
    if isinstance(call, pending_call_pb2.CallRef):
        return call
    if isinstance(call, str):
        return pending_call_pb2.CallRef(pending_call_id=call)
    return pending_call_pb2.CallRef(pending_call_id=call.pending_call_id)


class Caller:
    """One client with a channel of its own. Every RPC has a deadline."""

    def __init__(self, address: str, *, key: str = "", agent: str = "agent") -> None:
        self.agent = agent
        self.address = address
        self.channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._metadata = (("authorization", f"Bearer {key}"),) if key else ()
        self.agents: Any = AgentServiceStub(self.channel)
        self.runs: Any = RunServiceStub(self.channel)
        self.inbox: Any = InboxServiceStub(self.channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()

    async def _unary(self, method: Any, request: Any, timeout: float = WAIT) -> Any:
        return await method(request, timeout=timeout, metadata=self._metadata)

    # ---- runs ----

    def _start(
        self, input: str | Sequence[message_pb2.Message], request_id: str, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        return {
            "agent_id": self.agent,
            "messages": [user(input)] if isinstance(input, str) else input,
            "options": options_pb2.GenerateOptions(**options),
            "request_id": request_id,
        }

    async def generate(
        self,
        input: str | Sequence[message_pb2.Message] = "go",
        *,
        request_id: str = "",
        timeout: float = WAIT,
        **options: Any,
    ) -> agents_pb.GenerateResponse:
        """Generate; `options` are fields of GenerateOptions."""
        request = agents_pb.GenerateRequest(**self._start(input, request_id, options))
        response: agents_pb.GenerateResponse = await self._unary(self.agents.Generate, request, timeout)
        return response

    def open_stream(
        self,
        input: str | Sequence[message_pb2.Message] = "go",
        *,
        request_id: str = "",
        timeout: float = WAIT,
        **options: Any,
    ) -> Any:
        """The RPC of a Stream."""
        request = agents_pb.StreamRequest(**self._start(input, request_id, options))
        return self.agents.Stream(request, timeout=timeout, metadata=self._metadata)

    async def stream(
        self, input: str | Sequence[message_pb2.Message] = "go", **arguments: Any
    ) -> list[chunk_pb2.Chunk]:
        """A Stream read to its end, which must be OK."""
        return [chunk async for chunk in chunks_of(self.open_stream(input, **arguments))]

    def open_watch(self, run_id: str, after: int = 0, *, until_finished: bool = False) -> Any:
        """The RPC of a WatchRun."""
        request = runs_pb.WatchRunRequest(run_id=run_id, after_sequence=after, until_finished=until_finished)
        return self.runs.WatchRun(request, timeout=WAIT, metadata=self._metadata)

    async def watch(self, run_id: str, after: int = 0, *, until_finished: bool = False) -> list[Chunk]:
        """A WatchRun read to its end, which must be OK."""
        rpc = self.open_watch(run_id, after, until_finished=until_finished)
        return [chunk async for chunk in chunks_of(rpc)]

    async def get_run(self, run_id: str) -> runs_pb.GetRunResponse:
        """GetRun."""
        response: runs_pb.GetRunResponse = await self._unary(
            self.runs.GetRun, runs_pb.GetRunRequest(run_id=run_id)
        )
        return response

    async def state(self, run_id: str) -> str:
        """The state of a run, without its prefix."""
        request = runs_pb.GetRunRequest(run_id=run_id, omit_result=True)
        run = (await self._unary(self.runs.GetRun, request)).run
        return run_pb2.RunState.Name(run.state).removeprefix("RUN_STATE_")

    async def has_state(self, run_id: str, *names: str) -> bool:
        """Whether a run is in one of these states."""
        return await self.state(run_id) in names

    async def list_runs(self, **filters: Any) -> runs_pb.ListRunsResponse:
        """ListRuns."""
        response: runs_pb.ListRunsResponse = await self._unary(
            self.runs.ListRuns, runs_pb.ListRunsRequest(**filters)
        )
        return response

    async def cancel(
        self, run_id: str, reason: str = "", *, request_id: str = "", wait: bool = True
    ) -> runs_pb.CancelRunResponse:
        """CancelRun."""
        request = runs_pb.CancelRunRequest(run_id=run_id, reason=reason, request_id=request_id, wait=wait)
        response: runs_pb.CancelRunResponse = await self._unary(self.runs.CancelRun, request)
        return response

    async def delete(self, run_id: str, *, force: bool = False) -> None:
        """DeleteRun."""
        await self._unary(self.runs.DeleteRun, runs_pb.DeleteRunRequest(run_id=run_id, force=force))

    # ---- decisions ----

    async def approve(
        self, call: Any, *, wait: bool = True, timeout: float = WAIT, **fields: Any
    ) -> agents_pb.ApproveResponse:
        """Approve."""
        request = agents_pb.ApproveRequest(call=call_ref(call), wait=wait, **fields)
        response: agents_pb.ApproveResponse = await self._unary(self.agents.Approve, request, timeout)
        return response

    async def decline(
        self, call: Any, reason: str = "", *, wait: bool = True, **fields: Any
    ) -> agents_pb.DeclineResponse:
        """Decline."""
        request = agents_pb.DeclineRequest(call=call_ref(call), reason=reason, wait=wait, **fields)
        response: agents_pb.DeclineResponse = await self._unary(self.agents.Decline, request)
        return response

    async def resume(
        self, call: Any, answer: Any, *, wait: bool = True, **fields: Any
    ) -> agents_pb.ResumeResponse:
        """Resume, with a value or with JSON as it stands."""
        data = answer if isinstance(answer, json_pb2.Json) else as_json(answer)
        request = agents_pb.ResumeRequest(call=call_ref(call), resume_data=data, wait=wait, **fields)
        response: agents_pb.ResumeResponse = await self._unary(self.agents.Resume, request)
        return response

    async def submit(
        self, call: Any, result: Any = None, *, error: str | None = None, wait: bool = True, **fields: Any
    ) -> agents_pb.SubmitToolResultResponse:
        """SubmitToolResult, with a result or an error."""
        outcome: dict[str, Any] = {"result": as_json(result)} if error is None else {"error": error}
        request = agents_pb.SubmitToolResultRequest(call=call_ref(call), wait=wait, **outcome, **fields)
        response: agents_pb.SubmitToolResultResponse = await self._unary(
            self.agents.SubmitToolResult, request
        )
        return response

    # ---- the inbox ----

    async def pending(self, run_id: str = "", **filters: Any) -> list[PendingCall]:
        """ListPendingCalls, one page."""
        request = inbox_pb.ListPendingCallsRequest(run_id=run_id, page_size=1000, **filters)
        response = await self._unary(self.inbox.ListPendingCalls, request)
        return list(response.pending_calls)

    async def decisions(self, run_id: str = "") -> list[pending_call_pb2.Decision]:
        """ListDecisions, oldest first, one page."""
        request = inbox_pb.ListDecisionsRequest(run_id=run_id, page_size=1000)
        response = await self._unary(self.inbox.ListDecisions, request)
        return list(reversed(response.decisions))

    async def claim(self, pending_call_id: str) -> PendingCall:
        """ClaimPendingCall."""
        request = inbox_pb.ClaimPendingCallRequest(pending_call_id=pending_call_id)
        response = await self._unary(self.inbox.ClaimPendingCall, request)
        claimed: PendingCall = response.pending_call
        return claimed


async def chunks_of(rpc: Any) -> AsyncIterator[Chunk]:
    """The chunks of a stream, one by one."""
    async for response in rpc:
        for chunk in response.chunks:
            yield chunk


async def until(condition: Callable[[], bool | Awaitable[bool]], seconds: float = 10.0) -> None:
    """Wait until a condition holds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while True:
        holds = condition()
        if holds is True or (holds is not False and await holds):
            return
        assert loop.time() < end, "it did not happen in time"
        await asyncio.sleep(0.005)


# ---- servers ----


def app_of(model: Any, tools: Iterable[Tool] = (), **more: Any) -> App:
    """An app of one agent, called `agent`."""
    return App(agents=[Agent(id="agent", model=model, tools=tools, **more)])


@asynccontextmanager
async def serving(app: App, *, key: str = "", **settings: Any) -> AsyncIterator[Caller]:
    """A server in this process and a caller of it."""
    settings.setdefault("log_level", "warning")
    async with (
        serve(app, **{**default_store(), **settings}) as server,
        Caller(server.address, key=key) as caller,
    ):
        yield caller


@asynccontextmanager
async def served(app: App, **settings: Any) -> AsyncIterator[TestServer]:
    """A server in this process."""
    settings.setdefault("log_level", "warning")
    async with serve(app, **{**default_store(), **settings}) as server:
        yield server


# ---- refusals ----


class Refused:
    """What a refused RPC said."""

    def __init__(self) -> None:
        self.code = grpc.StatusCode.OK
        self.text = ""
        self.reason = ""
        self.metadata: dict[str, str] = {}
        self.fields: list[str] = []


def read_refusal(error: grpc.aio.AioRpcError) -> Refused:
    """The typed details of an RPC's error."""
    refused = Refused()
    refused.code, refused.text = error.code(), error.details() or ""
    # The library's annotation knows synchronous calls only.
    status = rpc_status.from_call(error)
    for detail in status.details if status is not None else ():
        info = error_details_pb2.ErrorInfo()
        bad = error_details_pb2.BadRequest()
        if detail.Unpack(info):
            refused.reason, refused.metadata = info.reason, dict(info.metadata)
        elif detail.Unpack(bad):
            refused.fields = [violation.field for violation in bad.field_violations]
    return refused


@contextmanager
def refused(code: grpc.StatusCode, reason: str) -> Iterator[Refused]:
    """What is inside must be refused with this status and this reason."""
    seen = Refused()
    try:
        yield seen
    except grpc.aio.AioRpcError as error:
        seen.__dict__.update(read_refusal(error).__dict__)
    assert (seen.code, seen.reason) == (code, reason), f"{seen.code} {seen.reason}: {seen.text}"


def already_decided() -> AbstractContextManager[Refused]:
    """What is inside must be refused because the call was decided before."""
    return refused(grpc.StatusCode.FAILED_PRECONDITION, "PENDING_CALL_ALREADY_DECIDED")


# ---- chunks and results ----


def kind_of(chunk: Chunk) -> str:
    """The name of a chunk's payload."""
    return str(chunk.WhichOneof("payload"))


def kinds(chunks: Iterable[Chunk]) -> list[str]:
    """The names of all payloads."""
    return [kind_of(chunk) for chunk in chunks]


def payloads(chunks: Iterable[Chunk], kind: str) -> list[Any]:
    """The payloads of one name."""
    return [getattr(chunk, kind) for chunk in chunks if kind_of(chunk) == kind]


def announced(chunks: Iterable[Chunk]) -> list[Any]:
    """The announcements of waiting calls."""
    return [
        getattr(chunk, kind_of(chunk))
        for chunk in chunks
        if kind_of(chunk) in ("tool_call_approval", "tool_call_suspended")
    ]


def text_of(chunks: Iterable[Chunk]) -> str:
    """The text of a stream, void attempts left out."""
    chunks = list(chunks)
    latest: dict[int, int] = {}
    for chunk in chunks:
        if kind_of(chunk) == "step_start":
            latest[chunk.step] = chunk.attempt
    return "".join(
        chunk.text_delta.text
        for chunk in chunks
        if kind_of(chunk) == "text_delta" and chunk.attempt == latest.get(chunk.step)
    )


def finish_of(chunks: Sequence[Chunk]) -> chunk_pb2.FinishChunk:
    """The last chunk, which must be `finish`."""
    assert kind_of(chunks[-1]) == "finish", kinds(chunks)
    return chunks[-1].finish


def reason_name(number: Any) -> str:
    """A finish reason as a word: `stop`, `suspended`."""
    name = result_pb2.FinishReason.Name(number)
    return name.removeprefix("FINISH_REASON_").lower().replace("_", "-")


def gap_free(chunks: Sequence[Chunk], after: int = 0) -> bool:
    """Whether the sequences go on from `after` without a gap."""
    return [chunk.sequence for chunk in chunks] == list(range(after + 1, after + 1 + len(chunks)))


# ---- what a model was sent ----


def told_calls(request: ModelRequest) -> list[tuple[str, Any]]:
    """The calls in a model request: id and arguments, in order."""
    return [
        (part.tool_call_id, json.loads(part.args))
        for message in request.messages
        for part in message.parts
        if isinstance(part, ToolCallPart)
    ]


def told_results(request: ModelRequest) -> list[tuple[str, str]]:
    """The results in a model request: id and output text, in order."""
    return [
        (part.tool_call_id, part.output)
        for message in request.messages
        for part in message.parts
        if isinstance(part, ToolResultPart)
    ]


def paired(request: ModelRequest) -> bool:
    """Whether each call has exactly one result, in the message after it, in the order of the calls."""
    messages = list(request.messages)
    for index, message in enumerate(messages):
        called = [p.tool_call_id for p in message.parts if isinstance(p, ToolCallPart)]
        if not called:
            continue
        following = messages[index + 1].parts if index + 1 < len(messages) else ()
        answered = [p.tool_call_id for p in following if isinstance(p, ToolResultPart)]
        if called != answered:
            return False
    ids = [call_id for call_id, _ in told_calls(request)]
    return len(ids) == len(set(ids)) == len(told_results(request))
