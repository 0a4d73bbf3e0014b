"""A worker's end of the socket that ties it to its supervisor.

The worker says once that it serves and answers the supervisor's pings from its event loop, so that one
whose loop is stuck gives no answer. The end of the supervisor is the end of the socket: a worker left
alone stops gracefully, and is gone after a bound whatever its loop does.

Messages are lines. To the worker: `ping`. To the supervisor: `ready JSON`, `pong`.
"""

import asyncio
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence

PING = b"ping\n"
_DEAD = b"dead "
_PONG = b"pong "
_READY = b"ready "

STOP_MARGIN = 5.0
"""Seconds a worker gets to end beyond the grace time of its running work."""

Agents = Sequence[tuple[str, str]]
"""Id and model of each agent, for people."""


def dead_line(process_id: str) -> bytes:
    """The message that a process is dead."""
    return _DEAD + process_id.encode() + b"\n"


def read_pong(line: bytes) -> str | None:
    """The process id, where `line` is the answer to a ping."""
    return line.removeprefix(_PONG).strip().decode() if line.startswith(_PONG) else None


def read_ready(line: bytes) -> Agents | None:
    """The agents, where `line` is the message of a worker that serves."""
    if not line.startswith(_READY):
        return None
    return [(str(agent), str(model)) for agent, model in json.loads(line.removeprefix(_READY))]


class Lifeline:
    """What a worker holds. To be made first of all: before it, nobody notices that the supervisor died."""

    def __init__(self, descriptor: int) -> None:
        # What tools start must not keep it open.
        os.set_inheritable(descriptor, False)
        self._socket = socket.socket(fileno=descriptor)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: Callable[[], None] | None = None
        self._seconds = 0.0
        self._me: Callable[[], str] = str
        self._bury: Callable[[str], None] | None = None
        threading.Thread(target=self._hold, name="entracte-lifeline", daemon=True).start()

    def attach(self, stop: Callable[[], None], seconds: float) -> None:
        """Have `stop` called on the running loop when the supervisor is gone; `seconds` later the
        process is ended. Until this is called it is ended at once: nothing runs that could be lost."""
        self._stop, self._seconds = stop, seconds
        self._loop = asyncio.get_running_loop()

    def ready(self, agents: Agents, me: Callable[[], str], bury: Callable[[str], None]) -> None:
        """Tell the supervisor that this worker serves. `me` gives its process id, which may change; `bury`
        is called on the loop with that of a process that is dead."""
        self._me, self._bury = me, bury
        self._pong()
        self._send(_READY + json.dumps(agents).encode() + b"\n")

    def _pong(self) -> None:
        self._send(_PONG + self._me().encode() + b"\n")

    def _send(self, line: bytes) -> None:
        try:
            self._socket.sendall(line)
        except OSError:  # the supervisor is gone, as the thread notices
            return

    def _hold(self) -> None:
        """The body of the thread, which goes on while the loop is stuck."""
        try:
            for line in self._socket.makefile("rb"):
                if line == PING:
                    self._call(self._pong)
                elif line.startswith(_DEAD) and self._bury is not None:
                    self._call(self._bury, line.removeprefix(_DEAD).strip().decode())
        except OSError:
            pass
        if self._stop is not None:
            self._call(self._stop)
            time.sleep(self._seconds)
            sys.stderr.write("error: a worker without its supervisor did not stop in time\n")
            sys.stderr.flush()
        os._exit(1)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(function, *arguments)
            except RuntimeError:  # the loop is closed: the process is about to end
                return
