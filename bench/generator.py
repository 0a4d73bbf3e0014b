"""The load generator: a process of its own that takes one job and says what it saw.

Reads one job (`bench.jobs`, JSON) from standard input and writes one JSON line per result. Responses
stay bytes: deltas are counted by the mark the mock puts into each, and one stream in SAMPLE is kept and
checked whole afterwards.

Run: by `bench.run` and `bench.profile`, as `python -m bench.generator`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import msgspec

from bench import jobs
from bench.loops import run
from bench.mock_backend import MARK
from bench.processes import cpu_seconds, machine_cpu_seconds
from bench.targets import BadAnswerError, Target, target

SAMPLE = 25
_MARK = MARK.encode()
_CALL_SECONDS = 120.0
_MOST_ERRORS = 5


class Tally:
    """What all workers of a job counted so far."""

    def __init__(self) -> None:
        self.chunks = 0
        self.runs = 0
        self.errors: list[str] = []
        self.kept: list[tuple[list[bytes], int]] = []
        self._started = 0

    def sampled(self) -> bool:
        """Whether the stream that starts now is to be kept."""
        self._started += 1
        return self._started % SAMPLE == 1 and len(self.kept) < 200

    def fail(self, error: BaseException) -> None:
        """Note an error; only the first few are kept."""
        if len(self.errors) < _MOST_ERRORS:
            self.errors.append(f"{type(error).__name__}: {str(error)[:500]}")

    def check(self, goal: Target) -> int:
        """Check what was kept; the number of streams checked."""
        for messages, deltas in self.kept:
            try:
                goal.check(messages, deltas)
            except BadAnswerError as error:
                self.fail(error)
        return len(self.kept)


@asynccontextmanager
async def open_channels(address: str, count: int) -> AsyncIterator[list[grpc.aio.Channel]]:
    """Channels with a connection each, connected."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", 64 * 1024 * 1024)]
    channels = [grpc.aio.insecure_channel(address, options=options) for _ in range(count)]
    try:
        async with asyncio.timeout(30):
            await asyncio.gather(*(channel.channel_ready() for channel in channels))
        yield channels
    finally:
        await asyncio.gather(*(channel.close(None) for channel in channels))


async def stream_once(
    channel: grpc.aio.Channel, goal: Target, model: str, deltas: int, tally: Tally
) -> list[bytes]:
    """One run, from request to the end of its stream; the messages, empty unless sampled."""
    keep = tally.sampled()
    stream: Any = channel.unary_stream(goal.method)
    call = stream(goal.request(model), timeout=_CALL_SECONDS)
    seen = 0
    messages: list[bytes] = []
    async for message in call:
        marks = message.count(_MARK)
        seen += marks
        tally.chunks += marks
        if keep:
            messages.append(message)
    if seen != deltas:
        raise BadAnswerError(f"expected {deltas} deltas, got {seen}")
    if keep:
        tally.kept.append((messages, deltas))
    return messages


async def throughput(job: jobs.Throughput) -> jobs.Window:
    """Keep `concurrency` workers busy and look at the counters at both ends of the window."""
    goal, tally = target(job.kind), Tally()
    stopping = asyncio.Event()

    async def once(channel: grpc.aio.Channel) -> None:
        if job.cycles:
            from bench.entracte_target import cycle_once

            await cycle_once(channel, job.model, job.deltas, job.cycles == "watch", tally)
        else:
            await stream_once(channel, goal, job.model, job.deltas, tally)
        tally.runs += 1

    async def work(number: int, channel: grpc.aio.Channel) -> None:
        await asyncio.sleep(number * job.stagger)
        while not stopping.is_set() and len(tally.errors) < _MOST_ERRORS:
            try:
                await once(channel)
            except (grpc.aio.AioRpcError, BadAnswerError) as error:
                tally.fail(error)

    def look() -> tuple[float, int, int, float, float, float, float]:
        used = cpu_seconds(job.pid), time.process_time(), cpu_seconds(job.mock_pid), machine_cpu_seconds()
        return time.monotonic(), tally.chunks, tally.runs, *used

    async with open_channels(job.address, job.channels) as channels:
        workers = [
            asyncio.create_task(work(number, channels[number % len(channels)]))
            for number in range(job.concurrency)
        ]
        try:
            await asyncio.sleep(job.warmup + job.concurrency * job.stagger)
            start = look()
            await asyncio.sleep(job.seconds)
            end = look()
            stopping.set()
            await asyncio.wait(workers, timeout=60)
        finally:
            for worker in workers:
                worker.cancel()
            outcomes = await asyncio.gather(*workers, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            tally.fail(outcome)
    seconds, chunks, runs, cpu, own, mock, machine = (
        after - before for before, after in zip(start, end, strict=True)
    )
    checked = tally.check(goal)
    return jobs.Window(
        seconds=seconds,
        chunks=int(chunks),
        runs=int(runs),
        cpu=cpu,
        generator_cpu=own,
        mock_cpu=mock,
        other_cpu=max(0.0, machine - cpu - own - mock),
        checked=checked,
        errors=tally.errors,
    )


async def raw_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, model: str) -> float:
    """Seconds until the mock's first delta, on an open connection; reads the answer to its end."""
    body = b'{"model":"%s","messages":[{"role":"user","content":"go"}],"stream":true}' % model.encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: mock\r\nContent-Length: %d\r\n\r\n" % len(body)
    start = time.perf_counter()
    writer.write(head + body)
    seen = b""
    first = 0.0
    async with asyncio.timeout(30):
        while not seen.endswith(b"\r\n0\r\n\r\n"):
            data = await reader.read(1 << 16)
            if not data:
                raise BadAnswerError("the mock closed the connection")
            seen += data
            if not first and _MARK in seen:
                first = time.perf_counter() - start
    return first


