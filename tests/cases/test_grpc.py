"""Limits and manners of the RPC layer."""

import ast
import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

import entracte
import entracte_server
from entracte.v1 import agent_service_pb2
from entracte_server import tool
from entracte_server.rpc.agent_service import AgentService
from entracte_server.rpc.inbox_service import InboxService
from entracte_server.rpc.run_service import RunService
from entracte_server.testing import scripted
from tests.cases.support import (
    WAIT,
    Caller,
    app_of,
    finish_of,
    gap_free,
    payloads,
    reason_name,
    refused,
    served,
    serving,
    text_of,
    until,
    user,
)

MB = 1024 * 1024


async def test_large_answers_come_in_pieces() -> None:
    """GR-01: a run larger than a message can be is read as a stream; its result is refused by name with
    the RPC to use."""

    @tool
    async def big() -> str:
        return "x" * (3 * MB)

    steps = [[{"tool": "big", "id": f"c{i}"}] for i in range(6)]
    async with serving(app_of(scripted([*steps, [{"text": "end"}]], position="transcript"), [big])) as caller:
        chunks = await caller.stream(max_steps=10)
        assert len(payloads(chunks, "tool_result")) == 6
        assert gap_free(chunks)
        assert text_of(chunks) == "end"
        assert await caller.watch(chunks[0].run_id) == chunks
        with refused(grpc.StatusCode.OUT_OF_RANGE, "RESULT_TOO_LARGE") as refusal:
            await caller.get_run(chunks[0].run_id)
        assert "WatchRun" in refusal.metadata["rpc"]
        assert await caller.state(chunks[0].run_id) == "SUCCEEDED"


async def test_large_requests_are_refused_whole() -> None:
    """GR-01: 15 MB of messages are taken, more than 16 is refused by the transport, for every client the
    same; a JSON field has a limit of its own."""
    from tests.cases.support import as_json

    async with serving(app_of(scripted([[{"text": "end"}]]))) as caller:
        done = await caller.generate([user("x" * MB) for _ in range(5)])
        assert done.result.text == "end"
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await caller.generate([user("x" * MB) for _ in range(17)])
        assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "JSON_INVALID"):
            await caller.generate(request_context=as_json({"x": "y" * (4 * MB)}))


async def test_long_lists_have_pages() -> None:
    """GR-01: a list of many runs comes in pages, each run once, newest first."""
    async with serving(app_of(scripted([[{"text": "end"}]]))) as caller:
        made = [run.run.run_id for run in await asyncio.gather(*(caller.generate() for _ in range(300)))]
        seen: list[str] = []
        token = ""
        while True:
            page = await caller.list_runs(page_size=70, page_token=token)
            assert len(page.runs) <= 70
            seen += [run.run_id for run in page.runs]
            token = page.next_page_token
            if not token:
                break
        assert len(seen) == len(set(seen)) == 300
        assert set(seen) == set(made)


def handlers() -> list[tuple[str, Any]]:
    """Every handler of the server's services."""
    services = [AgentService, RunService, InboxService, health.aio.HealthServicer]
    return [
        (f"{service.__name__}.{name}", method)
        for service in services
        for name, method in inspect.getmembers(service, inspect.isfunction)
        if name[0].isupper()
    ]


def test_every_handler_is_asynchronous() -> None:
    """GR-08: no handler of ours is a plain function, and none at all, the health service's included, a
    plain generator, which would hold the event loop."""
    found = handlers()
    assert len(found) >= 17
    for name, method in found:
        assert not inspect.isgeneratorfunction(method), name
        assert inspect.iscoroutinefunction(method) or name.startswith("HealthServicer."), name


async def test_watching_the_health_of_the_server_holds_up_nothing() -> None:
    """GR-08: while a client watches the health, others are served, and the watch says when it ends."""
    async with serving(app_of(scripted([[{"text": "end"}]]))) as caller:
        stub = health_pb2_grpc.HealthStub(caller.channel)
        rpc = stub.Watch(health_pb2.HealthCheckRequest(), timeout=WAIT)
        assert (await rpc.read()).status == health_pb2.HealthCheckResponse.SERVING
        assert (await caller.generate()).result.text == "end"
        rpc.cancel()


