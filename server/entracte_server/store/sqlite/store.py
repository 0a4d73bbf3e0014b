"""The SQLite store: one file, one process, one writing connection and a few that read."""

import asyncio
import os
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from entracte_server.domain.runs import CallRow, DecisionRow, PendingRow, RunRow, Snapshot
from entracte_server.store.base import (
    Cancel,
    Cancelled,
    ChunkRow,
    Claim,
    Created,
    CreateRun,
    Decide,
    Decided,
    DecisionFilter,
    Found,
    Made,
    PendingFilter,
    RequestKey,
    RunFilter,
    RunWrite,
    StoreUnavailable,
    Written,
)
from entracte_server.store.cursors import Cursors
from entracte_server.store.sqlite import commands, lists, owner, reads
from entracte_server.store.sqlite.connection import Database, Synchronous, prepare
from entracte_server.store.sqlite.migrate import cursor_key, migrate
from entracte_server.store.sqlite.requests import made_by
from entracte_server.store.sqlite.writer import Writer

T = TypeVar("T")


class SQLiteStore:
    """A `Store` in an SQLite file. Made by `open`; to be closed."""

    def __init__(self, writer: Writer, readers: list[Database], cursors: Cursors, lock: int) -> None:
        self._writer = writer
        self._readers = readers
        self._cursors = cursors
        self._lock = lock
        self._closed: asyncio.Future[None] | None = None

    @classmethod
    async def open(
        cls, path: str | Path, *, read_connections: int = 2, synchronous: Synchronous = "FULL"
    ) -> "SQLiteStore":
        """Open the database at `path`, made with its folders where it is missing, and bring it to
        the version of this code.

        With `synchronous` below FULL a power cut may lose what was acknowledged. Raises
        `StoreUnavailable` (`DatabaseInUse` when another process has it), `WrongDatabase`.
        """
        resolved, lock = await prepare(path)
        opened: list[Database] = []
        try:
            opened.append(await Database.open(resolved, writable=True, synchronous=synchronous))
            await opened[0].call(migrate)
            key = await opened[0].call(cursor_key)
            for _ in range(max(1, read_connections)):
                opened.append(await Database.open(resolved, writable=False, synchronous=synchronous))
        except BaseException:
            for database in reversed(opened):
                await database.close()
            os.close(lock)
            raise
        return cls(Writer(opened[0]), opened[1:], Cursors(key), lock)

    async def close(self) -> None:
        """See `Store.close`."""
        if self._closed is not None:
            await asyncio.shield(self._closed)
            return
        self._closed = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closed)

    async def _close(self) -> None:
        try:
            for reader in self._readers:
                await reader.close()
            # Last, because the last connection puts the log back into the file.
            await self._writer.close()
        finally:
            os.close(self._lock)

    async def _read(self, function: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed is not None:
            raise StoreUnavailable("the store is closed")
        reader = min(self._readers, key=_in_flight)
        return await reader.call(function)

    def submit(self, op: RunWrite) -> "asyncio.Future[Written]":
        """See `Store.submit`."""
        return self._writer.submit(partial(owner.write_run, op))

    async def write(self, op: RunWrite) -> Written:
        """See `Store.write`."""
        return await self._writer.submit(partial(owner.write_run, op))

    async def create_run(self, op: CreateRun) -> Created:
        """See `Store.create_run`."""
        return await self._writer.submit(partial(owner.create_run, op))

    async def decide(self, op: Decide) -> Decided:
        """See `Store.decide`."""
        return await self._writer.submit(partial(commands.decide, op))

    async def cancel(self, op: Cancel) -> Cancelled:
        """See `Store.cancel`."""
        return await self._writer.submit(partial(commands.cancel, op))

    async def claim(self, op: Claim) -> tuple[PendingRow, Made | None]:
        """See `Store.claim`."""
        return await self._writer.submit(partial(commands.claim, op))

    async def delete_run(
        self, tenant: str, run_id: str, *, force: bool, request: RequestKey | None
    ) -> Made | None:
        """See `Store.delete_run`."""
        return await self._writer.submit(partial(commands.delete_run, tenant, run_id, force, request))

    async def adopt(self, owner: str, *, active: frozenset[tuple[str, str]]) -> list[RunRow]:
        """See `Store.adopt`."""
        return await self._writer.submit(partial(commands.adopt, owner, active))

    async def find_request(self, key: RequestKey) -> Made | None:
        """See `Store.find_request`."""
        return await self._read(lambda raw: made_by(raw.cursor(), key))

    async def get_run(self, tenant: str, run_id: str) -> RunRow:
        """See `Store.get_run`."""
        return await self._read(lambda raw: reads.get_run(raw, tenant, run_id))

    async def load(self, tenant: str, run_id: str) -> Snapshot:
        """See `Store.load`."""
        return await self._read(lambda raw: reads.load(raw, tenant, run_id))

    async def read_chunks(
        self, tenant: str, run_id: str, *, after: int, limit_bytes: int
    ) -> tuple[list[ChunkRow], int]:
        """See `Store.read_chunks`."""
        return await self._read(lambda raw: reads.read_chunks(raw, tenant, run_id, after, limit_bytes))

    async def list_runs(
        self, tenant: str, where: RunFilter, *, cursor: str, limit: int
    ) -> tuple[list[RunRow], str]:
        """See `Store.list_runs`."""
        return await self._read(lambda raw: lists.list_runs(raw, self._cursors, tenant, where, cursor, limit))

    async def get_pending(self, tenant: str, pending_call_id: str) -> tuple[PendingRow, DecisionRow | None]:
        """See `Store.get_pending`."""
        return await self._read(lambda raw: reads.get_pending(raw, tenant, pending_call_id))

    async def find_pending(self, tenant: str, pending_call_id: str) -> Found:
        """See `Store.find_pending`."""
        return await self._read(lambda raw: reads.find_pending_with_run(raw, tenant, pending_call_id))

    async def list_pending(
        self, tenant: str, where: PendingFilter, *, cursor: str, limit: int
    ) -> tuple[list[tuple[PendingRow, DecisionRow | None]], str]:
        """See `Store.list_pending`."""
        return await self._read(
            lambda raw: lists.list_pending(raw, self._cursors, tenant, where, cursor, limit)
        )

    async def pending_of_run(
        self, tenant: str, run_id: str, call_id: str = ""
    ) -> tuple[RunRow, list[tuple[PendingRow, CallRow]], int]:
        """See `Store.pending_of_run`."""
        return await self._read(lambda raw: reads.pending_of_run(raw, tenant, run_id, call_id))

    async def get_decision(self, tenant: str, decision_id: str) -> DecisionRow:
        """See `Store.get_decision`."""
        return await self._read(lambda raw: reads.get_decision(raw, tenant, decision_id))

    async def latest_decision(self, tenant: str, run_id: str, call_id: str) -> DecisionRow | None:
        """See `Store.latest_decision`."""
        return await self._read(lambda raw: reads.latest_decision(raw, tenant, run_id, call_id))

    async def list_decisions(
        self, tenant: str, where: DecisionFilter, *, cursor: str, limit: int
    ) -> tuple[list[DecisionRow], str]:
        """See `Store.list_decisions`."""
        return await self._read(
            lambda raw: lists.list_decisions(raw, self._cursors, tenant, where, cursor, limit)
        )


def _in_flight(database: Database) -> int:
    return database.in_flight