async def system_first(channel: grpc.aio.Channel, goal: Target, model: str) -> float:
    """Seconds until a system's first delta; reads the stream to its end."""
    request = goal.request(model)
    first = 0.0
    start = time.perf_counter()
    stream: Any = channel.unary_stream(goal.method)
    call = stream(request, timeout=_CALL_SECONDS)
    async for message in call:
        if not first and _MARK in message:
            first = time.perf_counter() - start
    if not first:
        raise BadAnswerError("a stream without a delta")
    return first


async def first(job: jobs.First) -> jobs.FirstDelays:
    """Raw model and system in turn."""
    goal, tally = target(job.kind), Tally()
    raw: list[float] = []
    system: list[float] = []
    reader, writer = await asyncio.open_connection("127.0.0.1", job.mock_port)
    async with open_channels(job.address, 1) as channels:
        for _ in range(job.count):
            try:
                raw.append(await raw_first(reader, writer, job.model))
                system.append(await system_first(channels[0], goal, job.model))
            except (grpc.aio.AioRpcError, BadAnswerError, TimeoutError) as error:
                tally.fail(error)
    writer.close()
    return jobs.FirstDelays(raw=raw[3:], system=system[3:], errors=tally.errors)


async def hold(job: jobs.Hold) -> None:
    """Open streams until each has had its delta, say so, keep them until a line comes in."""
    goal, tally = target(job.kind), Tally()
    calls: list[Any] = []
    gate = asyncio.Semaphore(20)

    async def hold_one(channel: grpc.aio.Channel) -> None:
        async with gate:
            stream: Any = channel.unary_stream(goal.method)
            call = stream(goal.request(job.model))
            calls.append(call)
            try:
                async with asyncio.timeout(_CALL_SECONDS):
                    while (message := await call.read()) is not grpc.aio.EOF:
                        if _MARK in message:
                            tally.runs += 1
                            return
                tally.fail(BadAnswerError("the stream ended"))
            except (grpc.aio.AioRpcError, TimeoutError) as error:
                tally.fail(error)

    async with open_channels(job.address, job.channels) as channels:
        start = time.monotonic()
        await asyncio.gather(*(hold_one(channels[number % job.channels]) for number in range(job.count)))
        say(jobs.Done(count=tally.runs, seconds=time.monotonic() - start, errors=tally.errors))
        await asyncio.wait_for(asyncio.to_thread(sys.stdin.readline), 120)
        for call in calls:
            call.cancel()


async def suspend(job: jobs.Suspend) -> jobs.Done:
    """Park `count` runs."""
    goal, tally = target(job.kind), Tally()
    numbers = iter(range(job.count))
    start = time.monotonic()

    async def work(channel: grpc.aio.Channel) -> None:
        for _ in numbers:
            try:
                await stream_once(channel, goal, job.model, job.deltas, tally)
                tally.runs += 1
            except (grpc.aio.AioRpcError, BadAnswerError) as error:
                tally.fail(error)

    async with open_channels(job.address, job.channels) as channels, asyncio.timeout(900):
        await asyncio.gather(*(work(channels[number % job.channels]) for number in range(job.concurrency)))
    return jobs.Done(count=tally.runs, seconds=time.monotonic() - start, errors=tally.errors)


def say(result: msgspec.Struct) -> None:
    """Write one result line."""
    print(msgspec.json.encode(result).decode(), flush=True)


async def do(job: jobs.AnyJob) -> None:
    """Carry a job out."""
    if isinstance(job, jobs.Throughput):
        say(await throughput(job))
    elif isinstance(job, jobs.First):
        say(await first(job))
    elif isinstance(job, jobs.Suspend):
        say(await suspend(job))
    else:
        await hold(job)


if __name__ == "__main__":
    run(do(msgspec.json.decode(sys.stdin.readline(), type=jobs.AnyJob)))
