"""Connections that break while something is committed: nobody knows whether it was, and it does not
matter. What is asked for is done once, and who asked is told as if nothing had happened.
"""

from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from entracte_server.domain.results import Usage
from entracte_server.domain.runs import Outcome
from entracte_server.domain.threads import ThreadRun
from entracte_server.store.base import (
    Claim,
    Created,
    CreateRun,
    DecisionFilter,
    MemoryChanged,
    NotFound,
    Release,
    RunExists,
    RunFilter,
    RunPatch,
    Store,
    ThreadExists,
    Written,
)
from entracte_server.store.postgres import PostgresStore
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
    created,
    ended,
    log_of,
    unique,
    waiting,
)
from entracte_server.testing.store_conformance.turns import WAITS
from tests.postgres import USER, Postgres
from tests.store.losing_proxy import LosingProxy


class Setting(NamedTuple):
    store: Store
    lose: Callable[[], None]


@pytest.fixture
async def proxy(postgres: Postgres) -> AsyncIterator[LosingProxy]:
    async with LosingProxy(postgres.port).running() as running:
        yield running


@pytest.fixture(params=["request", "answer"])
async def losing(
    request: pytest.FixtureRequest, proxy: LosingProxy, postgres_url: str, postgres_database: str
) -> AsyncIterator[Setting]:
    """A store, and what makes it lose its connection before or after what it does next."""
    store = await PostgresStore.open(f"postgresql://{USER}@127.0.0.1:{proxy.port}/{postgres_database}")
    yield Setting(store, proxy.lose_request if request.param == "request" else proxy.lose_answer)
    assert proxy.lost == 1, "nothing was lost"
    await store.close()


async def test_creating(losing: Setting) -> None:
    store = losing.store
    run = a_run(last_sequence=2)
    losing.lose()
    assert await store.create_run(CreateRun(run, SPEC, chunks(1, 2))) == Created()
    assert await store.get_run(TENANT, run.run_id) == run
    assert await log_of(store, run) == b"<1><2>"


async def test_creating_with_a_request(losing: Setting) -> None:
    store = losing.store
    run, request = a_run(), a_request()
    losing.lose()
    assert await store.create_run(CreateRun(run, SPEC, None, request)) == Created()
    again = await store.create_run(CreateRun(a_run(), SPEC, None, request))
    assert again.made is not None
    assert again.made.run_id == run.run_id
    assert len((await store.list_runs(TENANT, RunFilter(), cursor="", limit=9))[0]) == 1


async def test_appending(losing: Setting) -> None:
    store = losing.store
    run = await created(store)
    losing.lose()
    write = a_write(run, chunks=chunks(1, 3), patch=RunPatch(step=1, usage=Usage(1, 1, 2)))
    assert await store.write(write) == Written()
    assert await store.write(a_write(run, chunks=chunks(4, 4))) == Written()
    assert await log_of(store, run) == chunks(1, 4).data


async def test_many_appends_at_once(losing: Setting) -> None:
    store = losing.store
    run = await created(store)
    losing.lose()
    futures = [store.submit(a_write(run, chunks=chunks(number, number))) for number in range(1, 101)]
    for future in futures:
        assert await future == Written()
    assert await log_of(store, run) == chunks(1, 100).data


@pytest.mark.parametrize("with_chunks", [True, False])
async def test_parking(losing: Setting, with_chunks: bool) -> None:
    store = losing.store
    run = await created(store, last_sequence=1)
    call = a_call(run)
    pending = a_pending(run, call)
    write = a_write(
        run,
        chunks=chunks(2, 3) if with_chunks else None,
        steps=(a_step(),),
        calls=(call,),
        opened=(pending,),
        park=a_park(4 if with_chunks else 2),
    )
    losing.lose()
    assert await store.write(write) == Written(parked=True)
    snapshot = await store.load(TENANT, run.run_id)
    assert (snapshot.run.state, snapshot.run.executed_ms) == ("suspended", 100)
    assert snapshot.pending == (pending,)
    assert await log_of(store, run) == chunks(1, 4 if with_chunks else 2).data


async def test_ending_and_closing(losing: Setting) -> None:
    store = losing.store
    run, call, pending = await waiting(store, park=False)
    closed = a_decision(pending, verb="cancel", principal="system")
    done = replace(call, state="done", outcome=Outcome("cancelled", "over"))
    losing.lose()
    write = a_write(run, chunks=chunks(4, 5), calls=(done,), closed=(closed,), end=an_end())
    assert await store.write(write) == Written()
    row = await store.get_run(TENANT, run.run_id)
    assert (row.state, row.executed_ms, row.last_sequence) == ("succeeded", 50, 5)
    decisions, _ = await store.list_decisions(TENANT, DecisionFilter(), cursor="", limit=9)
    assert decisions == [replace(closed, sequence=3)]


