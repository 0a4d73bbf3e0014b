"""The writers: each commits together whatever was submitted while its commit before was under way.

There are no timers: a lone operation is committed at once, and under load the groups grow by
themselves. A group is one transaction and, unless one of it is refused, one trip to the server. What
belongs to a run always goes to the same writer, so that it takes effect in its order; the operations of
a group are sorted by run, so that every process locks rows in the same order.
"""

import asyncio
import logging
import secrets
from collections import deque
from operator import attrgetter
from typing import Any, Generic, TypeVar

from entracte_server.store.base import StoreError, StoreUnavailable
from entracte_server.store.postgres.connection import Connection, Statement
from entracte_server.store.postgres.errors import (
    ConnectionLost,
    DatabaseError,
    breaks_connection,
    is_callers_fault,
    is_passing,
    leaves_doubt,
    unavailable,
)
from entracte_server.store.postgres.pool import Connect, now_ms
from entracte_server.store.postgres.programs import Attempt, Operation, Program
from entracte_server.store.postgres.retrying import Patience
from entracte_server.store.postgres.transactions import commit_together, execute

T = TypeVar("T")

MAX_GROUP = 128
"""Operations in one transaction at most: what belongs to it is put together in one go, on the event loop,
and no caller waits for an endless one."""

MAX_WAITING = 20_000
"""Requests that may wait for one writer. They do so as well when those who made them are gone, so that
the limits on RPCs do not bound them."""

RunKey = tuple[str, str]

_log = logging.getLogger(__name__)


class Item(Generic[T]):
    """An operation that waits to be done or to be committed."""

    __slots__ = ("alone", "future", "key", "operation", "settled", "token")

    def __init__(
        self, key: RunKey, operation: Operation[T], future: "asyncio.Future[T]", alone: bool
    ) -> None:
        self.key = key
        self.operation = operation
        self.future = future
        self.alone = alone
        self.settled = False
        self.token = secrets.randbits(63)

    def succeed(self, outcome: T) -> None:
        self.settled = True
        if not self.future.done():
            self.future.set_result(outcome)

    def fail(self, error: Exception) -> None:
        self.settled = True
        if not isinstance(error, StoreError):
            _log.error("an operation failed", exc_info=error)
        if not self.future.done():
            self.future.set_exception(error)


_key = attrgetter("key")


