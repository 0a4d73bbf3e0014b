"""Expiry and retention: what is found by its age, what is deleted for it, and what stays."""

import asyncio
import os

import pytest
from msgspec.structs import replace

from entracte_server.domain.expiry import OnExpiry
from entracte_server.domain.runs import SNAPSHOT_FORMAT, RunRow
from entracte_server.store.base import (
    Backlog,
    Claim,
    CreateRun,
    Decided,
    DecisionFilter,
    Made,
    NotFound,
    PendingFilter,
    Refused,
    Retention,
    RunFilter,
    Store,
    StoreError,
)
from entracte_server.testing.store_conformance.builders import (
    NOW,
    OWNER,
    SPEC,
    TENANT,
    a_decide,
    a_request,
    a_run,
    a_write,
    an_end,
    chunks,
    created,
    ended,
    everything,
    log_of,
    took,
    waiting,
)
from entracte_server.testing.store_conformance.suite import StoreSuite

AGENTS = frozenset({"support"})
LATER = 2**52
"""After everything."""


async def trimmed(store: Store, *, limit: int = 10, **old: int) -> int:
    """Trims until nothing is left to trim; how much there was."""
    total = 0
    for _ in range(1000):
        count = await store.trim(Retention(**old), limit=limit)
        if not count:
            return total
        total += count
    raise AssertionError("trimming does not end")


