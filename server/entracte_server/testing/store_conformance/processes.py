"""Processes: their leases, what they own, who goes on with it when they are gone, and what others want."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from entracte_server.domain.runs import SNAPSHOT_FORMAT, Outcome, RunRow
from entracte_server.store.base import LeaseLost, Release, RunPatch, Sighting, Store, Written
from entracte_server.testing.store_conformance.builders import (
    OWNER,
    TENANT,
    a_call,
    a_cancel,
    a_decide,
    a_park,
    a_pending,
    a_run,
    a_step,
    a_write,
    chunks,
    created,
    ended,
    everything,
    log_of,
    taken_over,
    took,
    unique,
    waiting,
)
from entracte_server.testing.store_conformance.suite import OpenStore, StoreSuite

LONG = 600.0
"""Seconds that no test takes."""

AGENTS = frozenset({"support"})


def keys(runs: list[RunRow]) -> list[tuple[str, str]]:
    return [(run.tenant, run.run_id) for run in runs]


async def orphans(store: Store, agents: frozenset[str] = AGENTS, limit: int = 1000) -> list[RunRow]:
    return await store.orphans(agents, limit=limit)


async def sighting(store: Store, run: RunRow) -> Sighting:
    (seen,) = await store.peek([(run.tenant, run.run_id)])
    return seen


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something is so, which takes no more than a moment."""
    async with asyncio.timeout(20):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.02)


async def dead(store: Store) -> str:
    """A process whose lease has ended."""
    process_id = unique("dead")
    await store.enter(process_id, 0.01)

    async def over() -> bool:
        return not await store.renew(process_id, 0.01)

    await until(over)
    return process_id


async def alive(store: Store) -> str:
    process_id = unique("alive")
    await store.enter(process_id, LONG)
    return process_id


class LeaseSuite(StoreSuite):
    """`enter`, `renew`, `leave`, `lead`."""

    async def test_a_lease_is_renewed_while_it_lasts(self, store: Store) -> None:
        process_id = await alive(store)
        assert await store.renew(process_id, LONG)
        assert await store.renew(process_id, LONG)

    async def test_a_lease_that_has_ended_is_not_renewed(self, store: Store) -> None:
        process_id = await dead(store)
        run = await created(store, owner=process_id)
        assert not await store.renew(process_id, LONG)
        assert not (await sighting(store, run)).alive
        await store.enter(process_id, LONG)
        assert await store.renew(process_id, LONG)
        assert (await sighting(store, run)).alive

    async def test_a_lease_is_as_long_as_it_was_renewed_for(self, store: Store) -> None:
        process_id = await alive(store)
        run = await created(store, owner=process_id)
        assert await store.renew(process_id, 0.05)

        async def over() -> bool:
            return not (await sighting(store, run)).alive

        await until(over)
        assert not await store.renew(process_id, LONG)

    async def test_who_never_entered_has_no_lease(self, store: Store) -> None:
        assert not await store.renew("unknown", LONG)
        run = await created(store, owner="unknown")
        assert not (await sighting(store, run)).alive

    async def test_leaving(self, store: Store) -> None:
        process_id, other = await alive(store), await alive(store)
        run = await created(store, owner=process_id)
        await store.leave(process_id)
        assert not await store.renew(process_id, LONG)
        assert keys(await orphans(store)) == keys([run])
        await store.leave(process_id)
        await store.leave("unknown")
        assert await store.renew(other, LONG)

    async def test_processes_of_different_stores_know_of_each_other(self, open_store: OpenStore) -> None:
        one, two = await open_store(), await open_store()
        first, second = await alive(one), await alive(two)
        mine, other = await created(one, owner=first), await created(one, owner=second)
        assert await orphans(one) == await orphans(two) == []
        assert (await sighting(two, mine)).alive
        await two.leave(second)
        assert keys(await orphans(one)) == keys(await orphans(two)) == keys([other])
        assert await two.renew(first, LONG)

    @pytest.mark.parametrize("stores", [1, 2])
    async def test_a_duty_is_one_process_s(self, open_store: OpenStore, stores: int) -> None:
        one = await open_store()
        two = one if stores == 1 else await open_store()
        first, second = await alive(one), await alive(two)
        assert await one.lead("sweep", first, LONG)
        assert not await two.lead("sweep", second, LONG)
        assert await one.lead("sweep", first, LONG)
        assert await two.lead("another", second, LONG)
        assert not await one.lead("another", first, LONG)

    async def test_a_duty_is_free_when_its_time_has_run_out(self, store: Store) -> None:
        first, second = await alive(store), await alive(store)
        assert await store.lead("sweep", first, 0.05)

        async def free() -> bool:
            return await store.lead("sweep", second, LONG)

        await until(free)
        assert not await store.lead("sweep", first, LONG)

    async def test_a_duty_ends_with_its_process(self, store: Store) -> None:
        first, second = await alive(store), await alive(store)
        assert await store.lead("sweep", first, LONG)
        await store.leave(first)
        assert await store.lead("sweep", second, LONG)

    async def test_of_many_that_want_a_duty_one_gets_it(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(3)]
        processes = [await alive(store) for store in stores]
        for _ in range(10):
            duty = unique("duty")
            got = await asyncio.gather(
                *(store.lead(duty, who, LONG) for store, who in zip(stores, processes, strict=True))
            )
            assert got.count(True) == 1


