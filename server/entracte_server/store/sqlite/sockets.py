"""Datagram sockets beside the database: how the processes of one host wake each other.

Each process binds one in a folder of its own, `DATABASE-processes`, which the owner alone may enter. A
socket that was bound and is refused belonged to a process that is dead, which nothing else tells so
soon. One that is missing, or full, says nothing.

Where sockets cannot be had (an odd file system, another operating system) nothing is sent and nothing
is known: processes find out by looking, and by leases.
"""

import asyncio
import hashlib
import logging
import os
import re
import socket
import time
import weakref
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

_SUFFIX = ".sock"
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}")

MAX_BYTES = 8192
"""Of a message. Longer ones are cut, and are no messages then."""

SEND_BUFFER = 1 << 20
"""What was sent and not yet taken is charged to the sender: those who take nothing must not use it up."""

MAX_READS = 64
"""Messages taken in one turn of the event loop."""

FULL_SECONDS = 1.0
"""A process that took nothing for so long is stopped or hung: what it does not take is dropped."""

_log = logging.getLogger(__name__)

_held: "weakref.WeakSet[socket.socket]" = weakref.WeakSet()


def _close_in_child() -> None:
    for held in list(_held):
        held.close()


# A forked child would keep the socket open when this process dies, and so seem to be it.
os.register_at_fork(after_in_child=_close_in_child)


def file_name(process_id: str) -> str:
    """The name of a process's socket."""
    if not _PLAIN.fullmatch(process_id):
        process_id = hashlib.blake2b(process_id.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return process_id + _SUFFIX


@dataclass(frozen=True, slots=True)
class _Bound:
    """A socket that takes messages. `prefix` is the folder as an address names it."""

    socket: socket.socket
    name: str
    inode: int
    directory: int
    prefix: str


class Sockets:
    """A `Transport`. All methods are to be called on the event loop; those that can fail say nothing.

    What was sent to `process_id` arrives at the `receive` of the process that opened it.
    """

    def __init__(self, folder: Path, receive: Callable[[str], None]) -> None:
        self._folder = folder
        self._receive = receive
        self._process_id = ""
        self._bound: _Bound | None = None
        self._complained = False
        self._full: dict[str, float] = {}
        """Sockets that took nothing, and since when."""
        self.refused: set[str] = set()
        """Sockets of dead processes that are not buried yet, as far as somebody tried them."""

    def open(self, process_id: str) -> None:
        """Bind the socket of a process, in place of the one before."""
        if self._bound is None or process_id != self._process_id:
            self.close()
            self._process_id = process_id
            self._bind()

    def close(self) -> None:
        """Close the socket and remove it. Idempotent."""
        self._process_id = ""
        self._release()

    def renew(self) -> None:
        """Bind the socket anew if somebody removed it. To be called every few seconds."""
        if not self._process_id:
            return
        try:
            there = self._bound and os.stat(self._folder / self._bound.name).st_ino == self._bound.inode
        except OSError:
            there = False
        if not there:
            self._release()
            self._bind()

    def _bind(self) -> None:
        name = file_name(self._process_id)
        with ExitStack() as undo:
            try:
                self._folder.mkdir(mode=0o700, exist_ok=True)
                directory = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                undo.callback(os.close, directory)
                # An address holds 108 bytes, and the folder's path may be longer.
                short = f"/proc/self/fd/{directory}"
                prefix = short if os.path.isdir(short) else str(self._folder)
                bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                undo.callback(bound.close)
                _held.add(bound)
                bound.setblocking(False)
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
                bound.bind(f"{prefix}/{name}")
                undo.callback(self._remove, name)  # or it would be refused, and we be dead for others
                inode = os.stat(self._folder / name).st_ino
                asyncio.get_running_loop().add_reader(bound.fileno(), self._read)
            except (OSError, AttributeError, NotImplementedError) as error:
                if not self._complained:
                    self._complained = True
                    _log.warning(
                        "no socket in %s (%s): processes hear of each other up to a second later",
                        self._folder,
                        error,
                    )
                return
            undo.pop_all()
        self._bound = _Bound(bound, name, inode, directory, prefix)

    def _release(self) -> None:
        if (bound := self._bound) is not None:
            self._bound = None
            asyncio.get_running_loop().remove_reader(bound.socket.fileno())
            # Removed first: one that is refused would be taken for a dead process's.
            self._remove(bound.name, bound.inode)
            bound.socket.close()
            os.close(bound.directory)

    def _remove(self, name: str, inode: int | None = None) -> None:
        try:
            if inode is None or os.stat(self._folder / name).st_ino == inode:
                os.unlink(self._folder / name)
        except OSError:
            pass

    def _read(self) -> None:
        for _ in range(MAX_READS):
            if self._bound is None:
                return
            try:
                data = self._bound.socket.recv(MAX_BYTES)
            except OSError:
                return
            self._receive(data.decode("utf-8", "replace"))

    # ---- Transport ----

    def broadcast(self, text: str) -> bool:
        """See `Transport.broadcast`."""
        data = text.encode()
        return all([self._send(name, data) for name in self._others()])

    def send(self, process_id: str, text: str) -> bool:
        """See `Transport.send`."""
        return self._send(file_name(process_id), text.encode())

    def _others(self) -> list[str]:
        if (bound := self._bound) is None:
            return []
        try:
            names = os.listdir(self._folder)
        except OSError:
            return []
        return [name for name in names if name.endswith(_SUFFIX) and name != bound.name]

    def _send(self, name: str, data: bytes) -> bool:
        if (bound := self._bound) is None:
            return True
        try:
            bound.socket.sendto(data, f"{bound.prefix}/{name}")
        except (BlockingIOError, InterruptedError):
            now = time.monotonic()
            return now - self._full.setdefault(name, now) >= FULL_SECONDS
        except ConnectionRefusedError:
            self.refused.add(name)
        except OSError:
            pass  # it is gone, or nobody's business
        self._full.pop(name, None)
        return True

    # ---- who is dead ----

    def refuses(self, process_id: str) -> bool:
        """Whether a process is known to be dead. Costs a few system calls."""
        return self._refuses(file_name(process_id))

    def bury(self, names: Collection[str]) -> None:
        """Remove the sockets of dead processes, when all that tells of them elsewhere is settled."""
        for name in names:
            self._remove(name)
            self.refused.discard(name)

    def _refuses(self, name: str) -> bool:
        if (bound := self._bound) is None or name == bound.name:
            return False
        if name not in self.refused:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
                try:
                    probe.connect(f"{bound.prefix}/{name}")
                except ConnectionRefusedError:
                    self.refused.add(name)
                except OSError:
                    pass
        return name in self.refused
