"""Bare proxies: a model's stream passed on over grpc.aio, with no agent, no tools and nothing stored.

They are what a gRPC service around a model costs at least, written three ways:

- `iterator`: the `openai` client's own iterator (its default transport, its pydantic chunks), one message
  per delta;
- `raw`: the client's raw response on aiohttp, server-sent events cut and parsed here, one message per
  delta;
- `batched`: as `raw`, but what one read brought goes out as one message.

The request is the model's name in bytes; a response is a protobuf message with one `repeated string`
field 1, encoded by hand.

Run: `python -m bench.proxies KIND --mock URL`; prints `ready PORT`.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio
import msgspec
from openai import AsyncOpenAI, DefaultAioHttpClient

from bench.loops import run

METHOD = "/entracte.bench.Proxy/Stream"
Handler = Callable[[bytes, Any], AsyncIterator[bytes]]


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice]


_decode = msgspec.json.Decoder(_Chunk).decode


def encode(text: str) -> bytes:
    """One entry of field 1."""
    data = text.encode()
    size = len(data)
    length = bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return b"\x0a" + length + data


def decode(message: bytes) -> list[str]:
    """The entries of field 1; raises ValueError for anything else."""
    texts: list[str] = []
    position = 0
    while position < len(message):
        if message[position] != 0x0A:
            raise ValueError(f"unexpected tag {message[position]} at {position}")
        position += 1
        size = shift = 0
        while True:
            byte = message[position]
            position += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        texts.append(message[position : position + size].decode())
        position += size
    return texts


def _body(request: bytes) -> dict[str, Any]:
    return {
        "model": request.decode(),
        "messages": [{"role": "user", "content": "go"}],
        "stream_options": {"include_usage": True},
    }


def iterator(client: AsyncOpenAI) -> Handler:
    """The handler that uses the client's iterator."""

    async def handle(request: bytes, context: Any) -> AsyncIterator[bytes]:
        stream = await client.chat.completions.create(**_body(request), stream=True)
        async for chunk in stream:
            if chunk.choices and (text := chunk.choices[0].delta.content):
                yield encode(text)

    return handle


def _texts(events: list[bytes]) -> list[str]:
    """The deltas of whole events; an event of the mock is one `data:` line."""
    found = []
    for event in events:
        if event.startswith(b"data: ") and not event.startswith(b"data: [DONE]"):
            for choice in _decode(event[6:]).choices:
                if choice.delta.content:
                    found.append(choice.delta.content)
    return found


async def _reads(client: AsyncOpenAI, request: bytes) -> AsyncIterator[list[str]]:
    """The deltas that each read of the response brought."""
    buffer = b""
    create = client.chat.completions.with_streaming_response.create
    async with create(**_body(request), stream=True) as response:
        async for data in response.iter_bytes():
            *events, buffer = (buffer + data).split(b"\n\n")
            if texts := _texts(events):
                yield texts


def raw(client: AsyncOpenAI) -> Handler:
    """The handler that reads bytes and sends one message per delta."""

    async def handle(request: bytes, context: Any) -> AsyncIterator[bytes]:
        async for texts in _reads(client, request):
            for text in texts:
                yield encode(text)

    return handle


def batched(client: AsyncOpenAI) -> Handler:
    """The handler that reads bytes and sends one message per read."""

    async def handle(request: bytes, context: Any) -> AsyncIterator[bytes]:
        async for texts in _reads(client, request):
            yield b"".join([encode(text) for text in texts])

    return handle


KINDS: dict[str, Callable[[AsyncOpenAI], Handler]] = {"iterator": iterator, "raw": raw, "batched": batched}


async def serve(kind: str, mock: str) -> None:
    """Serve one proxy on a free port of 127.0.0.1 until SIGTERM."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    http = None if kind == "iterator" else DefaultAioHttpClient()
    client = AsyncOpenAI(base_url=mock, api_key="none", max_retries=0, http_client=http)
    handler: Any = grpc.unary_stream_rpc_method_handler(KINDS[kind](client))
    service, _, method = METHOD[1:].partition("/")
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print("ready", port, flush=True)
    await stop.wait()
    await server.stop(None)
    await client.close()


def main() -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("--mock", required=True, help="base URL of the mock, as http://127.0.0.1:PORT/v1")
    args = parser.parse_args()
    run(serve(args.kind, args.mock))


if __name__ == "__main__":
    main()