class Writer:
    """Owns one connection and the task that feeds it."""

    def __init__(self, connect: Connect, name: str) -> None:
        self._connect = connect
        self._connection: Connection | None = None
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Item[Any]] = deque()
        self._wake: asyncio.Future[None] | None = None
        self._closing = False
        self._task = self._loop.create_task(self._work(), name=name)

    @property
    def waiting(self) -> int:
        """How many operations wait for their group."""
        return len(self._queue)

    def submit(self, key: RunKey, operation: Operation[T], *, alone: bool = False) -> "asyncio.Future[T]":
        """Queue an operation on a run: a future that is done when it is durable.

        Operations on one run take effect in the order they are submitted. The future may be cancelled:
        the operation is executed all the same. It fails with what the operation raises, or with
        `StoreUnavailable`. With `alone` it gets a transaction of its own.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        if self._closing:
            future.set_exception(StoreUnavailable("the store is closed"))
            return future
        self._queue.append(Item(key, operation, future, alone))
        self._stir()
        return future

    async def close(self) -> None:
        """Finish what was submitted, refuse the rest, close the connection."""
        self._closing = True
        self._stir()
        await asyncio.wait([self._task])

    def _stir(self) -> None:
        if self._wake is not None:
            self._wake.set_result(None)
            self._wake = None

    async def _work(self) -> None:
        group: list[Item[Any]] = []
        try:
            while await self._something():
                group = self._next_group()
                await self._see_through(group)
                group = []
        finally:
            self._closing = True
            # Nothing is left but when the task itself is cancelled, with the event loop, or has failed:
            # no caller may hang.
            for item in (*group, *self._queue):
                if not item.future.done():
                    item.future.set_exception(StoreUnavailable("the store was stopped"))
            self._queue.clear()
            if self._connection is not None:
                self._connection.close()

    async def _something(self) -> bool:
        """Wait until there is something to do; False when there never will be."""
        while not self._queue:
            if self._closing:
                return False
            self._wake = self._loop.create_future()
            await self._wake
        return True

    def _next_group(self) -> list[Item[Any]]:
        group = [self._queue.popleft()]
        while self._queue and len(group) < MAX_GROUP and not (group[-1].alone or self._queue[0].alone):
            group.append(self._queue.popleft())
        group.sort(key=_key)  # stable: what belongs to one run stays in its order
        return group

    # ---- one group ----

    async def _see_through(self, group: list[Item[Any]]) -> None:
        """Do a group, again and again if need be, until each has its outcome."""
        patience, again = Patience(), False
        try:
            while left := [item for item in group if not item.settled]:
                try:
                    await self._attempt(left, again)
                except (DatabaseError, ConnectionLost) as error:
                    _log.warning("a group of %d operations is not committed yet: %s", len(left), error)
                    again = again or leaves_doubt(error)
                    await patience.after(error)
        except StoreUnavailable as error:
            # Those that wait go with them: what was submitted later for a run must not be done when
            # what was submitted before was not, and nobody waits for longer than he must.
            self._give_up([*group, *self._queue], error)
        except Exception as error:
            _log.exception("a group of %d operations failed", len(group))
            failure = StoreUnavailable("the transaction failed")
            failure.__cause__ = error
            self._give_up([*group, *self._queue], failure)

    def _give_up(self, items: list[Item[Any]], error: StoreUnavailable) -> None:
        self._queue.clear()
        if self._connection is not None:
            self._connection.close()
        for item in items:
            if not item.settled:
                item.fail(error)

    async def _attempt(self, items: list[Item[Any]], again: bool) -> None:
        """Raises what is worth another attempt: `DatabaseError`, `ConnectionLost`. Items that have
        their outcome by then keep it."""
        if self._connection is None or self._connection.closed:
            self._connection = await self._connect()
        try:
            if items[0].alone:
                await self._alone(self._connection, items[0], again)
            else:
                await self._commit(self._connection, items, again)
        except (DatabaseError, ConnectionLost) as error:
            if breaks_connection(error):
                self._connection.close()
            raise

    async def _commit(self, connection: Connection, items: list[Item[Any]], again: bool) -> None:
        """In one transaction; when one of them makes that fail, in two, and so on."""
        try:
            refused = await self._together(connection, items, again)
        except ConnectionLost:
            raise
        except Exception as error:
            if isinstance(error, DatabaseError) and is_passing(error):
                raise
            refused = []
            if len(items) == 1:
                await self._alone(connection, items[0], again)
            else:
                half = len(items) // 2
                await self._commit(connection, items[:half], again)
                await self._commit(connection, items[half:], again)
        for item in refused:
            await self._alone(connection, item, again)

    async def _together(self, connection: Connection, items: list[Item[Any]], again: bool) -> list[Item[Any]]:
        """The first round of each, in one trip; those that need more, of which nothing was done."""
        now = now_ms()
        begun: list[tuple[Item[Any], Program[Any], int]] = []
        statements: list[Statement] = []
        for item in items:
            program = item.operation(Attempt(now, item.token, again))
            try:
                first = next(program)
            except Exception as error:
                item.fail(error)
                continue
            begun.append((item, program, len(first)))
            statements += first
        if not begun:
            return []
        results = await commit_together(connection, statements)
        refused = []
        start = 0
        for item, program, count in begun:
            try:
                program.send(results[start : start + count])
                refused.append(item)
            except StopIteration as stop:
                item.succeed(stop.value)
            except Exception as error:
                item.fail(error)
            finally:
                program.close()
            start += count
        return refused

    async def _alone(self, connection: Connection, item: Item[Any], again: bool) -> None:
        try:
            outcome = await execute(connection, item.operation(Attempt(now_ms(), item.token, again)))
        except ConnectionLost:
            raise
        except DatabaseError as error:
            if is_passing(error):
                raise
            item.fail(error if is_callers_fault(error) else unavailable(error))
        except Exception as error:
            item.fail(error)
        else:
            item.succeed(outcome)


class Writers:
    """A few writers, among which the runs are divided."""

    def __init__(self, connect: Connect, count: int) -> None:
        self._writers = [Writer(connect, f"postgres-writer-{number}") for number in range(count)]

    def submit(self, key: RunKey, operation: Operation[T], *, alone: bool = False) -> "asyncio.Future[T]":
        """See `Writer.submit`."""
        return self._writer_of(key).submit(key, operation, alone=alone)

    async def asked(self, key: RunKey, operation: Operation[T], *, alone: bool = False) -> T:
        """Do what somebody asks for. Raises `StoreUnavailable` when too much waits; what the owners of
        runs submit is not counted, since each of them waits for its write before it makes another."""
        writer = self._writer_of(key)
        if writer.waiting >= MAX_WAITING:
            raise StoreUnavailable("too many changes wait for the database")
        return await writer.submit(key, operation, alone=alone)

    def _writer_of(self, key: RunKey) -> Writer:
        return self._writers[hash(key) % len(self._writers)]

    async def close(self) -> None:
        """Finish what was submitted, refuse the rest, close the connections."""
        await asyncio.gather(*(writer.close() for writer in self._writers))