def test_nobody_polls_for_cancellation() -> None:
    """CT-02: what an RPC's context says of its cancellation while it is being cancelled is wrong, so no
    code asks it."""
    root = Path(entracte_server.__file__).parent
    for folder in ("rpc", "engine", "app"):
        for file in sorted((root / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    where = f"{file.name}:{node.lineno}"
                    owner = node.func.value
                    if isinstance(owner, ast.Name) and owner.id == "context":
                        assert node.func.attr not in ("cancelled", "done", "is_active"), where


async def test_a_cancelled_rpc_is_noticed() -> None:
    """CT-02: a caller that cancels while nothing happens is gone for the server at once."""
    model = scripted([[{"text": "a "}, {"delay": 60_000}]])
    async with served(app_of(model)) as server, Caller(server.address) as caller:
        rpc = caller.open_stream()
        run_id = (await rpc.read()).chunks[0].run_id
        key = ("local", run_id)
        assert server.engine.hub.followers(key) == 1
        rpc.cancel()
        await until(lambda: not server.engine.hub.followers(key))
        await caller.cancel(run_id)


class Relay:
    """A TCP relay that counts connections."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        there = await asyncio.open_connection(*self._target)

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(65536):
                    sink.write(data)
                    await sink.drain()
            except ConnectionError:
                pass
            finally:
                sink.close()

        await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))


@asynccontextmanager
async def relay(target: str) -> AsyncIterator[tuple[Relay, str]]:
    """A relay to `target`, and its address."""
    it = Relay(target)
    server = await asyncio.start_server(it.serve, "127.0.0.1", 0)
    async with server:
        yield it, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_the_sdk_keeps_one_connection() -> None:
    """GR-09: many calls, one after the other and at once, go over one connection of the client."""
    async with (
        served(app_of(scripted([[{"text": "end"}]]))) as server,
        relay(server.address) as (counted, address),
        entracte.Client(address) as client,
    ):
        for _ in range(20):
            assert (await client.agent("agent").generate("go")).text == "end"
        await asyncio.gather(*(client.agent("agent").generate("go") for _ in range(50)))
        assert counted.connections == 1


async def test_many_streams_of_one_client() -> None:
    """GR-10: three hundred streams of one client over one connection are all served."""
    model = scripted([[{"text": "a "}, {"delay": 300}, {"text": "b"}]])
    async with serving(app_of(model)) as caller:
        streams = await asyncio.gather(*(caller.stream() for _ in range(300)))
        assert {text_of(chunks) for chunks in streams} == {"a b"}
        assert {reason_name(finish_of(chunks).reason) for chunks in streams} == {"stop"}


async def test_too_many_streams_are_refused_and_do_not_wait() -> None:
    """GR-10: beyond its limit a client is told so at once, over the same connection too; when a stream
    ends there is room again."""
    model = scripted([[{"text": "a "}, {"delay": 60_000}]])
    app = app_of(model)
    async with serving(app, streams_per_principal=5) as caller:
        open_ones = [caller.open_stream() for _ in range(5)]
        for rpc in open_ones:
            await rpc.read()
        async with Caller(caller.address) as other:
            for who in (caller, other):
                with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_STREAMS") as refusal:
                    request = agent_service_pb2.StreamRequest(agent_id="agent", messages=[user("go")])
                    await who.agents.Stream(request, timeout=5).read()
                assert refusal.metadata["limit"] == "5"
        open_ones[0].cancel()
        async with asyncio.timeout(WAIT):
            while True:
                rpc = caller.open_stream()
                try:
                    await rpc.read()
                    break
                except grpc.aio.AioRpcError:
                    await asyncio.sleep(0.02)
        rpc.cancel()
        for rpc in open_ones:
            rpc.cancel()
