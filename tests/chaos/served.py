"""`entracte serve --workers N` as a soak test sees it: one address, and workers whose figures it reads."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from entracte import Client
from tests.cases.process import ROOT
from tests.cases.support import Caller, until
from tests.chaos import soaked, world

START_SECONDS = 60.0


@dataclass(frozen=True)
class Figures:
    """Of one process. Memory in KiB."""

    memory: int
    descriptors: int
    threads: int


class Served:
    """See the module. `size` is the number of clients that can be told apart, not that of workers: which
    worker a client gets to, the system decides."""

    size = 8

    def __init__(self, folder: Path, process: "subprocess.Popen[bytes]") -> None:
        self.folder = folder
        self.address = ""
        self._process = process
        self._callers: dict[int, Caller] = {}
        self._read = 0
        self._leases_lost = 0
        self._ready: list[int] = []

    @property
    def output(self) -> str:
        """All that was printed."""
        return (self.folder / "log").read_text()

    def _read_on(self) -> None:
        """Read what the log has new."""
        with (self.folder / "log").open("rb") as log:
            log.seek(self._read)
            new = log.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            self._leases_lost += b'"lease_lost"' in line
            if b'"worker_ready"' in line:
                self._ready.append(json.loads(line)["pid"])

    @property
    def leases_lost(self) -> int:
        """How often a worker lost its lease."""
        self._read_on()
        return self._leases_lost

    @property
    def workers(self) -> list[int]:
        """The process ids of the workers that serve."""
        self._read_on()
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text()
        living = [int(pid) for pid in children.split()]
        return [pid for pid in self._ready if pid in living]

    async def serves(self, workers: int) -> None:
        """Until all workers do."""
        await until(lambda: "Entracte serves on " in self.output or self._ended(), START_SECONDS)
        assert not self._ended(), self.output
        found = re.search(r"Entracte serves on ([\d.:]+)", self.output)
        assert found, self.output
        self.address = found[1]
        await until(lambda: len(self.workers) == workers)

    def _ended(self) -> bool:
        return self._process.poll() is not None

    def figures(self, pid: int) -> Figures | None:
        """What a worker uses; None for one that has ended."""
        try:
            status = Path(f"/proc/{pid}/status").read_text()
            descriptors = len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            return None
        values = dict(re.findall(r"^(VmRSS|Threads):\s+(\d+)", status, re.MULTILINE))
        if "VmRSS" not in values:  # it is about to be gone
            return None
        return Figures(int(values["VmRSS"]), descriptors, int(values["Threads"]))

    def connections(self) -> int:
        """How many connections clients hold. (gRPC's Python client keeps one now and then whose call was
        cancelled when its channel was closed.)"""
        port = f":{int(self.address.rpartition(':')[2]):04X}"
        return sum(remote.endswith(port) and state == "01" for _, _, remote, state, *_ in _connections())

    def open_files(self, pid: int) -> list[str]:
        """What the descriptors of a worker stand for, without numbers; of a TCP connection, its state."""
        states = {f"socket:[{fields[9]}]": f"TCP in state {fields[3]}" for fields in _connections()}
        names = []
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                file = os.readlink(entry.path)
                names.append(states.get(file) or re.sub(r"\d+", "N", file))
        return sorted(names)

    async def tasks(self, pid: int) -> dict[str, Any]:
        """How many tasks a worker has, as it says itself."""
        file = self.folder / "counts" / str(pid)
        file.unlink(missing_ok=True)
        os.kill(pid, signal.SIGUSR1)
        await until(file.exists)
        counts: dict[str, Any] = json.loads(file.read_text())
        return counts

    # ---- as clients see it ----

    def client(self, first: int = 0) -> Client:
        """A client with a connection of its own."""
        return Client(self.address, channel_options={"grpc.use_local_subchannel_pool": 1})

    def caller(self, first: int = 0) -> Caller:
        """A caller without retries; one for all who ask for the same."""
        if first not in self._callers:
            self._callers[first] = Caller(self.address, agent="world")
        return self._callers[first]

    def traces(self, run_id: str) -> list[dict[str, Any]]:
        """What the tools and the model of a run wrote."""
        return world.traces_of(self.folder / "effects", run_id)

    async def disconnect(self) -> None:
        """Close the callers' connections."""
        for caller in self._callers.values():
            await caller.channel.close()
        self._callers.clear()

    async def stop(self) -> int:
        """Stop it gracefully; its exit code."""
        self._process.send_signal(signal.SIGTERM)
        await until(self._ended, START_SECONDS)
        return self._process.returncode


def _connections() -> list[list[str]]:
    """The TCP connections of this machine. gRPC makes IPv6 ones that stand for IPv4."""
    tables = (Path(f"/proc/net/{protocol}").read_text() for protocol in ("tcp", "tcp6"))
    return [line.split() for table in tables for line in table.splitlines()[1:]]


@asynccontextmanager
async def served(
    folder: Path, store: str, workers: int, settings: Mapping[str, Any]
) -> AsyncIterator[Served]:
    """Serve `tests.chaos.soaked` while the context lasts."""
    for name in ("effects", "counts"):
        (folder / name).mkdir()
    environment = {
        **os.environ,
        world.EFFECTS: str(folder / "effects"),
        soaked.COUNTS: str(folder / "counts"),
        **{f"ENTRACTE_{name.upper()}": str(value) for name, value in settings.items()},
    }
    command = [sys.executable, "-m", "entracte_server.app.cli", "serve", "tests.chaos.soaked:app"]
    command += ["--address", "127.0.0.1:0", "--store", store, "--workers", str(workers)]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(  # noqa: ASYNC220 - it returns at once; nothing is read from it
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    it = Served(folder, process)
    try:
        await it.serves(workers)
        yield it
    finally:
        await it.disconnect()
        if process.poll() is None:
            process.kill()  # its workers notice that
            process.wait()
