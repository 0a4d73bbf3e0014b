"""A fleet: server processes on one store, which may die, be stopped and be started again.

Each member is `entracte serve` in a fork of a process that has imported it before, on a port of its
own that its successors have too, with a store that has traps.
"""

import asyncio
import multiprocessing
import os
import random
import signal
import socket
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from entracte import Client
from tests.cases.process import ROOT, ServerProcess
from tests.cases.support import Caller
from tests.chaos import traps, world
from tests.chaos.traps import Trapper

LEASE = 1.5
"""Seconds that a silent process keeps its runs."""

START_SECONDS = 30.0

CLIENT_SECONDS = 90.0
"""How long a client goes on asking."""

PORTS = range(20_000, 32_000)
"""Below those that the system hands out, so that a port is free when its server comes back."""

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(
    [
        "entracte_server.app.running",
        "entracte_server.app.cli.serve",
        "tests.invariants.world",
        "tests.chaos.world",
    ]
)


def _serve(arguments: Sequence[str], environment: Mapping[str, str], log: str) -> None:
    """The body of a server's process."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.chdir(ROOT)
    os.environ.update(environment)
    from entracte_server.app.cli import main
    from tests.chaos.store import set_traps

    set_traps()
    main(args=list(arguments))


def free_port() -> int:
    """A port nobody listens on."""
    for port in random.sample(PORTS, 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("there is no free port")


def _state_of(pid: int) -> str:
    """The system's letter for what a process does."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


class Member:
    """One process of a fleet and its successors. `deaths` counts those that were killed, `drains` those
    that were told to stop and did."""

    def __init__(self, fleet: "Fleet", name: str) -> None:
        self.name = name
        self.port = free_port()
        self.deaths = 0
        self.drains = 0
        self.logs: list[Path] = []
        self.process: ServerProcess | None = None
        self._fleet = fleet
        self._child: Any = None
        self._told = False

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._child is not None
        return int(self._child.pid)

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.exit_code is None

    @property
    def output(self) -> str:
        """What it and those before it printed."""
        return "".join(log.read_text() for log in self.logs)

    async def start(self) -> None:
        """Start it and wait until it serves. One that is killed before is started again."""
        while not await self._start_once():
            self.died()

    async def _start_once(self) -> bool:
        log = self._fleet.folder / f"{self.name}-{len(self.logs)}.log"
        log.touch()
        self.logs.append(log)
        arguments = ["serve", "tests.chaos.world:app", "--address", self.address]
        arguments += ["--store", self._fleet.store]
        environment = {**self._fleet.environment, traps.MEMBER: self.name}
        self._child = _forks.Process(target=_serve, args=(arguments, environment, str(log)), daemon=True)
        self._child.start()
        self._told = False
        self.process = ServerProcess(self._child, log)
        end = time.monotonic() + START_SECONDS
        while "Entracte serves on " not in self.process.output:
            code = self.process.exit_code  # once: it may be killed between two looks
            if code == -signal.SIGKILL or (self._told and code is not None):
                return False
            assert code is None, self.output
            assert time.monotonic() < end, f"not started in time: {self.output}"
            await asyncio.sleep(0.005)
        return True

    def died(self) -> None:
        """It has ended: it was killed, or told to stop."""
        assert self.process is not None
        told, code = self._told, self.process.exit_code
        # One that is told before it listens to signals just ends.
        served = "Entracte serves on " in self.process.output
        stopped = told and (code == 0 or (code == -signal.SIGTERM and not served))
        assert code == -signal.SIGKILL or stopped, f"{code}: {self.output}"
        if stopped:
            self.drains += 1
        else:
            self.deaths += 1
        self.bury()

    def bury(self) -> None:
        """It has ended."""
        self._child.join()
        self._child.close()
        self.process = self._child = None

    def drain(self) -> None:
        """Tell it to stop. Whoever looks after it starts it again."""
        self._told = True
        self.send(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self.process is not None
        self.process.send(number)

    async def paused(self, seconds: float = 10.0) -> None:
        """Until a signal has stopped it."""
        end = time.monotonic() + seconds
        while _state_of(self.pid) != "T":
            assert time.monotonic() < end, "not stopped in time"
            await asyncio.sleep(0.005)


class Fleet:
    """See the module."""

    def __init__(self, folder: Path, store: str, size: int, settings: Mapping[str, Any]) -> None:
        self.folder = folder
        self.store = store
        self.trapper = Trapper(folder / "traps")
        self.effects = folder / "effects"
        self.effects.mkdir(exist_ok=True)
        self.environment = {
            traps.FOLDER: str(self.trapper.folder),
            world.EFFECTS: str(self.effects),
            **{f"ENTRACTE_{name.upper()}": str(value) for name, value in settings.items()},
        }
        self.members = [Member(self, f"m{number}") for number in range(size)]
        self._callers: dict[str, Caller] = {}

    @property
    def size(self) -> int:
        """How many members there are."""
        return len(self.members)

    @property
    def living(self) -> list[Member]:
        """The members that run."""
        return [member for member in self.members if member.alive]

    @property
    def deaths(self) -> int:
        """How many processes were killed."""
        return sum(member.deaths for member in self.members)

    @property
    def drains(self) -> int:
        """How many processes stopped when they were told to."""
        return sum(member.drains for member in self.members)

    def target(self, first: int = 0) -> str:
        """A gRPC target of all members: the one at `first` as long as it is there, else the next."""
        turned = [*self.members[first % len(self.members) :], *self.members[: first % len(self.members)]]
        return "ipv4:" + ",".join(member.address for member in turned)

    def client(self, first: int = 0) -> Client:
        """An SDK client, connected to the member at `first` or, while it is away, to another."""
        options = {"grpc.use_local_subchannel_pool": 1}
        return Client(self.target(first), channel_options=options, timeout=CLIENT_SECONDS)

    def only(self, number: int) -> Caller:
        """A caller without retries, of this member and no other; one for all who ask."""
        address = self.members[number].address
        if address not in self._callers:
            self._callers[address] = Caller(address, agent="world")
        return self._callers[address]

    def caller(self, first: int = 0) -> Caller:
        """A caller without retries, of the member at `first` or another; one for all who ask."""
        target = self.target(first)
        if target not in self._callers:
            self._callers[target] = Caller(target, agent="world")
        return self._callers[target]

    def traces(self, run_id: str) -> list[dict[str, Any]]:
        """What the tools and the model of a run wrote."""
        return world.traces_of(self.effects, run_id)

    async def close(self) -> None:
        """End everybody, without asking."""
        for caller in self._callers.values():
            await caller.channel.close()
        for member in self.members:
            if member.process is not None:
                member.send(signal.SIGCONT)
                await member.process.kill()
                member.bury()


@asynccontextmanager
async def fleet(folder: Path, store: str, size: int, **settings: Any) -> AsyncIterator[Fleet]:
    """Serve with `size` processes; `settings` are those of the server. Nothing they print may be a trace."""
    values = {"lease": LEASE, "keep_alive": 0.5, "grace": 5, "log_level": "warning", **settings}
    it = Fleet(folder, store, size, values)
    try:
        await it.members[0].start()  # it makes the database
        await asyncio.gather(*(member.start() for member in it.members[1:]))
        yield it
    finally:
        await it.close()
    for member in it.members:
        assert "Traceback" not in member.output, member.output
