"""What a run's owner writes: creation, progress, parking, end; refused when it owns the run no more."""

import asyncio

import pytest
from msgspec.structs import replace

from entracte_server.domain.messages import FilePart, ReasoningPart, TextPart
from entracte_server.domain.results import RunError, Usage
from entracte_server.domain.runs import FileRecord, Outcome, Processing, Response, SourceRecord
from entracte_server.store.base import ChunkRow, CreateRun, LeaseLost, RunExists, RunPatch, Store, Written
from entracte_server.testing.store_conformance.builders import (
    OWNER,
    SPEC,
    a_call,
    a_cancel,
    a_decide,
    a_decision,
    a_park,
    a_pending,
    a_run,
    a_step,
    a_write,
    an_end,
    chunks,
    created,
    ended,
    everything,
    log_of,
    taken_over,
    waiting,
)
from entracte_server.testing.store_conformance.suite import StoreSuite


class OwnerSuite(StoreSuite):
    """`create_run`, `submit`, `write`."""

    async def test_a_run_comes_back_as_it_was_created(self, store: Store) -> None:
        run = a_run(
            owner="p",
            fence=4,
            last_sequence=2,
            step=1,
            attempt=2,
            usage=Usage(1, 2, 3, 4, 5),
            takeovers=1,
            thread_id="thread",
            resource_id="resource",
            root_run_id="root",
            parent_run_id="parent",
            agent_version="3",
        )
        await store.create_run(CreateRun(run, SPEC, chunks(1, 2)))
        snapshot = await store.load(run.tenant, run.run_id)
        assert snapshot.run == run
        assert snapshot.spec == SPEC
        assert (snapshot.steps, snapshot.calls, snapshot.pending) == ((), (), ())
        assert await store.get_run(run.tenant, run.run_id) == run
        assert await log_of(store, run) == b"<1><2>"

    @pytest.mark.parametrize("root", ["", "self"])
    async def test_a_run_without_chunks_or_parents(self, store: Store, root: str) -> None:
        run = a_run(run_id="self", root_run_id=root)
        await store.create_run(CreateRun(run, SPEC))
        assert await store.get_run(run.tenant, run.run_id) == run
        assert await store.read_chunks(run.tenant, run.run_id, after=0, limit_bytes=1) == ([], 1)

    async def test_a_taken_run_id(self, store: Store) -> None:
        run = await created(store, last_sequence=1)
        before = await everything(store, run)
        with pytest.raises(RunExists):
            await store.create_run(
                CreateRun(replace(run, agent_id="other", owner="thief"), SPEC, chunks(1, 1))
            )
        assert await everything(store, run) == before

    async def test_of_many_that_want_one_run_id_one_gets_it(self, store: Store) -> None:
        run = a_run()
        attempts = [
            store.create_run(CreateRun(replace(run, owner=f"process-{number}"), SPEC)) for number in range(50)
        ]
        outcomes = await asyncio.gather(*attempts, return_exceptions=True)
        winners = [number for number, outcome in enumerate(outcomes) if not isinstance(outcome, RunExists)]
        assert len(winners) == 1
        assert (await store.get_run(run.tenant, run.run_id)).owner == f"process-{winners[0]}"

    async def test_progress_is_stored_as_written(self, store: Store) -> None:
        run = await created(store)
        step = a_step(
            parts=(ReasoningPart("hm", signature="s"), TextPart("Sure."), FilePart(data=b"\xff\x00")),
            response=Response("r1", "m", 7, {"x": "y"}, '{"a":1}'),
            warnings=("w",),
            sources=(SourceRecord("s", "https://x"),),
            files=(FileRecord("image/png", b"\x89PNG\x00"),),
        )
        first, second = a_call(run, state="started", key="k"), a_call(run, index=1, state="requested")
        written = await store.write(
            a_write(
                run,
                chunks=chunks(1, 4),
                patch=RunPatch(step=1, attempt=2, usage=Usage(3, 4, 7)),
                steps=(step,),
                calls=(first, second),
            )
        )
        assert written == Written(parked=False)
        snapshot = await store.load(run.tenant, run.run_id)
        assert snapshot.steps == (step,)
        assert snapshot.calls == (first, second)
        row = snapshot.run
        assert (row.last_sequence, row.step, row.attempt, row.usage) == (4, 1, 2, Usage(3, 4, 7))
        assert (row.state, row.owner, row.fence) == ("running", OWNER, 1)
        assert row.update_time > 0

    async def test_a_patch_leaves_what_it_does_not_name(self, store: Store) -> None:
        run = await created(store, step=2, attempt=3, usage=Usage(1, 1, 2))
        await store.write(a_write(run, patch=RunPatch(attempt=4)))
        row = await store.get_run(run.tenant, run.run_id)
        assert (row.step, row.attempt, row.usage) == (2, 4, Usage(1, 1, 2))
        await store.write(a_write(run, patch=RunPatch(usage=Usage(), step=0)))
        row = await store.get_run(run.tenant, run.run_id)
        assert (row.step, row.attempt, row.usage) == (0, 4, Usage())

    async def test_what_processors_keep_is_replaced(self, store: Store) -> None:
        run, other = await created(store), await created(store, run_id="other")
        await store.write(a_write(run, processing=Processing({"pii": '{"seen":1}'}, failures=1)))
        then = Processing({"pii": '{"seen":2}'}, True, SPEC.input, spent=Usage(1, 2, 3))
        await store.write(a_write(run, processing=then, chunks=chunks(1, 1)))
        await store.write(a_write(run, chunks=chunks(2, 2)))
        assert (await store.load(run.tenant, run.run_id)).processing == then
        assert (await store.load(other.tenant, other.run_id)).processing is None
        parked = await store.write(a_write(run, processing=Processing(), park=a_park(3)))
        assert parked == Written(parked=True)
        assert (await store.load(run.tenant, run.run_id)).processing == Processing()

    async def test_calls_and_steps_are_replaced_by_id_and_number(self, store: Store) -> None:
        run = await created(store)
        call, other = a_call(run), a_call(run, index=1)
        await store.write(a_write(run, steps=(a_step(), a_step(2)), calls=(call, other)))
        done = replace(call, state="done", outcome=Outcome("result", "null"))
        again = a_step(attempt=2, parts=(TextPart("second try"),))
        await store.write(a_write(run, steps=(again,), calls=(done,)))
        snapshot = await store.load(run.tenant, run.run_id)
        assert snapshot.steps == (again, a_step(2))
        assert snapshot.calls == (done, other)

    async def test_writes_take_effect_in_the_order_they_are_submitted(self, store: Store) -> None:
        run = await created(store)
        futures = [
            store.submit(a_write(run, chunks=chunks(n, n), patch=RunPatch(step=n))) for n in range(1, 301)
        ]
        assert all(written == Written() for written in await asyncio.gather(*futures))
        row = await store.get_run(run.tenant, run.run_id)
        assert (row.last_sequence, row.step) == (300, 300)
        assert await log_of(store, run) == chunks(1, 300).data

    async def test_parking(self, store: Store) -> None:
        run, call, pending = await waiting(store)
        assert (run.state, run.owner, run.fence, run.last_sequence) == ("suspended", "", 1, 4)
        assert (run.finish_reason, run.stop_cause, run.executed_ms) == ("suspended", "suspended", 100)
        assert run.finish_time == 0
        snapshot = await store.load(run.tenant, run.run_id)
        assert snapshot.calls == (call,)
        assert snapshot.pending == (pending,)
        rows, _ = await store.read_chunks(run.tenant, run.run_id, after=0, limit_bytes=10_000)
        assert rows == [chunks(1, 4)]  # committed together: one row

    async def test_parking_without_other_chunks(self, store: Store) -> None:
        run = await created(store, last_sequence=2)
        assert await store.write(a_write(run, park=a_park(3))) == Written(parked=True)
        assert await log_of(store, run) == b"<1><2><3>"
        assert (await store.get_run(run.tenant, run.run_id)).last_sequence == 3

    async def test_a_run_does_not_park_over_a_decided_call(self, store: Store) -> None:
        run, call, pending = await waiting(store, park=False)
        decided = await store.decide(a_decide(pending, call))
        assert decided.snapshot is None
        other = a_call(run, index=1)
        write = a_write(run, chunks=chunks(4, 5), patch=RunPatch(step=9), calls=(other,), park=a_park(6))
        assert await store.write(write) == Written(parked=False)
        snapshot = await store.load(run.tenant, run.run_id)
        assert (snapshot.run.state, snapshot.run.owner) == ("running", OWNER)
        assert (snapshot.run.last_sequence, snapshot.run.step) == (5, 9)
        assert snapshot.run.executed_ms == 0
        assert snapshot.calls == (replace(call, state="decided"), other)
        assert await log_of(store, run) == chunks(1, 5).data
        # Once it has processed the call, in the very same write, it parks.
        done = replace(call, state="done", outcome=Outcome("result", "1"))
        assert (await store.write(a_write(run, calls=(done,), park=a_park(6)))).parked

    async def test_a_run_does_not_park_over_a_cancellation(self, store: Store) -> None:
        run = await created(store)
        assert not (await store.cancel(a_cancel(run))).took
        assert not (await store.write(a_write(run, park=a_park(1)))).parked
        row = await store.get_run(run.tenant, run.run_id)
        assert (row.state, row.owner, row.cancel_reason) == ("running", OWNER, "changed my mind")
        assert row.last_sequence == 0

    async def test_executed_time_adds_up(self, store: Store) -> None:
        run, call, pending = await waiting(store)
        decided = await store.decide(a_decide(pending, call))
        await store.write(a_write(decided.run, calls=(replace(call, state="waiting"),), park=a_park(5)))
        assert (await store.get_run(run.tenant, run.run_id)).executed_ms == 200
        cancelled = await store.cancel(a_cancel(run))
        await store.write(a_write(cancelled.run, chunks=chunks(6, 6), end=an_end()))
        assert (await store.get_run(run.tenant, run.run_id)).executed_ms == 250

    async def test_the_end_of_a_run(self, store: Store) -> None:
        run, call, pending = await waiting(store, park=False)
        error = RunError("provider_error", "boom", 503, True, 1.5, "c", "{}")
        cancelled = a_decision(pending, verb="cancel", principal="system")
        await store.write(
            a_write(
                run,
                chunks=chunks(4, 6),
                calls=(replace(call, state="done", outcome=Outcome("cancelled", "m", "cancelled")),),
                closed=(cancelled,),
                end=an_end(state="failed", finish_reason="error", stop_cause="error", error=error),
            )
        )
        row = await store.get_run(run.tenant, run.run_id)
        assert (row.state, row.owner, row.last_sequence) == ("failed", "", 6)
        assert (row.finish_reason, row.stop_cause, row.error) == ("error", "error", error)
        assert row.executed_ms == 50
        assert row.finish_time > 0
        assert (await store.load(run.tenant, run.run_id)).pending == ()
        settled, decision = await store.get_pending(run.tenant, pending.pending_call_id)
        assert (settled.state, settled.decision_id) == ("decided", cancelled.decision_id)
        assert decision == replace(cancelled, sequence=3)  # what follows 3 tells of it

    async def test_an_end_leaves_nothing_to_decide(self, store: Store) -> None:
        run, _, pending = await waiting(store, park=False)
        await store.write(a_write(run, end=an_end()))
        assert (await store.load(run.tenant, run.run_id)).pending == ()
        row, decision = await store.get_pending(run.tenant, pending.pending_call_id)
        assert (row.state, decision) == ("decided", None)

    async def test_closing_does_not_touch_what_somebody_decided(self, store: Store) -> None:
        run, call, pending = await waiting(store, park=False)
        decided = await store.decide(a_decide(pending, call))
        late = a_decision(pending, verb="cancel", principal="system")
        await store.write(a_write(run, closed=(late,), end=an_end()))
        row, decision = await store.get_pending(run.tenant, pending.pending_call_id)
        assert row.decision_id == decided.decision.decision_id
        assert decision == decided.decision

    async def test_closing_touches_calls_of_the_run_only(self, store: Store) -> None:
        run = await created(store)
        other, _, pending = await waiting(store)
        await store.write(a_write(run, closed=(a_decision(pending, run_id=run.run_id),)))
        assert (await store.load(other.tenant, other.run_id)).pending == (pending,)

    async def test_closing_keeps_the_sequence_it_is_given(self, store: Store) -> None:
        run, _, pending = await waiting(store, park=False)
        closed = a_decision(pending, verb="cancel", sequence=2)
        await store.write(a_write(run, chunks=chunks(4, 4), closed=(closed,)))
        assert await store.get_decision(run.tenant, closed.decision_id) == closed

    @pytest.mark.parametrize("fence", [0, 2, 99])
    async def test_another_fence_is_refused(self, store: Store, fence: int) -> None:
        run = await created(store, last_sequence=2)
        before = await everything(store, run)
        call = a_call(run)
        writes = [
            a_write(run, fence=fence, chunks=chunks(3, 4), calls=(call,), opened=(a_pending(run, call),)),
            a_write(run, fence=fence, patch=RunPatch(step=7), steps=(a_step(),)),
            a_write(run, fence=fence, park=a_park(3)),
            a_write(run, fence=fence, end=an_end()),
            a_write(run, fence=fence),
        ]
        for write in writes:
            with pytest.raises(LeaseLost):
                await store.write(write)
        assert await everything(store, run) == before

    async def test_a_former_owner_is_refused(self, store: Store) -> None:
        run, call, pending = await waiting(store)
        for write in (a_write(run), a_write(run, chunks=chunks(5, 5)), a_write(run, end=an_end())):
            with pytest.raises(LeaseLost):
                await store.write(write)  # parked: nobody owns it
        decided = await store.decide(a_decide(pending, call, owner="process-2"))
        assert decided.run.fence == 2
        with pytest.raises(LeaseLost):
            await store.write(a_write(run, chunks=chunks(5, 5)))
        await store.write(a_write(decided.run, chunks=chunks(5, 5)))
        with pytest.raises(LeaseLost):
            await store.write(a_write(a_run(run_id="unknown"), chunks=chunks(1, 1)))

    async def test_a_refused_write_does_not_disturb_others(self, store: Store) -> None:
        runs = [await created(store) for _ in range(20)]
        futures = [
            store.submit(a_write(run, fence=1 + number % 2, chunks=chunks(1, 2)))
            for number, run in enumerate(runs)
        ]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        for number, (run, outcome) in enumerate(zip(runs, outcomes, strict=True)):
            row = await store.get_run(run.tenant, run.run_id)
            if number % 2:
                assert isinstance(outcome, LeaseLost)
                assert row == run
            else:
                assert outcome == Written()
                assert row.last_sequence == 2

    async def test_chunks_leave_no_gap(self, store: Store) -> None:
        run = await created(store, last_sequence=2)
        before = await everything(store, run)
        for write in (
            a_write(run, chunks=chunks(4, 5)),
            a_write(run, chunks=chunks(2, 3)),
            a_write(run, chunks=chunks(3, 4), calls=(a_call(run),), park=a_park(6)),
            a_write(run, park=a_park(2)),
        ):
            with pytest.raises(ValueError, match="do not follow"):
                await store.write(write)
        with pytest.raises(ValueError, match="first chunks"):
            await store.create_run(CreateRun(a_run(last_sequence=3), SPEC, ChunkRow(1, 2, b"")))
        assert await everything(store, run) == before

    async def test_a_repeated_write_changes_nothing(self, store: Store) -> None:
        run = await created(store)
        call = a_call(run)
        pending = a_pending(run, call)
        write = a_write(
            run,
            chunks=chunks(1, 3),
            patch=RunPatch(step=1),
            steps=(a_step(),),
            calls=(call,),
            opened=(pending,),
        )
        await store.write(write)
        decided = await store.decide(a_decide(pending, call))
        before = await everything(store, run)
        assert await store.write(write) == Written()
        assert await everything(store, run) == before
        assert before[0].calls == (replace(call, state="decided"),)
        # Nor when more was written since.
        await store.write(a_write(run, chunks=chunks(4, 4)))
        assert await store.write(write) == Written()
        assert await log_of(store, run) == chunks(1, 4).data
        assert decided.decision.sequence == 3

    async def test_a_repeated_opening_without_chunks(self, store: Store) -> None:
        run = await created(store)
        call = a_call(run)
        pending = a_pending(run, call)
        write = a_write(run, calls=(call,), opened=(pending,))
        await store.write(write)
        await store.decide(a_decide(pending, call))
        assert await store.write(write) == Written()
        snapshot = await store.load(run.tenant, run.run_id)
        assert snapshot.calls == (replace(call, state="decided"),)
        assert snapshot.pending == ()

    @pytest.mark.parametrize("with_chunks", [True, False])
    async def test_a_repeated_parking(self, store: Store, with_chunks: bool) -> None:
        run = await created(store)
        write = (
            a_write(run, chunks=chunks(1, 3), park=a_park(4)) if with_chunks else a_write(run, park=a_park(1))
        )
        assert (await store.write(write)).parked
        before = await everything(store, run)
        assert (await store.write(write)).parked
        assert await everything(store, run) == before

    async def test_a_repeated_parking_that_was_refused(self, store: Store) -> None:
        run, call, pending = await waiting(store, park=False)
        await store.decide(a_decide(pending, call))
        write = a_write(run, chunks=chunks(4, 4), park=a_park(5))
        assert not (await store.write(write)).parked
        before = await everything(store, run)
        assert not (await store.write(write)).parked
        assert await everything(store, run) == before

    async def test_a_repeated_parking_after_somebody_took_the_run(self, store: Store) -> None:
        run, call, pending = await waiting(store, park=False)
        write = a_write(run, chunks=chunks(4, 4), park=a_park(5))
        await store.write(write)
        decided = await store.decide(a_decide(pending, call))
        assert decided.snapshot is not None
        before = await everything(store, run)
        with pytest.raises(LeaseLost):
            await store.write(write)
        assert await everything(store, run) == before

    @pytest.mark.parametrize("with_chunks", [True, False])
    async def test_a_repeated_end(self, store: Store, with_chunks: bool) -> None:
        run, _, pending = await waiting(store, park=False)
        write = a_write(
            run,
            chunks=chunks(4, 5) if with_chunks else None,
            closed=(a_decision(pending, verb="cancel"),),
            end=an_end(),
        )
        await store.write(write)
        before = await everything(store, run)
        assert await store.write(write) == Written()
        assert await everything(store, run) == before
        with pytest.raises(LeaseLost):
            await store.write(replace(write, end=an_end(state="failed")))

    async def test_a_cancelled_caller_does_not_stop_a_write(self, store: Store) -> None:
        run = await created(store)
        task = asyncio.create_task(store.write(a_write(run, chunks=chunks(1, 2))))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        future = store.submit(a_write(run, chunks=chunks(3, 3)))
        future.cancel()
        await store.write(a_write(run, chunks=chunks(4, 4)))
        assert await log_of(store, run) == chunks(1, 4).data

    async def test_a_run_id_used_again(self, store: Store) -> None:
        first = await ended(store, run_id="again", last_sequence=1)
        await store.delete_run(first.tenant, first.run_id, force=False, request=None)
        second = await created(store, run_id="again", last_sequence=2)
        await store.write(a_write(second, chunks=chunks(3, 3)))
        assert await log_of(store, second) == chunks(1, 3).data

    async def test_takeovers_are_counted_until_there_is_progress(self, store: Store) -> None:
        run = await created(store)
        for number in range(1, 3):
            run = await taken_over(store, run, f"process-{number + 1}")
            assert run.takeovers == number
        await store.write(a_write(run, chunks=chunks(1, 1), calls=(a_call(run),), patch=RunPatch(step=1)))
        assert (await store.get_run(run.tenant, run.run_id)).takeovers == 2
        await store.write(a_write(run, steps=(a_step(),)))
        assert (await store.get_run(run.tenant, run.run_id)).takeovers == 0
        run = await taken_over(store, run, "process-9")
        await store.write(a_write(run, park=a_park(2)))
        assert (await store.get_run(run.tenant, run.run_id)).takeovers == 0
