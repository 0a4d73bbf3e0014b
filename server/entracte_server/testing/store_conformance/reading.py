"""Reads: the chunk log, calls that wait, lists and their pages."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from msgspec.structs import replace

from entracte_server.domain.runs import DecisionRow, RunRow
from entracte_server.store.base import (
    ChunkRow,
    CreateRun,
    DecisionFilter,
    NotFound,
    PendingFilter,
    RunFilter,
    Store,
)
from entracte_server.testing.store_conformance.builders import (
    SPEC,
    TENANT,
    a_call,
    a_decide,
    a_decision,
    a_park,
    a_pending,
    a_run,
    a_write,
    chunks,
    created,
    ended,
    waiting,
)
from entracte_server.testing.store_conformance.suite import StoreSuite

T = TypeVar("T")


async def pages(read: Callable[[str], Awaitable[tuple[list[T], str]]]) -> list[list[T]]:
    """All pages of a list."""
    found: list[list[T]] = []
    cursor = ""
    while True:
        page, cursor = await read(cursor)
        found.append(page)
        if not cursor:
            return found


class ReadingSuite(StoreSuite):
    """`read_chunks`, `load`, `pending_of_run`, `latest_decision`, the lists."""

    async def test_unknown_ids(self, store: Store) -> None:
        for reading in (
            store.get_run(TENANT, "x"),
            store.load(TENANT, "x"),
            store.read_chunks(TENANT, "x", after=0, limit_bytes=1),
            store.get_pending(TENANT, "x"),
            store.pending_of_run(TENANT, "x"),
            store.get_decision(TENANT, "x"),
        ):
            with pytest.raises(NotFound):
                await reading
        assert await store.latest_decision(TENANT, "x", "y") is None

    async def test_chunks_after_a_sequence(self, store: Store) -> None:
        run = await created(store, last_sequence=2)
        rows = [chunks(1, 2), chunks(3, 7), chunks(8, 8), chunks(9, 12)]
        for row in rows[1:]:
            await store.write(a_write(run, chunks=row))

        async def read(after: int, limit: int = 10_000) -> tuple[list[ChunkRow], int]:
            return await store.read_chunks(TENANT, run.run_id, after=after, limit_bytes=limit)

        assert await read(0) == (rows, 1)
        assert await read(1) == (rows, 1)  # a row may begin before
        assert await read(2) == (rows[1:], 1)
        assert await read(6) == (rows[1:], 1)
        assert await read(7) == (rows[2:], 1)
        assert await read(11) == (rows[3:], 1)
        assert await read(12) == ([], 1)
        assert await read(99) == ([], 1)
        # A limit in bytes, but always one row.
        assert await read(0, 0) == (rows[:1], 1)
        assert await read(0, len(rows[0].data) + len(rows[1].data)) == (rows[:2], 1)
        assert await read(3, 1) == (rows[1:2], 1)

    async def test_a_log_of_many_rows_is_read_in_pages(self, store: Store) -> None:
        run = await created(store)
        data = b"x" * 1000
        futures = [store.submit(a_write(run, chunks=ChunkRow(n, n, data))) for n in range(1, 501)]
        await asyncio.gather(*futures)
        after, count = 0, 0
        while True:
            rows, first = await store.read_chunks(TENANT, run.run_id, after=after, limit_bytes=64_000)
            assert first == 1
            if not rows:
                break
            assert len(rows) <= 64
            assert rows[0].first == after + 1
            after, count = rows[-1].last, count + len(rows)
        assert (after, count) == (500, 500)

    async def test_what_was_acknowledged_is_read_at_once(self, store: Store) -> None:
        run = await created(store)
        for number in range(1, 101):
            await store.write(a_write(run, chunks=chunks(number, number)))
            (row,), _ = await store.read_chunks(TENANT, run.run_id, after=number - 1, limit_bytes=10)
            assert row.last == number

    async def test_calls_are_loaded_in_their_order(self, store: Store) -> None:
        run = await created(store)
        calls = [a_call(run, step=step, index=index) for step in (1, 2, 10) for index in range(12)]
        await store.write(a_write(run, calls=tuple(reversed(calls))))
        assert (await store.load(TENANT, run.run_id)).calls == tuple(calls)

    async def test_open_calls_of_a_run(self, store: Store) -> None:
        run = await created(store)
        calls = [a_call(run, index=index) for index in range(3)]
        pendings = [a_pending(run, call) for call in calls]
        await store.write(a_write(run, calls=tuple(calls), opened=tuple(pendings), park=a_park(1)))
        await waiting(store)
        row, found, decided = await store.pending_of_run(TENANT, run.run_id)
        assert row == await store.get_run(TENANT, run.run_id)
        assert found == list(zip(pendings, calls, strict=True))
        assert decided == 0
        one = await store.pending_of_run(TENANT, run.run_id, calls[1].call_id)
        assert one == (row, [(pendings[1], calls[1])], 0)
        none = await store.pending_of_run(TENANT, run.run_id, "unknown")
        assert none == (row, [], 0)
        taken = await store.decide(a_decide(pendings[0], calls[0]))
        closed = a_decision(pendings[2], verb="expire", principal="system")
        await store.write(a_write(taken.run, closed=(closed,)))
        _, found, decided = await store.pending_of_run(TENANT, run.run_id)
        assert found == [(pendings[1], calls[1])]
        assert decided == 2

    async def test_the_latest_decision_on_a_call(self, store: Store) -> None:
        run, call, pending = await waiting(store)
        assert await store.latest_decision(TENANT, run.run_id, call.call_id) is None
        decided = await store.decide(a_decide(pending, call, decide_time=2**40))
        assert await store.latest_decision(TENANT, run.run_id, call.call_id) == decided.decision
        assert await store.get_decision(TENANT, decided.decision.decision_id) == decided.decision
        assert await store.latest_decision(TENANT, run.run_id, "other") is None
        again = a_pending(run, call, round=2)
        # Latest is what was decided last, not what has the latest clock.
        closed = a_decision(again, decide_time=1, sequence=4)
        await store.write(a_write(decided.run, opened=(again,)))
        await store.write(a_write(decided.run, closed=(closed,)))
        assert await store.latest_decision(TENANT, run.run_id, call.call_id) == closed

    async def test_runs_newest_first(self, store: Store) -> None:
        # The clock may stand still or go back: order is that of creation.
        runs = [await created(store, create_time=1000 - number) for number in range(10)]
        newest = runs[::-1]

        async def read(limit: int) -> list[list[RunRow]]:
            return await pages(
                lambda cursor: store.list_runs(TENANT, RunFilter(), cursor=cursor, limit=limit)
            )

        assert await read(3) == [newest[:3], newest[3:6], newest[6:9], newest[9:]]
        assert await read(5) == [newest[:5], newest[5:]]
        assert await read(10) == [newest]
        assert await read(50) == [newest]

    async def test_filters_of_runs(self, store: Store) -> None:
        running = await created(store, thread_id="t1")
        parked, _, _ = await waiting(store, agent_id="other")
        over = await ended(store, thread_id="t1", agent_id="other")
        child = await created(store, parent_run_id=running.run_id, root_run_id=running.run_id)
        queued = await created(store, state="queued", owner="", thread_id="t2")

        async def ids(where: RunFilter) -> list[str]:
            one, cursor = await store.list_runs(TENANT, where, cursor="", limit=1)
            rest, end = await store.list_runs(TENANT, where, cursor=cursor, limit=9) if cursor else ([], "")
            assert end == ""
            return [run.run_id for run in (*one, *rest)]

        assert await ids(RunFilter()) == [queued.run_id, over.run_id, parked.run_id, running.run_id]
        assert (await ids(RunFilter(include_children=True)))[1] == child.run_id
        assert await ids(RunFilter(thread_id="t1")) == [over.run_id, running.run_id]
        assert await ids(RunFilter(agent_id="other")) == [over.run_id, parked.run_id]
        assert await ids(RunFilter(agent_id="other", thread_id="t1")) == [over.run_id]
        assert await ids(RunFilter(states=("suspended",))) == [parked.run_id]
        assert await ids(RunFilter(states=("running", "suspended", "queued"))) == [
            queued.run_id,
            parked.run_id,
            running.run_id,
        ]
        assert await ids(RunFilter(states=("running", "running"))) == [running.run_id]
        assert await ids(RunFilter(states=("succeeded", "running"))) == [over.run_id, running.run_id]
        assert await ids(RunFilter(states=("failed",))) == []
        assert await ids(RunFilter(states=("running",), thread_id="t1")) == [running.run_id]
        assert await ids(RunFilter(states=("running",), include_children=True)) == [
            child.run_id,
            running.run_id,
        ]
        assert await ids(RunFilter(thread_id="t3")) == []

    async def test_suspended_runs_are_those_that_wait(self, store: Store) -> None:
        parked = [await waiting(store) for _ in range(5)]
        for run, call, pending in parked[:3]:
            decided = await store.decide(a_decide(pending, call))
            assert decided.run.run_id == run.run_id
        left, _ = await store.list_runs(TENANT, RunFilter(states=("suspended",)), cursor="", limit=9)
        assert [run.run_id for run in left] == [parked[4][0].run_id, parked[3][0].run_id]

    async def test_a_page_does_not_move_when_runs_come_and_go(self, store: Store) -> None:
        runs = [await ended(store) for _ in range(6)]
        first, cursor = await store.list_runs(TENANT, RunFilter(), cursor="", limit=2)
        await created(store)
        await store.delete_run(TENANT, runs[4].run_id, force=False, request=None)  # where the page ended
        await store.delete_run(TENANT, runs[2].run_id, force=False, request=None)
        second, end = await store.list_runs(TENANT, RunFilter(), cursor=cursor, limit=9)
        assert [run.run_id for run in first] == [runs[5].run_id, runs[4].run_id]
        assert [run.run_id for run in second] == [runs[number].run_id for number in (3, 1, 0)]
        assert end == ""

    async def test_pending_calls_oldest_first(self, store: Store) -> None:
        waits = [await waiting(store) for _ in range(7)]
        for index in (1, 4):
            await store.decide(a_decide(waits[index][2], waits[index][1]))
        open_ids = [waits[index][2].pending_call_id for index in (0, 2, 3, 5, 6)]

        async def read(where: PendingFilter, limit: int) -> list[list[str]]:
            found = await pages(lambda cursor: store.list_pending(TENANT, where, cursor=cursor, limit=limit))
            for page in found:
                for pending, decision in page:
                    assert (pending.state == "decided") is (decision is not None)
                    assert decision is None or decision.decision_id == pending.decision_id
            return [[pending.pending_call_id for pending, _ in page] for page in found]

        assert await read(PendingFilter(), 2) == [open_ids[:2], open_ids[2:4], open_ids[4:]]
        assert await read(PendingFilter(), 5) == [open_ids]
        everything = [pending.pending_call_id for _, _, pending in waits]
        assert await read(PendingFilter(include_decided=True), 3) == [
            everything[:3],
            everything[3:6],
            everything[6:],
        ]

    async def test_a_page_of_large_rows_is_short(self, store: Store) -> None:
        """What a page holds must fit into one response, whatever the rows hold."""
        run = await created(store)
        calls = [a_call(run, index=index, args=f'"{index}{"x" * 3_000_000}"') for index in range(5)]
        pendings = [a_pending(run, call) for call in calls]
        await store.write(a_write(run, calls=tuple(calls), opened=tuple(pendings)))
        await store.decide(a_decide(pendings[0], calls[0]))
        where = PendingFilter(include_decided=True)
        found = await pages(lambda cursor: store.list_pending(TENANT, where, cursor=cursor, limit=50))
        assert [pending.call_id for page in found for pending, _ in page] == [call.call_id for call in calls]
        for page in found:
            assert sum(len(pending.args) + len(d.args if d else "") for pending, d in page) < 12_000_000

    async def test_filters_of_pending_calls(self, store: Store) -> None:
        first, call, pending = await waiting(store, thread_id="t", resource_id="r")
        _, _, other = await waiting(store, agent_id="other", thread_id="t")

        async def ids(where: PendingFilter) -> list[str]:
            rows, cursor = await store.list_pending(TENANT, where, cursor="", limit=9)
            assert cursor == ""
            return [row.pending_call_id for row, _ in rows]

        assert await ids(PendingFilter(run_id=first.run_id)) == [pending.pending_call_id]
        assert await ids(PendingFilter(run_id="unknown")) == []
        assert await ids(PendingFilter(agent_id="other")) == [other.pending_call_id]
        assert await ids(PendingFilter(thread_id="t")) == [pending.pending_call_id, other.pending_call_id]
        assert await ids(PendingFilter(thread_id="t", resource_id="r")) == [pending.pending_call_id]
        await store.decide(a_decide(pending, call))
        assert await ids(PendingFilter(run_id=first.run_id)) == []
        decided = PendingFilter(run_id=first.run_id, include_decided=True)
        assert await ids(decided) == [pending.pending_call_id]

    async def test_decisions_newest_first(self, store: Store) -> None:
        run = await created(store)
        calls = [a_call(run, index=index) for index in range(5)]
        pendings = [a_pending(run, call) for call in calls]
        await store.write(a_write(run, calls=tuple(calls), opened=tuple(pendings)))
        decisions = []
        for number, (call, pending) in enumerate(zip(calls, pendings, strict=True)):
            op = a_decide(pending, call, principal=f"user-{number % 2}", decide_time=1000 - number)
            decisions.append((await store.decide(op)).decision)
        _, other_call, other_pending = await waiting(store)
        other = (await store.decide(a_decide(other_pending, other_call))).decision
        newest = [other, *decisions[::-1]]

        async def read(where: DecisionFilter, limit: int) -> list[list[DecisionRow]]:
            return await pages(lambda cursor: store.list_decisions(TENANT, where, cursor=cursor, limit=limit))

        assert await read(DecisionFilter(), 4) == [newest[:4], newest[4:]]
        assert await read(DecisionFilter(), 6) == [newest]
        mine = newest[1:]
        assert await read(DecisionFilter(run_id=run.run_id), 3) == [mine[:3], mine[3:]]
        by_user = [decisions[4], decisions[2], decisions[0]]
        assert await read(DecisionFilter(principal="user-0"), 2) == [by_user[:2], by_user[2:]]
        one = DecisionFilter(pending_call_id=pendings[3].pending_call_id)
        assert await read(one, 2) == [[decisions[3]]]
        assert await read(replace(one, run_id=run.run_id, principal="user-1"), 2) == [[decisions[3]]]
        assert await read(replace(one, run_id=other.run_id), 2) == [[]]
        assert await read(DecisionFilter(run_id="unknown"), 2) == [[]]

    @pytest.mark.parametrize("cursor", ["x", "AAAA", "A" * 22, "A" * 23, "ä", "=", " ", "a\0b", "A" * 5000])
    async def test_what_is_not_a_cursor(self, store: Store, cursor: str) -> None:
        await self._refuses(store, cursor)

    async def _refuses(self, store: Store, cursor: str, *, but: str = "") -> None:
        lists: dict[str, Callable[[], Awaitable[object]]] = {
            "runs": lambda: store.list_runs(TENANT, RunFilter(), cursor=cursor, limit=1),
            "pending": lambda: store.list_pending(TENANT, PendingFilter(), cursor=cursor, limit=1),
            "decisions": lambda: store.list_decisions(TENANT, DecisionFilter(), cursor=cursor, limit=1),
        }
        for name, read in lists.items():
            if name != but:
                with pytest.raises(ValueError, match="cursor"):
                    await read()

    async def test_a_cursor_belongs_to_its_list_and_tenant(self, store: Store) -> None:
        for _ in range(3):
            await waiting(store)
        _, cursor = await store.list_runs(TENANT, RunFilter(), cursor="", limit=1)
        assert cursor
        await self._refuses(store, cursor, but="runs")
        with pytest.raises(ValueError, match="cursor"):
            await store.list_runs("other", RunFilter(), cursor=cursor, limit=1)
        for position in range(len(cursor) - 1):
            changed = "A" if cursor[position] != "A" else "B"
            forged = cursor[:position] + changed + cursor[position + 1 :]
            with pytest.raises(ValueError, match="cursor"):
                await store.list_runs(TENANT, RunFilter(), cursor=forged, limit=1)

    async def test_a_read_does_not_wait_for_writes(self, store: Store) -> None:
        run = await created(store)
        big = b"x" * 2_000_000
        writes = [store.submit(a_write(run, chunks=ChunkRow(n, n, big))) for n in range(1, 11)]
        reads = [store.create_run(CreateRun(a_run(), SPEC)) for _ in range(3)]
        found = await asyncio.gather(*(store.get_run(TENANT, run.run_id) for _ in range(20)), *reads)
        assert len(found) == 23
        await asyncio.gather(*writes)
