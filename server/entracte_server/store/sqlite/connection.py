"""Connections: how the database file is opened, and how work gets onto a connection's thread."""

import sqlite3
from asyncio import to_thread
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import aiosqlite

from entracte_server.store.base import StoreUnavailable
from entracte_server.store.sqlite.files import DatabaseFiles

T = TypeVar("T")

Synchronous = Literal["OFF", "NORMAL", "FULL", "EXTRA"]
_SYNCHRONOUS: dict[str, str] = {
    "OFF": "PRAGMA synchronous = OFF",
    "NORMAL": "PRAGMA synchronous = NORMAL",
    "FULL": "PRAGMA synchronous = FULL",
    "EXTRA": "PRAGMA synchronous = EXTRA",
}

BUSY_TIMEOUT_SECONDS = 5.0
"""How long a statement waits for another program's lock on the file (a backup, a shell)."""

_MIN_SQLITE = (3, 35, 0)

_COMMON_PRAGMAS = (
    "PRAGMA temp_store = MEMORY",
    "PRAGMA mmap_size = 0",  # a file cut short under a mapping kills the process
    "PRAGMA trusted_schema = OFF",
)
_WRITER_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    # A longer log rewrites fewer pages twice; 16 MB of it is read again after a crash in no time.
    "PRAGMA wal_autocheckpoint = 4000",
    "PRAGMA journal_size_limit = 33554432",
    "PRAGMA secure_delete = FAST",
    "PRAGMA cache_size = -4096",
)
_READER_PRAGMAS = ("PRAGMA query_only = ON", "PRAGMA cache_size = -1024")


def unavailable(error: sqlite3.Error) -> StoreUnavailable | None:
    """What callers are told when it is the database that failed; None when it is our statement."""
    if isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError:
        return StoreUnavailable(f"the database failed: {error}")
    return None


async def prepare(path: str | Path) -> DatabaseFiles:
    """See `DatabaseFiles.prepare`. Raises `StoreUnavailable`."""
    if sqlite3.sqlite_version_info < _MIN_SQLITE:
        raise StoreUnavailable(f"SQLite 3.35 or newer is needed, this is {sqlite3.sqlite_version}")
    try:
        return await to_thread(DatabaseFiles.prepare, path)
    except OSError as error:
        raise StoreUnavailable(f"cannot open {path}: {error.strerror}") from error


@dataclass(slots=True)
class Database:
    """One connection and its thread."""

    connection: aiosqlite.Connection
    raw: sqlite3.Connection
    _asked: int = 0
    _done: int = 0

    @property
    def in_flight(self) -> int:
        """How many functions wait or run. They do so as well when their callers are gone."""
        return self._asked - self._done

    @classmethod
    async def open(cls, files: DatabaseFiles, *, writable: bool, synchronous: Synchronous) -> "Database":
        """Raises `StoreUnavailable`."""
        path = files.path
        connection = aiosqlite.connect(
            path, isolation_level=None, timeout=BUSY_TIMEOUT_SECONDS, cached_statements=256
        )
        # aiosqlite's thread would keep a process alive that ends without closing the store.
        connection._thread.daemon = True
        try:
            await connection
        except sqlite3.Error as error:
            raise StoreUnavailable(f"cannot open {path}: {error}") from error
        database = cls(connection, connection._conn)
        pragmas = (*_COMMON_PRAGMAS, _SYNCHRONOUS[synchronous])
        try:
            if writable:
                await database.call(lambda raw: _configure_writer(raw, files, (*pragmas, *_WRITER_PRAGMAS)))
            else:
                await database.call(lambda raw: _configure(raw, (*pragmas, *_READER_PRAGMAS)))
        except BaseException:
            await database.close()
            raise
        return database

    async def call(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run `function` on the connection's thread, behind what was called before.

        Cancelling the caller does not stop it. Raises `StoreUnavailable` when the database fails,
        and what `function` raises.
        """

        # aiosqlite has no public way to run several statements in one trip to its thread. The
        # closure has no arguments: aiosqlite formats the callable when debug logging is on.
        def run() -> T:
            try:
                return function(self.raw)
            finally:
                self._done += 1  # only this thread writes it

        self._asked += 1
        try:
            result: T = await self.connection._execute(run)  # type: ignore[no-untyped-call]
        except sqlite3.Error as error:
            raise unavailable(error) or error from error
        except ValueError as error:
            if self.connection._running and self.connection._connection is not None:
                raise
            raise StoreUnavailable("the store is closed") from error
        return result

    async def close(self) -> None:
        await self.connection.close()


def _configure_writer(raw: sqlite3.Connection, files: DatabaseFiles, pragmas: tuple[str, ...]) -> None:
    # Going over to the log takes the database for itself, which several processes may try at once.
    with files.locked():
        _configure(raw, pragmas)


def _configure(raw: sqlite3.Connection, pragmas: tuple[str, ...]) -> None:
    for pragma in pragmas:
        raw.execute(pragma).fetchall()
    mode = raw.execute("PRAGMA journal_mode").fetchone()[0]
    if mode != "wal":
        raise StoreUnavailable(f"the file system does not support SQLite's write-ahead log (got {mode})")