async def test_releasing(losing: Setting) -> None:
    store = losing.store
    run = await created(store)
    losing.lose()
    assert await store.write(a_write(run, chunks=chunks(1, 1), release=Release(70))) == Written()
    row = await store.get_run(TENANT, run.run_id)
    assert (row.state, row.owner, row.executed_ms) == ("running", "", 70)


@pytest.mark.parametrize("with_request", [True, False])
async def test_deciding(losing: Setting, with_request: bool) -> None:
    store = losing.store
    run, call, pending = await waiting(store)
    op = a_decide(pending, call, owner="process-2")
    losing.lose()
    decided = await store.decide(replace(op, request=a_request() if with_request else None))
    assert decided.made is None
    assert decided.decision == replace(op.decision, sequence=4)
    assert (decided.run.owner, decided.run.fence) == ("process-2", 2)
    assert decided.snapshot == await store.load(TENANT, run.run_id)
    assert decided.snapshot.calls == (op.started,)
    assert await store.list_decisions(TENANT, DecisionFilter(), cursor="", limit=9) == (
        [decided.decision],
        "",
    )


async def test_deciding_on_a_run_that_is_owned(losing: Setting) -> None:
    store = losing.store
    run, call, pending = await waiting(store, park=False)
    losing.lose()
    decided = await store.decide(replace(a_decide(pending, call, owner=run.owner), request=a_request()))
    # By the same process: it was executed there before, and must not be twice.
    assert (decided.snapshot, decided.made, decided.run.fence) == (None, None, 1)


async def test_cancelling(losing: Setting) -> None:
    store = losing.store
    run, _, _ = await waiting(store)
    losing.lose()
    cancelled = await store.cancel(a_cancel(run, owner="process-2", request=a_request()))
    assert (cancelled.took, cancelled.made) == (True, None)
    assert (cancelled.run.owner, cancelled.run.fence, cancelled.run.cancel_reason) == (
        "process-2",
        2,
        "changed my mind",
    )
    assert not (await store.cancel(a_cancel(run, owner="process-2"))).took


async def test_cancelling_a_run_that_is_owned(losing: Setting) -> None:
    store = losing.store
    run = await created(store)
    losing.lose()
    cancelled = await store.cancel(a_cancel(run, owner=run.owner))
    assert (cancelled.took, cancelled.run.fence) == (False, 1)


async def test_taking_over(losing: Setting) -> None:
    store = losing.store
    run = await created(store)
    losing.lose()
    taken = await store.take_over(TENANT, run.run_id, fence=1, owner="process-2")
    assert taken == await store.get_run(TENANT, run.run_id)
    assert (taken.owner, taken.fence, taken.takeovers) == ("process-2", 2, 1)
    assert await store.take_over(TENANT, run.run_id, fence=1, owner="process-2") is None


async def test_claiming(losing: Setting) -> None:
    store = losing.store
    _, _, pending = await waiting(store)
    losing.lose()
    held, _ = await store.claim(Claim(TENANT, pending.pending_call_id, "carol", NOW + 5, NOW, a_request()))
    assert held == (await store.get_pending(TENANT, pending.pending_call_id))[0]
    assert held.claimed_by == "carol"


@pytest.mark.parametrize("with_request", [True, False])
async def test_deleting(losing: Setting, with_request: bool) -> None:
    store = losing.store
    run = await ended(store, last_sequence=1)
    request = a_request() if with_request else None
    losing.lose()
    assert await store.delete_run(TENANT, run.run_id, force=False, request=request) is None
    with pytest.raises(NotFound):
        await store.get_run(TENANT, run.run_id)
    with pytest.raises(NotFound):
        await store.delete_run(TENANT, run.run_id, force=False, request=None)


async def test_having_a_thread(losing: Setting) -> None:
    store = losing.store
    run = a_run(thread_id="t", resource_id="alice")
    losing.lose()
    op = CreateRun(run, SPEC, claim=ThreadClaim(title="Refunds"))
    assert await store.create_run(op) == Created()
    assert (await store.get_thread(TENANT, "t")).holder == ThreadRun(run.run_id, "running")
    with pytest.raises(RunExists):
        await store.create_run(op)


async def test_waiting_for_a_thread(losing: Setting) -> None:
    store = losing.store
    first, _ = await claiming(store, "t")
    await store.write(a_write(first, park=a_park(1)))
    run = a_run(thread_id="t", resource_id="alice")
    losing.lose()
    made = await store.create_run(CreateRun(run, SPEC, claim=ThreadClaim(replace="way")))
    assert made == Created(queued=True, replaced=first.run_id)
    view = await store.get_thread(TENANT, "t")
    assert (view.holder, view.queued) == (ThreadRun(first.run_id, "running"), 1)


