"""A few connections for reads, and for transactions that do not belong to a run.

Waiting for one is bounded, and so is what is done on it.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from entracte_server.store.base import StoreUnavailable
from entracte_server.store.postgres.connection import Connection
from entracte_server.store.postgres.errors import breaks_connection
from entracte_server.store.postgres.programs import Attempt, Operation, Program
from entracte_server.store.postgres.retrying import insist
from entracte_server.store.postgres.transactions import execute, read_together

T = TypeVar("T")

Connect = Callable[[], Awaitable[Connection]]

WAIT_SECONDS = 5.0
"""How long to wait for a connection that is free."""


class Pool:
    """At most `size` connections, made by `connect` when they are needed; to be closed."""

    def __init__(self, connect: Connect, size: int) -> None:
        self._connect = connect
        self._size = size
        self._slots = asyncio.Semaphore(size)
        self._idle: list[Connection] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing = self._closed = False

    @property
    def waiting(self) -> int:
        """How many operations wait or are under way; they are when their callers are gone as well."""
        return len(self._tasks)

    async def read(self, program: Callable[[], Program[T]]) -> T:
        """The outcome of a program that only reads. What it asks for in one round is as of one moment.
        Raises `StoreUnavailable`, and what the program raises."""
        if self._closing:
            raise StoreUnavailable("the store is closed")
        return await insist(lambda again: self._read(program()))

    async def _read(self, program: Program[T]) -> T:
        connection = await self._take()
        try:
            statements = next(program)
            while True:
                statements = program.send(await read_together(connection, statements))
        except StopIteration as stop:
            outcome: T = stop.value
            return outcome
        except Exception as error:
            if breaks_connection(error):
                connection.close()
            raise
        finally:
            program.close()
            self._give_back(connection)

    async def execute(self, operation: Operation[T]) -> T:
        """The outcome of an operation in a transaction of its own, once it is durable. Cancelling the
        caller only stops the waiting. Raises `StoreUnavailable`, and what the operation raises."""
        if self._closing:
            raise StoreUnavailable("the store is closed")
        token = secrets.randbits(63)
        task = asyncio.create_task(insist(partial(self._execute, operation, token)))
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # its caller may be gone

    async def _execute(self, operation: Operation[T], token: int, again: bool) -> T:
        connection = await self._take()
        try:
            return await execute(connection, operation(Attempt(now_ms(), token, again)))
        except Exception as error:
            if breaks_connection(error):
                connection.close()
            raise
        finally:
            self._give_back(connection)

    async def _take(self) -> Connection:
        if self._slots.locked():
            try:
                async with asyncio.timeout(WAIT_SECONDS):
                    await self._slots.acquire()
            except TimeoutError:
                raise StoreUnavailable(f"all {self._size} connections are in use") from None
        else:
            await self._slots.acquire()
        try:
            while self._idle:
                connection = self._idle.pop()
                if not connection.closed:
                    return connection
            if self._closed:
                raise StoreUnavailable("the store is closed")
            return await self._connect()
        except BaseException:
            self._slots.release()
            raise

    def _give_back(self, connection: Connection) -> None:
        if connection.busy:  # its caller went away
            connection.idle = partial(self._give_back, connection)
            return
        if connection.in_transaction:  # of a caller that went away, and it failed
            connection.close()
        if not connection.closed:
            self._idle.append(connection)
        self._slots.release()

    async def close(self) -> None:
        """Finish what is under way, refuse the rest, close the connections."""
        self._closing = True
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._closed = True  # who tries again is too late
        for _ in range(self._size):
            await self._slots.acquire()
        for connection in self._idle:
            connection.close()
        self._idle.clear()


def now_ms() -> int:
    """Milliseconds since the epoch, by this process's clock."""
    return time.time_ns() // 1_000_000
