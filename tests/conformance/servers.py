"""The servers that scenarios talk to: real ones, which may be killed, and played ones."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.cases.process import ANYWHERE, ROOT, ServerProcess, forked
from tests.conformance.app import GATES, POLL

APP = "tests.conformance.app:app"
SECONDS = 60.0
LINE_BYTES = 64 * 1024 * 1024

KEYS = [
    {"key": "key-of-anna", "principal": "anna"},
    {"key": "key-of-bob", "principal": "bob"},
    {"key": "key-of-carl", "principal": "carl", "roles": ["run"]},
    {"key": "key-of-olga", "principal": "olga", "tenant": "other"},
]
ENVIRONMENTS: dict[str, dict[str, str]] = {
    "shared": {},
    "mortal": {"ENTRACTE_GRACE": "0.2"},
    "guarded": {"ENTRACTE_API_KEYS": json.dumps(KEYS)},
    "strict": {
        "ENTRACTE_STREAMS_PER_PRINCIPAL": "4",
        "ENTRACTE_MAX_RUNS": "2",
        "ENTRACTE_THREAD_QUEUE": "1",
        "ENTRACTE_WAITING_DEADLINE": "0.5",
        "ENTRACTE_READER_TIMEOUT": "0.5",
    },
    "secure": {"ENTRACTE_API_KEYS": json.dumps(KEYS)},
}
"""What each server is told; see `servers` in the README."""


class Missing(Exception):
    """Something cannot be tried here; the text says what for."""


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for this machine that nobody else signed, and its key. Raises Missing."""
    if shutil.which("openssl") is None:
        raise Missing("there is no openssl to make a certificate with")
    made, key = folder / "certificate.pem", folder / "key.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        f"-subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout {key} -out {made}"
    )
    subprocess.run(command.split(), check=True, capture_output=True)
    return made, key


class RealServer:
    """`entracte serve` on a database of its own. It may be killed and started again at its address."""

    def __init__(self, name: str, folder: Path) -> None:
        folder.mkdir()
        self.name = name
        self.gates = folder / "gates"
        self.gates.mkdir()
        self.address = ANYWHERE
        self.roots = ""
        self._secrets: dict[str, str] = {}
        if name == "secure":
            made, key = certificate(folder)
            self.roots = str(made)
            self._secrets = {"ENTRACTE_TLS_CERTIFICATE": self.roots, "ENTRACTE_TLS_KEY": str(key)}
        self._store = folder / "db"
        self._running: ServerProcess | None = None
        self._stack = AsyncExitStack()

    @property
    def output(self) -> str:
        """What it printed since it was started."""
        return "" if self._running is None else self._running.output

    async def start(self, **environment: str) -> None:
        """Start it, where the one before it listened."""
        together = {
            **ENVIRONMENTS[self.name],
            **self._secrets,
            GATES: str(self.gates),
            "ENTRACTE_LOG_FORMAT": "json",
            **environment,
        }
        self._running = await self._stack.enter_async_context(
            forked(APP, self._store, environment=together, address=self.address)
        )
        self.address = self._running.address

    async def kill(self) -> None:
        """End it without a chance to clean up."""
        assert self._running is not None
        await self._running.kill()
        await self._forget()

    async def drain(self) -> None:
        """Ask it to stop, and wait until it has."""
        assert self._running is not None
        self._running.send(signal.SIGTERM)
        await self._running.ended()
        await self._forget()

    async def _forget(self) -> None:
        await self._stack.aclose()
        self._stack = AsyncExitStack()
        self._running = None

    async def close(self) -> None:
        """End it for good."""
        await self._stack.aclose()

    def open(self, gate: str) -> None:
        """Let those go on who wait at a gate, and all who come to it."""
        (self.gates / gate).touch()

    async def reached(self, gate: str) -> None:
        """Until somebody has come to a gate."""
        async with asyncio.timeout(SECONDS):
            while not (self.gates / f"{gate}.reached").exists():  # noqa: ASYNC110 - a file, of another process
                await asyncio.sleep(POLL)


class Players:
    """The process of the played servers; see `player`."""

    def __init__(self, stubs: Path) -> None:
        self._stubs = stubs
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def play(self, plays: Mapping[str, Any]) -> str:
        """Open a server that plays this. Its address."""
        return str((await self._ask({"play": plays}))["address"])

    async def close_one(self, address: str) -> list[dict[str, Any]]:
        """Close a server. What it was asked."""
        found: list[dict[str, Any]] = (await self._ask({"close": address}))["asked"]
        return found

    async def _ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        async with self._turn:
            return await self._answer(order)

    async def _answer(self, order: Mapping[str, Any]) -> dict[str, Any]:
        if self._process is None:
            path = os.pathsep.join([str(self._stubs), str(ROOT), os.environ.get("PYTHONPATH", "")])
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.conformance.player",
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": path},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=LINE_BYTES,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        line = await asyncio.wait_for(self._process.stdout.readline(), SECONDS)
        assert line, "the played servers' process has ended; its standard error says why"
        found: dict[str, Any] = json.loads(line)
        return found

    async def close(self) -> None:
        """End the process."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            async with asyncio.timeout(SECONDS):
                await self._process.wait()
