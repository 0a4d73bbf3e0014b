"""What a store is: the `Store` protocol, the operations it takes and how it refuses them.

A store keeps runs for many tenants. The tenant is part of every key and every condition: what
belongs to another tenant does not exist. Each operation is atomic, and durable when its awaitable
returns; operations submitted together may be committed together, and one that fails does not fail
its neighbours. A store never cancels a transaction half-way: cancelling the caller only stops the
waiting.

Several processes work on one store. A process is a row with a lease, which it renews (`enter`,
`renew`, `leave`); a running run is owned by one process, under a fence that grows with every change
of ownership. Every write of a run's owner carries the fence it holds, and a store refuses a write
under an older one. Who owns a run whose process is not alive any more is decided by `take_over`, a
compare-and-set on the fence. What others than the owner want of a run is written to it (a decision,
a cancellation) and found by its owner with `commands`; `signals` only make that quick.
"""

from asyncio import Future
from collections.abc import Sequence
from typing import Protocol

from entracte_server.domain.chunks import FinishReason, StopCause
from entracte_server.domain.data import Data
from entracte_server.domain.follow_ups import FollowUpRow
from entracte_server.domain.results import RunError
from entracte_server.domain.runs import (
    CallRow,
    DecisionRow,
    PendingRow,
    Processing,
    Remembered,
    RunRow,
    RunSpec,
    RunState,
    Snapshot,
    StepRecord,
)
from entracte_server.domain.threads import ThreadMessage
from entracte_server.domain.work import CloseWork, NewWork
from entracte_server.store.catalog import CatalogStore
from entracte_server.store.changes import ChildWrite as ChildWrite
from entracte_server.store.changes import RunPatch as RunPatch
from entracte_server.store.changes import Standing as Standing
from entracte_server.store.errors import LeaseLost as LeaseLost
from entracte_server.store.errors import MemoryChanged as MemoryChanged
from entracte_server.store.errors import NotFound as NotFound
from entracte_server.store.errors import PublishedChanged as PublishedChanged
from entracte_server.store.errors import RefusalCause as RefusalCause
from entracte_server.store.errors import Refused as Refused
from entracte_server.store.errors import RequestReused as RequestReused
from entracte_server.store.errors import RunExists as RunExists
from entracte_server.store.errors import StoreError as StoreError
from entracte_server.store.errors import StoreUnavailable as StoreUnavailable
from entracte_server.store.errors import ThreadBelow as ThreadBelow
from entracte_server.store.errors import ThreadBusy as ThreadBusy
from entracte_server.store.errors import ThreadExists as ThreadExists
from entracte_server.store.errors import ThreadNotYours as ThreadNotYours
from entracte_server.store.errors import WrongDatabase as WrongDatabase
from entracte_server.store.requests import Made as Made
from entracte_server.store.requests import RequestKey as RequestKey
from entracte_server.store.signals import Signals
from entracte_server.store.threads import ThreadClaim, ThreadStore
from entracte_server.store.vectors import VectorStore
from entracte_server.store.work import WorkStore
from entracte_server.store.working_memory import Note, WorkingMemoryStore


class ChunkRow(Data, frozen=True, gc=False):
    """Chunks that were committed together: the bytes of a response message's `chunks` entries."""

    first: int
    last: int
    data: bytes


class CreateRun(Data, frozen=True):
    """Create a run, owned by `run.owner` under fence `run.fence`, with its first chunks."""

    run: RunRow
    spec: RunSpec
    chunks: ChunkRow | None = None
    request: RequestKey | None = None
    claim: ThreadClaim | None = None


class Created(Data, frozen=True):
    """`made` is set when an earlier request with the same id had created a run: nothing was done. With
    `queued` the run waits for its thread: it is stored in that state, without an owner and under fence 0.
    `replaced` is the parked run that was asked to cancel for it: running now, without an owner."""

    made: Made | None = None
    queued: bool = False
    replaced: str = ""


