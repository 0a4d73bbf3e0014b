"""What the tests of the RPC layer share: agents, a peer that calls any RPC, and how refusals are read."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message as ProtoMessage
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from entracte.v1 import (
    agent_pb2,
    agent_service_pb2,
    agent_service_pb2_grpc,
    catalog_service_pb2,
    chunk_pb2,
    errors_pb2,
    inbox_service_pb2,
    inbox_service_pb2_grpc,
    json_pb2,
    message_pb2,
    options_pb2,
    pending_call_pb2,
    run_pb2,
    run_service_pb2,
    run_service_pb2_grpc,
    thread_pb2,
    thread_service_pb2,
)
from entracte_server import Agent, App, Hook, Tool, ToolContext, Toolset, UnicodeNormalizer, ask_user, tool
from entracte_server.agents.hooks import HookKind
from entracte_server.testing import TestServer, scripted, serve
from tests.stores import default_store

MIB = 1024 * 1024

METHODS: dict[str, MethodDescriptor] = {
    method.name: method
    for module, service in (
        (agent_service_pb2, "AgentService"),
        (run_service_pb2, "RunService"),
        (inbox_service_pb2, "InboxService"),
        (thread_service_pb2, "ThreadService"),
        (catalog_service_pb2, "CatalogService"),
    )
    for method in module.DESCRIPTOR.services_by_name[service].methods
}
"""Every RPC of the contract, by its name."""

REASONS = frozenset(
    value.name.removeprefix("ERROR_REASON_") for value in errors_pb2.ErrorReason.DESCRIPTOR.values
) - {"UNSPECIFIED"}

_INTERNALS = re.compile(
    r"Traceback|\.py\b|site-packages|/(?:home|usr|tmp|var|root|work)/|entracte_server|<class|object at 0x"
    r"|\bsqlite|\bSELECT\b|\bINSERT\b|\bUPDATE\b|\bWHERE\b|database is|\bsys\.|grpc\._|asyncio|pydantic"
    r"|jsonschema|referencing|\bre\.error|[A-Z][a-z]+(?:Error|Exception)\b"
)
"""What betrays the inside of the server, in texts that do not quote the caller."""


# ---- agents ----


def once(*parts: dict[str, Any], then: str = "done") -> Any:
    """A model that answers with `parts` until a tool has answered in the conversation, then with a
    text. It keeps no position, so any number of runs can use it at once."""

    def play(request: Any) -> Sequence[Any]:
        if any(message.role == "tool" for message in request.messages):
            return [{"text": then}]
        return parts

    return scripted(play)


def saying(*parts: dict[str, Any]) -> Any:
    """A model that answers every call with `parts`."""
    return scripted(lambda request: parts)


@tool(requires_approval=True)
async def pay(amount: int) -> dict[str, int]:
    """Pays."""
    return {"paid": amount}


@tool(resume_schema={"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]})
async def confirm(what: str, ctx: ToolContext[Any]) -> Any:
    """Asks for a confirmation."""
    if not ctx.resumed:
        ctx.suspend({"confirm": what})
    return ctx.resume_data


@tool
async def question(ctx: ToolContext[Any]) -> Any:
    """Asks for anything at all, and returns it."""
    if not ctx.resumed:
        ctx.suspend({"anything": True})
    return {"answer": ctx.resume_data}


PAY = {"tool": "pay", "id": "c-pay", "args": {"amount": 7}}
CONFIRM = {"tool": "confirm", "id": "c-confirm", "args": {"what": "it"}}
QUESTION = {"tool": "question", "id": "c-question", "args": {}}


def agents() -> list[Agent]:
    """Agents for every kind of waiting. `talk` just answers."""
    everything: list[Tool] = [pay, confirm, question, ask_user]
    return [
        Agent(id="talk", model=saying({"text": "good day"}), tools=everything),
        Agent(id="gate", model=once(PAY), tools=everything),
        Agent(id="suspends", model=once(CONFIRM), tools=everything),
        Agent(id="asks", model=once(QUESTION), tools=everything),
        Agent(id="both", model=once(PAY, CONFIRM), tools=everything),
        Agent(id="hands-out", model=once({"tool": "theirs", "id": "c-theirs", "args": {"n": 1}})),
        Agent(id="slow", model=saying({"delay": 3_600_000})),
    ]


TALKING = "test/talking"
"""A model that agents made of data can name."""


def definition(**fields: Any) -> agent_pb2.AgentDefinition:
    """What an agent made of data is."""
    return agent_pb2.AgentDefinition(**{"models": [TALKING], **fields})


def talking() -> Any:
    """The model of that name."""
    return scripted(lambda request: [{"text": "made"}], name=TALKING)


THEIRS = options_pb2.ClientTool(
    name="theirs", input_schema=json_pb2.Json(text='{"type":"object","properties":{"n":{"type":"integer"}}}')
)
"""The client tool that `hands-out` calls."""


# ---- requests ----


def js(text: str) -> json_pb2.Json:
    """JSON text as a message."""
    return json_pb2.Json(text=text)


def user(text: str = "hi") -> message_pb2.Message:
    """A message of a user."""
    return message_pb2.Message(
        role=message_pb2.ROLE_USER, parts=[message_pb2.MessagePart(text=message_pb2.TextPart(text=text))]
    )


def generate(agent_id: str = "talk", text: str = "hi", **fields: Any) -> agent_service_pb2.GenerateRequest:
    """A request for `Generate`; `fields` are options, but `request_id`."""
    request_id = fields.pop("request_id", "")
    return agent_service_pb2.GenerateRequest(
        agent_id=agent_id,
        messages=[user(text)],
        options=options_pb2.GenerateOptions(**fields),
        request_id=request_id,
    )


def stream(agent_id: str = "talk", text: str = "hi", **fields: Any) -> agent_service_pb2.StreamRequest:
    """As `generate`, for `Stream`."""
    request = generate(agent_id, text, **fields)
    return agent_service_pb2.StreamRequest(
        agent_id=request.agent_id,
        messages=request.messages,
        options=request.options,
        request_id=request.request_id,
    )


def ref(pending_call_id: str = "", run_id: str = "", tool_call_id: str = "") -> pending_call_pb2.CallRef:
    """Names a pending call."""
    return pending_call_pb2.CallRef(pending_call_id=pending_call_id, run_id=run_id, tool_call_id=tool_call_id)


# ---- refusals ----


@dataclass(frozen=True)
class Refusal:
    """A status other than OK, taken apart. `violations` are descriptions by field."""

    code: str
    reason: str
    text: str
    metadata: dict[str, str] = field(default_factory=dict)
    violations: dict[str, str] = field(default_factory=dict)
    retry_after: float | None = None

    @property
    def shown(self) -> str:
        """Everything of it that a caller can read."""
        return "\n".join([self.text, *self.metadata.values(), *self.violations.values()])


def parts_of(error: grpc.RpcError) -> Refusal:
    """Takes a status apart and holds it to what the contract says of every refusal: an ErrorInfo of
    our domain with a reason of the enumeration, texts under 4 KiB, nothing of the inside."""
    code = error.code().name
    text = error.details() or ""
    _assert_fits(error)
    status = rpc_status.from_call(error)
    assert status is not None, f"a status without details: {code} {text!r}"
    info: error_details_pb2.ErrorInfo | None = None
    violations: dict[str, str] = {}
    retry_after: float | None = None
    for packed in status.details:
        if packed.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            assert info is None, "two ErrorInfo"
            info = error_details_pb2.ErrorInfo()
            packed.Unpack(info)
        elif packed.Is(error_details_pb2.BadRequest.DESCRIPTOR):
            bad = error_details_pb2.BadRequest()
            packed.Unpack(bad)
            violations = {item.field: item.description for item in bad.field_violations}
        elif packed.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
            retry = error_details_pb2.RetryInfo()
            packed.Unpack(retry)
            retry_after = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
    assert info is not None, f"no ErrorInfo: {code} {text!r}"
    assert info.domain == "entracte.dev"
    assert info.reason in REASONS, info.reason
    assert text
    assert len(text.encode()) <= 4096
    refusal = Refusal(code, info.reason, text, dict(info.metadata), violations, retry_after)
    assert not _INTERNALS.search(refusal.shown), refusal.shown
    return refusal


def _assert_fits(error: grpc.RpcError) -> None:
    """Clients take 8 KiB of headers by default; a status that is larger is lost."""
    text = (error.details() or "").encode()
    encoded = sum(1 if 32 <= byte <= 126 and byte != 37 else 3 for byte in text)
    trailing: Any = error.trailing_metadata() or ()
    for key, value in trailing:
        encoded += len(key) + (len(value) * 4 // 3 if key.endswith("-bin") else len(value)) + 32
    assert encoded <= 7680, f"{encoded} bytes of headers"


async def refused(call: Awaitable[Any]) -> Refusal:
    """The refusal that `call` must end with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return parts_of(caught.value)


