"""A real server in a process of its own, for the programs in this folder."""

import asyncio
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from entracte_server.app import healthcheck

ROOT = Path(__file__).resolve().parent.parent
START_TIMEOUT = 30.0
STOP_TIMEOUT = 10.0


def free_address() -> str:
    """A loopback address with a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


class ServerProcess:
    """`entracte serve APP` on a loopback port; ended by its process id when the block is left.

    Its output goes to `log`. `environment` adds to this process's own.
    """

    def __init__(
        self,
        app: str,
        *,
        store: Path,
        log: Path,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.address = free_address()
        self.store = store
        self.log = log
        self._command = [
            str(Path(sys.executable).with_name("entracte")),
            "serve",
            app,
            "--address",
            self.address,
            "--store",
            f"sqlite:///{store}",
            *options,
        ]
        self._environment = {**os.environ, **(environment or {})}
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """The process, 0 when there is none."""
        return self._process.pid if self._process else 0

    async def start(self) -> None:
        """Start it and wait until it serves. Raises `RuntimeError` with its last words."""
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                cwd=ROOT,
                env=self._environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in a chat is not meant for the server
            )
        deadline = asyncio.get_running_loop().time() + START_TIMEOUT
        while await asyncio.to_thread(healthcheck.status_of, self.address, timeout=1.0) != "SERVING":
            if self._process.returncode is not None or asyncio.get_running_loop().time() > deadline:
                await self.stop()
                words = self.log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"the server did not start:\n{words}")
            await asyncio.sleep(0.1)

    async def kill(self) -> None:
        """End it at once, as a crash would (`kill -9`)."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def stop(self) -> None:
        """End it in good order, and at once when that takes too long."""
        if self._process is None or self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), STOP_TIMEOUT)
        except TimeoutError:
            await self.kill()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