class Park(Data, frozen=True):
    """Suspend the run and give up its ownership, unless a decided call waits to be processed or
    somebody asked to cancel. `chunks` are written only if it parks. `executed_ms` is added."""

    chunks: ChunkRow
    finish_reason: FinishReason
    stop_cause: StopCause
    executed_ms: int


class Release(Data, frozen=True):
    """Give up the ownership of a run that goes on running: the next process takes it over, and that
    does not count as a takeover. `executed_ms` is added."""

    executed_ms: int


class End(Data, frozen=True):
    """End the run and give up its ownership. `executed_ms` is added. A pending call that is still open
    then is no longer to be decided. `follow_ups` are added to the run. With `closes_work`, work of the run
    that is not closed is closed."""

    state: RunState
    finish_reason: FinishReason
    stop_cause: StopCause
    executed_ms: int
    error: RunError | None = None
    follow_ups: tuple[FollowUpRow, ...] = ()
    closes_work: bool = False


class RunWrite(Data, frozen=True):
    """What the owner of a run writes in one transaction.

    `calls` are inserted or replaced by call id, `steps` inserted or replaced by step number,
    `processing` and `remembered` replace what was there. `messages` are added to the thread that the run
    has, or replace those with their ids, which keep their positions; where it has none, because it only
    reads, because its turn has not come or because the thread was deleted, they are dropped. `notes` replace
    working memories, each another one. `work` is opened unless it is there, `closed_work` closed, and of what
    tools of workers wrote that goes which is in the log now: `taken_output` has work ids and positions.
    `opened` pending calls are inserted; each decision of `closed` settles the pending call it names,
    unless somebody decided it before; its `sequence`, when it has none, is the run's last before this
    write. Chunks follow the run's last sequence, otherwise it is a `ValueError`.

    A write may be repeated, unchanged, by an owner that does not know whether it was committed: what
    was committed is recognised by its chunks, by what it opened or by the state it left the run in,
    and is not done twice. A write with `steps`, also of `children`, or with a call that is done, and a
    parking, are progress: takeovers are counted anew.
    """

    tenant: str
    run_id: str
    fence: int
    chunks: ChunkRow | None = None
    patch: RunPatch | None = None
    steps: tuple[StepRecord, ...] = ()
    calls: tuple[CallRow, ...] = ()
    opened: tuple[PendingRow, ...] = ()
    closed: tuple[DecisionRow, ...] = ()
    park: Park | None = None
    end: End | None = None
    release: Release | None = None
    processing: Processing | None = None
    messages: tuple[ThreadMessage, ...] = ()
    remembered: Remembered | None = None
    children: tuple[ChildWrite, ...] = ()
    notes: tuple[Note, ...] = ()
    work: tuple[NewWork, ...] = ()
    closed_work: tuple[CloseWork, ...] = ()
    taken_output: tuple[tuple[str, int], ...] = ()

    @property
    def has_work(self) -> bool:
        """Whether it changes work of workers."""
        ends = self.end is not None and self.end.closes_work
        return bool(self.work or self.closed_work or self.taken_output or ends)


class Written(Data, frozen=True):
    """`parked` is False when a `Park` was asked for and refused; the rest was written all the same.
    `freed` says that the run gave up its thread and that the next run of it is running now, without an
    owner; a write that is repeated does not say it again."""

    parked: bool = False
    freed: bool = False


class Decide(Data, frozen=True):
    """Settle an open pending call.

    In one transaction: the pending call goes from open to decided, on condition that it is open,
    not past `expire_time` at `decision.decide_time` and not claimed by another principal; the
    decision is added; `call` replaces the call's row (state `decided`). When nobody owns the run it
    becomes running, owned by `owner` under the next fence, and `started` (when given) replaces the
    call's row instead of `call`: the new owner is about to enter the tool.
    The stored decision's `sequence` is the run's last sequence. A decision whose id is stored is
    answered from there, without taking the run. With `expiry` the condition is the other one: that
    the call is open, has an `expire_time` and is past it at `decision.decide_time`, whoever claimed it.
    A call is past its `expire_time` from the millisecond after it. `messages` are added to the thread that
    the run has.
    """

    decision: DecisionRow
    call: CallRow
    owner: str
    started: CallRow | None = None
    request: RequestKey | None = None
    expiry: bool = False
    messages: tuple[ThreadMessage, ...] = ()


