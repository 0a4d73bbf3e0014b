"""However many runs wait, the PostgreSQL store looks at those only that it is asked about.

The server counts how many rows of each table were read by sequential scans and by index scans.
"""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from entracte_server.domain.runs import Outcome
from entracte_server.store.base import (
    Claim,
    DecisionFilter,
    PendingFilter,
    Release,
    Retention,
    RunFilter,
    Store,
    ThreadBusy,
)
from entracte_server.store.catalog import CreateAgentVersion
from entracte_server.store.follow_up_records import follow_up_data
from entracte_server.store.postgres import PostgresStore
from entracte_server.store.records import encode, pending_data
from entracte_server.store.thread_records import message_data
from entracte_server.store.threads import CreateThread, DeleteThread, MessageRange, ThreadClaim, UpdateThread
from entracte_server.store.working_memory import Note, SetWorkingMemory
from entracte_server.testing.store_conformance.builders import (
    NOW,
    SPEC,
    TENANT,
    a_call,
    a_cancel,
    a_decide,
    a_decision,
    a_message,
    a_park,
    a_pending,
    a_request,
    a_run,
    a_step,
    a_thread,
    a_write,
    an_end,
    chunks,
    claiming,
    unique,
    waiting,
)
from entracte_server.testing.store_conformance.catalog import DEFINITION, a_version, archiving, publishing
from entracte_server.testing.store_conformance.follow_ups import a_claim, a_follow_up
from entracte_server.testing.store_conformance.turns import WAITS
from tests.postgres import Postgres

WAITING = 20_000
"""Runs that wait; as many have ended."""

FEW = 1_000
"""Rows that all that is done here may read."""

