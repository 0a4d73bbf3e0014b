"""The database's files: made where they are missing, locked for writing, and known again.

SQLite lets one connection write at a time and the others try again and again, ever less often: who is
unlucky waits for seconds. A lock file held around each write transaction is fairer and quicker. SQLite's
own lock is taken all the same, so nothing but speed depends on the lock file.
"""

import fcntl
import logging
import os
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from entracte_server.store.base import StoreUnavailable

LOCK_SECONDS = 5.0
"""How long a writer waits for the lock at most. One that holds it longer is stopped or hung."""

CHECK_SECONDS = 0.1
"""How often it is looked whether the files are still there: system calls that a small transaction would
feel."""

# A lock cannot be waited for with a bound, so it is tried, after a part of the time it has taken already:
# often while whoever holds it does what takes a millisecond, seldom when the disk is slow.
_SHORTEST, _LONGEST, _PART = 0.00003, 0.002, 1 / 16

_log = logging.getLogger(__name__)

_open_files: "weakref.WeakSet[DatabaseFiles]" = weakref.WeakSet()


def _close_in_child() -> None:
    for files in list(_open_files):
        files.close()


# A forked child would go on holding the lock when this process is killed.
os.register_at_fork(after_in_child=_close_in_child)


class DatabaseFiles:
    """A database and the lock file beside it. Made by `prepare`; to be closed.

    Used on the thread of the connection that writes, except for `gone`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.gone = ""
        """How the database was seen to be gone, if it was."""
        self._lock_path = f"{path}.lock"
        self._lock = self._open_lock()
        self._known: list[tuple[str, int, int]] = []
        self._next_check = 0.0
        _open_files.add(self)

    @classmethod
    def prepare(cls, path: str | Path) -> "DatabaseFiles":
        """Make folders and files (mode 0600) where they are missing. Raises `OSError`."""
        # Resolved, so that two names of one file are locked as one.
        resolved = Path(path).expanduser().resolve()
        resolved.parent.mkdir(parents=True, exist_ok=True)
        # SQLite gives the log and its index the mode of the database.
        os.close(os.open(resolved, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        return cls(resolved)

    def close(self) -> None:
        """Idempotent."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    # ---- the lock ----

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock. Raises `StoreUnavailable` when it cannot be had within `LOCK_SECONDS`, or when
        the database is gone."""
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def acquire(self) -> None:
        """See `locked`."""
        try:
            self._wait()
            if (now := time.monotonic()) >= self._next_check:
                self._check()
                self._next_check = now + CHECK_SECONDS
        except OSError as error:
            self.release()
            raise StoreUnavailable(f"cannot lock {self._lock_path}: {error.strerror}") from error
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """See `locked`."""
        if self._lock >= 0:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _wait(self) -> None:
        begun = 0.0
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                pass
            now = time.monotonic()
            begun = begun or now
            waited = now - begun
            if waited > LOCK_SECONDS:
                raise StoreUnavailable(
                    f"another process has held {self._lock_path} for {LOCK_SECONDS:g} seconds"
                )
            time.sleep(min(max(waited * _PART, _SHORTEST), _LONGEST))

    def _open_lock(self) -> int:
        return os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _inode_of_lock(self) -> int:
        try:
            return os.stat(self._lock_path).st_ino
        except FileNotFoundError:
            return 0

    # ---- the database ----

    def remember(self) -> None:
        """These are the files that the connection has open; when others take their places, the database
        is gone."""
        self._known = [(name, *_identity(name)) for name in (str(self.path), f"{self.path}-wal")]

    def _check(self) -> None:
        """What is written into files that were removed or replaced nobody would ever read. A lock file may
        be: whoever opens it anew locks another one."""
        for name, device, inode in self._known:
            try:
                same = _identity(name) == (device, inode)
            except OSError:
                same = False
            if not same:
                if not self.gone:
                    self.gone = f"{name} was removed or replaced while it was in use"
                    _log.critical("%s: nothing is read or written until this process is restarted", self.gone)
                raise StoreUnavailable(self.gone)
        self.gone = ""
        while os.fstat(self._lock).st_ino != self._inode_of_lock():
            replaced, self._lock = self._lock, self._open_lock()
            os.close(replaced)
            self._wait()


def _identity(name: str) -> tuple[int, int]:
    status = os.stat(name)
    return status.st_dev, status.st_ino
