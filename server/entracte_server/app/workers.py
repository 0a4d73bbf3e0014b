"""A worker process as its supervisor sees it: started, ready, alive, ended."""

import asyncio
import os
import signal
import socket
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Sequence
from typing import Any

from entracte_server.app.lifeline import PING, Agents, dead_line, read_pong, read_ready

Command = Callable[[int, int], Sequence[str]]
"""The command line of a worker: from its number and the descriptor of its end of the socket."""

KILL_SECONDS = 5.0
"""How long a killed process may take to be gone; more means that the kernel holds it."""

_DUMP_SECONDS = 1.0
_MAX_LINE = 16 * 1024 * 1024


class Worker:
    """One worker process. Made by `start`; to be ended by `stop` or `kill`.

    `end` is done when the process has ended, with its exit code (below zero: minus the signal).
    `process_id` is who it is for the store, as far as it has told; `unanswered` counts the pings since it
    last gave a sign of life.
    """

    def __init__(
        self,
        number: int,
        process: Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.number = number
        self.pid = process.pid
        self.process_id = ""
        self.agents: Agents = ()
        self.ready_time: float | None = None
        self.unanswered = 0
        self._process = process
        self._reader = reader
        self._writer = writer
        self._ready: asyncio.Future[None] = loop.create_future()
        self.end: asyncio.Task[int] = asyncio.create_task(self._live(), name=f"worker-{number}")

    @classmethod
    async def start(cls, number: int, command: Command) -> "Worker":
        """Start the process. Raises `OSError` when the system refuses it."""
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_connection(sock=ours, limit=_MAX_LINE)
            try:
                # A fresh interpreter, not a fork: gRPC and threads do not survive one. It has a process
                # group of its own: ^C at a terminal is for the supervisor, which lets the workers
                # finish; what they and their tools start is not hit by it either.
                process = await asyncio.create_subprocess_exec(
                    *command(number, theirs.fileno()),
                    stdin=DEVNULL,
                    pass_fds=[theirs.fileno()],
                    process_group=0,
                )
            except BaseException:
                writer.close()
                raise
        return cls(number, process, reader, writer)

    async def _live(self) -> int:
        listening = asyncio.create_task(self._listen())
        try:
            return await self._process.wait()
        finally:
            listening.cancel()
            self._writer.close()

    async def _listen(self) -> None:
        try:
            while line := await self._reader.readline():
                self.unanswered = 0
                self.process_id = read_pong(line) or self.process_id
                agents = read_ready(line)
                if agents is not None and not self._ready.done():
                    self.agents = agents
                    self.ready_time = asyncio.get_running_loop().time()
                    self._ready.set_result(None)
        except OSError:  # it ended with pings unread
            return

    async def becomes_ready(self, seconds: float) -> bool:
        """Wait until it serves; False when it ends before, or `seconds` pass."""
        waited: set[asyncio.Future[Any]] = {self._ready, self.end}
        await asyncio.wait(waited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return self._ready.done() and not self.end.done()

    def served(self) -> float:
        """Seconds since it became ready; 0 before."""
        return 0.0 if self.ready_time is None else asyncio.get_running_loop().time() - self.ready_time

    def ping(self) -> None:
        """Ask for a sign of life."""
        self.unanswered += 1
        self._writer.write(PING)

    def tell_dead(self, process_id: str) -> None:
        """Tell it that another process is dead."""
        self._writer.write(dead_line(process_id))

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if not self.end.done():
            try:
                self._process.send_signal(number)
            except ProcessLookupError:
                return

    async def stop(self, seconds: float) -> bool:
        """Have it stop gracefully, kill it after `seconds`; says whether that was not needed."""
        self.send(signal.SIGTERM)
        await asyncio.wait([self.end], timeout=seconds)
        in_time = self.end.done()
        await self.kill()
        return in_time

    async def kill(self) -> None:
        """End it now."""
        self.send(signal.SIGKILL)
        await asyncio.wait([self.end], timeout=KILL_SECONDS)

    async def abort(self) -> None:
        """End it now; where it can, it writes down what its threads were doing."""
        self.send(signal.SIGABRT)
        await asyncio.wait([self.end], timeout=_DUMP_SECONDS)
        await self.kill()

    def describe_end(self) -> dict[str, int | str]:
        """How it ended, for the log."""
        if not self.end.done():
            return {"exit": "none"}
        code = self.end.result()
        if code >= 0:
            return {"exit_code": code}
        return {"signal": signal_name(-code)}


def signal_name(number: int) -> str:
    """The name of a signal, also of those that have none in Python."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def has_terminal() -> bool:
    """Whether this process has a terminal that can be used."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