_RUNS = f"""
INSERT INTO entracte.runs (tenant, run_id, state, owner, fence, last_sequence, update_time, step, attempt,
    takeovers, executed_ms, finish_time, agent_id, agent_version, principal, create_time, thread_id, format,
    taken_by, has_log)
SELECT '{TENANT}', 'waits-' || n, 'suspended', '', 1, 3, 0, 1, 1, 0, 5, 0, 'support', '', 'alice', 0,
    'thread-' || n, 1, n, true
FROM generate_series(1, {WAITING}) n
UNION ALL
SELECT '{TENANT}', 'ended-' || n, 'succeeded', '', 1, 3, 0, 1, 1, 0, 5, {NOW} + n, 'support', '', 'alice', 0,
    'thread-' || n, 1, n, n > 10
FROM generate_series(1, {WAITING}) n
"""
_PENDING = f"""
INSERT INTO entracte.pending_calls (tenant, pending_call_id, run, call_id, state, create_time, expire_time,
    claimed_by, claimed_until, decision_id, agent_id, thread_id, resource_id, format, data)
SELECT tenant, 'pending-' || run_id, seq, 'call', CASE finish_time WHEN 0 THEN 'open' ELSE 'decided' END, 0,
    {NOW} * 2, '', 0, CASE finish_time WHEN 0 THEN '' ELSE 'decision-' || run_id END, agent_id, thread_id, '',
    1, '{{pending}}'
FROM entracte.runs
"""
_DECISIONS = """
INSERT INTO entracte.decisions (tenant, decision_id, run, call_id, pending_call_id, principal, sequence,
    format, data)
SELECT tenant, 'decision-' || run_id, seq, 'call', 'pending-' || run_id, 'bob', 2, 1, '{decision}'
FROM entracte.runs WHERE finish_time > 0
"""
_REQUESTS = """
INSERT INTO entracte.requests
SELECT tenant, 'bob', 'Approve', run_id, 'x', run_id, 'decision-' || run_id, 0
FROM entracte.runs WHERE finish_time > 0
"""
_FOLLOW_UPS = f"""
INSERT INTO entracte.follow_ups (tenant, run, kind, name, handler, state, create_time, due_time, owner,
    attempts, format, data)
SELECT tenant, seq, 'score', 'tone', 'score tone', 'succeeded', {NOW}, 0, '', 1, 1, '{{follow_up}}'
FROM entracte.runs WHERE finish_time > 0
"""
_THREADS = f"""
INSERT INTO entracte.threads (tenant, thread_id, resource_id, title, create_time, update_time)
SELECT '{TENANT}', 'thread-' || n, 'resource-' || n % 2, '', 0, 0 FROM generate_series(1, {WAITING}) n
UNION ALL SELECT '{TENANT}', 'long', 'resource-0', '', 0, 0
"""
_MESSAGES = f"""
INSERT INTO entracte.messages (thread, position, message_id, role, run_id, create_time, format, data)
SELECT seq, 1, 'message-1', 'user', 'run', 0, 1, '{{message}}'::bytea FROM entracte.threads
UNION ALL SELECT seq, n, 'message-' || n, 'user', 'run-' || n % 1000, 0, 1, '{{message}}'::bytea
FROM entracte.threads, generate_series(2, {WAITING}) n WHERE thread_id = 'long'
"""
_TURNS = f"""
INSERT INTO entracte.thread_turns (tenant, run, thread, deadline)
SELECT r.tenant, r.seq, t.seq, 2 * {NOW} FROM entracte.runs r JOIN entracte.threads t USING (thread_id)
WHERE r.finish_time = 0
"""
_NOTED = f"""
INSERT INTO entracte.working_memory (tenant, resource_id, thread, version, update_time, content)
SELECT '{TENANT}', 'resource-' || n, 0, 1, 0, 'x'::bytea FROM generate_series(1, {WAITING}) n
UNION ALL SELECT '{TENANT}', '', seq, 1, 0, 'x'::bytea FROM entracte.threads
"""
_AGENTS = f"""
INSERT INTO entracte.agents (tenant, agent_id, last_number, shown, published, create_time, update_time)
SELECT '{TENANT}', 'agent-' || n, 1, 1, 'filled-' || n, 0, 0 FROM generate_series(1, {WAITING}) n
"""
_VERSIONS = f"""
INSERT INTO entracte.agent_versions (tenant, agent_id, version_id, number, status, name, description, creator,
create_time, format, definition, source)
SELECT '{TENANT}', 'agent-' || n, 'filled-' || n, 1, 'published', '', '', '', 0, 1, '{{definition}}'::bytea,
'x'::bytea FROM generate_series(1, {WAITING}) n
UNION ALL SELECT '{TENANT}', 'agent-1', 'filled-1-' || n, n, 'draft', '', '', '', 0, 1,
'{{definition}}'::bytea, 'x'::bytea FROM generate_series(2, {WAITING}) n
"""
_FILL = (
    _RUNS,
    "INSERT INTO entracte.run_specs SELECT seq, 1, '{spec}' FROM entracte.runs",
    "INSERT INTO entracte.steps SELECT seq, 1, 1, '{step}' FROM entracte.runs",
    "INSERT INTO entracte.tool_calls SELECT seq, 'call', 'waiting', 1, '{call}' FROM entracte.runs",
    _PENDING,
    _DECISIONS,
    _REQUESTS,
    _FOLLOW_UPS,
    _THREADS,
    _MESSAGES,
    _TURNS,
    _NOTED,
    _AGENTS,
    _VERSIONS,
    "INSERT INTO entracte.chunks SELECT seq, 1, 3, 0, 'x' FROM entracte.runs WHERE has_log",
)


def fill(postgres: Postgres, database: str) -> None:
    run = a_run()
    call = a_call(run, call_id="call")
    pending = a_pending(run, call)
    records = {
        "spec": encode(SPEC),
        "step": encode(a_step()),
        "call": encode(call),
        "pending": pending_data(pending),
        "follow_up": follow_up_data(a_follow_up(run)),
        "message": message_data(a_message()),
        "definition": encode(DEFINITION),
        "decision": encode({"tool_name": "refund", "verb": "approve", "decide_time": 0, "args": "{}"}),
    }
    for sql in _FILL:
        for name, data in records.items():
            sql = sql.replace(f"{{{name}}}", f"\\x{data.hex()}")
        postgres.execute(sql, database)


