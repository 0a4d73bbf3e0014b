"""Records for tests, with what does not matter filled in."""

import itertools
from typing import Any

from msgspec.structs import replace

from entracte_server.domain.messages import TextPart, text_message
from entracte_server.domain.options import RunOptions
from entracte_server.domain.results import Usage
from entracte_server.domain.runs import (
    CallRow,
    DecisionRow,
    PendingRow,
    RunRow,
    RunSpec,
    Snapshot,
    StepRecord,
)
from entracte_server.domain.threads import ThreadMessage, ThreadRow
from entracte_server.store.base import (
    Cancel,
    ChunkRow,
    Created,
    CreateRun,
    Decide,
    Decided,
    End,
    Park,
    RequestKey,
    RunWrite,
    Store,
)
from entracte_server.store.threads import ThreadClaim

TENANT = "acme"
OWNER = "process-1"
NOW = 1_800_000_000_000
SPEC = RunSpec((text_message("user", "Refund order 7"),), RunOptions(max_steps=8), ("Be kind.",), "msg-1")

_numbers = itertools.count(1)


def unique(prefix: str) -> str:
    """An id nobody else has."""
    return f"{prefix}-{next(_numbers)}"


def chunks(first: int, last: int) -> ChunkRow:
    """Chunks whose bytes tell which they are."""
    return ChunkRow(first, last, b"".join(b"<%d>" % number for number in range(first, last + 1)))


def a_run(**changes: Any) -> RunRow:
    run = RunRow(
        tenant=TENANT,
        run_id=unique("run"),
        agent_id="support",
        state="running",
        principal="alice",
        create_time=NOW,
        update_time=NOW,
        owner=OWNER,
        fence=1,
    )
    run = replace(run, **changes)
    return run if "root_run_id" in changes else replace(run, root_run_id=run.run_id)


def a_call(run: RunRow, **changes: Any) -> CallRow:
    call = CallRow(unique("call"), 1, 0, "refund", '{"order_id":"7"}', state="waiting", round=1)
    return replace(call, **changes)


def a_step(number: int = 1, **changes: Any) -> StepRecord:
    step = StepRecord(number, 1, f"msg-{number}", "tool-calls", Usage(10, 5, 15), requested_tools=True)
    return replace(step, **changes)


def a_pending(run: RunRow, call: CallRow, **changes: Any) -> PendingRow:
    pending = PendingRow(
        tenant=run.tenant,
        pending_call_id=unique("pending"),
        run_id=run.run_id,
        call_id=call.call_id,
        kind="approval",
        tool_name=call.tool_name,
        args=call.args or "{}",
        args_digest=b"\x00digest",
        create_time=NOW,
        agent_id=run.agent_id,
        thread_id=run.thread_id,
        resource_id=run.resource_id,
    )
    return replace(pending, **changes)


def a_decision(pending: PendingRow, **changes: Any) -> DecisionRow:
    decision = DecisionRow(
        tenant=pending.tenant,
        decision_id=unique("decision"),
        pending_call_id=pending.pending_call_id,
        run_id=pending.run_id,
        call_id=pending.call_id,
        tool_name=pending.tool_name,
        verb="approve",
        principal="bob",
        decide_time=NOW + 1000,
        args=pending.args,
    )
    return replace(decision, **changes)


def a_request(**changes: Any) -> RequestKey:
    return replace(RequestKey(TENANT, "alice", "Generate", unique("request"), b"hash"), **changes)


def a_park(first: int, **changes: Any) -> Park:
    return replace(Park(chunks(first, first), "suspended", "suspended", 100), **changes)


def an_end(**changes: Any) -> End:
    return replace(End("succeeded", "stop", "model-finished", 50), **changes)


def a_write(run: RunRow, **changes: Any) -> RunWrite:
    return replace(RunWrite(run.tenant, run.run_id, run.fence), **changes)


def a_decide(pending: PendingRow, call: CallRow, *, owner: str = OWNER, **changes: Any) -> Decide:
    decision = a_decision(pending, **changes)
    return Decide(
        decision, replace(call, state="decided"), owner, replace(call, state="started", key="key-1")
    )


def a_cancel(run: RunRow, **changes: Any) -> Cancel:
    return replace(Cancel(run.tenant, run.run_id, "changed my mind", OWNER, NOW), **changes)


def a_thread(**changes: Any) -> ThreadRow:
    return replace(ThreadRow(TENANT, unique("thread"), "alice", NOW, NOW), **changes)


def a_message(**changes: Any) -> ThreadMessage:
    number = next(_numbers)
    message = ThreadMessage(f"msg-{number}", "user", (TextPart(f"Message {number}"),), NOW + number)
    return replace(message, **changes)


def took(decided: Decided) -> bool:
    """Whether who decided owns the run now."""
    return decided.snapshot is not None


async def created(store: Store, **changes: Any) -> RunRow:
    """A new run in the store."""
    run = a_run(**changes)
    row = chunks(1, run.last_sequence) if run.last_sequence else None
    await store.create_run(CreateRun(run, SPEC, row))
    return run


async def claiming(
    store: Store, thread_id: str, claim: ThreadClaim | None = None, **changes: Any
) -> tuple[RunRow, Created]:
    """A new run in the store that has a thread or waits for it, as it is stored."""
    run = a_run(thread_id=thread_id, **{"resource_id": "alice", **changes})
    row = chunks(1, run.last_sequence) if run.last_sequence else None
    op = CreateRun(run, SPEC, row, claim=ThreadClaim() if claim is None else claim)
    made = await store.create_run(op)
    return await store.get_run(run.tenant, run.run_id), made


async def waiting(store: Store, *, park: bool = True, **changes: Any) -> tuple[RunRow, CallRow, PendingRow]:
    """A run in the store that waits for one decision, parked or with its owner still there."""
    names = ("expire_time", "on_expiry", "pending_call_id")
    pending_changes = {name: changes.pop(name) for name in list(changes) if name in names}
    run = await created(store, **changes)
    call = a_call(run)
    pending = a_pending(run, call, **pending_changes)
    last = run.last_sequence
    write = a_write(
        run,
        chunks=chunks(last + 1, last + 3),
        steps=(a_step(),),
        calls=(call,),
        opened=(pending,),
        park=a_park(last + 4) if park else None,
    )
    assert (await store.write(write)).parked is park
    return await store.get_run(run.tenant, run.run_id), call, pending


async def ended(store: Store, **changes: Any) -> RunRow:
    """A run in the store that has succeeded."""
    run = await created(store, **changes)
    first = run.last_sequence + 1
    await store.write(a_write(run, chunks=chunks(first, first), end=an_end()))
    return await store.get_run(run.tenant, run.run_id)


async def taken_over(store: Store, run: RunRow, owner: str, *, counted: bool = True) -> RunRow:
    """A running run after another process took it over."""
    now = await store.get_run(run.tenant, run.run_id)
    taken = await store.take_over(run.tenant, run.run_id, fence=now.fence, owner=owner, counted=counted)
    assert taken is not None
    return taken


async def log_of(store: Store, run: RunRow) -> bytes:
    """All chunks of a run. Fails when there is a gap or an overlap."""
    rows, _ = await store.read_chunks(run.tenant, run.run_id, after=0, limit_bytes=2**40)
    following = 1
    for row in rows:
        assert row.first == following
        following = row.last + 1
    return b"".join(row.data for row in rows)


async def everything(store: Store, run: RunRow) -> tuple[Snapshot, bytes]:
    """All that is stored of a run, to compare."""
    return await store.load(run.tenant, run.run_id), await log_of(store, run)