class ExpirySuite(StoreSuite):
    """`expired`, and decisions with `expiry`."""

    async def test_what_has_expired_is_found(self, store: Store) -> None:
        times = {50: "late", 10: "early", 0: "never", 30: "middle"}
        for time, name in times.items():
            on_expiry = OnExpiry("answer", "request", '{"a":1}') if time else None
            await waiting(store, expire_time=time and NOW + time, pending_call_id=name, on_expiry=on_expiry)
        await waiting(store, expire_time=NOW + 20, tenant="other", pending_call_id="theirs", park=False)
        await waiting(store, expire_time=NOW + 1, agent_id="unknown")

        async def found(now: int, limit: int = 10) -> list[str]:
            rows = await store.expired(NOW + now, agents=AGENTS, limit=limit)
            return [row.pending_call_id for row in rows]

        assert await found(10) == []
        assert await found(11) == ["early"]
        assert await found(1000) == ["early", "theirs", "middle", "late"]
        assert await found(1000, limit=2) == ["early", "theirs"]
        early, theirs = await store.expired(NOW + 1000, agents=AGENTS, limit=2)
        assert (early, None) == await store.get_pending(TENANT, "early")
        assert early.on_expiry == OnExpiry("answer", "request", '{"a":1}')
        assert (theirs.tenant, theirs.on_expiry) == ("other", None)
        both = await store.expired(NOW + 5, agents=AGENTS | {"unknown"}, limit=10)
        assert [row.agent_id for row in both] == ["unknown"]
        assert await store.expired(NOW + 1000, agents=frozenset(), limit=10) == []

    async def test_what_is_settled_has_not_expired(self, store: Store) -> None:
        _, call, pending = await waiting(store, expire_time=NOW + 10)
        await store.decide(a_decide(pending, call, decide_time=NOW + 10))
        run, _, _ = await waiting(store, expire_time=NOW + 10, park=False)
        await store.write(a_write(run, chunks=chunks(4, 4), end=an_end()))
        deleted, _, _ = await waiting(store, expire_time=NOW + 10)
        await store.delete_run(TENANT, deleted.run_id, force=True, request=None)
        assert await store.expired(NOW + 11, agents=AGENTS, limit=10) == []

    async def test_records_of_a_newer_format_are_left_alone(self, store: Store) -> None:
        await waiting(store, expire_time=NOW + 10, format=SNAPSHOT_FORMAT + 1)
        assert await store.expired(NOW + 11, agents=AGENTS, limit=10) == []

    async def test_an_expired_call_is_decided_whoever_claimed_it(self, store: Store) -> None:
        run, call, pending = await waiting(store, expire_time=NOW + 10)
        await store.claim(Claim(TENANT, pending.pending_call_id, "carol", NOW + 9999, NOW))
        op = a_decide(pending, call, verb="expire", principal="system", decide_time=NOW + 11)
        op = replace(op, expiry=True)
        decided = await store.decide(op)
        assert took(decided)
        assert (decided.run.fence, decided.run.owner) == (run.fence + 1, OWNER)
        assert (decided.decision.verb, decided.decision.principal) == ("expire", "system")
        assert await store.expired(NOW + 11, agents=AGENTS, limit=10) == []
        again = await store.decide(op)
        assert (again.decision, took(again)) == (decided.decision, False)

    @pytest.mark.parametrize("expire_time", [0, NOW + 10])
    async def test_what_has_not_expired_is_not_decided(self, store: Store, expire_time: int) -> None:
        _, call, pending = await waiting(store, expire_time=expire_time)
        with pytest.raises(Refused) as refused:
            await store.decide(replace(a_decide(pending, call, decide_time=NOW + 10), expiry=True))
        assert refused.value.cause == "not-expired"
        assert refused.value.pending == pending
        assert took(await store.decide(a_decide(pending, call, decide_time=NOW + 10)))
        with pytest.raises(Refused) as refused:
            await store.decide(replace(a_decide(pending, call, decide_time=NOW + 11), expiry=True))
        assert refused.value.cause == "decided"

    async def test_a_person_and_the_expiry_never_both_win(self, store: Store) -> None:
        """Whatever their clocks say."""
        for _ in range(20):
            run, call, pending = await waiting(store, expire_time=NOW + 10)
            ops = [a_decide(pending, call, owner=f"p{n}", decide_time=NOW + 10) for n in range(3)]
            ops += [replace(a_decide(pending, call, decide_time=NOW + 11), expiry=True) for _ in range(3)]
            outcomes = await asyncio.gather(*map(store.decide, ops[::2] + ops[1::2]), return_exceptions=True)
            assert [took(o) for o in outcomes if isinstance(o, Decided)] == [True]
            causes = {o.cause for o in outcomes if isinstance(o, Refused)}
            assert causes <= {"decided"}
            assert (await store.get_run(TENANT, run.run_id)).fence == run.fence + 1

    async def test_an_expired_call_cannot_be_claimed(self, store: Store) -> None:
        _, _, pending = await waiting(store, expire_time=NOW + 10)
        held, _ = await store.claim(Claim(TENANT, pending.pending_call_id, "bob", NOW + 500, NOW + 10))
        assert held.claimed_by == "bob"
        with pytest.raises(Refused) as refused:
            await store.claim(Claim(TENANT, pending.pending_call_id, "bob", NOW + 900, NOW + 11))
        assert refused.value.cause == "expired"
        released, _ = await store.claim(Claim(TENANT, pending.pending_call_id, "bob", 0, NOW + 11))
        assert released.claimed_by == ""


class BacklogSuite(StoreSuite):
    """`backlog`."""

    async def test_what_waits_is_counted_by_agent(self, store: Store) -> None:
        assert await store.backlog() == []
        for tenant, agent_id in (("t1", "a"), ("t2", "a"), ("t2", "b"), ("t3", "b"), ("t3", "b")):
            await waiting(store, tenant=tenant, agent_id=agent_id)
        assert await store.backlog() == [Backlog("a", 2, NOW), Backlog("b", 3, NOW)]

    async def test_what_is_settled_waits_no_more(self, store: Store) -> None:
        _, call, pending = await waiting(store)
        await store.decide(a_decide(pending, call))
        run, _, _ = await waiting(store, park=False)
        await store.write(a_write(run, chunks=chunks(4, 4), end=an_end()))
        deleted, _, _ = await waiting(store)
        await store.delete_run(TENANT, deleted.run_id, force=True, request=None)
        assert await store.backlog() == []


