"""The PostgreSQL store: any number of processes on any number of hosts."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from entracte_server.domain.agents import AgentRow, AgentVersionRow
from entracte_server.domain.follow_ups import FollowUpRow
from entracte_server.domain.runs import CallRow, DecisionRow, PendingRow, RunRow, Snapshot
from entracte_server.domain.threads import ThreadMessage, ThreadView
from entracte_server.domain.work import Answer, GivenWork, OfferedTool, Output, WorkSight, run_of
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
from entracte_server.store.postgres import (
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
from entracte_server.store.postgres.connection import Connection
from entracte_server.store.postgres.migrate import MIGRATION_SECONDS, cursor_key, migrate
from entracte_server.store.postgres.notify import Notifier
from entracte_server.store.postgres.pool import Connect, Pool
from entracte_server.store.postgres.programs import Operation
from entracte_server.store.postgres.retrying import insist
from entracte_server.store.postgres.transactions import execute
from entracte_server.store.postgres.writer import MAX_WAITING, Writers
from entracte_server.store.signals import Signals
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

CONNECT_SECONDS = 5.0
"""How long making a connection may take."""

WRITERS = 4
READERS = 4

_DEFAULTS = {
    "application_name": "entracte",
    "client_encoding": "UTF8",
    "connect_timeout": "4",
    # A peer that is gone without a word is noticed within seconds.
    "keepalives_idle": "10",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}


class PostgresStore:
    """A `Store` in a PostgreSQL database. Made by `open`; to be closed."""

    def __init__(self, connect: Connect, listen: Connect, cursors: Cursors) -> None:
        self._writers = Writers(connect, WRITERS)
        self._pool = Pool(connect, READERS)
        # Of its own: a lease that waits for its turn behind a crowd of readers is lost, and with it the
        # runs of a process whose only fault is that it is busy.
        self._leases = Pool(connect, 1)
        self._interests = Interests()
        self._notifier = Notifier(listen, self._interests)
        self._cursors = cursors
        self._present = ""
        self._closed: asyncio.Future[None] | None = None

    @classmethod
    async def open(cls, url: str, *, listen_url: str = "") -> "PostgresStore":
        """Open the database at `url` and bring it to the version of this code.

        `url` may lead through a pooler in transaction mode; then `listen_url` must be given, and lead
        to the same database directly. Raises `ValueError` for what is no URL of PostgreSQL,
        `StoreUnavailable`, `WrongDatabase`.
        """
        connect = partial(Connection.connect, _conninfo(url), named=not listen_url, seconds=CONNECT_SECONDS)
        listen = partial(
            Connection.connect, _conninfo(listen_url or url), named=True, seconds=CONNECT_SECONDS
        )
        key = await insist(lambda again: _bring_up(_conninfo(url)))
        return cls(connect, listen, Cursors(key))

    async def close(self) -> None:
        """See `Store.close`."""
        if self._closed is None:
            self._closed = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closed)

    async def _close(self) -> None:
        self._present = ""
        await self._notifier.close()
        await self._pool.close()
        await self._leases.close()
        await self._writers.close()

    # ---- runs ----

    def submit(self, op: RunWrite) -> "asyncio.Future[Written]":
        """See `Store.submit`."""
        key = (op.tenant, op.run_id)
        # Of two that note something down for the same two resources, neither waits for the other.
        alone = owner.has_thread(op) or bool(op.notes)
        return self._writers.submit(key, partial(owner.write_run, op), alone=alone)

    async def write(self, op: RunWrite) -> Written:
        """See `Store.write`."""
        return await self.submit(op)

    async def create_run(self, op: CreateRun) -> Created:
        """See `Store.create_run`."""
        key = (op.run.tenant, op.run.run_id)
        operation = partial(owner.create_run, op)
        return await self._writers.asked(key, operation, alone=owner.has_thread(op))

    async def decide(self, op: Decide) -> Decided:
        """See `Store.decide`."""
        key = (op.decision.tenant, op.decision.run_id)
        return await self._writers.asked(key, partial(commands.decide, op))

    async def cancel(self, op: Cancel) -> Cancelled:
        """See `Store.cancel`."""
        return await self._writers.asked((op.tenant, op.run_id), partial(commands.cancel, op))

    async def claim(self, op: Claim) -> tuple[PendingRow, Made | None]:
        """See `Store.claim`."""
        return await self._asked(partial(commands.claim, op))

    async def _asked(self, operation: Operation[T]) -> T:
        """Do what somebody asks for, in a transaction of its own."""
        if self._pool.waiting >= MAX_WAITING:
            raise StoreUnavailable("too many changes wait for the database")
        return await self._pool.execute(operation)

    async def delete_run(
        self, tenant: str, run_id: str, *, force: bool, request: RequestKey | None
    ) -> Made | None:
        """See `Store.delete_run`."""
        operation = partial(commands.delete_run, tenant, run_id, force, request)
        return await self._writers.asked((tenant, run_id), operation, alone=True)

    # ---- threads ----

    async def create_thread(self, op: CreateThread) -> Made | None:
        """See `ThreadStore.create_thread`."""
        return await self._asked(partial(threads.create, op))

    async def get_thread(self, tenant: str, thread_id: str) -> ThreadView:
        """See `ThreadStore.get_thread`."""
        return await self._pool.read(lambda: threads.get(tenant, thread_id))

    async def list_threads(
        self, tenant: str, resource_id: str, *, cursor: str, limit: int
    ) -> tuple[list[ThreadView], str]:
        """See `ThreadStore.list_threads`."""
        return await self._pool.read(
            lambda: threads.list_threads(self._cursors, tenant, resource_id, cursor, limit)
        )

    async def update_thread(self, op: UpdateThread) -> tuple[ThreadView, Made | None]:
        """See `ThreadStore.update_thread`."""
        return await self._asked(partial(threads.update, op))

    async def delete_thread(self, op: DeleteThread) -> DeletedThread:
        """See `ThreadStore.delete_thread`."""
        return await self._asked(partial(threads.delete, op))

    async def sweep_threads(self, *, limit: int) -> int:
        """See `ThreadStore.sweep_threads`."""
        return await self._pool.execute(lambda at: threads.sweep(limit))

    async def read_messages(
        self, tenant: str, thread_id: str, where: MessageRange, *, limit: int
    ) -> list[ThreadMessage]:
        """See `ThreadStore.read_messages`."""
        return await self._pool.read(lambda: messages.read(tenant, thread_id, where, limit))

    async def unembedded(self, where: Reach, *, newest: int, limit: int) -> list[Unembedded]:
        """See `VectorStore.unembedded`."""
        return await self._pool.read(lambda: vectors.unembedded(where, newest, limit))

    async def add_vectors(self, op: AddVectors) -> None:
        """See `VectorStore.add_vectors`."""
        await self._asked(lambda at: vectors.add(op))

    async def read_vectors(
        self, where: Reach, *, after: StoredVector | None, limit: int
    ) -> list[StoredVector]:
        """See `VectorStore.read_vectors`."""
        return await self._pool.read(lambda: vectors.read(where, after, limit))

    async def overdue(self, now: int, *, limit: int) -> list[RunRow]:
        """See `ThreadStore.overdue`."""
        return await self._pool.read(lambda: turns.overdue(now, limit))

    # ---- working memories ----

    async def get_working_memory(
        self, tenant: str, *, thread_id: str = "", resource_id: str = ""
    ) -> WorkingMemoryRow:
        """See `WorkingMemoryStore.get_working_memory`."""
        return await self._pool.read(lambda: working_memory.get(tenant, thread_id, resource_id))

    async def set_working_memory(self, op: SetWorkingMemory) -> tuple[WorkingMemoryRow, Made | None]:
        """See `WorkingMemoryStore.set_working_memory`."""
        return await self._asked(partial(working_memory.put, op))

    # ---- workers ----

    async def connect_worker(self, op: ConnectWorker) -> int:
        """See `WorkStore.connect_worker`."""
        return await self._asked(lambda at: workers.connect(op))

    async def keep_workers(self, sessions: Sequence[SessionKey], grace: int) -> None:
        """See `WorkStore.keep_workers`."""
        await self._pool.execute(lambda at: workers.keep(sessions, grace))

    async def worker_tools(self, tenant: str, name: str, version: str = "") -> OfferedTool | None:
        """See `WorkStore.worker_tools`."""
        return await self._pool.read(lambda: workers.tool(tenant, name, version))

    async def claim_work(self, seats: Sequence[Seat], *, limit: int) -> list[GivenWork]:
        """See `WorkStore.claim_work`."""
        return await self._pool.execute(lambda at: work.claim(seats, limit)) if seats else []

    async def held_work(self, sessions: Sequence[SessionKey]) -> list[Held]:
        """See `WorkStore.held_work`."""
        return await self._pool.read(lambda: workers.held(sessions)) if sessions else []

    async def given_work(self, tenant: str, principal: str, work_ids: Sequence[str]) -> list[GivenWork]:
        """See `WorkStore.given_work`."""
        return await self._pool.read(lambda: work.given_work(tenant, principal, work_ids))

    async def answer_work(self, bearer: Bearer, answer: Answer, digest: bytes) -> Handled:
        """See `WorkStore.answer_work`. With what else is written of the run."""
        key = (bearer.tenant, run_of(bearer.work_id))
        return await self._writers.asked(key, lambda at: work.answer(bearer, answer, digest))

    async def extend_work(self, bearer: Bearer, timeout: int, outputs: tuple[Output, ...]) -> Handled:
        """See `WorkStore.extend_work`."""
        return await self._asked(lambda at: work.extend(bearer, timeout, outputs))

    async def abandon_work(self, bearer: Bearer) -> Handled:
        """See `WorkStore.abandon_work`."""
        return await self._asked(lambda at: work.abandon(bearer))

    async def see_work(self, keys: Sequence[tuple[str, str, int]]) -> list[WorkSight]:
        """See `WorkStore.see_work`."""
        return await self._pool.read(lambda: work.see(keys)) if keys else []

    async def is_work_due(self) -> bool:
        """See `WorkStore.is_work_due`."""
        return await self._pool.read(workers.is_due)

    async def sweep_work(self, *, limit: int) -> list[Swept]:
        """See `WorkStore.sweep_work`."""
        return await self._pool.execute(lambda at: workers.sweep(limit))

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
        return await self._pool.read(lambda: catalog.get_agent(tenant, agent_id))

    async def get_agent_version(self, tenant: str, agent_id: str, version_id: str) -> AgentVersionRow:
        """See `CatalogStore.get_agent_version`."""
        return await self._pool.read(lambda: catalog.get_version(tenant, agent_id, version_id))

    async def list_agents(self, tenant: str, *, after: str, limit: int) -> list[AgentRow]:
        """See `CatalogStore.list_agents`."""
        return await self._pool.read(lambda: catalog.list_agents(tenant, after, limit))

    async def list_agent_versions(
        self, tenant: str, agent_id: str, *, before: int, limit: int
    ) -> list[AgentVersionRow]:
        """See `CatalogStore.list_agent_versions`."""
        return await self._pool.read(lambda: catalog.list_versions(tenant, agent_id, before, limit))

    # ---- processes ----

    @property
    def signals(self) -> Signals:
        """See `Store.signals`. They are those of the process that entered last."""
        return self._interests

    async def enter(self, process_id: str, seconds: float) -> None:
        """See `Store.enter`."""
        await self._leases.execute(lambda at: processes.enter(process_id, seconds))
        self._present = process_id
        await insist(lambda again: self._notifier.open(process_id))

    async def renew(self, process_id: str, seconds: float) -> bool:
        """See `Store.renew`."""
        renewed = await self._leases.execute(lambda at: processes.renew(process_id, seconds))
        if renewed and process_id == self._present:
            self._interests.announce()
        return renewed

    async def leave(self, process_id: str) -> None:
        """See `Store.leave`."""
        if process_id == self._present:
            self._present = ""
            await self._notifier.close()
        await self._leases.execute(lambda at: processes.leave(process_id))

    async def lead(self, duty: str, process_id: str, seconds: float) -> bool:
        """See `Store.lead`."""
        return await self._pool.execute(lambda at: processes.lead(duty, process_id, seconds))

    async def orphans(self, agents: frozenset[str], *, limit: int) -> list[RunRow]:
        """See `Store.orphans`."""
        return await self._pool.read(lambda: processes.orphans(agents, limit))

    async def owned(self, process_id: str) -> list[RunRow]:
        """See `Store.owned`."""
        return await self._pool.read(lambda: processes.owned(process_id))

    async def take_over(
        self, tenant: str, run_id: str, *, fence: int, owner: str, counted: bool = True
    ) -> RunRow | None:
        """See `Store.take_over`."""
        operation = partial(commands.take_over, tenant, run_id, fence, owner, counted)
        return await self._writers.submit((tenant, run_id), operation)

    async def commands(self, process_id: str) -> list[tuple[str, str]]:
        """See `Store.commands`."""
        return await self._pool.read(lambda: processes.commands(process_id))

    async def peek(self, keys: Sequence[tuple[str, str]]) -> list[Sighting]:
        """See `Store.peek`."""
        return await self._pool.read(lambda: processes.peek(keys)) if keys else []

    # ---- upkeep ----

    async def expired(self, now: int, *, agents: frozenset[str], limit: int) -> list[PendingRow]:
        """See `Store.expired`."""
        return await self._pool.read(lambda: upkeep.expired(now, agents, limit))

    async def backlog(self) -> list[Backlog]:
        """See `Store.backlog`."""
        return await self._pool.read(upkeep.backlog)

    async def trim(self, old: Retention, *, limit: int) -> int:
        """See `Store.trim`."""
        return await self._pool.execute(lambda at: upkeep.trim(old, limit))

    # ---- follow-ups ----

    async def claim_follow_ups(self, op: ClaimFollowUps) -> list[FollowUpRow]:
        """See `Store.claim_follow_ups`."""
        return await self._pool.execute(lambda at: follow_ups.claim(op))

    async def settle_follow_up(self, row: FollowUpRow) -> bool:
        """See `Store.settle_follow_up`."""
        return await self._pool.execute(lambda at: follow_ups.settle(row))

    async def release_follow_ups(self, process_id: str) -> None:
        """See `Store.release_follow_ups`."""
        await self._pool.execute(partial(follow_ups.release, process_id))

    async def follow_ups(self, tenant: str, run_ids: Sequence[str]) -> list[FollowUpRow]:
        """See `Store.follow_ups`."""
        return await self._pool.read(lambda: follow_ups.of_runs(tenant, run_ids))

    # ---- reads ----

    async def find_request(self, key: RequestKey) -> Made | None:
        """See `Store.find_request`."""
        return await self._pool.read(lambda: reads.find_request(key))

    async def get_run(self, tenant: str, run_id: str) -> RunRow:
        """See `Store.get_run`."""
        return await self._pool.read(lambda: reads.get_run(tenant, run_id))

    async def load(self, tenant: str, run_id: str) -> Snapshot:
        """See `Store.load`."""
        return await self._pool.read(lambda: reads.load(tenant, run_id))

    async def load_children(self, tenant: str, root_run_id: str, run_ids: Sequence[str]) -> list[Snapshot]:
        """See `Store.load_children`."""
        return await self._pool.read(lambda: reads.load_children(tenant, root_run_id, run_ids))

    async def read_chunks(
        self, tenant: str, run_id: str, *, after: int, limit_bytes: int
    ) -> tuple[list[ChunkRow], int]:
        """See `Store.read_chunks`."""
        return await self._pool.read(lambda: reads.read_chunks(tenant, run_id, after, limit_bytes))

    async def list_runs(
        self, tenant: str, where: RunFilter, *, cursor: str, limit: int
    ) -> tuple[list[RunRow], str]:
        """See `Store.list_runs`."""
        return await self._pool.read(lambda: lists.list_runs(self._cursors, tenant, where, cursor, limit))

    async def get_pending(self, tenant: str, pending_call_id: str) -> tuple[PendingRow, DecisionRow | None]:
        """See `Store.get_pending`."""
        return await self._pool.read(lambda: reads.get_pending(tenant, pending_call_id))

    async def find_pending(self, tenant: str, pending_call_id: str) -> Found:
        """See `Store.find_pending`."""
        return await self._pool.read(lambda: reads.find_pending_with_run(tenant, pending_call_id))

    async def list_pending(
        self, tenant: str, where: PendingFilter, *, cursor: str, limit: int
    ) -> tuple[list[tuple[PendingRow, DecisionRow | None]], str]:
        """See `Store.list_pending`."""
        return await self._pool.read(lambda: lists.list_pending(self._cursors, tenant, where, cursor, limit))

    async def pending_of_run(
        self, tenant: str, run_id: str, call_id: str = ""
    ) -> tuple[RunRow, list[tuple[PendingRow, CallRow]], int]:
        """See `Store.pending_of_run`."""
        return await self._pool.read(lambda: reads.pending_of_run(tenant, run_id, call_id))

    async def get_decision(self, tenant: str, decision_id: str) -> DecisionRow:
        """See `Store.get_decision`."""
        return await self._pool.read(lambda: reads.get_decision(tenant, decision_id))

    async def latest_decision(self, tenant: str, run_id: str, call_id: str) -> DecisionRow | None:
        """See `Store.latest_decision`."""
        return await self._pool.read(lambda: reads.latest_decision(tenant, run_id, call_id))

    async def list_decisions(
        self, tenant: str, where: DecisionFilter, *, cursor: str, limit: int
    ) -> tuple[list[DecisionRow], str]:
        """See `Store.list_decisions`."""
        return await self._pool.read(
            lambda: lists.list_decisions(self._cursors, tenant, where, cursor, limit)
        )


def _conninfo(url: str) -> str:
    try:
        given = conninfo_to_dict(url)
        defaults = {name: value for name, value in _DEFAULTS.items() if name not in given}
        if "," in str(given.get("host", "")) and "target_session_attrs" not in given:
            defaults["target_session_attrs"] = "read-write"
        return make_conninfo(url, **defaults)
    except psycopg.Error as error:
        raise ValueError(f"not a URL of a PostgreSQL database: {error}") from None


async def _bring_up(conninfo: str) -> bytes:
    # A connection of its own: what a migration says is said once, and need not stay prepared.
    connection = await Connection.connect(conninfo, named=False, seconds=CONNECT_SECONDS)
    try:
        await execute(connection, migrate(), MIGRATION_SECONDS + CONNECT_SECONDS)
        return await execute(connection, cursor_key())
    finally:
        connection.close()
