"""The writer: commits together whatever was submitted while the commit before was in flight.

A lone operation is committed at once, and under load the groups grow by themselves. Only patient ones
(pieces of an answer that a person reads) that come right after a group of such ones wait for company,
since a commit costs several times what an operation in it does. A group is one trip to the connection's
thread and one transaction, which the processes of the host take in turns.
"""

import asyncio
import logging
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from entracte_server.store.base import StoreError, StoreUnavailable
from entracte_server.store.packing import pack
from entracte_server.store.sqlite.connection import Database, unavailable
from entracte_server.store.sqlite.files import DatabaseFiles

T = TypeVar("T")

MAX_GROUP = 512
"""Operations in one transaction at most, so that no caller waits for an endless one."""

PAUSE = 0.002
"""Seconds between the beginnings of two groups of nothing but patient operations."""

MAX_KNOWN_RUNS = 4096

_log = logging.getLogger(__name__)

_INSERT_CHUNKS = "INSERT INTO chunks (run, first, last, size, data) VALUES (?, ?, ?, ?, ?)"


class KnownRuns:
    """Row ids and record formats of the runs that are being written, to spare finding them again.

    Only a hint: a rolled back transaction or a deletion makes an entry wrong, so statements that use
    it name tenant and run id as well.
    """

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], tuple[int, int]] = {}

    def find(self, tenant: str, run_id: str) -> tuple[int, int] | None:
        return self._rows.get((tenant, run_id))

    def keep(self, tenant: str, run_id: str, seq: int, form: int) -> None:
        if len(self._rows) >= MAX_KNOWN_RUNS:
            self._rows.clear()
        self._rows[tenant, run_id] = (seq, form)

    def forget(self, tenant: str, run_id: str) -> None:
        self._rows.pop((tenant, run_id), None)


class Transaction:
    """What an operation works with: a cursor inside the transaction, and the time.

    `chunks` are rows (run, first, last, data) to insert; they are inserted together, at the end of
    the group or when `flush` is called. `now` is in milliseconds since the epoch.
    """

    __slots__ = ("chunks", "cursor", "execute", "now", "runs")

    def __init__(self, connection: sqlite3.Connection, runs: KnownRuns) -> None:
        self.cursor = connection.cursor()
        self.execute = self.cursor.execute
        self.runs = runs
        self.chunks: list[tuple[int, int, int, bytes]] = []
        self.now = int(time.time() * 1000)

    def flush(self) -> None:
        """Insert the chunks. To be called before an operation reads or deletes any."""
        if self.chunks:
            rows = [(run, first, last, *pack(data)) for run, first, last, data in self.chunks]
            self.cursor.executemany(_INSERT_CHUNKS, rows)
            self.chunks.clear()


Operation = Callable[[Transaction], T]


