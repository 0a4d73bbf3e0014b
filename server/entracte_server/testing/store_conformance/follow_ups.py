"""Follow-up jobs: added with the end of a run, claimed by one process, taken over, settled once, deleted."""

import asyncio
from typing import Any

from msgspec.structs import replace

from entracte_server.domain.follow_ups import FollowUpRow
from entracte_server.domain.results import Usage
from entracte_server.domain.runs import SNAPSHOT_FORMAT, RunRow
from entracte_server.store.base import ClaimFollowUps, Retention, Store
from entracte_server.testing.store_conformance.builders import (
    NOW,
    TENANT,
    a_write,
    an_end,
    chunks,
    created,
    ended,
)
from entracte_server.testing.store_conformance.processes import LONG, alive, dead
from entracte_server.testing.store_conformance.suite import OpenStore, StoreSuite

HANDLER = "score tone"


def a_follow_up(run: RunRow, name: str = "tone", **changes: Any) -> FollowUpRow:
    row = FollowUpRow(
        run.tenant, run.run_id, "score", name, HANDLER, "waiting", NOW, due_time=NOW, subject="tone"
    )
    return replace(row, **changes)


def a_claim(process_id: str, **changes: Any) -> ClaimFollowUps:
    return replace(ClaimFollowUps(process_id, frozenset({HANDLER}), NOW, NOW + 1000, 10), **changes)


async def to_do(store: Store, *names: str, **changes: Any) -> RunRow:
    """A run in the store that has ended with these jobs."""
    run_changes = {name: changes.pop(name) for name in list(changes) if name in ("tenant", "format")}
    run = await created(store, **run_changes)
    rows = tuple(a_follow_up(run, name, **changes) for name in names or ("tone",))
    await store.write(a_write(run, chunks=chunks(1, 1), end=an_end(follow_ups=rows)))
    return await store.get_run(run.tenant, run.run_id)


async def of(store: Store, run: RunRow) -> list[FollowUpRow]:
    return await store.follow_ups(run.tenant, [run.run_id])