async def test_giving_up_a_thread(losing: Setting) -> None:
    store = losing.store
    runs = [(await claiming(store, "t", WAITS))[0] for _ in range(3)]
    message = a_message()
    losing.lose()
    await store.write(a_write(runs[0], chunks=chunks(1, 1), messages=(message,), end=an_end()))
    states = [(await store.get_run(TENANT, run.run_id)).state for run in runs]
    assert states == ["succeeded", "running", "queued"]
    found = await store.read_messages(TENANT, "t", MessageRange(), limit=9)
    assert found == [replace(message, position=1)]


async def test_saying_something(losing: Setting) -> None:
    store = losing.store
    run, _ = await claiming(store, "t")
    said = [a_message() for _ in range(3)]
    losing.lose()
    await store.write(a_write(run, messages=said[:2]))
    await store.write(a_write(run, messages=said[2:]))
    found = await store.read_messages(TENANT, "t", MessageRange(), limit=9)
    assert found == [replace(message, position=number) for number, message in enumerate(said, 1)]


@pytest.mark.parametrize("with_request", [True, False])
async def test_making_a_thread(losing: Setting, with_request: bool) -> None:
    store = losing.store
    thread = a_thread()
    losing.lose()
    assert await store.create_thread(CreateThread(thread, a_request() if with_request else None)) is None
    with pytest.raises(ThreadExists):
        await store.create_thread(CreateThread(thread))


@pytest.mark.parametrize("with_request", [True, False])
async def test_changing_and_deleting_a_thread(losing: Setting, with_request: bool, postgres_url: str) -> None:
    store = losing.store
    await claiming(store, "t")
    requests = [a_request() if with_request else None for _ in range(2)]
    _, made = await store.update_thread(UpdateThread(TENANT, "t", NOW, title="One", request=requests[0]))
    assert made is None
    losing.lose()
    deleted = await store.delete_thread(DeleteThread(TENANT, "t", NOW, force=True, request=requests[1]))
    assert deleted.made is None
    with pytest.raises(NotFound):
        await store.get_thread(TENANT, "t")


@pytest.mark.parametrize("with_request", [True, False])
async def test_changing_a_working_memory(losing: Setting, with_request: bool) -> None:
    store = losing.store
    request = a_request() if with_request else None
    losing.lose()
    op = SetWorkingMemory(TENANT, "one", NOW, resource_id="alice", expected=0, request=request)
    row, made = await store.set_working_memory(op)
    assert (row.content, row.version, made) == ("one", 1, None)
    with pytest.raises(MemoryChanged):
        await store.set_working_memory(replace(op, request=None, content="other"))


async def test_noting_something(losing: Setting) -> None:
    store = losing.store
    run, _ = await claiming(store, "t")
    losing.lose()
    for number, resource_id in enumerate(("", "alice"), 1):
        note = Note("one", 1, NOW, resource_id)
        await store.write(a_write(run, chunks=chunks(number, number), notes=(note,)))
    assert (await store.get_working_memory(TENANT, thread_id="t")).version == 1
    assert (await store.get_working_memory(TENANT, resource_id="alice")).version == 1


async def test_leases(losing: Setting) -> None:
    store = losing.store
    process, duty = unique("process"), unique("duty")
    await store.enter(process, 600)
    run = await created(store, owner=process)
    losing.lose()
    assert await store.renew(process, 600)
    assert await store.lead(duty, process, 600)
    (seen,) = await store.peek([(TENANT, run.run_id)])
    assert seen.alive


async def test_reading(losing: Setting) -> None:
    store = losing.store
    run, _, pending = await waiting(store)
    losing.lose()
    assert (await store.load(TENANT, run.run_id)).pending == (pending,)


async def test_a_repetition_by_the_caller_is_none_by_the_store(postgres_url: str) -> None:
    """Who asks twice for a decision is told that he owns the run once."""
    store = await PostgresStore.open(postgres_url)
    _, call, pending = await waiting(store)
    op = a_decide(pending, call)
    assert (await store.decide(op)).snapshot is not None
    assert (await store.decide(op)).snapshot is None
    await store.close()


async def test_what_never_was_is_not_found_however_the_connection_is(
    proxy: LosingProxy, postgres_url: str, postgres_database: str
) -> None:
    """A connection that could not be made has committed nothing."""
    store = await PostgresStore.open(f"postgresql://{USER}@127.0.0.1:{proxy.port}/{postgres_database}")
    proxy.lose_request(4)  # libpq makes two attempts at a connection, with TLS and without
    with pytest.raises(NotFound):
        await store.delete_run(TENANT, "never was", force=False, request=None)
    assert proxy.lost == 4
    await store.close()