class Failed:
    """An operation's outcome when it raised."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


class _Dirty(Exception):
    """An operation failed half-way: the group has to be done again, one savepoint for each."""


def commit(
    operations: Sequence[Operation[Any]],
    runs: KnownRuns,
    files: DatabaseFiles,
    connection: sqlite3.Connection,
) -> list[Any]:
    """Run a group in one transaction: for each operation what it returned, or `Failed`.

    An operation that raises changes nothing and does not disturb the others. When the transaction
    itself fails, all have `Failed` with `StoreUnavailable`, and nothing was changed.
    """
    try:
        with files.locked():
            try:
                return _run(connection, operations, runs, _all_at_once)
            except _Dirty:
                return _run(connection, operations, runs, _one_by_one)
    except StoreUnavailable as error:
        _log.error("a group of %d operations was not begun: %s", len(operations), error)
        return [Failed(error) for _ in operations]
    except Exception as error:
        failure = unavailable(error) if isinstance(error, sqlite3.Error) else None
        if failure is None:
            _log.exception("a group of %d operations failed", len(operations))
            failure = StoreUnavailable("the transaction failed")
        else:
            _log.error("a group of %d operations failed: %s", len(operations), error)
        failure.__cause__ = error
        return [Failed(failure) for _ in operations]


Runner = Callable[[sqlite3.Connection, Sequence[Operation[Any]], KnownRuns], list[Any]]


def _run(
    connection: sqlite3.Connection, operations: Sequence[Operation[Any]], runs: KnownRuns, runner: Runner
) -> list[Any]:
    if connection.in_transaction:  # the rollback before this one failed
        connection.execute("ROLLBACK")
    connection.execute("BEGIN IMMEDIATE")
    try:
        outcomes = runner(connection, operations, runs)
        connection.execute("COMMIT")
    finally:
        # Some failures (disk full, I/O) end the transaction by themselves.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return outcomes


def _all_at_once(
    connection: sqlite3.Connection, operations: Sequence[Operation[Any]], runs: KnownRuns
) -> list[Any]:
    """Without savepoints, which cost more than they save: operations check before they write, so one
    that is refused leaves nothing behind. One that fails after it wrote makes the group start over.
    """
    transaction = Transaction(connection, runs)
    outcomes: list[Any] = []
    for operation in operations:
        changes, chunks = connection.total_changes, len(transaction.chunks)
        try:
            outcomes.append(operation(transaction))
        except Exception as error:
            clean = connection.total_changes == changes and len(transaction.chunks) == chunks
            if not clean or isinstance(error, sqlite3.Error):
                raise _Dirty from error
            if not isinstance(error, StoreError):
                _log.error("an operation failed", exc_info=error)
            outcomes.append(Failed(error))
    try:
        transaction.flush()
    except sqlite3.IntegrityError as error:
        raise _Dirty from error
    return outcomes


def _one_by_one(
    connection: sqlite3.Connection, operations: Sequence[Operation[Any]], runs: KnownRuns
) -> list[Any]:
    outcomes: list[Any] = []
    for operation in operations:
        transaction = Transaction(connection, runs)
        connection.execute("SAVEPOINT operation")
        try:
            outcome = operation(transaction)
            transaction.flush()
        except Exception as error:
            if not connection.in_transaction:
                raise
            connection.execute("ROLLBACK TO operation")
            failure: Exception = error
            if isinstance(error, sqlite3.Error):
                failure = unavailable(error) or error
                failure.__cause__ = error.__cause__ if failure is error else error
            if not isinstance(error, StoreError):
                _log.error("an operation failed", exc_info=error)
            outcome = Failed(failure)
        connection.execute("RELEASE operation")
        outcomes.append(outcome)
    return outcomes


class Writer:
    """Owns the connection that writes, and the task that feeds it."""

    def __init__(self, database: Database, files: DatabaseFiles) -> None:
        self._database = database
        self._files = files
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[Operation[Any], asyncio.Future[Any]]] = deque()
        self._wake: asyncio.Future[None] | None = None
        self._runs = KnownRuns()
        self._closing = False
        self._urgent = False
        self._pausing = False
        self._next = 0.0
        self._task = self._loop.create_task(self._work(), name="sqlite-writer")

    @property
    def waiting(self) -> int:
        """How many operations wait for their group."""
        return len(self._queue)

    def submit(self, operation: Operation[T], *, patient: bool = False) -> "asyncio.Future[T]":
        """Queue an operation: a future that is done when it is durable.

        Operations take effect in the order they are submitted. The future may be cancelled: the
        operation is executed all the same. It fails with what the operation raises, or with
        `StoreUnavailable`. With `patient` it may wait for company, up to `PAUSE`.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        if self._closing:
            future.set_exception(StoreUnavailable("the store is closed"))
            return future
        self._queue.append((operation, future))
        if not patient:
            self._urgent = True
        elif self._pausing:
            return future
        self._ring()
        return future

    def _ring(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None and not wake.done():  # it is done when the loop is about to end
            wake.set_result(None)

    async def close(self) -> None:
        """Finish what was submitted, refuse the rest, close the connection."""
        self._closing = True
        self._ring()
        await asyncio.wait([self._task])
        await self._database.close()

    async def _work(self) -> None:
        group: list[tuple[Operation[Any], asyncio.Future[Any]]] = []
        try:
            while await self._something():
                group = [self._queue.popleft() for _ in range(min(MAX_GROUP, len(self._queue)))]
                self._next = 0.0 if self._urgent else time.monotonic() + PAUSE
                self._urgent = self._urgent and bool(self._queue)
                operations = [operation for operation, _ in group]
                outcomes = await self._database.call(partial(commit, operations, self._runs, self._files))
                for (_, future), outcome in zip(group, outcomes, strict=True):
                    if future.done():
                        continue
                    if type(outcome) is Failed:
                        future.set_exception(outcome.error)
                    else:
                        future.set_result(outcome)
                group = []
        finally:
            # Only when the task itself is cancelled, with the event loop: no caller may hang.
            self._closing = True
            for _, future in (*group, *self._queue):
                if not future.done():
                    future.set_exception(StoreUnavailable("the store was stopped"))
            self._queue.clear()

    async def _something(self) -> bool:
        """Wait until there is a group to commit; False when there never will be."""
        while not self._queue:
            if self._closing:
                return False
            await self._woken()
        pause = self._next - time.monotonic()
        if pause > 0 and not self._urgent and not self._closing:
            self._pausing = True
            timer = self._loop.call_later(pause, self._ring)
            try:
                await self._woken()
            finally:
                self._pausing = False
                timer.cancel()
        return True

    async def _woken(self) -> None:
        self._wake = self._loop.create_future()
        await self._wake
