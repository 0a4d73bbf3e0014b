"""Agents with tools of workers, workers in this process, and a worker that is only its RPCs."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio

from entracte import Client, Worker, WorkerTool
from entracte._status import error_of
from entracte.v1 import worker_service_pb2 as pb
from entracte_server import Agent, App, remote_tool
from entracte_server.testing import TestServer, scripted, serve

SECONDS = 20.0
"""How long a test waits for anything."""


def calls(name: str, *arguments: dict[str, Any], end: str = "end") -> list[Any]:
    """A script: one step that calls a tool, once for each of the arguments, then a text."""
    return [[{"tool": name, "args": args} for args in arguments], [{"text": end}]]


def app(script: Sequence[Any], *names: str, **options: Any) -> App:
    """An agent that has these tools of workers, by `toolset/name`."""
    tools = [remote_tool(name) for name in names or ("w/echo",)]
    return App(agents=[Agent(id="a", model=scripted(script, position="transcript"), tools=tools, **options)])


@asynccontextmanager
async def serving(it: App, store: str, **settings: Any) -> AsyncIterator[tuple[TestServer, Client]]:
    """A server and its client."""
    settings.setdefault("log_level", "error")
    async with serve(it, store=store, **settings) as server, Client(server.address) as client:
        yield server, client


@asynccontextmanager
async def working(client: Client, *tools: WorkerTool, **options: Any) -> AsyncIterator[Worker]:
    """A worker that runs while the context lasts."""
    worker = Worker(client, tools=tools, **options)
    task = asyncio.create_task(worker.run(handle_signals=False))
    registered = asyncio.create_task(worker.registered())
    try:
        await asyncio.wait([task, registered], timeout=SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        assert registered.done()
        yield worker
    finally:
        registered.cancel()
        worker.stop()
        await asyncio.wait([task], timeout=SECONDS)
        assert task.done()
        task.result()


def echo(**changes: Any) -> pb.WorkerTool:
    """The tool `w/echo`, as it is registered."""
    tool = pb.WorkerTool(name="w/echo", version="1", **changes)
    if not tool.HasField("input_schema"):
        tool.input_schema.text = '{"type":"object","properties":{"n":{}}}'
    return tool


class Puller:
    """A stream of a session, read one event at a time."""

    def __init__(self, client: Client, session: str, tools: Iterable[pb.WorkerTool], credit: int) -> None:
        self.stubs = client._connection.workers
        self._metadata = client._connection.metadata()
        request = pb.PullWorkRequest(session_id=session, tools=tools, credit=credit)
        self._stream: Any = self.stubs.PullWork(request, metadata=self._metadata)
        self._events: list[pb.WorkEvent] = []

    async def event(self) -> pb.WorkEvent:
        """The next event; raises what ends the stream."""
        async with asyncio.timeout(SECONDS):
            while not self._events:
                response = await self._stream.read()
                assert isinstance(response, pb.PullWorkResponse), "the stream ended"
                self._events.extend(response.events)
        return self._events.pop(0)

    async def registered(self) -> pb.Registered:
        """The first event."""
        event = await self.event()
        assert event.WhichOneof("event") == "registered"
        return event.registered

    async def item(self) -> pb.WorkItem:
        """The next event, which is something to do."""
        event = await self.event()
        assert event.WhichOneof("event") == "item", event
        return event.item

    async def complete(self, item: pb.WorkItem, **outcome: Any) -> bool:
        """Hand in an outcome; whether it was a repetition."""
        request = pb.CompleteWorkRequest(work_id=item.work_id, token=item.token, **outcome)
        if not outcome:
            request.result.text = item.tool.args.text
        response = await self.stubs.CompleteWork(request, metadata=self._metadata)
        return response.replayed

    async def extend(self, item: pb.WorkItem, **what: Any) -> pb.ExtendWorkResponse:
        """Extend."""
        request = pb.ExtendWorkRequest(work_id=item.work_id, token=item.token, **what)
        return await self.stubs.ExtendWork(request, metadata=self._metadata)

    async def abandon(self, item: pb.WorkItem) -> bool:
        """Give back; whether it was a repetition."""
        request = pb.AbandonWorkRequest(work_id=item.work_id, token=item.token)
        return (await self.stubs.AbandonWork(request, metadata=self._metadata)).replayed

    def close(self) -> None:
        """End the stream."""
        self._stream.cancel()


@asynccontextmanager
async def pulling(
    client: Client, *tools: pb.WorkerTool, session: str = "s", credit: int = 10
) -> AsyncIterator[Puller]:
    """A registered stream."""
    puller = Puller(client, session, tools or (echo(),), credit)
    try:
        await puller.registered()
        yield puller
    finally:
        puller.close()


async def refusal_of(client: Client, tool: pb.WorkerTool, credit: int = 1) -> str:
    """The reason for which a tool is not registered."""
    puller = Puller(client, "refused", [tool], credit)
    try:
        return await reason_of(puller.registered())
    finally:
        puller.close()


async def reason_of(call: Any) -> str:
    """The reason for which an RPC is refused."""
    try:
        await call
    except grpc.aio.AioRpcError as failure:
        return error_of(failure).reason
    raise AssertionError("not refused")
