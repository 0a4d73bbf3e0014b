"""A connection: statements go out together, in one pipeline, and their results come back together.

A trip to the server costs more than what most statements cost there, so all that is known to be needed
is sent at once. This speaks to libpq through `psycopg.pq` because psycopg's cursors take five times
the processor time for the same pipeline (see docs/adr/0012-postgresql.md).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from psycopg import pq

from entracte_server.store.postgres.encoding import BINARY_FORMAT, Value, decoder, encode
from entracte_server.store.postgres.errors import ConnectionLost, DatabaseError, NotConnected

Statement = tuple[str, Sequence[Value]]
"""SQL with `$1`, `$2` ... and the values for them."""

MAX_PREPARED = 512
"""Statements kept prepared per connection; more than there are forms of statements."""

_OK = pq.ExecStatus.COMMAND_OK
_ROWS = pq.ExecStatus.TUPLES_OK
_SYNC = pq.ExecStatus.PIPELINE_SYNC
_ABORTED = pq.ExecStatus.PIPELINE_ABORTED
_IDLE = pq.TransactionStatus.IDLE

_log = logging.getLogger(__name__)


class Result:
    """What came of one statement: its rows, and how many rows it touched."""

    __slots__ = ("count", "rows")

    def __init__(self, rows: list[tuple[Any, ...]], count: int) -> None:
        self.rows = rows
        self.count = count


class _Work:
    """A pipeline under way."""

    __slots__ = ("error", "future", "preparing", "results", "timer")

    def __init__(self, future: "asyncio.Future[list[Result]]", timer: asyncio.TimerHandle) -> None:
        self.future = future
        self.timer = timer
        self.results: list[Result] = []
        self.error: DatabaseError | None = None
        # For each result to come: the SQL that it says is prepared, or None for a statement's own.
        self.preparing: deque[str | None] = deque()


class Connection:
    """Owns one connection. Made by `connect`; to be closed.

    With `named`, statements are prepared under names, which a pooler in transaction mode does not
    bear. `notified` is called with the channel and payload of each notification, `lost` when the
    connection breaks, and `idle`, once, when the pipeline under way has ended.
    """

    def __init__(self, connection: "psycopg.AsyncConnection[Any]", *, named: bool) -> None:
        self.notified: Callable[[str, str], None] | None = None
        self.lost: Callable[[], None] | None = None
        self.idle: Callable[[], None] | None = None
        self._named = named
        self._owner = connection
        self._pg = connection.pgconn
        self._loop = asyncio.get_running_loop()
        self._fd = self._pg.socket
        self._prepared: dict[str, bytes] = {}
        self._names = 0
        self._work: _Work | None = None
        self._writing = False
        self._pg.nonblocking = 1
        self._pg.enter_pipeline_mode()
        self._loop.add_reader(self._fd, self._readable)

    @classmethod
    async def connect(cls, conninfo: str, *, named: bool, seconds: float) -> "Connection":
        """Connect within `seconds`. Raises `NotConnected`."""
        try:
            async with asyncio.timeout(seconds):
                connection = await psycopg.AsyncConnection.connect(conninfo, autocommit=True)
        except (psycopg.Error, OSError) as error:
            raise NotConnected(str(error) or type(error).__name__) from error
        return cls(connection, named=named)

    @property
    def closed(self) -> bool:
        """Whether it is closed or broken."""
        return self._fd < 0

    @property
    def busy(self) -> bool:
        """Whether a pipeline is under way."""
        return self._work is not None

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, or failed and not rolled back."""
        return not self.closed and self._pg.transaction_status != _IDLE

    def setting(self, name: str) -> str:
        """A parameter that the server reported when it was connected to; empty: it did not."""
        value = self._pg.parameter_status(name.encode())
        return "" if value is None else value.decode()

    # ---- sending ----

    def run(self, statements: Sequence[Statement], seconds: float) -> "asyncio.Future[list[Result]]":
        """Send statements and get their results, in order, within `seconds`.

        The future fails with `DatabaseError` when one is refused, in which case those behind it were
        not executed, and with `ConnectionLost`. Cancelling it only stops the waiting. Raises, with
        nothing sent, what is wrong with a value.
        """
        future: asyncio.Future[list[Result]] = self._loop.create_future()
        encoded = [_encode(values) for _, values in statements]
        if self.closed:
            future.set_exception(ConnectionLost("the connection is closed"))
            return future
        assert self._work is None, "one pipeline at a time"
        timer = self._loop.call_later(seconds, self._lose, f"no answer within {seconds:g} seconds")
        work = self._work = _Work(future, timer)
        try:
            for (sql, _), (values, formats) in zip(statements, encoded, strict=True):
                self._send(work, sql, values, formats)
            self._pg.pipeline_sync()
            self._flush()
        except psycopg.Error as error:
            self._lose(str(error))
        return future

    def _send(self, work: _Work, sql: str, values: list[bytes | None], formats: list[int]) -> None:
        if not self._named or (sql not in self._prepared and len(self._prepared) >= MAX_PREPARED):
            self._pg.send_query_params(
                sql.encode(), values, param_formats=formats, result_format=BINARY_FORMAT
            )
        else:
            name = self._prepared.get(sql)
            if name is None:
                self._names += 1
                name = self._prepared[sql] = b"entracte_%d" % self._names
                self._pg.send_prepare(name, sql.encode())
                work.preparing.append(sql)
            self._pg.send_query_prepared(name, values, param_formats=formats, result_format=BINARY_FORMAT)
        work.preparing.append(None)

    def _flush(self) -> None:
        if self._pg.flush():
            if not self._writing:
                self._writing = True
                self._loop.add_writer(self._fd, self._writable)
        elif self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)

    def _writable(self) -> None:
        try:
            self._flush()
        except psycopg.Error as error:
            self._lose(str(error))

    # ---- receiving ----

    def _readable(self) -> None:
        try:
            self._pg.consume_input()
            if self._writing:
                self._flush()
            self._take_results()
            self._take_notifications()
        except psycopg.Error as error:
            self._lose(str(error))

    def _take_results(self) -> None:
        ended = False
        while (work := self._work) is not None and not self._pg.is_busy():
            result = self._pg.get_result()
            if result is None:
                if ended:  # twice in a row: nothing more will come
                    self._lose("the connection is broken")
                    return
                ended = True  # of one statement's results
                continue
            ended = False
            status = result.status
            if status == _SYNC:
                self._done(work)
                return
            if not work.preparing:
                self._lose(_message(result))
                return
            preparing = work.preparing.popleft()
            if status == _ROWS:
                work.results.append(Result(_rows(result), result.command_tuples or 0))
            elif status == _OK:
                if preparing is None:
                    work.results.append(Result([], result.command_tuples or 0))
            else:
                if preparing is not None:
                    self._prepared.pop(preparing, None)
                if status != _ABORTED and work.error is None:
                    work.error = _error(result)

    def _take_notifications(self) -> None:
        while not self.closed and (notify := self._pg.notifies()) is not None:
            if self.notified is not None:
                self.notified(notify.relname.decode(), notify.extra.decode())

    def _done(self, work: _Work) -> None:
        work.timer.cancel()
        self._work = None
        if work.future.done():  # nobody waits for it any more
            pass
        elif work.error is not None:
            work.future.set_exception(work.error)
        else:
            work.future.set_result(work.results)
        self._is_idle()

    def _is_idle(self) -> None:
        idle, self.idle = self.idle, None
        if idle is not None:
            idle()

    # ---- the end ----

    def _lose(self, why: str) -> None:
        self._end(ConnectionLost(why.strip()))
        if self.lost is not None:
            self.lost()

    def close(self) -> None:
        """Close it; a pipeline under way is given up. Idempotent."""
        if not self.closed:
            self._end(ConnectionLost("the connection was closed"))

    def _end(self, error: ConnectionLost) -> None:
        self._loop.remove_reader(self._fd)
        if self._writing:
            self._loop.remove_writer(self._fd)
        self._fd = -1
        self._pg.finish()
        if (work := self._work) is not None:
            self._work = None
            work.timer.cancel()
            error.__cause__ = work.error
            if not work.future.done():
                work.future.set_exception(error)
        self._is_idle()


def _encode(values: Sequence[Value]) -> tuple[list[bytes | None], list[int]]:
    encoded: list[bytes | None] = []
    formats: list[int] = []
    for value in values:
        data, form = encode(value)
        encoded.append(data)
        formats.append(form)
    return encoded, formats


def _rows(result: pq.abc.PGresult) -> list[tuple[Any, ...]]:
    columns = [(index, decoder(result.ftype(index))) for index in range(result.nfields)]
    get = result.get_value
    rows: list[tuple[Any, ...]] = []
    for number in range(result.ntuples):
        row = []
        for index, decode in columns:
            data = get(number, index)
            row.append(None if data is None else decode(data))
        rows.append(tuple(row))
    return rows


def _error(result: pq.abc.PGresult) -> DatabaseError:
    state = result.error_field(pq.DiagnosticField.SQLSTATE) or b""
    constraint = result.error_field(pq.DiagnosticField.CONSTRAINT_NAME) or b""
    return DatabaseError(state.decode(), _message(result), constraint.decode("utf-8", "replace"))


def _message(result: pq.abc.PGresult) -> str:
    """Without details, which may quote values."""
    message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message
    return message.decode("utf-8", "replace").strip() or "unexpected answer"