async def do_everything(store: Store) -> None:
    """Everything a store can do, each for one run or one page."""
    me = unique("process")
    await store.enter(me, 600)
    assert await store.renew(me, 600)
    assert await store.lead(unique("duty"), me, 600)
    run, call, pending = await waiting(store, owner=me, thread_id="mine")
    await store.claim(Claim(TENANT, pending.pending_call_id, "bob", NOW + 5000, NOW, a_request()))
    await store.find_pending(TENANT, pending.pending_call_id)
    request = a_request(principal="bob", method="Approve")
    decided = await store.decide(replace(a_decide(pending, call, owner=me), request=request))
    assert await store.find_request(request) is not None
    done = replace(call, state="done", outcome=Outcome("result", "1"))
    again = a_pending(run, call, round=2)
    await store.write(a_write(decided.run, chunks=chunks(5, 6), calls=(done,), opened=(again,)))
    closed = a_decision(again, verb="cancel", principal="system")
    await store.write(a_write(decided.run, closed=(closed,), release=Release(5)))
    (orphan,) = await store.orphans(frozenset({"support"}), limit=10)
    taken = await store.take_over(TENANT, orphan.run_id, fence=orphan.fence, owner=me)
    assert taken is not None
    await store.cancel(a_cancel(taken))
    assert await store.commands(me) == [(TENANT, run.run_id)]
    assert len(await store.owned(me)) == 1
    assert len(await store.peek([(TENANT, f"waits-{number}") for number in range(1, 11)])) == 10
    assert not (await store.write(a_write(taken, park=a_park(7)))).parked
    jobs = tuple(a_follow_up(run, name) for name in "ab")
    await store.write(a_write(taken, chunks=chunks(7, 7), end=an_end(follow_ups=jobs)))
    one, two = await store.claim_follow_ups(a_claim(me))
    assert await store.settle_follow_up(replace(one, state="succeeded", due_time=0, owner=""))
    await store.release_follow_ups(me)
    assert await store.claim_follow_ups(a_claim(me)) == [two]
    assert len(await store.follow_ups(TENANT, [run.run_id, *(f"ended-{n}" for n in range(1, 11))])) == 12
    assert await store.expired(NOW, agents=frozenset({"support"}), limit=10) == []
    await store.read_chunks(TENANT, run.run_id, after=0, limit_bytes=1000)
    await store.load(TENANT, run.run_id)
    await store.get_pending(TENANT, pending.pending_call_id)
    await store.pending_of_run(TENANT, run.run_id)
    await store.get_decision(TENANT, closed.decision_id)
    assert await store.latest_decision(TENANT, run.run_id, call.call_id) is not None
    await read_lists(store)
    await keep_agents(store)
    await store.delete_run(TENANT, run.run_id, force=False, request=a_request())
    assert await store.trim(Retention(chunks=NOW + 13, runs=NOW + 3, requests=1), limit=10) == 6
    await store.leave(me)


async def keep_agents(store: Store) -> None:
    """Versions of an agent that has many, and lists of many agents."""
    row, _ = await store.create_agent_version(CreateAgentVersion(a_version("agent-2"), a_request()))
    for op in (publishing(row, request=a_request()), publishing(row, if_published=row.version_id)):
        await store.publish_agent_version(op)
    await store.archive_agent_version(archiving(row, request=a_request()))
    await store.get_agent_version(TENANT, "agent-2", row.version_id)
    assert (await store.get_agent(TENANT, "agent-1")).draft
    assert len(await store.list_agents(TENANT, after="agent-2", limit=5)) == 5
    assert len(await store.list_agent_versions(TENANT, "agent-1", before=0, limit=5)) == 5


async def read_lists(store: Store) -> None:
    """Two pages of each."""
    for runs in (
        RunFilter(),
        RunFilter(include_children=True),
        RunFilter(thread_id="thread-7"),
        RunFilter(states=("suspended",)),
        RunFilter(states=("running", "suspended", "queued")),
    ):
        page, cursor = await store.list_runs(TENANT, runs, cursor="", limit=5)
        assert page
        await store.list_runs(TENANT, runs, cursor=cursor, limit=5)
    for calls in (
        PendingFilter(),
        PendingFilter(include_decided=True),
        PendingFilter(run_id="waits-7", include_decided=True),
    ):
        waits, cursor = await store.list_pending(TENANT, calls, cursor="", limit=5)
        assert waits
        await store.list_pending(TENANT, calls, cursor=cursor, limit=5)
    for decisions in (
        DecisionFilter(),
        DecisionFilter(run_id="ended-7"),
        DecisionFilter(pending_call_id="pending-ended-7"),
        DecisionFilter(principal="bob"),
    ):
        found, cursor = await store.list_decisions(TENANT, decisions, cursor="", limit=5)
        assert found
        await store.list_decisions(TENANT, decisions, cursor=cursor, limit=5)
    assert (await store.list_runs("nobody", RunFilter(), cursor="", limit=5)) == ([], "")