# ---- peers ----


class Peer:
    """A client: the stubs, and `call` for any RPC by its name, with a message or with raw bytes."""

    def __init__(self, channel: grpc.aio.Channel, key: str = "") -> None:
        self.channel = channel
        self.agents = agent_service_pb2_grpc.AgentServiceStub(channel)
        self.runs = run_service_pb2_grpc.RunServiceStub(channel)
        self.inbox = inbox_service_pb2_grpc.InboxServiceStub(channel)
        self.metadata: tuple[tuple[str, str], ...] = (("authorization", f"Bearer {key}"),) if key else ()

    def open(
        self,
        method: str,
        request: ProtoMessage | bytes,
        *,
        timeout: float | None = 30,
        raw_responses: bool = False,
        as_stream: bool = False,
    ) -> Any:
        """The call object of a streaming RPC, or the awaitable of a unary one. `as_stream` reads a
        unary RPC as a stream of one message, which is the same on the wire: Python's client shows the
        initial metadata of a unary RPC at its end only."""
        descriptor = METHODS[method]
        streaming = descriptor.server_streaming or as_stream
        make = self.channel.unary_stream if streaming else self.channel.unary_unary
        assert descriptor.containing_service is not None
        parse = None if raw_responses else GetMessageClass(descriptor.output_type).FromString
        rpc: Any = make(
            f"/{descriptor.containing_service.full_name}/{method}",
            request_serializer=lambda r: r if isinstance(r, bytes) else r.SerializeToString(),
            response_deserializer=parse,
        )
        return rpc(request, timeout=timeout, metadata=self.metadata)

    async def call(
        self, method: str, request: ProtoMessage | bytes, *, timeout: float | None = 30
    ) -> list[Any]:
        """All responses of an RPC: one of a unary one."""
        opened = self.open(method, request, timeout=timeout)
        if METHODS[method].server_streaming:
            return [response async for response in opened]
        return [await opened]

    async def refuse(self, method: str, request: ProtoMessage | bytes) -> Refusal:
        """The refusal that an RPC must end with."""
        return await refused(self.call(method, request))

    async def one(self, method: str, request: ProtoMessage | bytes, *, timeout: float | None = 30) -> Any:
        """The response of a unary RPC."""
        return (await self.call(method, request, timeout=timeout))[0]

    # ---- what many tests do ----

    async def parked(
        self, agent_id: str = "gate", **fields: Any
    ) -> tuple[str, list[pending_call_pb2.PendingCall]]:
        """Start a run that parks: its id and what waits."""
        if agent_id == "hands-out":
            fields.setdefault("client_tools", [THEIRS])
        response = await self.one("Generate", generate(agent_id, **fields))
        assert response.run.state == run_pb2.RUN_STATE_SUSPENDED, response
        return response.run.run_id, list(response.result.pending_calls)

    async def thread(self, thread_id: str = "", resource_id: str = "ada", **fields: Any) -> thread_pb2.Thread:
        """Make a thread."""
        request = thread_service_pb2.CreateThreadRequest(
            thread_id=thread_id, resource_id=resource_id, **fields
        )
        made: thread_pb2.Thread = (await self.one("CreateThread", request)).thread
        return made

    async def run(self, run_id: str) -> run_pb2.Run:
        """Reads a run."""
        response = await self.one("GetRun", run_service_pb2.GetRunRequest(run_id=run_id, omit_result=True))
        run: run_pb2.Run = response.run
        return run

    async def chunks(self, run_id: str, after: int = 0) -> list[chunk_pb2.Chunk]:
        """The chunks of a run, from a position to where it rests."""
        request = run_service_pb2.WatchRunRequest(run_id=run_id, after_sequence=after)
        return [chunk for response in await self.call("WatchRun", request) for chunk in response.chunks]

    async def approved(self, pending: pending_call_pb2.PendingCall) -> Any:
        """Approve a call as it was shown, and wait: the response."""
        return await self.one(
            "Approve",
            agent_service_pb2.ApproveRequest(
                call=ref(pending.pending_call_id), args_digest=pending.args_digest, wait=True
            ),
        )