class FollowUpSuite(StoreSuite):
    """`End.follow_ups`, `claim_follow_ups`, `settle_follow_up`, `release_follow_ups`, `follow_ups`."""

    async def test_they_are_added_with_the_end(self, store: Store) -> None:
        run = await created(store)
        rows = (
            a_follow_up(run, "b", ratio=0.5),
            a_follow_up(run, "a", state="skipped", ratio=0.0, due_time=0, finish_time=NOW),
        )
        write = a_write(run, chunks=chunks(1, 1), end=an_end(follow_ups=rows))
        await store.write(write)
        assert await of(store, run) == [rows[1], rows[0]]
        # Its owner does not know that it was committed.
        await store.write(write)
        assert await of(store, run) == [rows[1], rows[0]]

    async def test_a_run_without_any_has_none(self, store: Store) -> None:
        run = await ended(store)
        assert await of(store, run) == await store.follow_ups(TENANT, []) == []
        assert await store.follow_ups(TENANT, ["unknown"]) == []

    async def test_those_of_several_runs(self, store: Store) -> None:
        one, none, two = await to_do(store, "a", "b"), await ended(store), await to_do(store)
        other = await to_do(store, tenant="other")
        found = await store.follow_ups(TENANT, [one.run_id, none.run_id, two.run_id, other.run_id])
        assert sorted((row.run_id, row.name) for row in found) == sorted(
            [(one.run_id, "a"), (one.run_id, "b"), (two.run_id, "tone")]
        )

    async def test_one_process_has_them(self, open_store: OpenStore) -> None:
        one, two = await open_store(), await open_store()
        first, second = await alive(one), await alive(two)
        run = await to_do(one)
        [claimed] = await one.claim_follow_ups(a_claim(first))
        assert claimed == a_follow_up(run, owner=first, attempts=1, due_time=NOW + 1000)
        assert await of(two, run) == [claimed]
        assert await two.claim_follow_ups(a_claim(second)) == []
        assert await two.claim_follow_ups(a_claim(second, now=NOW + 999)) == []

    async def test_claims_at_the_same_time(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(3)]
        for _ in range(4):
            await to_do(stores[0], *"abcde")
        processes = [await alive(store) for store in stores for _ in range(3)]
        found = await asyncio.gather(
            *(
                stores[i // 3].claim_follow_ups(a_claim(process_id, limit=4))
                for i, process_id in enumerate(processes)
            )
        )
        rest = await stores[0].claim_follow_ups(a_claim(processes[0], limit=100))
        names = [(row.run_id, row.name) for rows in [*found, rest] for row in rows]
        assert len(names) == len(set(names)) == 20

    async def test_what_is_not_to_be_done_yet(self, store: Store) -> None:
        process_id = await alive(store)
        await to_do(store, "late", due_time=NOW + 20)
        await to_do(store, "early", due_time=NOW - 20)
        await to_do(store, "done", state="skipped")
        await to_do(store, "theirs", handler="score other")
        await to_do(store, "new", format=SNAPSHOT_FORMAT + 1)
        other = await to_do(store, "now", tenant="other")
        claimed = await store.claim_follow_ups(a_claim(process_id))
        assert sorted(row.name for row in claimed) == ["early", "now"]
        assert await store.claim_follow_ups(a_claim(process_id, handlers=frozenset())) == []
        assert [row.state for row in await of(store, other)] == ["waiting"]
        [late] = await store.claim_follow_ups(a_claim(process_id, now=NOW + 20))
        assert late.name == "late"

    async def test_no_more_than_asked_for_the_longest_due_first(self, store: Store) -> None:
        process_id = await alive(store)
        for name, due in (("c", 30), ("a", 10), ("b", 20)):
            await to_do(store, name, due_time=NOW - 100 + due)
        found = []
        for _ in range(3):
            found += await store.claim_follow_ups(a_claim(process_id, limit=1))
        assert [row.name for row in found] == ["a", "b", "c"]

    async def test_what_nobody_does_is_given_up_by_anybody(self, store: Store) -> None:
        process_id = await alive(store)
        await to_do(store, handler="score unknown")
        assert await store.claim_follow_ups(a_claim(process_id, given_up=NOW)) == []
        [claimed] = await store.claim_follow_ups(a_claim(process_id, given_up=NOW + 1, handlers=frozenset()))
        assert claimed.handler == "score unknown"

    async def test_a_dead_process_s_are_due_at_once(self, open_store: OpenStore) -> None:
        one, two = await open_store(), await open_store()
        first, second, gone = await alive(one), await alive(two), await dead(one)
        run = await to_do(one)
        await one.claim_follow_ups(a_claim(gone))
        [claimed] = await two.claim_follow_ups(a_claim(second))
        assert claimed == a_follow_up(run, owner=second, attempts=2, due_time=NOW + 1000)
        await two.leave(second)
        [claimed] = await one.claim_follow_ups(a_claim(first))
        assert (claimed.owner, claimed.attempts) == (first, 3)

    async def test_a_process_that_takes_too_long_loses_them(self, store: Store) -> None:
        first, second = await alive(store), await alive(store)
        await to_do(store)
        [slow] = await store.claim_follow_ups(a_claim(first))
        [claimed] = await store.claim_follow_ups(a_claim(second, now=NOW + 1000, until=NOW + 2000))
        assert (claimed.owner, claimed.attempts) == (second, 2)
        assert not await store.settle_follow_up(replace(slow, state="succeeded", score=1.0))
        assert await store.settle_follow_up(replace(claimed, state="succeeded", score=0.5))

    async def test_settled_once(self, store: Store) -> None:
        process_id = await alive(store)
        run = await to_do(store)
        [claimed] = await store.claim_follow_ups(a_claim(process_id))
        settled = replace(
            claimed,
            state="succeeded",
            due_time=0,
            owner="",
            score=0.25,
            reason="terse",
            usage=Usage(1, 2, 3),
            duration_ms=7,
            finish_time=NOW + 5,
            title="Naïve",
        )
        assert await store.settle_follow_up(settled)
        assert await of(store, run) == [settled]
        assert not await store.settle_follow_up(replace(settled, score=1.0))
        assert await of(store, run) == [settled]
        assert await store.claim_follow_ups(a_claim(process_id, now=2**52, given_up=2**52)) == []

    async def test_to_be_tried_again(self, store: Store) -> None:
        process_id = await alive(store)
        run = await to_do(store)
        [claimed] = await store.claim_follow_ups(a_claim(process_id))
        again = replace(claimed, owner="", due_time=NOW + 50, error="broken")
        assert await store.settle_follow_up(again)
        assert await of(store, run) == [again]
        assert await store.claim_follow_ups(a_claim(process_id, now=NOW + 49)) == []
        [claimed] = await store.claim_follow_ups(a_claim(process_id, now=NOW + 50))
        assert (claimed.attempts, claimed.error) == (2, "broken")

    async def test_what_is_released_does_not_count(self, store: Store) -> None:
        first, second = await alive(store), await alive(store)
        await to_do(store, "a", "b")
        [mine] = await store.claim_follow_ups(a_claim(first, limit=1))
        [theirs] = await store.claim_follow_ups(a_claim(second))
        await store.release_follow_ups(first)
        await store.release_follow_ups(first)
        [claimed] = await store.claim_follow_ups(a_claim(second))
        assert claimed == replace(mine, owner=second)
        assert claimed.attempts == theirs.attempts == 1

    async def test_they_go_with_the_run(self, store: Store) -> None:
        process_id = await alive(store)
        deleted, old = await to_do(store), await to_do(store)
        [one, two] = await store.claim_follow_ups(a_claim(process_id))
        await store.delete_run(TENANT, deleted.run_id, force=False, request=None)
        while await store.trim(Retention(runs=2**52), limit=10):
            pass
        for run in (deleted, old):
            assert await of(store, run) == []
        for row in (one, two):
            assert not await store.settle_follow_up(replace(row, state="succeeded"))
        await store.enter(process_id, LONG)
        assert await store.claim_follow_ups(a_claim(process_id, now=2**52)) == []
