"""Clients that die: processes which start a run, read a little of it, and are killed."""

import asyncio
import multiprocessing
import os
import random
import signal
from typing import Any

LONGEST_LIFE = 1.0
"""Seconds after its first chunk."""

_forks = multiprocessing.get_context("forkserver")


def _stream(address: str, start: dict[str, Any], count: Any) -> None:
    """The body of such a process: reads chunks until it is killed; tells how many it got."""
    from entracte import Client

    async def read() -> None:
        async with Client(address) as client:
            async for _ in client.agent("world").stream(**start):
                count.value += 1
            await asyncio.sleep(3600)  # it has seen all there is, and still dies

    asyncio.run(read())


async def start_and_die(address: str, start: dict[str, Any], rng: random.Random) -> int:
    """Start a run, and die of SIGKILL some time after its first chunks; how many chunks it got."""
    count = _forks.Value("i", 0)
    process = _forks.Process(target=_stream, args=(address, start, count), daemon=True)
    process.start()
    try:
        wanted, begun = rng.randint(2, 30), 0.0
        while process.is_alive() and count.value < wanted:
            await asyncio.sleep(0.005)
            begun += 0.005 if count.value else 0.0
            if begun > LONGEST_LIFE:  # its run says no more
                break
        return int(count.value)
    finally:
        if process.pid is not None and process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
        await asyncio.to_thread(process.join)
        process.close()