@asynccontextmanager
async def peer_of(
    address: str, key: str = "", options: Sequence[tuple[str, Any]] = ()
) -> AsyncIterator[Peer]:
    """A peer with a connection of its own, and limits as an SDK sets them."""
    limits = [
        ("grpc.max_receive_message_length", 16 * MIB),
        ("grpc.max_send_message_length", 32 * MIB),
        ("grpc.use_local_subchannel_pool", 1),
        *options,
    ]
    async with grpc.aio.insecure_channel(address, options=limits) as channel:
        yield Peer(channel, key)


HOOKS: tuple[HookKind, ...] = (
    "iteration_complete",
    "prepare_step",
    "before_tool_call",
    "stop_when",
    "message_filter",
)


@asynccontextmanager
async def serving(
    *more: Agent, only: bool = False, key: str = "", **settings: Any
) -> AsyncIterator[tuple[TestServer, Peer]]:
    """A server with the agents of this module (unless `only`) and `more`, and a peer of it."""
    app = App(
        agents=[*more] if only else [*agents(), *more],
        toolsets=[Toolset("asking", tools=[question])],
        processors=[UnicodeNormalizer()],
        hooks=[Hook(kind=kind, name=kind, function=lambda info: None) for kind in HOOKS],
        models=[talking()],
    )
    async with serve(app, **{**default_store(), **settings}) as server, peer_of(server.address, key) as peer:
        yield server, peer


async def until(condition: Callable[[], bool | Awaitable[bool]], what: str, seconds: float = 15.0) -> None:
    """Wait for something that will happen; `what` names it when it does not."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                held = condition()
                if held if isinstance(held, bool) else await held:
                    return
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"it never happened: {what}")


async def rest_of(call: Any) -> list[Any]:
    """The messages of a stream that were not read yet."""
    found: list[Any] = []
    while (response := await call.read()) is not grpc.aio.EOF:
        found.append(response)
    return found


def kinds(chunks: Sequence[chunk_pb2.Chunk]) -> list[str]:
    """The names of the chunks' payloads."""
    return [chunk.WhichOneof("payload") or "" for chunk in chunks]
