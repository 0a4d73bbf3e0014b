"""Starts and speaks to `process_child`, and ends what it started."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0


class OtherProcess:
    """A process with the database open."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def ask(self, what: str, *arguments: Any) -> Any:
        """Have it do something; what it answers."""
        self.send(what, *arguments)
        return await self.answer()

    def send(self, what: str, *arguments: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([what, *arguments]).encode() + b"\n")

    async def answer(self) -> Any:
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE)
        assert line, "the process has ended"
        return json.loads(line)

    async def kill(self) -> None:
        """SIGKILL, and wait until it is dead."""
        self._process.kill()
        await asyncio.wait_for(self._process.wait(), PATIENCE)

    async def stop(self) -> None:
        """SIGSTOP, and wait until it is stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        async with asyncio.timeout(PATIENCE):
            while not self._stopped():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.001)

    def _stopped(self) -> bool:
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].startswith("T")

    def go_on(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    async def end(self) -> None:
        """Let it close its store and end by itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert await asyncio.wait_for(self._process.wait(), PATIENCE) == 0


@asynccontextmanager
async def other_processes(database: Path, count: int) -> AsyncIterator[list[OtherProcess]]:
    """That many processes which open the database at the same time."""
    started = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.store.process_child",
            str(database),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for _ in range(count)
    ]
    processes = [OtherProcess(process) for process in started]
    try:
        for process in processes:
            assert await process.answer() == "open"
        yield processes
    finally:
        for child in started:
            if child.returncode is None:
                child.kill()
            await child.communicate()