class OwnershipSuite(StoreSuite):
    """`orphans`, `owned`, `take_over`, releases."""

    async def test_orphans_are_running_runs_of_nobody_alive(self, store: Store) -> None:
        living, gone, left = await alive(store), await dead(store), await alive(store)
        await store.leave(left)
        released = await created(store, owner=gone)
        await store.write(a_write(released, release=Release(0)))
        expected = [
            released,
            await created(store, owner=gone),
            await created(store, owner=left),
            await created(store, owner="never-entered"),
            await created(store, owner=gone, tenant="other"),
        ]
        await created(store, owner=living)
        await created(store, owner="", fence=0, state="queued")
        await waiting(store, owner=gone)
        await ended(store, owner=gone)
        found = await orphans(store)
        assert keys(found) == keys(expected)  # oldest first
        assert found == [await store.get_run(run.tenant, run.run_id) for run in expected]
        assert keys(await orphans(store, limit=2)) == keys(expected[:2])

    async def test_orphans_are_those_of_the_agents(self, store: Store) -> None:
        gone = await dead(store)
        one, two, three = [await created(store, owner=gone, agent_id=agent) for agent in ("a", "b", "c")]
        assert keys(await orphans(store, frozenset({"a", "c", "unknown"}))) == keys([one, three])
        assert await orphans(store, frozenset()) == []
        await store.cancel(a_cancel(two))  # whoever finds it can end it
        assert keys(await orphans(store, frozenset({"a"}))) == keys([one, two])
        assert keys(await orphans(store, frozenset())) == keys([two])

    async def test_orphans_are_not_of_a_newer_format(self, store: Store) -> None:
        gone = await dead(store)
        newer = await created(store, owner=gone, format=SNAPSHOT_FORMAT + 1)
        await store.cancel(a_cancel(newer))
        assert await orphans(store) == []

    async def test_owned(self, store: Store) -> None:
        living = await alive(store)
        mine = [
            await created(store, owner=living),
            await created(store, owner=living, tenant="other", agent_id="another"),
        ]
        await created(store, owner="somebody")
        await waiting(store, owner=living)
        await ended(store, owner=living)
        assert await store.owned(living) == mine
        assert await store.owned("unknown") == []

    async def test_taking_over(self, store: Store) -> None:
        run = await created(store, owner="gone", fence=3, last_sequence=2)
        taken = await store.take_over(run.tenant, run.run_id, fence=3, owner="next")
        assert taken is not None
        assert taken == await store.get_run(run.tenant, run.run_id)
        changed = {"owner": "next", "fence": 4, "takeovers": 1, "update_time": taken.update_time}
        assert taken == replace(run, **changed)
        assert taken.update_time > 0
        await store.write(a_write(taken, chunks=chunks(3, 3)))
        call = a_call(run, state="done", outcome=Outcome("result", "1"))
        before = await everything(store, run)
        for write in (a_write(run, calls=(call,)), a_write(run, chunks=chunks(4, 4)), a_write(run)):
            with pytest.raises(LeaseLost):
                await store.write(write)
        assert await everything(store, run) == before

    async def test_what_cannot_be_taken_over(self, store: Store) -> None:
        run = await created(store, fence=3)
        parked, _, _ = await waiting(store)
        over = await ended(store)
        queued = await created(store, owner="", fence=0, state="queued")
        before = [await everything(store, row) for row in (run, parked, over, queued)]
        for tenant, run_id, fence in (
            (TENANT, run.run_id, 2),
            (TENANT, run.run_id, 4),
            ("other", run.run_id, 3),
            (TENANT, "unknown", 1),
            (TENANT, parked.run_id, parked.fence),
            (TENANT, over.run_id, over.fence),
            (TENANT, queued.run_id, 0),
        ):
            assert await store.take_over(tenant, run_id, fence=fence, owner="next") is None
        assert [await everything(store, row) for row in (run, parked, over, queued)] == before

    async def test_of_many_that_take_over_one_gets_the_run(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(2)]
        runs = [await created(stores[0]) for _ in range(10)]
        for run in runs:
            outcomes = await asyncio.gather(
                *(
                    store.take_over(run.tenant, run.run_id, fence=1, owner=f"{side}-{number}")
                    for number in range(5)
                    for side, store in enumerate(stores)
                )
            )
            (taken,) = [outcome for outcome in outcomes if outcome is not None]
            assert taken == await stores[1].get_run(run.tenant, run.run_id)
            assert (taken.fence, taken.takeovers) == (2, 1)

    async def test_takeovers_that_count(self, store: Store) -> None:
        run = await created(store)
        for number in range(1, 4):
            run = await taken_over(store, run, f"process-{number}")
            assert run.takeovers == number
        run = await taken_over(store, run, "process-9", counted=False)
        assert (run.takeovers, run.fence, run.owner) == (3, 5, "process-9")
        await store.write(a_write(run, release=Release(0)))
        run = await taken_over(store, run, "process-10")  # it had no owner
        assert (run.takeovers, run.fence) == (3, 6)

    async def test_progress_starts_the_count_anew(self, store: Store) -> None:
        run = await created(store)
        call = a_call(run, state="started")
        done = replace(call, state="done", outcome=Outcome("result", "1"))
        run = await taken_over(store, run, "process-2")
        await store.write(a_write(run, chunks=chunks(1, 1), calls=(call,), patch=RunPatch(step=1, attempt=1)))
        assert (await store.get_run(run.tenant, run.run_id)).takeovers == 1
        for number, progress in enumerate(
            (
                a_write(run, steps=(a_step(),)),
                a_write(run, calls=(done,)),
                a_write(run, calls=(a_call(run, index=1), done), chunks=chunks(2, 2)),
            )
        ):
            await store.write(replace(progress, fence=run.fence))
            assert (await store.get_run(run.tenant, run.run_id)).takeovers == 0
            run = await taken_over(store, run, f"process-{number + 3}")
            assert run.takeovers == 1
        assert (await store.write(a_write(run, park=a_park(3)))).parked
        assert (await store.get_run(run.tenant, run.run_id)).takeovers == 0

    async def test_a_release(self, store: Store) -> None:
        run = await created(store, executed_ms=5)
        write = a_write(run, chunks=chunks(1, 2), patch=RunPatch(step=1), release=Release(40))
        assert await store.write(write) == Written()
        row = await store.get_run(run.tenant, run.run_id)
        assert (row.state, row.owner, row.fence, row.executed_ms) == ("running", "", 1, 45)
        assert (row.last_sequence, row.step, row.finish_time) == (2, 1, 0)
        before = await everything(store, run)
        assert await store.write(write) == Written()  # repeated
        for late in (a_write(run), a_write(run, chunks=chunks(3, 3)), a_write(run, park=a_park(3))):
            with pytest.raises(LeaseLost):
                await store.write(late)
        assert await everything(store, run) == before
        assert not (await sighting(store, run)).alive
        assert keys(await orphans(store)) == keys([run])

    async def test_a_release_without_chunks(self, store: Store) -> None:
        run = await created(store)
        write = a_write(run, release=Release(1))
        await store.write(write)
        assert await store.write(write) == Written()
        assert (await store.get_run(run.tenant, run.run_id)).executed_ms == 1
        taken = await taken_over(store, run, "process-2")
        with pytest.raises(LeaseLost):
            await store.write(write)
        assert await store.get_run(run.tenant, run.run_id) == taken

    async def test_a_decision_or_a_cancellation_takes_a_released_run(self, store: Store) -> None:
        run, call, pending = await waiting(store, park=False)
        await store.write(a_write(run, release=Release(0)))
        decided = await store.decide(a_decide(pending, call, owner="process-2"))
        assert took(decided)
        assert (decided.run.state, decided.run.owner, decided.run.fence) == ("running", "process-2", 2)
        other = await created(store)
        await store.write(a_write(other, release=Release(0)))
        cancelled = await store.cancel(a_cancel(other, owner="process-3"))
        assert cancelled.took
        assert (cancelled.run.owner, cancelled.run.fence) == ("process-3", 2)

    async def test_a_decision_waits_for_who_takes_over(self, store: Store) -> None:
        """The owner is dead and nobody has noticed: the decision is written and nobody owns it twice."""
        gone = await dead(store)
        run, call, pending = await waiting(store, park=False, owner=gone)
        decided = await store.decide(a_decide(pending, call, owner="process-2"))
        assert not took(decided)
        taken = await taken_over(store, run, "process-3")
        assert (await store.load(run.tenant, run.run_id)).calls == (replace(call, state="decided"),)
        assert await store.commands("process-3") == keys([taken])

    async def test_a_run_deleted_by_another_store_and_made_anew(self, open_store: OpenStore) -> None:
        """What a store remembers of runs it wrote does not outlive them."""
        one, two = await open_store(), await open_store()
        run = await created(one, run_id="again")
        await one.write(a_write(run, chunks=chunks(1, 1)))
        other = await taken_over(two, run, "process-2")
        assert (await two.write(a_write(other, chunks=chunks(2, 2), park=a_park(3)))).parked
        await two.delete_run(run.tenant, run.run_id, force=True, request=None)
        again = await created(two, run_id="again")
        await one.write(a_write(again, chunks=chunks(1, 2)))
        await two.write(a_write(again, chunks=chunks(3, 3)))
        await one.write(a_write(again, chunks=chunks(4, 4)))
        assert await log_of(one, again) == chunks(1, 4).data
        await two.write(a_write(again, park=a_park(5)))
        await two.delete_run(run.tenant, run.run_id, force=True, request=None)
        with pytest.raises(LeaseLost):
            await one.write(a_write(again, chunks=chunks(5, 5)))


