"""Which run has a thread: one at a time, the others in the order they came, whatever is raced."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from entracte_server.domain.runs import SNAPSHOT_FORMAT, RunRow
from entracte_server.domain.threads import ThreadRun
from entracte_server.store.base import (
    Created,
    CreateRun,
    LeaseLost,
    Made,
    NotFound,
    Refused,
    Release,
    RunExists,
    RunFilter,
    Store,
    ThreadBusy,
    ThreadNotYours,
    Written,
)
from entracte_server.store.threads import CreateThread, ThreadClaim
from entracte_server.testing.store_conformance.builders import (
    NOW,
    OWNER,
    SPEC,
    TENANT,
    a_call,
    a_cancel,
    a_decide,
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
    taken_over,
    took,
    unique,
)
from entracte_server.testing.store_conformance.processes import AGENTS, orphans
from entracte_server.testing.store_conformance.suite import OpenStore, StoreSuite

WAITS = ThreadClaim(queue=True, room=100, deadline=NOW + 1000)
WAITS_ALWAYS = replace(WAITS, queue_parked=True)


async def end(store: Store, run: RunRow) -> Written:
    """End a run, owned by whoever owns it."""
    now = await store.get_run(run.tenant, run.run_id)
    last = now.last_sequence + 1
    return await store.write(a_write(now, chunks=chunks(last, last), end=an_end()))


async def go_on(store: Store, run: RunRow) -> RunRow:
    """Take over a run whose turn has come."""
    now = await store.get_run(run.tenant, run.run_id)
    assert (now.state, now.owner, now.fence) == ("running", "", 0)
    return await taken_over(store, run, OWNER)


async def park(store: Store, run: RunRow) -> tuple[Any, Any]:
    """Park a run that has just begun; its call and what waits."""
    call = a_call(run)
    pending = a_pending(run, call)
    write = a_write(run, calls=(call,), steps=(a_step(),), opened=(pending,))
    last = run.last_sequence
    assert (await store.write(replace(write, park=a_park(last + 1)))).parked
    return call, pending


async def states(store: Store, thread_id: str) -> list[str]:
    """Of the runs of a thread, in the order they came."""
    found, _ = await store.list_runs(TENANT, RunFilter(thread_id=thread_id), cursor="", limit=1000)
    return [run.state for run in reversed(found)]


class TurnSuite(StoreSuite):
    """`CreateRun.claim`, `Written.freed`, `overdue`."""

    async def test_the_first_has_it(self, store: Store) -> None:
        claim = ThreadClaim(title="Refunds", metadata='{"a":1}')
        run, made = await claiming(store, "t", claim, last_sequence=2)
        assert made == Created()
        assert (run.state, run.owner, run.fence) == ("running", OWNER, 1)
        view = await store.get_thread(TENANT, "t")
        assert view.thread == a_thread(thread_id="t", title="Refunds", metadata='{"a":1}')
        assert (view.holder, view.queued) == (ThreadRun(run.run_id, "running"), 0)
        await store.write(a_write(run, chunks=chunks(3, 3)))
        assert await end(store, run) == Written()
        view = await store.get_thread(TENANT, "t")
        assert (view.holder, view.queued) == (None, 0)
        # What the thread is stays as it was made.
        run, made = await claiming(store, "t", ThreadClaim(title="Other"))
        assert made == Created()
        assert (await store.get_thread(TENANT, "t")).thread.title == "Refunds"

    async def test_another_is_refused(self, store: Store) -> None:
        run, _ = await claiming(store, "t")
        refused, request = a_run(thread_id="t", resource_id="alice"), a_request()
        op = CreateRun(refused, SPEC, None, request, ThreadClaim(room=5))
        with pytest.raises(ThreadBusy) as busy:
            await store.create_run(op)
        assert (busy.value.holder, busy.value.pending, busy.value.queued) == (run, (), 0)
        with pytest.raises(NotFound):
            await store.get_run(TENANT, refused.run_id)
        assert await store.find_request(request) is None
        await end(store, run)
        assert await store.create_run(op) == Created()
        assert await store.create_run(op) == Created(Made(refused.run_id))
        assert (await store.get_thread(TENANT, "t")).queued == 0

    async def test_a_parked_run_keeps_it(self, store: Store) -> None:
        run, _ = await claiming(store, "t")
        _, pending = await park(store, run)
        with pytest.raises(ThreadBusy) as busy:
            await claiming(store, "t", WAITS)
        parked = await store.get_run(TENANT, run.run_id)
        assert (busy.value.holder, busy.value.pending) == (parked, (pending,))
        _, made = await claiming(store, "t", ThreadClaim(queue_parked=True, room=1))
        assert made == Created(queued=True)
        view = await store.get_thread(TENANT, "t")
        assert (view.holder, view.queued) == (ThreadRun(run.run_id, "suspended"), 1)
        with pytest.raises(ThreadBusy) as busy:
            await claiming(store, "t", ThreadClaim(queue_parked=True, room=1))
        assert busy.value.queued == 1

    async def test_one_that_waits(self, store: Store) -> None:
        holder, _ = await claiming(store, "t")
        run, made = await claiming(store, "t", WAITS, last_sequence=2)
        assert made == Created(queued=True)
        assert (run.state, run.owner, run.fence, run.last_sequence) == ("queued", "", 0, 2)
        assert await log_of(store, run) == chunks(1, 2).data
        assert await orphans(store) == [holder]  # nobody is alive here
        assert await store.take_over(TENANT, run.run_id, fence=0, owner=OWNER) is None
        for fence in (0, 1):
            with pytest.raises(LeaseLost):
                await store.write(a_write(run, fence=fence, chunks=chunks(3, 3)))
        with pytest.raises(Refused):
            await store.delete_run(TENANT, run.run_id, force=True, request=None)

    async def test_the_next_goes_on_when_it_ends(self, store: Store) -> None:
        runs = [(await claiming(store, "t", WAITS))[0] for _ in range(4)]
        assert await states(store, "t") == ["running", *["queued"] * 3]
        for number, run in enumerate(runs[:3]):
            if number:
                assert [row.run_id for row in await orphans(store)] == [run.run_id]
                taken = await go_on(store, run)
                assert (taken.fence, taken.takeovers) == (1, 0)
            with pytest.raises(LeaseLost):
                await store.write(a_write(run, fence=9, end=an_end()))
            assert await end(store, run) == Written(freed=True)
            view = await store.get_thread(TENANT, "t")
            assert view.holder == ThreadRun(runs[number + 1].run_id, "running")
            assert view.queued == 2 - number
        await go_on(store, runs[3])
        assert await end(store, runs[3]) == Written()

    async def test_an_end_that_is_repeated_frees_it_once(self, store: Store) -> None:
        first, second, _ = [(await claiming(store, "t", WAITS))[0] for _ in range(3)]
        write = a_write(first, chunks=chunks(1, 1), end=an_end())
        assert (await store.write(write)).freed
        await store.write(write)
        assert await states(store, "t") == ["succeeded", "running", "queued"]
        await go_on(store, second)
        with pytest.raises(LeaseLost):
            await store.write(replace(write, fence=0))
        assert await states(store, "t") == ["succeeded", "running", "queued"]

    async def test_whoever_owns_it(self, store: Store) -> None:
        """A takeover, a release and a decision change the owner, not who has the thread."""
        run, _ = await claiming(store, "t")
        await claiming(store, "t", WAITS)
        taken = await taken_over(store, run, "process-2")
        with pytest.raises(LeaseLost):
            await store.write(a_write(run, chunks=chunks(1, 1), end=an_end()))
        await store.write(a_write(taken, release=Release(1)))
        taken = await taken_over(store, taken, "process-3")
        call, pending = await park(store, taken)
        assert took(await store.decide(a_decide(pending, call)))
        assert await states(store, "t") == ["running", "queued"]
        assert await end(store, taken) == Written(freed=True)

    async def test_created_at_the_same_time(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(3)]
        claim = ThreadClaim(queue=True, room=4)
        outcomes = await asyncio.gather(
            *(claiming(stores[number % 3], "t", claim) for number in range(12)), return_exceptions=True
        )
        made = [outcome for outcome in outcomes if isinstance(outcome, tuple)]
        assert sorted(created.queued for _, created in made) == [False, *[True] * 4]
        refused = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        assert [(type(error), getattr(error, "queued", 0)) for error in refused] == [(ThreadBusy, 4)] * 7
        assert await states(stores[0], "t") == ["running", *["queued"] * 4]
        runs, _ = await stores[0].list_runs(TENANT, RunFilter(thread_id="t"), cursor="", limit=9)
        for number, run in enumerate(reversed(runs)):
            if number:
                await go_on(stores[number % 3], run)
            await end(stores[number % 3], run)
            assert await states(stores[0], "t") == [
                *["succeeded"] * (number + 1),
                *["running"] * (number < 4),
                *["queued"] * (3 - number),
            ]

    async def test_ended_and_wanted_at_the_same_time(self, open_store: OpenStore) -> None:
        one, two = await open_store(), await open_store()
        run, _ = await claiming(one, "t")
        for _ in range(12):
            written, (following, made) = await asyncio.gather(end(one, run), claiming(two, "t", WAITS))
            assert written.freed == made.queued
            now = await one.get_run(TENANT, following.run_id)
            assert now.state == "running"
            run = await go_on(one, now) if made.queued else now

    async def test_two_that_end_at_the_same_time(self, open_store: OpenStore) -> None:
        one, two = await open_store(), await open_store()
        for _ in range(6):
            thread_id = unique("thread")
            first, second, third = [(await claiming(one, thread_id, WAITS))[0] for _ in range(3)]
            assert (await two.cancel(a_cancel(second))).took
            written = await asyncio.gather(end(one, first), end(two, second))
            assert sorted(row.freed for row in written) == [False, True]
            await go_on(two, third)

    async def test_cancelled_while_it_waits(self, store: Store) -> None:
        first, second, third = [(await claiming(store, "t", WAITS))[0] for _ in range(3)]
        cancelled = await store.cancel(a_cancel(second))
        assert cancelled.took
        assert (cancelled.run.state, cancelled.run.owner, cancelled.run.fence) == ("running", OWNER, 1)
        assert await end(store, second) == Written()
        assert await states(store, "t") == ["running", "succeeded", "queued"]
        view = await store.get_thread(TENANT, "t")
        assert (view.holder, view.queued) == (ThreadRun(first.run_id, "running"), 1)
        assert await end(store, first) == Written(freed=True)
        await go_on(store, third)

    async def test_cancelled_and_its_turn_comes(self, store: Store) -> None:
        first, second, third = [(await claiming(store, "t", WAITS))[0] for _ in range(3)]
        await store.cancel(a_cancel(second))
        assert await end(store, first) == Written()
        assert await states(store, "t") == ["succeeded", "running", "queued"]
        assert await end(store, second) == Written(freed=True)
        await go_on(store, third)

    async def test_a_parked_run_makes_way(self, store: Store) -> None:
        run, _ = await claiming(store, "t")
        await park(store, run)
        claim = ThreadClaim(replace="somebody else came")
        following, made = await claiming(store, "t", claim)
        assert made == Created(queued=True, replaced=run.run_id)
        assert following.state == "queued"
        (found,) = await orphans(store, frozenset())
        assert (found.run_id, found.state, found.owner) == (run.run_id, "running", "")
        assert (found.cancel_reason, found.finish_reason, found.stop_cause) == (claim.replace, None, None)
        # It is not parked any more.
        with pytest.raises(ThreadBusy) as busy:
            await claiming(store, "t", claim)
        assert busy.value.queued == 1
        _, made = await claiming(store, "t", replace(claim, queue=True, room=2))
        assert made == Created(queued=True)
        await taken_over(store, run, OWNER)
        assert await end(store, run) == Written(freed=True)
        await go_on(store, following)

    async def test_no_way_is_made_when_too_many_wait(self, store: Store) -> None:
        run, _ = await claiming(store, "t")
        await park(store, run)
        await claiming(store, "t", WAITS_ALWAYS)
        with pytest.raises(ThreadBusy):
            await claiming(store, "t", ThreadClaim(replace="way", room=1))
        assert await states(store, "t") == ["suspended", "queued"]
        _, made = await claiming(store, "t", ThreadClaim(replace="way", room=2))
        assert made == Created(queued=True, replaced=run.run_id)

    async def test_resumed_and_replaced_at_the_same_time(self, open_store: OpenStore) -> None:
        one, two = await open_store(), await open_store()
        for _ in range(6):
            thread_id = unique("thread")
            run, _ = await claiming(one, thread_id)
            call, pending = await park(one, run)
            claim = ThreadClaim(replace="way", queue=True, room=9)
            decided, (following, made) = await asyncio.gather(
                one.decide(a_decide(pending, call)), claiming(two, thread_id, claim)
            )
            now = await one.get_run(TENANT, run.run_id)
            assert (made.queued, now.state) == (True, "running")
            assert took(decided)
            assert (now.cancel_reason == "way") is bool(made.replaced)
            assert await end(one, run) == Written(freed=True)
            await go_on(two, following)

    async def test_a_parked_run_is_deleted(self, store: Store) -> None:
        run, _ = await claiming(store, "t")
        child, _ = await claiming(store, "u", root_run_id=run.run_id, parent_run_id=run.run_id)
        await park(store, child)
        await park(store, run)
        following = [(await claiming(store, thread_id, WAITS_ALWAYS))[0] for thread_id in "ttu"]
        await store.delete_run(TENANT, run.run_id, force=True, request=None)
        for run in (following[0], following[2]):
            await go_on(store, run)
        assert await states(store, "t") == ["running", "queued"]
        assert await end(store, following[0]) == Written(freed=True)

    async def test_waiting_for_too_long(self, store: Store) -> None:
        await claiming(store, "t")
        late = [
            await claiming(store, "t", replace(WAITS, deadline=NOW + number), **changes)
            for number, changes in ((30, {}), (10, {}), (20, {}), (0, {"format": SNAPSHOT_FORMAT + 1}))
        ]
        await claiming(store, "t", replace(WAITS, deadline=0))
        other, _ = await claiming(store, "t", WAITS, tenant="other")
        assert other.state == "running"

        async def overdue(now: int, limit: int = 9) -> list[str]:
            return [run.run_id for run in await store.overdue(now, limit=limit)]

        ids = [run.run_id for run, _ in late]
        assert await overdue(NOW + 10) == []
        assert await overdue(NOW + 11) == [ids[1]]
        assert await overdue(2**52) == [ids[1], ids[2], ids[0]]
        assert await overdue(2**52, limit=2) == [ids[1], ids[2]]
        await store.cancel(a_cancel(late[1][0]))
        assert await overdue(2**52) == [ids[2], ids[0]]

    async def test_who_runs_does_not_wait(self, store: Store) -> None:
        first, second = [(await claiming(store, "t", WAITS))[0] for _ in range(2)]
        assert [run.run_id for run in await store.overdue(2**52, limit=9)] == [second.run_id]
        await end(store, first)
        assert await store.overdue(2**52, limit=9) == []

    async def test_who_only_reads_has_no_turn(self, store: Store) -> None:
        reads = ThreadClaim(reads_only=True, title="never")
        reader, made = await claiming(store, "t", reads)
        assert (made, reader.state) == (Created(), "running")
        with pytest.raises(NotFound):
            await store.get_thread(TENANT, "t")
        run, made = await claiming(store, "t", WAITS)
        assert made == Created()
        for _ in range(2):
            _, made = await claiming(store, "t", reads)
            assert made == Created()
        assert (await store.get_thread(TENANT, "t")).queued == 0
        queued, _ = await claiming(store, "t", WAITS)
        assert await end(store, reader) == Written()
        assert (await store.get_run(TENANT, queued.run_id)).state == "queued"
        assert await end(store, run) == Written(freed=True)

    async def test_a_thread_of_another_resource(self, store: Store) -> None:
        thread = a_thread(resource_id="bob")
        await store.create_thread(CreateThread(thread))
        for claim in (WAITS, ThreadClaim(reads_only=True), ThreadClaim(replace="way")):
            run = a_run(thread_id=thread.thread_id, resource_id="alice")
            with pytest.raises(ThreadNotYours):
                await store.create_run(CreateRun(run, SPEC, claim=claim))
            with pytest.raises(NotFound):
                await store.get_run(TENANT, run.run_id)
        assert (await store.get_thread(TENANT, thread.thread_id)).thread == thread
        _, made = await claiming(store, thread.thread_id, resource_id="bob")
        assert made == Created()

    async def test_tenants_do_not_wait_for_each_other(self, store: Store) -> None:
        mine, _ = await claiming(store, "t", WAITS)
        theirs, made = await claiming(store, "t", WAITS, tenant="other", resource_id="carol")
        assert made == Created()
        await claiming(store, "t", WAITS)
        assert await end(store, theirs) == Written()
        assert await states(store, "t") == ["running", "queued"]
        assert (await store.get_thread("other", "t")).holder is None
        assert await end(store, mine) == Written(freed=True)

    async def test_a_run_id_that_is_taken(self, store: Store) -> None:
        other = await created(store)
        run, _ = await claiming(store, "t")
        for thread_id, taken in (("t", other), ("t", run), ("new", other)):
            again = a_run(run_id=taken.run_id, thread_id=thread_id, resource_id="alice")
            for claim in (WAITS, ThreadClaim()):
                with pytest.raises(RunExists):
                    await store.create_run(CreateRun(again, SPEC, claim=claim))
        with pytest.raises(NotFound):
            await store.get_thread(TENANT, "new")
        assert await end(store, run) == Written()

    async def test_a_request_that_is_repeated(self, open_store: OpenStore) -> None:
        one, two = await open_store(), await open_store()
        first, _ = await claiming(one, "t")
        request = a_request()
        runs = [a_run(thread_id="t", resource_id="alice") for _ in range(6)]
        outcomes = await asyncio.gather(
            *(
                (one, two)[number % 2].create_run(CreateRun(run, SPEC, None, request, WAITS))
                for number, run in enumerate(runs)
            )
        )
        (queued,) = [run for run, made in zip(runs, outcomes, strict=True) if made == Created(queued=True)]
        assert [made.made for made in outcomes if made.made] == [Made(queued.run_id)] * 5
        assert await states(one, "t") == ["running", "queued"]
        await end(one, first)
        await go_on(two, queued)

    async def test_runs_without_a_claim_have_no_turn(self, store: Store) -> None:
        """As those of older versions, which named threads that there were not."""
        old = await ended(store, thread_id="t")
        run, made = await claiming(store, "t")
        assert made == Created()
        other = await created(store, thread_id="t")
        assert await end(store, other) == Written()
        assert (await store.get_thread(TENANT, "t")).holder == ThreadRun(run.run_id, "running")
        assert (await store.get_run(TENANT, old.run_id)).state == "succeeded"
        assert await store.orphans(AGENTS, limit=9) != []