async def converse(store: Store) -> None:
    """Turns on a thread that is long, and what is done with threads."""
    me = unique("process")
    await store.enter(me, 600)
    mine: dict[str, Any] = {"resource_id": "resource-0", "owner": me}
    await store.create_thread(CreateThread(a_thread(thread_id="new"), a_request()))
    run, _ = await claiming(store, "long", **mine)
    waits, made = await claiming(store, "long", replace(WAITS, room=1), **mine)
    assert made.queued
    with pytest.raises(ThreadBusy):
        await claiming(store, "long", **mine)
    await claiming(store, "long", ThreadClaim(reads_only=True), **mine)
    assert len(await store.read_messages(TENANT, "long", MessageRange(newest=True), limit=10)) == 10
    assert len(await store.read_messages(TENANT, "long", MessageRange(run_id="run-7"), limit=30)) == 20
    said = a_message(run_id=run.run_id), a_message(role="assistant", run_id=run.run_id)
    for resource_id in ("", "resource-1"):
        await store.write(a_write(run, notes=(Note("new", 2, NOW, resource_id),)))
    for owner in ({"thread_id": "long"}, {"resource_id": "resource-1"}):
        read = await store.get_working_memory(TENANT, **owner)
        assert (read.content, read.version) == ("new", 2)
        put = SetWorkingMemory(TENANT, "newer", NOW, **owner, expected=2, request=a_request())
        await store.set_working_memory(put)
    await store.write(a_write(run, messages=said, park=a_park(1)))
    taken = (await store.cancel(a_cancel(run, owner=me))).run
    assert [row.run_id for row in await store.overdue(NOW + 1001, limit=5)] == [waits.run_id]
    view = await store.get_thread(TENANT, "long")
    assert (view.thread.last_position, view.queued) == (WAITING + 2, 1)
    end = a_write(taken, chunks=chunks(2, 2), messages=said[1:], end=an_end())
    assert (await store.write(end)).freed
    following = await store.take_over(TENANT, waits.run_id, fence=0, owner=me)
    assert following is not None
    assert not (await store.write(a_write(following, chunks=chunks(1, 1), end=an_end()))).freed
    named = UpdateThread(TENANT, "long", NOW, title="Long", if_untitled=True, if_run=run.run_id)
    view, _ = await store.update_thread(replace(named, request=a_request()))
    assert view.thread.title == "Long"
    for resource_id in ("", "resource-0"):
        page, cursor = await store.list_threads(TENANT, resource_id, cursor="", limit=5)
        assert page
        await store.list_threads(TENANT, resource_id, cursor=cursor, limit=5)
    _, made = await claiming(store, "thread-8", ThreadClaim(replace="way"), **mine)
    assert made.replaced == "waits-8"
    await store.delete_run(TENANT, "waits-9", force=True, request=None)
    assert len((await store.delete_thread(DeleteThread(TENANT, "thread-8", NOW, force=True))).cancelled) == 2
    await store.delete_thread(DeleteThread(TENANT, "long", NOW, request=a_request()))
    for _ in range(3):
        assert await store.sweep_threads(limit=20) == 20


async def all_gone(postgres: Postgres, database: str) -> None:
    """The servers of all connections have ended, and with that said what they did. They do so soon after
    the connections were closed."""
    connected = f"SELECT 1 FROM pg_stat_activity WHERE datname = '{database}'"
    async with asyncio.timeout(20):
        while postgres.execute(connected):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def rows_read(postgres: Postgres, database: str) -> list[tuple[str, int, int]]:
    """For each table, how many rows sequential scans and index scans read."""
    await all_gone(postgres, database)
    return postgres.execute(
        "SELECT relname::text, seq_tup_read, coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables", database
    )


STATISTICS = {
    "no statistics": "",
    # Autovacuum comes by in the middle of a load: of one table it knows all, and of another nothing.
    "some statistics": "ANALYZE entracte.agents, entracte.threads, entracte.runs",
    "statistics": "ANALYZE",
}


@pytest.mark.parametrize("statistics", STATISTICS.values(), ids=STATISTICS)
async def test_nothing_reads_what_it_does_not_need(postgres: Postgres, statistics: str) -> None:
    database = postgres.create_database()
    store = await PostgresStore.open(postgres.url(database))
    await store.close()
    fill(postgres, database)
    if statistics:
        postgres.execute(statistics, database)
    await all_gone(postgres, database)
    postgres.execute("SELECT pg_stat_reset()", database)
    store = await PostgresStore.open(postgres.url(database))
    await do_everything(store)
    await converse(store)
    await store.close()
    read = await rows_read(postgres, database)
    postgres.drop_database(database)
    # Small tables, of which there are a handful of rows, may be read as they are.
    scanned = {table: scan for table, scan, _ in read if scan > 10}
    assert scanned == {}
    searched = {table: search for table, _, search in read if search > FEW}
    assert searched == {}