class Decided(Data, frozen=True):
    """`run` is the row after the change. When `owner` owns it now, `snapshot` is all of it, otherwise
    None. `made` is set when an earlier request with the same id had decided: nothing was done."""

    run: RunRow
    decision: DecisionRow
    snapshot: Snapshot | None = None
    made: Made | None = None


class Cancel(Data, frozen=True):
    """Ask to cancel a run. A run that nobody owns and that has not ended becomes running, owned by
    `owner` under the next fence. A run that has ended stays as it is. The first reason stands."""

    tenant: str
    run_id: str
    reason: str
    owner: str
    now: int
    request: RequestKey | None = None


class Cancelled(Data, frozen=True):
    """As `Decided`, for a cancellation; `took` says whether `owner` owns the run now."""

    run: RunRow
    took: bool = False
    made: Made | None = None


class Found(Data, frozen=True):
    """A pending call with its run, its tool call and, when it was decided, the decision."""

    run: RunRow
    pending: PendingRow
    call: CallRow
    decision: DecisionRow | None = None


class Claim(Data, frozen=True):
    """Hold a pending call for `principal` until `until`; `until` 0 releases it. A call that is past its
    `expire_time` at `now` can only be released."""

    tenant: str
    pending_call_id: str
    principal: str
    until: int
    now: int
    request: RequestKey | None = None


class RunFilter(Data, frozen=True):
    """Empty fields do not filter."""

    states: tuple[RunState, ...] = ()
    agent_id: str = ""
    thread_id: str = ""
    include_children: bool = False


class PendingFilter(Data, frozen=True):
    """Empty fields do not filter."""

    run_id: str = ""
    agent_id: str = ""
    thread_id: str = ""
    resource_id: str = ""
    include_decided: bool = False


class DecisionFilter(Data, frozen=True):
    """Empty fields do not filter."""

    run_id: str = ""
    pending_call_id: str = ""
    principal: str = ""


class Sighting(Data, frozen=True):
    """A run as others see it. `alive` says that it has an owner whose process is alive."""

    tenant: str
    run_id: str
    state: RunState
    fence: int
    owner: str
    last_sequence: int
    alive: bool


class Backlog(Data, frozen=True):
    """How many calls of an agent wait, of all tenants, and since when the oldest does (ms)."""

    agent_id: str
    calls: int
    oldest: int


class Retention(Data, frozen=True):
    """What is old enough to go: times in milliseconds since the epoch, 0 keeps everything.

    `chunks`: chunk logs of root runs whose `finish_time` is before it. `runs`: all of the root runs
    whose `finish_time` is before it, with their sub-agents' runs, as `delete_run` deletes them.
    `requests`: request ids kept before it, except those of decisions that are stored.
    """

    chunks: int = 0
    runs: int = 0
    requests: int = 0


class ClaimFollowUps(Data, frozen=True):
    """Have `process_id` do follow-up jobs that wait and are due at `now`: of these handlers, and any that
    were made before `given_up`, at most `limit`. It has them until `until`. Times are in milliseconds."""

    process_id: str
    handlers: frozenset[str]
    now: int
    until: int
    limit: int
    given_up: int = 0


