"""The SQLite store: one file, the processes of one host; in each one connection that writes and a few
that read."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from entracte_server.domain.agents import AgentRow, AgentVersionRow
from entracte_server.domain.follow_ups import FollowUpRow
from entracte_server.domain.runs import CallRow, DecisionRow, PendingRow, RunRow, Snapshot
from entracte_server.domain.threads import ThreadMessage, ThreadView
from entracte_server.domain.work import Answer, GivenWork, OfferedTool, Output, WorkSight
from entracte_server.domain.working_memory import WorkingMemoryRow
from entracte_server.store.base import (
    Backlog,
    Cancel,
    Cancelled,
    ChunkRow,
    Claim,
    ClaimFollowUps,
    Created,
    CreateRun,
    Decide,
    Decided,
    DecisionFilter,
    Found,
    Made,
    PendingFilter,
    RequestKey,
    Retention,
    RunFilter,
    RunWrite,
    Sighting,
    StoreUnavailable,
    Written,
)
from entracte_server.store.catalog import ArchiveAgentVersion, CreateAgentVersion, PublishAgentVersion
from entracte_server.store.cursors import Cursors
from entracte_server.store.interests import Interests
from entracte_server.store.signals import Signals
from entracte_server.store.sqlite import (
    catalog,
    commands,
    follow_ups,
    lists,
    messages,
    owner,
    processes,
    reads,
    threads,
    turns,
    upkeep,
    vectors,
    work,
    workers,
    working_memory,
)
from entracte_server.store.sqlite.connection import Database, Synchronous, prepare
from entracte_server.store.sqlite.files import DatabaseFiles
from entracte_server.store.sqlite.migrate import cursor_key, migrate
from entracte_server.store.sqlite.requests import made_by
from entracte_server.store.sqlite.sockets import Sockets
from entracte_server.store.sqlite.writer import Operation, Writer
from entracte_server.store.threads import (
    CreateThread,
    DeletedThread,
    DeleteThread,
    MessageRange,
    UpdateThread,
)
from entracte_server.store.vectors import AddVectors, Reach, StoredVector, Unembedded
from entracte_server.store.work import (
    Bearer,
    ConnectWorker,
    Handled,
    Held,
    Seat,
    SessionKey,
    Swept,
)
from entracte_server.store.working_memory import SetWorkingMemory

T = TypeVar("T")

MAX_WAITING = 20_000
"""Requests that may wait for the writing connection, or for one that reads. They do so as well when
those who made them are gone, so that the limits on RPCs do not bound them."""


class SQLiteStore:
    """A `Store` in an SQLite file. Made by `open`; to be closed."""

    def __init__(
        self, files: DatabaseFiles, writer: Writer, readers: list[Database], cursors: Cursors
    ) -> None:
        self._files = files
        self._writer = writer
        self._readers = readers
        self._cursors = cursors
        self._closed: asyncio.Future[None] | None = None
        self._signals = Interests()
        self._sockets = Sockets(Path(f"{files.path}-processes"), self._signals.receive)
        self._present = ""

    @classmethod
    async def open(
        cls, path: str | Path, *, read_connections: int = 2, synchronous: Synchronous = "FULL"
    ) -> "SQLiteStore":
        """Open the database at `path`, made with its folders where it is missing, and bring it to
        the version of this code.

        With `synchronous` below FULL a power cut may lose what was acknowledged. Raises
        `StoreUnavailable`, `WrongDatabase`.
        """
        files = await prepare(path)
        opened: list[Database] = []
        try:
            opened.append(await Database.open(files, writable=True, synchronous=synchronous))
            key = await opened[0].call(partial(_bring_up, files))
            for _ in range(max(1, read_connections)):
                opened.append(await Database.open(files, writable=False, synchronous=synchronous))
        except BaseException:
            for database in reversed(opened):
                await database.close()
            files.close()
            raise
        return cls(files, Writer(opened[0], files), opened[1:], Cursors(key))

    async def close(self) -> None:
        """See `Store.close`."""
        if self._closed is not None:
            await asyncio.shield(self._closed)
            return
        self._closed = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closed)

    async def _close(self) -> None:
        self._hush()
        try:
            for reader in self._readers:
                await reader.close()
            # Last, because the last connection puts the log back into the file.
            await self._writer.close()
        finally:
            self._files.close()

    async def _read(self, function: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed is not None:
            raise StoreUnavailable("the store is closed")
        if self._files.gone:
            raise StoreUnavailable(self._files.gone)
        reader = min(self._readers, key=_in_flight)
        if reader.in_flight >= MAX_WAITING:
            raise StoreUnavailable("too many reads wait for the database")
        return await reader.call(function)

    async def _asked(self, operation: Operation[T]) -> T:
        """Do what somebody asks for. What the owners of runs write is not counted: each of them waits
        for its write before it makes another."""
        if self._writer.waiting >= MAX_WAITING:
            raise StoreUnavailable("too many changes wait for the database")
        return await self._writer.submit(operation)

    def submit(self, op: RunWrite) -> "asyncio.Future[Written]":
        """See `Store.submit`."""
        return self._writer.submit(partial(owner.write_run, op), patient=owner.is_patient(op))

    async def write(self, op: RunWrite) -> Written:
        """See `Store.write`."""
        return await self._writer.submit(partial(owner.write_run, op))

    async def create_run(self, op: CreateRun) -> Created:
        """See `Store.create_run`."""
        return await self._asked(partial(owner.create_run, op))

    async def decide(self, op: Decide) -> Decided:
        """See `Store.decide`."""
        return await self._asked(partial(commands.decide, op))

    async def cancel(self, op: Cancel) -> Cancelled:
        """See `Store.cancel`."""
        return await self._asked(partial(commands.cancel, op))

    async def claim(self, op: Claim) -> tuple[PendingRow, Made | None]:
        """See `Store.claim`."""
        return await self._asked(partial(commands.claim, op))

    async def delete_run(
        self, tenant: str, run_id: str, *, force: bool, request: RequestKey | None
    ) -> Made | None:
        """See `Store.delete_run`."""
        return await self._asked(partial(commands.delete_run, tenant, run_id, force, request))

    # ---- threads ----

    async def create_thread(self, op: CreateThread) -> Made | None:
        """See `ThreadStore.create_thread`."""
        return await self._asked(partial(threads.create, op))

    async def get_thread(self, tenant: str, thread_id: str) -> ThreadView:
        """See `ThreadStore.get_thread`."""
        return await self._read(lambda raw: threads.get(raw, tenant, thread_id))

    async def list_threads(
        self, tenant: str, resource_id: str, *, cursor: str, limit: int
    ) -> tuple[list[ThreadView], str]:
        """See `ThreadStore.list_threads`."""
        return await self._read(
            lambda raw: threads.list_threads(raw, self._cursors, tenant, resource_id, cursor, limit)
        )

    async def update_thread(self, op: UpdateThread) -> tuple[ThreadView, Made | None]:
        """See `ThreadStore.update_thread`."""
        return await self._asked(partial(threads.update, op))

    async def delete_thread(self, op: DeleteThread) -> DeletedThread:
        """See `ThreadStore.delete_thread`."""
        return await self._asked(partial(threads.delete, op))

    async def sweep_threads(self, *, limit: int) -> int:
        """See `ThreadStore.sweep_threads`."""
        return await self._writer.submit(partial(threads.sweep, limit))

    async def read_messages(
        self, tenant: str, thread_id: str, where: MessageRange, *, limit: int
    ) -> list[ThreadMessage]:
        """See `ThreadStore.read_messages`."""
        return await self._read(lambda raw: messages.read(raw, tenant, thread_id, where, limit))

    async def unembedded(self, where: Reach, *, newest: int, limit: int) -> list[Unembedded]:
        """See `VectorStore.unembedded`."""
        return await self._read(lambda raw: vectors.unembedded(raw, where, newest, limit))

    async def add_vectors(self, op: AddVectors) -> None:
        """See `VectorStore.add_vectors`."""
        await self._asked(partial(vectors.add, op))

    async def read_vectors(
        self, where: Reach, *, after: StoredVector | None, limit: int
    ) -> list[StoredVector]:
        """See `VectorStore.read_vectors`."""
        return await self._read(lambda raw: vectors.read(raw, where, after, limit))

    async def overdue(self, now: int, *, limit: int) -> list[RunRow]:
        """See `ThreadStore.overdue`."""
        return await self._read(lambda raw: turns.overdue(raw, now, limit))

    # ---- working memories ----

    async def get_working_memory(
        self, tenant: str, *, thread_id: str = "", resource_id: str = ""
    ) -> WorkingMemoryRow:
        """See `WorkingMemoryStore.get_working_memory`."""
        return await self._read(lambda raw: working_memory.get(raw, tenant, thread_id, resource_id))

    async def set_working_memory(self, op: SetWorkingMemory) -> tuple[WorkingMemoryRow, Made | None]:
        """See `WorkingMemoryStore.set_working_memory`."""
        return await self._asked(partial(working_memory.put, op))

    # ---- workers ----

    async def connect_worker(self, op: ConnectWorker) -> int:
        """See `WorkStore.connect_worker`."""
        return await self._asked(partial(workers.connect, op))

    async def keep_workers(self, sessions: Sequence[SessionKey], grace: int) -> None:
        """See `WorkStore.keep_workers`."""
        await self._writer.submit(partial(workers.keep, sessions, grace))

    async def worker_tools(self, tenant: str, name: str, version: str = "") -> OfferedTool | None:
        """See `WorkStore.worker_tools`."""
        return await self._read(lambda raw: workers.tool(raw, tenant, name, version))

    async def claim_work(self, seats: Sequence[Seat], *, limit: int) -> list[GivenWork]:
        """See `WorkStore.claim_work`."""
        return await self._writer.submit(partial(work.claim, seats, limit))

    async def held_work(self, sessions: Sequence[SessionKey]) -> list[Held]:
        """See `WorkStore.held_work`."""
        return await self._read(lambda raw: workers.held(raw, sessions))

    async def given_work(self, tenant: str, principal: str, work_ids: Sequence[str]) -> list[GivenWork]:
        """See `WorkStore.given_work`."""
        return await self._read(lambda raw: work.given_work(raw, tenant, principal, work_ids, wall_ms()))

    async def answer_work(self, bearer: Bearer, answer: Answer, digest: bytes) -> Handled:
        """See `WorkStore.answer_work`."""
        return await self._asked(partial(work.answer, bearer, answer, digest))

    async def extend_work(self, bearer: Bearer, timeout: int, outputs: tuple[Output, ...]) -> Handled:
        """See `WorkStore.extend_work`."""
        return await self._asked(partial(work.extend, bearer, timeout, outputs))

    async def abandon_work(self, bearer: Bearer) -> Handled:
        """See `WorkStore.abandon_work`."""
        return await self._asked(partial(work.abandon, bearer))

    async def see_work(self, keys: Sequence[tuple[str, str, int]]) -> list[WorkSight]:
        """See `WorkStore.see_work`."""
        return await self._read(lambda raw: work.see(raw, keys))

    async def is_work_due(self) -> bool:
        """See `WorkStore.is_work_due`."""
        return await self._read(lambda raw: workers.is_due(raw, wall_ms()))

    async def sweep_work(self, *, limit: int) -> list[Swept]:
        """See `WorkStore.sweep_work`."""
        return await self._writer.submit(partial(workers.sweep, limit))

    # ---- agents made of data ----

    async def create_agent_version(self, op: CreateAgentVersion) -> tuple[AgentVersionRow, Made | None]:
        """See `CatalogStore.create_agent_version`."""
        return await self._asked(partial(catalog.create, op))

    async def publish_agent_version(self, op: PublishAgentVersion) -> tuple[AgentVersionRow, Made | None]:
        """See `CatalogStore.publish_agent_version`."""
        return await self._asked(partial(catalog.publish, op))

    async def archive_agent_version(self, op: ArchiveAgentVersion) -> tuple[AgentVersionRow, Made | None]:
        """See `CatalogStore.archive_agent_version`."""
        return await self._asked(partial(catalog.archive, op))

    async def get_agent(self, tenant: str, agent_id: str) -> AgentRow:
        """See `CatalogStore.get_agent`."""
        return await self._read(lambda raw: catalog.get_agent(raw, tenant, agent_id))

    async def get_agent_version(self, tenant: str, agent_id: str, version_id: str) -> AgentVersionRow:
        """See `CatalogStore.get_agent_version`."""
        return await self._read(lambda raw: catalog.get_version(raw, tenant, agent_id, version_id))

    async def list_agents(self, tenant: str, *, after: str, limit: int) -> list[AgentRow]:
        """See `CatalogStore.list_agents`."""
        return await self._read(lambda raw: catalog.list_agents(raw, tenant, after, limit))

    async def list_agent_versions(
        self, tenant: str, agent_id: str, *, before: int, limit: int
    ) -> list[AgentVersionRow]:
        """See `CatalogStore.list_agent_versions`."""
        return await self._read(lambda raw: catalog.list_versions(raw, tenant, agent_id, before, limit))

    # ---- processes ----

    @property
    def signals(self) -> Signals:
        """See `Store.signals`. They are those of the process that entered last."""
        return self._signals

    async def enter(self, process_id: str, seconds: float) -> None:
        """See `Store.enter`."""
        await self._writer.submit(partial(processes.enter, process_id, seconds))
        self._sockets.open(process_id)
        self._signals.start(process_id, self._sockets)
        self._present = process_id

    async def renew(self, process_id: str, seconds: float) -> bool:
        """See `Store.renew`."""
        renewed = await self._writer.submit(partial(processes.renew, process_id, seconds))
        if renewed and process_id == self._present:
            self._sockets.renew()
            self._signals.announce()
        return renewed

    async def leave(self, process_id: str) -> None:
        """See `Store.leave`."""
        if process_id == self._present:
            self._hush()
        await self._writer.submit(partial(processes.leave, process_id))

    def _hush(self) -> None:
        self._present = ""
        self._signals.stop()
        self._sockets.close()

    async def lead(self, duty: str, process_id: str, seconds: float) -> bool:
        """See `Store.lead`."""
        if await self._read(lambda raw: processes.holder(raw, duty)) not in ("", process_id):
            return False
        return await self._writer.submit(partial(processes.lead, duty, process_id, seconds))

    async def orphans(self, agents: frozenset[str], *, limit: int) -> list[RunRow]:
        """See `Store.orphans`."""
        living, dead = await self._read(processes.owners)
        dead |= {process_id for process_id in living if self._sockets.refuses(process_id)}
        await self._bury()
        if not dead:
            return []
        return await self._read(lambda raw: processes.orphans(raw, dead, agents, limit))

    async def _bury(self) -> None:
        """Settle that the processes whose sockets were refused are dead. What is known to one process
        only must not be all there is to know: it may die, or have no use for their runs."""
        if names := frozenset(self._sockets.refused):
            await self._writer.submit(partial(processes.bury, names))
            self._sockets.bury(names)

    async def owned(self, process_id: str) -> list[RunRow]:
        """See `Store.owned`."""
        return await self._read(lambda raw: processes.owned(raw, process_id))

    async def take_over(
        self, tenant: str, run_id: str, *, fence: int, owner: str, counted: bool = True
    ) -> RunRow | None:
        """See `Store.take_over`."""
        return await self._writer.submit(partial(processes.take_over, tenant, run_id, fence, owner, counted))

    async def commands(self, process_id: str) -> list[tuple[str, str]]:
        """See `Store.commands`."""
        return await self._read(lambda raw: processes.commands(raw, process_id))

    async def peek(self, keys: Sequence[tuple[str, str]]) -> list[Sighting]:
        """See `Store.peek`."""
        seen = await self._read(lambda raw: processes.peek(raw, keys))
        dead = {owner for owner in {run.owner for run in seen if run.alive} if self._sockets.refuses(owner)}
        return [replace(run, alive=False) if run.owner in dead else run for run in seen] if dead else seen

    # ---- upkeep ----

    async def expired(self, now: int, *, agents: frozenset[str], limit: int) -> list[PendingRow]:
        """See `Store.expired`."""
        return await self._read(lambda raw: upkeep.expired(raw, now, agents, limit))

    async def backlog(self) -> list[Backlog]:
        """See `Store.backlog`."""
        return await self._read(upkeep.backlog)

    async def trim(self, old: Retention, *, limit: int) -> int:
        """See `Store.trim`."""
        return await self._writer.submit(partial(upkeep.trim, old, limit))

    # ---- follow-ups ----

    async def claim_follow_ups(self, op: ClaimFollowUps) -> list[FollowUpRow]:
        """See `Store.claim_follow_ups`."""
        claimable, owners = await self._read(lambda raw: follow_ups.claimable(raw, op))
        if [owner for owner in owners if self._sockets.refuses(owner)]:
            await self._bury()
        elif not claimable:
            return []
        return await self._writer.submit(partial(follow_ups.claim, op))

    async def settle_follow_up(self, row: FollowUpRow) -> bool:
        """See `Store.settle_follow_up`."""
        return await self._writer.submit(partial(follow_ups.settle, row))

    async def release_follow_ups(self, process_id: str) -> None:
        """See `Store.release_follow_ups`."""
        await self._writer.submit(partial(follow_ups.release, process_id))

    async def follow_ups(self, tenant: str, run_ids: Sequence[str]) -> list[FollowUpRow]:
        """See `Store.follow_ups`."""
        return await self._read(lambda raw: follow_ups.of_runs(raw, tenant, run_ids))

    # ---- reads ----

    async def find_request(self, key: RequestKey) -> Made | None:
        """See `Store.find_request`."""
        return await self._read(lambda raw: made_by(raw.cursor(), key))

    async def get_run(self, tenant: str, run_id: str) -> RunRow:
        """See `Store.get_run`."""
        return await self._read(lambda raw: reads.get_run(raw, tenant, run_id))

    async def load(self, tenant: str, run_id: str) -> Snapshot:
        """See `Store.load`."""
        return await self._read(lambda raw: reads.load(raw, tenant, run_id))

    async def load_children(self, tenant: str, root_run_id: str, run_ids: Sequence[str]) -> list[Snapshot]:
        """See `Store.load_children`."""
        return await self._read(lambda raw: reads.load_children(raw, tenant, root_run_id, run_ids))

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


def wall_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def _bring_up(files: DatabaseFiles, connection: sqlite3.Connection) -> bytes:
    with files.locked():
        migrate(connection)
        key = cursor_key(connection)
        files.remember()  # the log is there by now
        return key


def _in_flight(database: Database) -> int:
    return database.in_flight
