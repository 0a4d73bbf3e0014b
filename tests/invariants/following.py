"""Readers of runs that take the chunks as the bytes they are, and attach again whatever happens."""

import asyncio
from typing import Any

import grpc.aio

from entracte.v1 import agent_service_pb2, run_service_pb2
from entracte.v1.chunk_pb2 import Chunk
from tests.cases.support import kind_of
from tests.invariants.harness import PATIENCE, Harness, went_away


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def entries(response: bytes) -> list[bytes]:
    """The chunks of a streamed response (field 1), each as the bytes the server sent."""
    found = []
    at = 0
    while at < len(response):
        tag, at = _varint(response, at)
        if tag & 7 == 0:
            _, at = _varint(response, at)
            continue
        assert tag & 7 == 2
        size, at = _varint(response, at)
        if tag >> 3 == 1:
            found.append(response[at : at + size])
        at += size
    return found


class Seen:
    """What one reader saw: the bytes of each chunk, in order, without a gap."""

    def __init__(self, run_id: str, after: int = 0) -> None:
        self.run_id = run_id
        self.after = after
        self.chunks: list[bytes] = []

    @property
    def through(self) -> int:
        """The sequence of the last chunk."""
        return self.after + len(self.chunks)

    def add(self, response: bytes) -> None:
        """Take a response in."""
        for raw in entries(response):
            chunk = Chunk.FromString(raw)
            assert chunk.run_id == self.run_id
            assert chunk.sequence == self.through + 1, f"{chunk.sequence} after {self.through}"
            self.chunks.append(raw)

    @property
    def last(self) -> str:
        """The kind of the last chunk."""
        return kind_of(Chunk.FromString(self.chunks[-1])) if self.chunks else ""


def raw_stream(channel: grpc.aio.Channel, method: str, request: Any, metadata: Any) -> Any:
    """A streaming RPC whose responses are bytes."""
    call: Any = channel.unary_stream(
        f"/entracte.v1.{method}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=None,
    )
    return call(request, metadata=metadata, timeout=3 * PATIENCE)


async def follow(harness: Harness, principal: str, seen: Seen, *, until_finished: bool) -> None:
    """Read on from where `seen` stands until the run rests (or has ended), through any restart."""
    end = asyncio.get_running_loop().time() + PATIENCE
    while True:
        caller = await harness.caller(principal)
        request = run_service_pb2.WatchRunRequest(
            run_id=seen.run_id, after_sequence=seen.through, until_finished=until_finished
        )
        try:
            rpc = raw_stream(caller.channel, "RunService/WatchRun", request, caller._metadata)
            async for response in rpc:
                seen.add(response)
            return
        except (grpc.aio.AioRpcError, grpc.aio.UsageError) as error:
            if not went_away(error) or asyncio.get_running_loop().time() > end:
                raise
        await asyncio.sleep(0.01)


async def start_stream(
    harness: Harness, principal: str, request: agent_service_pb2.StreamRequest, seen: Seen
) -> None:
    """Start a run by Stream, in spite of restarts: the request is repeated until a first chunk came,
    and then the run is followed until it rests."""
    end = asyncio.get_running_loop().time() + PATIENCE
    while True:
        caller = await harness.caller(principal)
        try:
            rpc = raw_stream(caller.channel, "AgentService/Stream", request, caller._metadata)
            async for response in rpc:
                seen.add(response)
            assert seen.last == "finish"
            return
        except (grpc.aio.AioRpcError, grpc.aio.UsageError) as error:
            if not went_away(error) or asyncio.get_running_loop().time() > end:
                raise
        if seen.chunks:
            await follow(harness, principal, seen, until_finished=False)
            return
        await asyncio.sleep(0.01)