class RetentionSuite(StoreSuite):
    """`trim`: what is old goes, a bounded piece at a time, and nothing else does."""

    async def test_nothing_is_old_unless_it_is_said(self, store: Store) -> None:
        run = await ended(store)
        await store.create_run(CreateRun(a_run(), SPEC, None, a_request()))
        before = await everything(store, run)
        assert await store.trim(Retention(), limit=10) == 0
        assert await store.trim(Retention(chunks=1, runs=1, requests=1), limit=10) == 0
        assert await everything(store, run) == before

    async def test_the_log_of_a_run_goes_and_the_rest_stays(self, store: Store) -> None:
        run, call, pending = await waiting(store)
        decided = await store.decide(a_decide(pending, call))
        await store.write(a_write(decided.run, chunks=chunks(5, 9), end=an_end()))
        snapshot, _ = await everything(store, run)
        assert await trimmed(store, chunks=snapshot.run.finish_time) == 0
        assert await trimmed(store, chunks=snapshot.run.finish_time + 1) > 0
        assert await store.read_chunks(TENANT, run.run_id, after=0, limit_bytes=99) == ([], 10)
        assert await store.read_chunks(TENANT, run.run_id, after=9, limit_bytes=99) == ([], 10)
        assert await store.load(TENANT, run.run_id) == snapshot
        assert await store.get_pending(TENANT, pending.pending_call_id) == (
            replace(pending, state="decided", decision_id=decided.decision.decision_id),
            decided.decision,
        )
        assert await trimmed(store, chunks=LATER) == 0
        await store.delete_run(TENANT, run.run_id, force=False, request=None)

    async def test_runs_that_have_not_ended_lose_nothing(self, store: Store) -> None:
        live = [(await waiting(store))[0], await created(store, last_sequence=3)]
        child_of_live = await ended(store, last_sequence=1, root_run_id=live[0].run_id, parent_run_id="x")
        before = [await everything(store, run) for run in (*live, child_of_live)]
        assert await trimmed(store, chunks=LATER, runs=LATER) == 0
        assert [await everything(store, run) for run in (*live, child_of_live)] == before

    async def test_old_runs_go_with_all_they_have(self, store: Store) -> None:
        old, call, pending = await waiting(store)
        decided = await store.decide(a_decide(pending, call))
        await store.write(a_write(decided.run, chunks=chunks(5, 5), end=an_end()))
        child = await ended(store, root_run_id=old.run_id, parent_run_id=old.run_id)
        stays, _, _ = await waiting(store)
        old = await store.get_run(TENANT, old.run_id)
        assert await trimmed(store, runs=old.finish_time) == 0
        assert await trimmed(store, runs=LATER) == 1
        for run in (old, child):
            with pytest.raises(NotFound):
                await store.load(TENANT, run.run_id)
        with pytest.raises(NotFound):
            await store.get_pending(TENANT, pending.pending_call_id)
        listed, _ = await store.list_runs(TENANT, RunFilter(include_children=True), cursor="", limit=10)
        assert [run.run_id for run in listed] == [stays.run_id]
        assert await store.list_decisions(TENANT, DecisionFilter(), cursor="", limit=9) == ([], "")
        where = PendingFilter(include_decided=True)
        assert len((await store.list_pending(TENANT, where, cursor="", limit=9))[0]) == 1
        assert await trimmed(store, runs=LATER, chunks=LATER) == 0

    async def test_a_run_that_lost_its_log_goes_later(self, store: Store) -> None:
        run = await ended(store)
        assert await trimmed(store, chunks=LATER) == 1
        assert await trimmed(store, runs=LATER) == 1
        with pytest.raises(NotFound):
            await store.get_run(TENANT, run.run_id)

    async def test_it_is_done_in_pieces(self, store: Store) -> None:
        runs = [await ended(store, tenant=f"tenant-{n % 2}") for n in range(7)]
        assert [await store.trim(Retention(chunks=LATER), limit=3) for _ in range(4)] == [3, 3, 1, 0]
        assert [await store.trim(Retention(runs=LATER), limit=5) for _ in range(3)] == [5, 2, 0]
        for run in runs:
            with pytest.raises(NotFound):
                await store.get_run(run.tenant, run.run_id)

    @pytest.mark.parametrize("what", ["chunks", "runs"])
    async def test_a_large_log_goes_from_its_beginning(self, store: Store, what: str) -> None:
        run = await created(store)
        for number in range(1, 25):
            row = replace(chunks(number, number), data=os.urandom(1024 * 1024))
            await store.write(a_write(run, chunks=row))
        await store.write(a_write(run, end=an_end()))
        first, calls = 1, 0
        while await store.trim(Retention(**{what: LATER}), limit=10):
            calls += 1
            assert calls < 100
            try:
                rows, now_first = await store.read_chunks(TENANT, run.run_id, after=0, limit_bytes=2**40)
            except NotFound:
                assert what == "runs"
                continue
            assert now_first >= first
            first = now_first
            assert [row.first for row in rows] == list(range(first, 25))
        assert calls > 1, "as much as that is too long for one transaction"

    async def test_request_ids_go_by_their_age(self, store: Store) -> None:
        requests = [a_request() for _ in range(5)]
        for request in requests:
            await store.create_run(CreateRun(a_run(), SPEC, None, request))
        assert await trimmed(store, requests=1) == 0
        assert [await store.trim(Retention(requests=LATER), limit=3) for _ in range(3)] == [3, 2, 0]
        for request in requests:
            assert await store.find_request(request) is None

    async def test_the_request_id_of_a_decision_lives_as_long_as_the_decision(self, store: Store) -> None:
        run, call, pending = await waiting(store)
        request = a_request(method="Approve")
        op = replace(a_decide(pending, call), request=request)
        decided = await store.decide(op)
        made = Made(run.run_id, decided.decision.decision_id)
        assert await trimmed(store, requests=LATER) == 0
        assert await store.find_request(request) == made
        await store.write(a_write(decided.run, end=an_end()))
        assert await trimmed(store, requests=LATER, chunks=LATER) == 1
        assert await store.find_request(request) == made
        assert (await store.decide(op)).made == made
        await store.delete_run(TENANT, run.run_id, force=False, request=None)
        with pytest.raises(StoreError):  # it is answered as before the id goes, by what is not there
            await store.decide(op)
        assert await trimmed(store, requests=LATER) == 1
        assert await store.find_request(request) is None
        with pytest.raises(NotFound):
            await store.decide(op)

    async def test_decisions_of_other_tenants_with_the_same_id_keep_theirs(self, store: Store) -> None:
        requests = {}
        runs: dict[str, RunRow] = {}
        for tenant in (TENANT, "other"):
            _, call, pending = await waiting(store, tenant=tenant)
            op = a_decide(pending, call, decision_id="same")
            requests[tenant] = a_request(tenant=tenant, method="Approve")
            runs[tenant] = (await store.decide(replace(op, request=requests[tenant]))).run
        await store.write(a_write(runs["other"], end=an_end()))
        await store.delete_run("other", runs["other"].run_id, force=False, request=None)
        assert await trimmed(store, requests=LATER) == 1
        assert await store.find_request(requests["other"]) is None
        assert await store.find_request(requests[TENANT]) is not None

    async def test_writing_goes_on_meanwhile(self, store: Store) -> None:
        old = [await ended(store) for _ in range(30)]
        run = await created(store)

        async def write() -> None:
            for number in range(1, 60):
                await store.write(a_write(run, chunks=chunks(number, number)))

        async def trim() -> int:
            return await trimmed(store, limit=2, runs=LATER)

        _, count = await asyncio.gather(write(), trim())
        assert count == len(old)
        assert await log_of(store, run) == chunks(1, 59).data

    async def test_a_call_that_waits_survives_everything(self, store: Store) -> None:
        run, call, pending = await waiting(store, last_sequence=1)
        before = await everything(store, run)
        assert await trimmed(store, runs=LATER, chunks=LATER, requests=LATER) == 0
        assert await everything(store, run) == before
        assert took(await store.decide(a_decide(pending, call)))