class CommandSuite(StoreSuite):
    """`commands`, `peek`."""

    async def test_commands_are_what_others_want(self, store: Store) -> None:
        idle = await created(store)
        cancelled = await created(store, agent_id="another", tenant="other")
        decided, call, pending = await waiting(store, park=False)
        both, other_call, other_pending = await waiting(store, park=False)
        somebodys, third_call, third_pending = await waiting(store, park=False, owner="somebody")
        assert await store.commands(OWNER) == []
        await store.cancel(a_cancel(cancelled))
        await store.decide(a_decide(pending, call))
        await store.cancel(a_cancel(both))
        await store.decide(a_decide(other_pending, other_call))
        await store.decide(a_decide(third_pending, third_call))
        assert sorted(await store.commands(OWNER)) == sorted(keys([cancelled, decided, both]))
        assert await store.commands("somebody") == keys([somebodys])
        # Taken up: the call is no longer merely decided.
        await store.write(a_write(decided, calls=(replace(call, state="started", key="k"),)))
        assert sorted(await store.commands(OWNER)) == sorted(keys([cancelled, both]))
        assert keys([idle])[0] not in await store.commands(OWNER)

    async def test_commands_are_the_owner_s(self, store: Store) -> None:
        run = await created(store)
        await store.cancel(a_cancel(run))
        await taken_over(store, run, "process-2")
        assert await store.commands(OWNER) == []
        assert await store.commands("process-2") == keys([run])

    async def test_there_are_no_commands_for_what_waits_or_is_over(self, store: Store) -> None:
        run = await created(store)
        call = a_call(run, state="decided")
        await store.write(a_write(run, calls=(call,)))
        await store.cancel(a_cancel(run))
        assert await store.commands(OWNER) == keys([run])
        await store.write(a_write(run, release=Release(0)))
        assert await store.commands(OWNER) == []
        assert await store.commands("") == keys([run])
        await waiting(store)
        assert await store.commands(OWNER) == []

    async def test_peeking(self, store: Store) -> None:
        living, gone = await alive(store), await dead(store)
        mine = await created(store, owner=living, last_sequence=2)
        lost = await created(store, owner=gone, fence=7)
        parked, _, _ = await waiting(store, owner=living)
        over = await ended(store, owner=living)
        elsewhere = await created(store, owner=living, tenant="other", run_id=mine.run_id, last_sequence=9)
        asked = [*keys([mine, lost, parked, over, elsewhere]), (TENANT, "unknown"), ("unknown", mine.run_id)]
        seen = {(sighting.tenant, sighting.run_id): sighting for sighting in await store.peek(asked)}
        assert seen == {
            (TENANT, mine.run_id): Sighting(TENANT, mine.run_id, "running", 1, living, 2, True),
            (TENANT, lost.run_id): Sighting(TENANT, lost.run_id, "running", 7, gone, 0, False),
            (TENANT, parked.run_id): Sighting(TENANT, parked.run_id, "suspended", 1, "", 4, False),
            (TENANT, over.run_id): Sighting(TENANT, over.run_id, "succeeded", 1, "", 1, False),
            ("other", mine.run_id): Sighting("other", mine.run_id, "running", 1, living, 9, True),
        }
        assert await store.peek([]) == []

    async def test_peeking_at_many(self, store: Store) -> None:
        runs = [await created(store) for _ in range(30)]
        asked = keys([*runs, *(a_run() for _ in range(970))])
        assert sorted((s.tenant, s.run_id) for s in await store.peek(asked)) == sorted(keys(runs))

    async def test_an_opened_call_is_no_command(self, store: Store) -> None:
        run = await created(store)
        call = a_call(run)
        await store.write(a_write(run, calls=(call,), opened=(a_pending(run, call),)))
        assert await store.commands(OWNER) == []