class Store(ThreadStore, WorkingMemoryStore, VectorStore, WorkStore, CatalogStore, Protocol):
    """Keeps runs. All methods raise `StoreUnavailable` when the database does not answer.

    Cursors of lists are opaque to callers; empty starts at the beginning; one that is none of this list
    and tenant is a `ValueError`.
    """

    async def create_run(self, op: CreateRun) -> Created:
        """Raises `RunExists`, `RequestReused`, `ThreadBelow`, `ThreadBusy`, `ThreadNotYours`."""
        ...

    def submit(self, op: RunWrite) -> "Future[Written]":
        """As `write`, without a task: the future is done when the write is durable.

        Writes of one run take effect in the order they are submitted. Cancelling the future only
        stops the waiting. It fails with `LeaseLost`, `StoreUnavailable`.
        """
        ...

    async def write(self, op: RunWrite) -> Written:
        """Raises `LeaseLost`."""
        ...

    async def decide(self, op: Decide) -> Decided:
        """Raises `NotFound`, `Refused` (decided, expired, claimed, finished; with `expiry` decided,
        not-expired, finished), `RequestReused`."""
        ...

    async def cancel(self, op: Cancel) -> Cancelled:
        """Raises `NotFound`, `RequestReused`."""
        ...

    async def claim(self, op: Claim) -> tuple[PendingRow, Made | None]:
        """Raises `NotFound`, `Refused` (decided, expired, claimed), `RequestReused`."""
        ...

    async def delete_run(
        self, tenant: str, run_id: str, *, force: bool, request: RequestKey | None
    ) -> Made | None:
        """Delete all of a run that has ended, or that is suspended with `force`, and the runs of its
        sub-agents; its request ids stay, so that a repeated request is recognised, and so does what was
        said on its thread. The run that waited for its thread is running then, without an owner. Raises
        `NotFound`, `Refused` (not-finished), `RequestReused`."""
        ...

    # ---- processes ----

    @property
    def signals(self) -> Signals:
        """How the processes of this store wake each other."""
        ...

    async def enter(self, process_id: str, seconds: float) -> None:
        """Register a process: it is alive for `seconds` from now on, by the store's clock. Its signals
        work from now on."""
        ...

    async def renew(self, process_id: str, seconds: float) -> bool:
        """The process is alive for `seconds` from now on. False, and nothing is changed, when its
        lease had ended before: its runs may be owned by others."""
        ...

    async def leave(self, process_id: str) -> None:
        """The process is not alive any more: what it owns may be taken over at once. Idempotent."""
        ...

    async def lead(self, duty: str, process_id: str, seconds: float) -> bool:
        """Hold `duty`, which one process has at a time, for `seconds` from now on; says whether
        `process_id` has it. Whoever has it may extend it; others get it when it has run out."""
        ...

    async def orphans(self, agents: frozenset[str], *, limit: int) -> list[RunRow]:
        """Running root runs that no process that is alive owns, oldest first: of these agents and of those
        made of data, and of any agent where somebody asked to cancel. Not those of a record format this code
        does not know."""
        ...

    async def owned(self, process_id: str) -> list[RunRow]:
        """All running runs that a process owns."""
        ...

    async def take_over(
        self, tenant: str, run_id: str, *, fence: int, owner: str, counted: bool = True
    ) -> RunRow | None:
        """Own a running run under the next fence, on condition that it is still running under
        `fence`; None when it is not. With `counted`, a run that had an owner counts one takeover
        more. The caller has seen that nobody alive owns it."""
        ...

    async def commands(self, process_id: str) -> list[tuple[str, str]]:
        """Tenant and run id of the running runs a process owns that have a decided call which is not
        taken up yet, or that somebody asked to cancel."""
        ...

    async def peek(self, keys: Sequence[tuple[str, str]]) -> list[Sighting]:
        """How these runs (tenant, run id) stand; those that do not exist are left out."""
        ...

    # ---- upkeep ----

    async def expired(self, now: int, *, agents: frozenset[str], limit: int) -> list[PendingRow]:
        """Open pending calls of any tenant, of these agents and of those made of data, that are past their
        `expire_time` at `now`, the longest expired first. Those of runs that have ended are not open. Not
        those of a record format this code does not know."""
        ...

    async def backlog(self) -> list[Backlog]:
        """The open pending calls of all tenants, counted, by agent."""
        ...

    async def trim(self, old: Retention, *, limit: int) -> int:
        """Delete some of what is old, in one transaction that is short however much there is: of at
        most `limit` runs and `limit` request ids. How many of these were touched: call it again while
        that is not 0.

        A log goes from its beginning, so that `read_chunks` tells of what is left, and a large one may
        take more than one call; `last_sequence` stays. The rest of a run goes when its log is gone.
        Runs that have not ended lose nothing.
        """
        ...

    # ---- follow-ups ----

    async def claim_follow_ups(self, op: ClaimFollowUps) -> list[FollowUpRow]:
        """The jobs the process has from now on, each at its next attempt. Jobs of processes that are not
        alive any more are due at once. Not those of a record format this code does not know."""
        ...

    async def settle_follow_up(self, row: FollowUpRow) -> bool:
        """What came of the attempt `row.attempts`: `row` replaces the job, which nobody has any more. One
        that still waits may be claimed from `row.due_time` on. False, and nothing is changed, when it was
        settled, when there was a later attempt, or when the run is gone."""
        ...

    async def release_follow_ups(self, process_id: str) -> None:
        """Give up what a process has claimed: others may do it at once, and its attempts do not count."""
        ...

    async def follow_ups(self, tenant: str, run_ids: Sequence[str]) -> list[FollowUpRow]:
        """The jobs of these runs; those of one run together, by kind and name."""
        ...

    # ---- reads ----

    async def find_request(self, key: RequestKey) -> Made | None:
        """What an earlier request with this id made. Raises `RequestReused`."""
        ...

    async def get_run(self, tenant: str, run_id: str) -> RunRow:
        """Raises `NotFound`."""
        ...

    async def load(self, tenant: str, run_id: str) -> Snapshot:
        """All of a run, as of one moment; for a sub-agent's run, the calls of its own agent and what waits in
        it and below. Raises `NotFound`."""
        ...

    async def load_children(self, tenant: str, root_run_id: str, run_ids: Sequence[str]) -> list[Snapshot]:
        """These runs of sub-agents, as `load` gives them, but for what waits in them. Those that are not
        there are left out."""
        ...

    async def read_chunks(
        self, tenant: str, run_id: str, *, after: int, limit_bytes: int
    ) -> tuple[list[ChunkRow], int]:
        """Rows holding chunks after `after`, oldest first, about `limit_bytes` (at least one row if
        there is any), and the first sequence still stored (last + 1 when none is). A row may begin
        before `after`. Raises `NotFound`."""
        ...

    async def list_runs(
        self, tenant: str, where: RunFilter, *, cursor: str, limit: int
    ) -> tuple[list[RunRow], str]:
        """Newest first, and the cursor of the next page (empty: none)."""
        ...

    async def get_pending(self, tenant: str, pending_call_id: str) -> tuple[PendingRow, DecisionRow | None]:
        """Raises `NotFound`."""
        ...

    async def find_pending(self, tenant: str, pending_call_id: str) -> Found:
        """As `get_pending`, with all that a decision is checked against. Raises `NotFound`."""
        ...

    async def list_pending(
        self, tenant: str, where: PendingFilter, *, cursor: str, limit: int
    ) -> tuple[list[tuple[PendingRow, DecisionRow | None]], str]:
        """Oldest first, and the cursor of the next page (empty: none)."""
        ...

    async def pending_of_run(
        self, tenant: str, run_id: str, call_id: str = ""
    ) -> tuple[RunRow, list[tuple[PendingRow, CallRow]], int]:
        """The run, its open pending calls (only those of `call_id`, when given) with their calls,
        and how many of the run's calls were ever decided. Raises `NotFound`."""
        ...

    async def get_decision(self, tenant: str, decision_id: str) -> DecisionRow:
        """Raises `NotFound`."""
        ...

    async def latest_decision(self, tenant: str, run_id: str, call_id: str) -> DecisionRow | None:
        """The last decision on a call of a run, if there is one."""
        ...

    async def list_decisions(
        self, tenant: str, where: DecisionFilter, *, cursor: str, limit: int
    ) -> tuple[list[DecisionRow], str]:
        """Newest first, and the cursor of the next page (empty: none)."""
        ...

    async def close(self) -> None:
        """Finish what was submitted and close. Idempotent."""
        ...
