"""Decisions, cancellations, claims: who wins, who gets the run, what is refused."""

import asyncio

import pytest
from msgspec.structs import replace

from entracte_server.store.base import (
    Cancelled,
    Claim,
    Decided,
    DecisionFilter,
    NotFound,
    Refused,
    Store,
)
from entracte_server.testing.store_conformance.builders import (
    NOW,
    OWNER,
    TENANT,
    a_call,
    a_cancel,
    a_decide,
    a_decision,
    a_park,
    a_pending,
    a_run,
    a_write,
    an_end,
    chunks,
    created,
    ended,
    everything,
    took,
    waiting,
)
from entracte_server.testing.store_conformance.suite import StoreSuite


def a_claim(pending_call_id: str, principal: str, until: int = NOW + 500, now: int = NOW) -> Claim:
    return Claim(TENANT, pending_call_id, principal, until, now)


class DecisionSuite(StoreSuite):
    """`decide`, `cancel`, `claim`."""

    async def test_a_decision_on_a_parked_run_takes_it(self, store: Store) -> None:
        run, call, pending = await waiting(store)
        op = a_decide(pending, call, owner="process-2", comment="fine", args_digest=b"\x01")
        decided = await store.decide(op)
        assert took(decided)
        assert decided.made is None
        assert decided.decision == replace(op.decision, sequence=run.last_sequence)
        row = decided.run
        assert (row.state, row.owner, row.fence) == ("running", "process-2", run.fence + 1)
        assert (row.finish_reason, row.stop_cause) == (None, None)
        assert row.last_sequence == run.last_sequence
        snapshot = await store.load(TENANT, run.run_id)
        assert snapshot.run == row
        assert snapshot.calls == (op.started,)
        assert snapshot.pending == ()
        settled, stored = await store.get_pending(TENANT, pending.pending_call_id)
        assert settled == replace(pending, state="decided", decision_id=op.decision.decision_id)
        assert stored == decided.decision

    async def test_without_started_the_call_is_decided(self, store: Store) -> None:
        run, call, pending = await waiting(store)
        op = replace(a_decide(pending, call), started=None)
        assert took(await store.decide(op))
        assert (await store.load(TENANT, run.run_id)).calls == (op.call,)

    async def test_a_decision_on_an_owned_run_leaves_it(self, store: Store) -> None:
        run, call, pending = await waiting(store, park=False)
        op = a_decide(pending, call, owner="process-2")
        decided = await store.decide(op)
        assert not took(decided)
        assert (decided.run.state, decided.run.owner, decided.run.fence) == ("running", OWNER, 1)
        assert decided.decision.sequence == 3
        snapshot = await store.load(TENANT, run.run_id)
        assert snapshot.calls == (op.call,)
        await store.write(a_write(run, chunks=chunks(4, 4)))  # the owner still owns it

    async def test_of_many_decisions_one_wins(self, store: Store) -> None:
        run, call, pending = await waiting(store)
        ops = [a_decide(pending, call, owner=f"p-{n}", principal=f"user-{n}") for n in range(200)]
        outcomes = await asyncio.gather(*map(store.decide, ops), return_exceptions=True)
        won = [outcome for outcome in outcomes if isinstance(outcome, Decided)]
        lost = [outcome for outcome in outcomes if isinstance(outcome, Refused)]
        assert (len(won), len(lost)) == (1, 199)
        assert took(won[0])
        assert won[0].run.fence == 2
        for refused in lost:
            assert refused.cause == "decided"
            assert refused.decision == won[0].decision
            assert refused.pending is not None
            assert refused.pending.decision_id == won[0].decision.decision_id
        decisions = await store.list_decisions(TENANT, DecisionFilter(), cursor="", limit=10)
        assert decisions == ([won[0].decision], "")
        assert (await store.get_run(TENANT, run.run_id)).fence == 2

    async def test_siblings_are_decided_one_by_one(self, store: Store) -> None:
        run = await created(store)
        calls = [a_call(run, index=index) for index in range(3)]
        pendings = [a_pending(run, call) for call in calls]
        await store.write(a_write(run, calls=tuple(calls), opened=tuple(pendings), park=a_park(1)))
        first = await store.decide(a_decide(pendings[1], calls[1]))
        second = await store.decide(a_decide(pendings[0], calls[0]))
        assert (took(first), took(second)) == (True, False)
        assert first.run.fence == second.run.fence == 2
        snapshot = await store.load(TENANT, run.run_id)
        assert [call.state for call in snapshot.calls] == ["decided", "started", "waiting"]
        assert snapshot.pending == (pendings[2],)

    async def test_a_repeated_decision_is_answered_and_not_taken_twice(self, store: Store) -> None:
        run, call, pending = await waiting(store)
        op = a_decide(pending, call)
        first = await store.decide(op)
        before = await everything(store, run)
        again = await store.decide(op)
        assert (again.run, again.decision, took(again)) == (first.run, first.decision, False)
        assert await everything(store, run) == before

    async def test_a_decision_names_its_call(self, store: Store) -> None:
        run, call, pending = await waiting(store)
        other, _, other_pending = await waiting(store)
        before = await everything(store, run)
        right = a_decide(pending, call)
        for changes in (
            {"pending_call_id": "unknown"},
            {"pending_call_id": other_pending.pending_call_id},
            {"run_id": other.run_id},
            {"run_id": "unknown"},
            {"call_id": "unknown"},
            {"tenant": "other"},
        ):
            with pytest.raises(NotFound):
                await store.decide(replace(right, decision=replace(right.decision, **changes)))
        assert await everything(store, run) == before
        with pytest.raises(NotFound):
            await store.get_decision(TENANT, right.decision.decision_id)

    async def test_a_call_in_another_round_is_another_pending_call(self, store: Store) -> None:
        run, call, pending = await waiting(store)
        decided = await store.decide(a_decide(pending, call))
        again = a_pending(run, call, round=2)
        await store.write(
            a_write(decided.run, calls=(replace(call, round=2),), opened=(again,), park=a_park(5))
        )
        with pytest.raises(Refused) as refused:
            await store.decide(a_decide(pending, call))
        assert refused.value.cause == "decided"
        second = await store.decide(a_decide(again, call))
        assert took(second)
        assert second.run.fence == 3
        _, open_calls, decided_count = await store.pending_of_run(TENANT, run.run_id)
        assert (open_calls, decided_count) == ([], 1)  # two decisions, one call
        assert await store.latest_decision(TENANT, run.run_id, call.call_id) == second.decision

    @pytest.mark.parametrize("late", [1, 10_000])
    async def test_an_expired_call(self, store: Store, late: int) -> None:
        run, call, pending = await waiting(store, expire_time=NOW + 60)
        with pytest.raises(Refused) as refused:
            await store.decide(a_decide(pending, call, decide_time=NOW + 60 + late))
        assert refused.value.cause == "expired"
        assert refused.value.pending == pending
        assert (await store.get_run(TENANT, run.run_id)).state == "suspended"
        assert took(await store.decide(a_decide(pending, call, decide_time=NOW + 60)))

    async def test_a_finished_run(self, store: Store) -> None:
        run, call, pending = await waiting(store, park=False)
        await store.write(a_write(run, chunks=chunks(4, 4), end=an_end()))
        with pytest.raises(Refused) as refused:
            await store.decide(a_decide(pending, call))
        assert refused.value.cause == "finished"
        assert refused.value.run == await store.get_run(TENANT, run.run_id)

    async def test_a_call_closed_by_the_end_was_decided(self, store: Store) -> None:
        run, call, pending = await waiting(store, park=False)
        closed = a_decision(pending, verb="cancel", principal="system")
        await store.write(a_write(run, closed=(closed,), end=an_end()))
        with pytest.raises(Refused) as refused:
            await store.decide(a_decide(pending, call))
        assert refused.value.cause == "decided"
        assert refused.value.decision is not None
        assert refused.value.decision.decision_id == closed.decision_id

    async def test_a_claim_excludes_others(self, store: Store) -> None:
        _, call, pending = await waiting(store)
        held, made = await store.claim(a_claim(pending.pending_call_id, "carol"))
        assert made is None
        assert held == replace(pending, claimed_by="carol", claimed_until=NOW + 500)
        assert (await store.get_pending(TENANT, pending.pending_call_id))[0] == held
        with pytest.raises(Refused) as refused:
            await store.decide(a_decide(pending, call, principal="bob", decide_time=NOW + 499))
        assert refused.value.cause == "claimed"
        assert refused.value.pending == held
        with pytest.raises(Refused) as refused:
            await store.claim(a_claim(pending.pending_call_id, "bob", now=NOW + 499))
        assert refused.value.cause == "claimed"
        assert refused.value.pending == held
        decided = await store.decide(a_decide(pending, call, principal="carol", decide_time=NOW + 499))
        assert took(decided)

    async def test_a_claim_ends_with_its_time(self, store: Store) -> None:
        _, call, pending = await waiting(store)
        await store.claim(a_claim(pending.pending_call_id, "carol"))
        longer, _ = await store.claim(a_claim(pending.pending_call_id, "carol", until=NOW + 900))
        assert longer.claimed_until == NOW + 900
        other, _ = await store.claim(a_claim(pending.pending_call_id, "bob", now=NOW + 900, until=NOW + 1500))
        assert other.claimed_by == "bob"
        op = a_decide(pending, call, principal="carol", decide_time=NOW + 1500)
        assert took(await store.decide(op))

    async def test_a_claim_is_released_by_its_holder_only(self, store: Store) -> None:
        _, call, pending = await waiting(store)
        await store.claim(a_claim(pending.pending_call_id, "carol"))
        with pytest.raises(Refused):
            await store.claim(a_claim(pending.pending_call_id, "bob", until=0))
        released, _ = await store.claim(a_claim(pending.pending_call_id, "carol", until=0))
        assert released == pending
        assert took(await store.decide(a_decide(pending, call, principal="bob")))

    async def test_a_decided_call_cannot_be_claimed(self, store: Store) -> None:
        _, call, pending = await waiting(store)
        decided = await store.decide(a_decide(pending, call))
        with pytest.raises(Refused) as refused:
            await store.claim(a_claim(pending.pending_call_id, "carol"))
        assert refused.value.cause == "decided"
        assert refused.value.decision == decided.decision
        with pytest.raises(NotFound):
            await store.claim(a_claim("unknown", "carol"))

    async def test_of_many_claims_one_wins(self, store: Store) -> None:
        _, _, pending = await waiting(store)
        claims = [a_claim(pending.pending_call_id, f"user-{number}") for number in range(50)]
        outcomes = await asyncio.gather(*map(store.claim, claims), return_exceptions=True)
        assert sum(isinstance(outcome, tuple) for outcome in outcomes) == 1
        assert sum(isinstance(outcome, Refused) for outcome in outcomes) == 49

    async def test_cancelling_a_parked_run_takes_it(self, store: Store) -> None:
        run, _, _ = await waiting(store)
        cancelled = await store.cancel(a_cancel(run, owner="process-2"))
        assert cancelled.took
        row = cancelled.run
        assert (row.state, row.owner, row.fence) == ("running", "process-2", 2)
        assert row.cancel_reason == "changed my mind"
        assert row == await store.get_run(TENANT, run.run_id)
        assert not (await store.write(a_write(row, park=a_park(5)))).parked

    async def test_cancelling_a_queued_run_takes_it(self, store: Store) -> None:
        run = await created(store, state="queued", owner="", fence=0)
        cancelled = await store.cancel(a_cancel(run))
        assert cancelled.took
        assert (cancelled.run.state, cancelled.run.fence) == ("running", 1)

    async def test_cancelling_an_owned_run_asks_its_owner(self, store: Store) -> None:
        run = await created(store)
        first = await store.cancel(a_cancel(run, owner="process-2"))
        second = await store.cancel(a_cancel(run, reason="again", owner="process-2"))
        assert (first.took, second.took) == (False, False)
        assert (second.run.owner, second.run.fence) == (OWNER, 1)
        assert second.run.cancel_reason == "changed my mind"  # the first one

    async def test_an_empty_reason_is_a_reason(self, store: Store) -> None:
        run = await created(store)
        assert (await store.cancel(a_cancel(run, reason=""))).run.cancel_reason == ""
        assert not (await store.write(a_write(run, park=a_park(1)))).parked

    async def test_cancelling_what_has_ended(self, store: Store) -> None:
        run = await ended(store)
        assert await store.cancel(a_cancel(run)) == Cancelled(run)
        assert await store.get_run(TENANT, run.run_id) == run
        with pytest.raises(NotFound):
            await store.cancel(a_cancel(a_run()))

    async def test_a_decision_and_a_cancellation_at_once(self, store: Store) -> None:
        for order in (0, 1):
            run, call, pending = await waiting(store)
            decide = store.decide(a_decide(pending, call, owner="p-1"))
            cancel = store.cancel(a_cancel(run, owner="p-2"))
            if order:
                decided, cancelled = await asyncio.gather(decide, cancel)
            else:
                cancelled, decided = await asyncio.gather(cancel, decide)
            assert (took(decided), cancelled.took) == ((True, False) if order else (False, True))
            row = await store.get_run(TENANT, run.run_id)
            assert (row.fence, row.cancel_reason) == (2, "changed my mind")

    async def test_no_decision_is_lost_to_a_parking(self, store: Store) -> None:
        """The owner hears of the decision by not parking, or who made it owns the run."""
        for number in range(40):
            run, call, pending = await waiting(store, park=False)
            park = store.write(a_write(run, park=a_park(4)))
            decide = store.decide(a_decide(pending, call, owner="process-2"))
            if number % 2:
                written, decided = await asyncio.gather(park, decide)
            else:
                decided, written = await asyncio.gather(decide, park)
            assert took(decided) == written.parked
            row = await store.get_run(TENANT, run.run_id)
            assert (row.state, row.fence) == ("running", 2 if written.parked else 1)
