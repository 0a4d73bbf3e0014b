"""Servers in processes of their own, which a test may kill.

`executed` starts `entracte serve` as a person would. `forked` runs the same command in a fork of a
process that has imported it before, which takes a twentieth of the time. The store is the file that is
given, unless the test runs on another one.
"""

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.stores import default_store

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 30.0
POLL = 0.005

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(
    ["entracte_server.app.running", "tests.invariants.world", "tests.matrix.served", "tests.conformance.app"]
)


class ServerProcess:
    """A server that runs. `address` is `host:port`."""

    def __init__(self, process: "subprocess.Popen[bytes] | multiprocessing.process.BaseProcess", log: Path):
        self._process = process
        self._log = log
        self.address = ""

    @property
    def output(self) -> str:
        """What it printed so far, both streams."""
        return self._log.read_text()

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while it runs."""
        if isinstance(self._process, subprocess.Popen):
            return self._process.poll()
        return self._process.exitcode

    async def serves(self) -> None:
        """Until it says where it listens."""
        end = time.monotonic() + START_SECONDS
        while not self.address:
            assert self.exit_code is None, self.output
            assert time.monotonic() < end, f"not started in time: {self.output}"
            for line in self.output.splitlines(keepends=True):
                if line.startswith("Entracte serves on ") and line.endswith("\n"):
                    self.address = line.split()[3].rstrip(",")
            await asyncio.sleep(POLL)

    async def says(self, words: str) -> None:
        """Until it printed these words."""
        for _ in range(4000):
            if words in self.output:
                return
            await asyncio.sleep(POLL)
        raise AssertionError(self.output)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to this process, if it still runs."""
        pid = self._process.pid
        if self.exit_code is None and pid is not None:
            os.kill(pid, number)

    async def ended(self, seconds: float = 20.0) -> int:
        """Its exit code, once it has ended."""
        end = time.monotonic() + seconds
        while (code := self.exit_code) is None:
            assert time.monotonic() < end, f"still runs: {self.output}"
            await asyncio.sleep(POLL)
        return code

    async def kill(self) -> None:
        """End it without a chance to clean up."""
        self.send(signal.SIGKILL)
        await self.ended()


ANYWHERE = "127.0.0.1:0"


def _arguments(target: str, store: Path, address: str = ANYWHERE) -> list[str]:
    where = default_store().get("store", f"sqlite:///{store}")
    return ["serve", target, "--address", address, "--store", where, "--log-level", "warning"]


def _serve(arguments: Sequence[str], environment: Mapping[str, str], log: str) -> None:
    """The body of a forked server."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.chdir(ROOT)
    os.environ.update(environment)
    from entracte_server.app.cli import main

    main(args=list(arguments))


_started = 0


def _log_beside(store: Path) -> Path:
    global _started
    _started += 1
    log = store.with_name(f"server-{_started}.log")
    log.touch()
    return log


@asynccontextmanager
async def executed(
    target: str, store: Path, *, environment: Mapping[str, str] | None = None
) -> AsyncIterator[ServerProcess]:
    """Serve `module:attribute` on the database `store`; killed at the end if it still runs."""
    log = _log_beside(store)
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: ASYNC220 - it returns at once; nothing is read from it
            [sys.executable, "-m", "entracte_server.app.cli", *_arguments(target, store)],
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    server = ServerProcess(process, log)
    try:
        await server.serves()
        yield server
    finally:
        await server.kill()


@asynccontextmanager
async def forked(
    target: str, store: Path, *, environment: Mapping[str, str] | None = None, address: str = ANYWHERE
) -> AsyncIterator[ServerProcess]:
    """As `executed`, at an address of one's choice."""
    log = _log_beside(store)
    process = _forks.Process(
        target=_serve,
        args=(_arguments(target, store, address), dict(environment or {}), str(log)),
        daemon=True,
    )
    process.start()
    server = ServerProcess(process, log)
    try:
        await server.serves()
        yield server
    finally:
        await server.kill()
        process.join()
        process.close()
