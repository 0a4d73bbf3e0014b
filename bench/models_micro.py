"""What a model call costs: microseconds of CPU per delta, milliseconds per call, bytes per open stream.

    python bench/models_micro.py [--calls 500] [--deltas 20000] [--streams 1000]

The provider is a plain HTTP server in a process of its own. All times are CPU time of this process.
"""

import argparse
import asyncio
import contextlib
import gc
import json
import multiprocessing
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from multiprocessing.connection import Connection

from entracte_server.domain.messages import Message, TextPart, text_message
from entracte_server.models import ModelRequest, Providers, ProviderSettings, ToolSpec
from entracte_server.models.assembler import AnswerAssembler
from entracte_server.models.sse import SseDecoder

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(delta: object, finish: str | None = None) -> bytes:
    """A record as OpenAI sends it, with all the fields that are of no use to us."""
    record = {
        "id": "chatcmpl-532a66402e184a4c84068437a857ce48",
        "object": "chat.completion.chunk",
        "created": 1739948145,
        "model": "gpt-5-mini-2025-08-07",
        "service_tier": "default",
        "system_fingerprint": "fp_179b0f92c9",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
        "usage": None,
        "obfuscation": "abcdefgh",
    }
    return b"data: " + json.dumps(record, separators=(",", ":")).encode() + b"\n\n"


TEXT = chunk({"content": " hello"})
START = chunk({"role": "assistant", "content": ""})
END = chunk({}, "stop") + b"data: [DONE]\n\n"
CALL = chunk({"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "f"}}]})
ARGS = chunk({"tool_calls": [{"index": 0, "function": {"arguments": "abc"}}]})


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """POST /N/... sends N deltas, each in a write of its own; /bN/... in one; /quiet/... waits."""
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            how = head.split(b" ")[1].split(b"/")[1].decode()
            writer.write(HEAD + frame(START))
            if how == "quiet":
                await reader.read()
            elif how.startswith("b"):
                writer.write(frame(TEXT * int(how[1:])))
            else:
                for _ in range(int(how)):
                    writer.write(frame(TEXT))
                    await asyncio.sleep(0)
            writer.write(frame(END) + b"0\r\n\r\n")
            await writer.drain()
    writer.close()


def frame(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def provider(pipe: Connection) -> None:
    """The other process."""

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=4096)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run())


def request(messages: int = 1) -> ModelRequest:
    history: list[Message] = []
    for index in range(messages - 1):
        parts = (TextPart(f"Message {index} of a conversation. " * 5),)
        history.append(Message("assistant" if index % 2 else "user", parts))
    tools = [ToolSpec(f"tool_{n}", "Looks something up.", '{"type":"object"}') for n in range(5)]
    return ModelRequest([*history, text_message("user", "hi")], tools)


def assemble(name: str, first: bytes, delta: bytes, count: int, per_read: int) -> None:
    decoder, answer = SseDecoder(), AnswerAssembler()
    data = delta * per_read

    def feed(data: bytes, times: int) -> None:
        for _ in range(times):
            for event in decoder.feed(data):
                answer.record(*event)
            answer.take()

    feed(first, 1)
    best = min(timed(lambda: feed(data, count // per_read)) for _ in range(3))
    print(f"decode and assemble, {name}, {per_read:2} per read: {best / count * 1e6:6.2f} us per delta")


def timed(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


async def batches(model_url: str, how: str, body: ModelRequest) -> AsyncIterator[int]:
    settings = ProviderSettings("mock", base_url=f"{model_url}/{how}/v1", requires_key=False)
    providers = Providers([settings])
    model = providers.resolve("mock/m")
    try:
        while True:
            async for batch in model.stream(body):
                yield len(batch)
            yield -1
    finally:
        await providers.aclose()


async def measure_calls(url: str, calls: int, messages: int) -> None:
    stream = batches(url, "b1", request(messages))
    seen = 0
    start = 0.0
    async for size in stream:
        seen += size == -1
        if size == -1 and seen == 20:
            start = time.process_time()
        if seen == calls + 20:
            break
    spent = time.process_time() - start
    await stream.aclose()  # type: ignore[attr-defined]
    print(f"call with {messages:3} messages: {spent / calls * 1e3:6.3f} ms per call")


async def measure_deltas(url: str, deltas: int, how: str, label: str) -> None:
    stream = batches(url, how, request())
    best = 1e9
    for _ in range(3):
        start = time.process_time()
        async for size in stream:
            if size == -1:
                break
        best = min(best, time.process_time() - start)
    await stream.aclose()  # type: ignore[attr-defined]
    print(f"stream from the socket, {label}: {best / deltas * 1e6:6.2f} us per delta")


async def measure_memory(url: str, streams: int) -> None:
    settings = ProviderSettings("mock", base_url=f"{url}/quiet/v1", requires_key=False)
    providers = Providers([settings])
    model = providers.resolve("mock/m")
    body = request()
    waiting = asyncio.Semaphore(0)

    async def follow() -> None:
        answer = model.stream(body)
        try:
            async for _ in answer:
                waiting.release()
        finally:
            await answer.aclose()  # type: ignore[attr-defined]

    async def open_streams(count: int) -> list[asyncio.Task[None]]:
        tasks = []
        for start in range(0, count, 50):
            tasks += [asyncio.create_task(follow()) for _ in range(start, min(start + 50, count))]
            await asyncio.sleep(0.05)
        await asyncio.sleep(2)
        return tasks

    tasks = await open_streams(50)
    gc.collect()
    before = resident()
    tasks += await open_streams(streams)
    gc.collect()
    print(f"open quiet streams: {(resident() - before) / streams / 1024:6.1f} KiB each, at {streams}")
    start = time.perf_counter()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    print(f"cancelling them: {(time.perf_counter() - start) / len(tasks) * 1e3:.3f} ms each")
    await providers.aclose()


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def measure(url: str, calls: int, deltas: int, streams: int) -> None:
    for messages in (1, 20, 100):
        await measure_calls(url, calls, messages)
    await measure_deltas(url, deltas, str(deltas), "a write each")
    await measure_deltas(url, deltas, f"b{deltas}", "one write ")
    if sys.platform == "linux" and streams:
        await measure_memory(url, streams)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--deltas", type=int, default=20_000)
    parser.add_argument("--streams", type=int, default=1000)
    options = parser.parse_args()
    for per_read in (1, 16):
        assemble("text", START, TEXT, options.deltas, per_read)
        assemble("arguments", CALL, ARGS, options.deltas, per_read)
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=provider, args=(theirs,), daemon=True)
    process.start()
    url = f"http://127.0.0.1:{ours.recv()}"
    try:
        asyncio.run(measure(url, options.calls, options.deltas, options.streams))
    finally:
        process.terminate()


if __name__ == "__main__":
    main()
