"""Request ids: a repeated request is recognised, another one under the same id is refused; deleting."""

import asyncio

import pytest
from msgspec.structs import replace

from entracte_server.store.base import (
    Claim,
    Created,
    CreateRun,
    DecisionFilter,
    Made,
    NotFound,
    PendingFilter,
    Refused,
    RequestKey,
    RequestReused,
    RunExists,
    RunFilter,
    Store,
)
from entracte_server.testing.store_conformance.builders import (
    NOW,
    SPEC,
    TENANT,
    a_cancel,
    a_decide,
    a_request,
    a_run,
    a_write,
    an_end,
    chunks,
    created,
    ended,
    everything,
    took,
    unique,
    waiting,
)
from entracte_server.testing.store_conformance.suite import StoreSuite


def another_body(request: RequestKey) -> RequestKey:
    return replace(request, body_hash=b"other")


class RequestSuite(StoreSuite):
    """`find_request`, `delete_run` and the `request` of every change."""

    async def test_creating_again(self, store: Store) -> None:
        request = a_request()
        run = a_run(last_sequence=1)
        assert await store.find_request(request) is None
        assert await store.create_run(CreateRun(run, SPEC, chunks(1, 1), request)) == Created()
        assert await store.find_request(request) == Made(run.run_id)
        before = await everything(store, run)
        # Recognised before it is seen that the id is taken, and whatever id the repetition minted.
        for again in (run, a_run()):
            op = CreateRun(again, SPEC, chunks(1, again.last_sequence), request)
            assert await store.create_run(op) == Created(Made(run.run_id))
        with pytest.raises(RequestReused):
            await store.create_run(CreateRun(a_run(), SPEC, None, another_body(request)))
        with pytest.raises(RequestReused):
            await store.find_request(another_body(request))
        assert await everything(store, run) == before
        assert len((await store.list_runs(TENANT, RunFilter(), cursor="", limit=9))[0]) == 1

    async def test_a_refused_creation_does_not_use_up_its_request(self, store: Store) -> None:
        run = await created(store)
        request = a_request()
        with pytest.raises(RunExists):
            await store.create_run(CreateRun(run, SPEC, None, request))
        assert await store.find_request(request) is None

    async def test_many_requests_with_one_id(self, store: Store) -> None:
        request = a_request()
        runs = [a_run() for _ in range(50)]
        outcomes = await asyncio.gather(
            *(store.create_run(CreateRun(run, SPEC, None, request)) for run in runs)
        )
        assert [outcome.made for outcome in outcomes].count(None) == 1
        winner = next(run.run_id for run, outcome in zip(runs, outcomes, strict=True) if outcome.made is None)
        assert {outcome.made.run_id for outcome in outcomes if outcome.made is not None} == {winner}

    async def test_a_request_belongs_to_principal_and_method(self, store: Store) -> None:
        request = a_request()
        run = a_run()
        await store.create_run(CreateRun(run, SPEC, None, request))
        for other in (
            replace(request, tenant="other"),
            replace(request, principal="bob"),
            replace(request, method="Stream"),
            replace(request, request_id=unique("request")),
        ):
            assert await store.find_request(other) is None
            assert await store.find_request(another_body(other)) is None

    async def test_deciding_again(self, store: Store) -> None:
        run, call, pending = await waiting(store)
        request = a_request(principal="bob", method="Approve")
        first = await store.decide(replace(a_decide(pending, call), request=request))
        made = Made(run.run_id, first.decision.decision_id)
        assert await store.find_request(request) == made
        before = await everything(store, run)
        # A repetition mints another decision id.
        again = await store.decide(replace(a_decide(pending, call), request=request))
        assert (again.made, again.decision, took(again)) == (made, first.decision, False)
        assert again.run == first.run
        with pytest.raises(RequestReused):
            await store.decide(replace(a_decide(pending, call), request=another_body(request)))
        with pytest.raises(Refused):
            await store.decide(replace(a_decide(pending, call), request=a_request(principal="bob")))
        assert await everything(store, run) == before

    async def test_a_repetition_is_answered_after_the_run_went_on(self, store: Store) -> None:
        run, call, pending = await waiting(store)
        request = a_request()
        first = await store.decide(replace(a_decide(pending, call), request=request))
        await store.write(a_write(first.run, chunks=chunks(5, 9), end=an_end()))
        again = await store.decide(replace(a_decide(pending, call), request=request))
        assert again.run == await store.get_run(TENANT, run.run_id)
        assert again.decision.sequence == 4  # where to follow it from

    async def test_many_decisions_with_one_request(self, store: Store) -> None:
        _, call, pending = await waiting(store)
        request = a_request()
        ops = [replace(a_decide(pending, call), request=request) for _ in range(20)]
        outcomes = await asyncio.gather(*map(store.decide, ops))
        assert [took(outcome) for outcome in outcomes].count(True) == 1
        assert [outcome.made for outcome in outcomes].count(None) == 1
        assert len({outcome.decision.decision_id for outcome in outcomes}) == 1

    async def test_a_refused_decision_does_not_use_up_its_request(self, store: Store) -> None:
        _, call, pending = await waiting(store, expire_time=NOW)
        request = a_request()
        with pytest.raises(Refused):
            await store.decide(replace(a_decide(pending, call), request=request))
        assert await store.find_request(request) is None

    async def test_cancelling_again(self, store: Store) -> None:
        run, _, _ = await waiting(store)
        request = a_request()
        first = await store.cancel(a_cancel(run, request=request))
        again = await store.cancel(a_cancel(run, request=request))
        assert (first.took, again.took) == (True, False)
        assert again.made == Made(run.run_id)
        assert again.run == first.run
        with pytest.raises(RequestReused):
            await store.cancel(a_cancel(run, request=another_body(request)))
        over = await ended(store)
        late = a_request()
        assert (await store.cancel(a_cancel(over, request=late))).made is None
        assert (await store.cancel(a_cancel(over, request=late))).made == Made(over.run_id)

    async def test_claiming_again(self, store: Store) -> None:
        run, _, pending = await waiting(store)
        request = a_request()
        claim = Claim(TENANT, pending.pending_call_id, "carol", NOW + 5, NOW, request)
        held, made = await store.claim(claim)
        assert made is None
        await store.claim(replace(claim, until=0, request=None))
        again, made = await store.claim(claim)  # not claimed anew
        assert (again, made) == (pending, Made(run.run_id))
        assert held.claimed_by == "carol"
        with pytest.raises(RequestReused):
            await store.claim(replace(claim, request=another_body(request)))

    async def test_many_claims_and_cancellations_with_one_request(self, store: Store) -> None:
        run, _, pending = await waiting(store)
        claim = Claim(TENANT, pending.pending_call_id, "carol", NOW + 5, NOW, a_request())
        claims = await asyncio.gather(*(store.claim(claim) for _ in range(20)))
        assert [made for _, made in claims].count(None) == 1
        assert {row.claimed_by for row, _ in claims} == {"carol"}
        release = replace(claim, until=0, request=a_request())
        releases = await asyncio.gather(*(store.claim(release) for _ in range(20)))
        assert [made for _, made in releases].count(None) == 1
        cancel = a_cancel(run, request=a_request())
        cancelled = await asyncio.gather(*(store.cancel(cancel) for _ in range(20)))
        assert [outcome.made for outcome in cancelled].count(None) == 1
        assert [outcome.took for outcome in cancelled].count(True) == 1

    async def test_deleting(self, store: Store) -> None:
        creation = a_request()
        run = a_run(thread_id="t")
        await store.create_run(CreateRun(run, SPEC, None, creation))
        keep, _, keep_pending = await waiting(store)
        request = a_request(method="DeleteRun")
        with pytest.raises(Refused) as refused:
            await store.delete_run(TENANT, run.run_id, force=True, request=request)
        assert refused.value.cause == "not-finished"
        assert refused.value.run == run
        await store.write(a_write(run, chunks=chunks(1, 2), end=an_end()))
        assert await store.delete_run(TENANT, run.run_id, force=False, request=request) is None
        with pytest.raises(NotFound):
            await store.get_run(TENANT, run.run_id)
        with pytest.raises(NotFound):
            await store.delete_run(TENANT, run.run_id, force=False, request=None)
        # Its requests stay.
        assert await store.find_request(creation) == Made(run.run_id)
        assert await store.create_run(CreateRun(run, SPEC, None, creation)) == Created(Made(run.run_id))
        again = await store.delete_run(TENANT, run.run_id, force=False, request=request)
        assert again == Made(run.run_id)
        with pytest.raises(RequestReused):
            await store.delete_run(TENANT, run.run_id, force=False, request=another_body(request))
        assert (await store.load(TENANT, keep.run_id)).pending == (keep_pending,)

    async def test_deleting_a_parked_run_takes_force(self, store: Store) -> None:
        run, call, pending = await waiting(store, thread_id="t", last_sequence=1)
        before = await everything(store, run)
        with pytest.raises(Refused):
            await store.delete_run(TENANT, run.run_id, force=False, request=None)
        assert await everything(store, run) == before
        await store.delete_run(TENANT, run.run_id, force=True, request=None)
        for reading in (
            store.get_run(TENANT, run.run_id),
            store.load(TENANT, run.run_id),
            store.read_chunks(TENANT, run.run_id, after=0, limit_bytes=1),
            store.get_pending(TENANT, pending.pending_call_id),
            store.pending_of_run(TENANT, run.run_id),
            store.decide(a_decide(pending, call)),
            store.cancel(a_cancel(run)),
        ):
            with pytest.raises(NotFound):
                await reading
        assert await store.list_runs(TENANT, RunFilter(thread_id="t"), cursor="", limit=5) == ([], "")
        everything_pending = PendingFilter(include_decided=True)
        assert await store.list_pending(TENANT, everything_pending, cursor="", limit=5) == ([], "")

    async def test_deleting_takes_decisions_along(self, store: Store) -> None:
        run, call, pending = await waiting(store)
        request = a_request()
        decided = await store.decide(replace(a_decide(pending, call), request=request))
        await store.write(a_write(decided.run, end=an_end()))
        await store.delete_run(TENANT, run.run_id, force=False, request=None)
        assert await store.list_decisions(TENANT, DecisionFilter(), cursor="", limit=5) == ([], "")
        with pytest.raises(NotFound):
            await store.get_decision(TENANT, decided.decision.decision_id)
        with pytest.raises(NotFound):
            await store.decide(replace(a_decide(pending, call), request=request))

    async def test_deleting_takes_the_runs_of_sub_agents_along(self, store: Store) -> None:
        root = await ended(store, run_id="root", root_run_id="root")
        await ended(store, run_id="child", root_run_id="root", parent_run_id="root")
        await ended(store, run_id="leaf", root_run_id="root", parent_run_id="child")
        other = await ended(store, run_id="other", root_run_id="other")
        await store.delete_run(TENANT, root.run_id, force=False, request=None)
        left, _ = await store.list_runs(TENANT, RunFilter(include_children=True), cursor="", limit=9)
        assert left == [other]

    async def test_a_run_written_and_deleted_at_once(self, store: Store) -> None:
        run = await created(store)
        end = store.submit(a_write(run, chunks=chunks(1, 2), end=an_end()))
        await store.delete_run(TENANT, run.run_id, force=False, request=None)
        await end
        again = await created(store, run_id=run.run_id)
        assert await store.read_chunks(TENANT, again.run_id, after=0, limit_bytes=9) == ([], 1)
