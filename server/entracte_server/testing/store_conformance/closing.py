"""The end: of a caller, who may go at any time, and of a store, which finishes what it was given."""

import asyncio

import pytest

from entracte_server.store.base import Store, StoreUnavailable, Written
from entracte_server.testing.store_conformance.builders import (
    TENANT,
    a_write,
    an_end,
    chunks,
    created,
    log_of,
)
from entracte_server.testing.store_conformance.suite import OpenStore, StoreSuite


class CancellationSuite(StoreSuite):
    """Callers that go away."""

    async def test_callers_that_go_away_lose_nothing(self, store: Store) -> None:
        runs = [await created(store) for _ in range(30)]
        tasks = [asyncio.create_task(store.write(a_write(run, chunks=chunks(1, 1)))) for run in runs]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        assert all(
            isinstance(outcome, asyncio.CancelledError)
            for outcome in await asyncio.gather(*tasks, return_exceptions=True)
        )
        for run in runs:
            await store.write(a_write(run, chunks=chunks(2, 2)))  # follows, so the first was written

    async def test_readers_that_go_away(self, store: Store) -> None:
        run = await created(store, last_sequence=3)
        for _ in range(20):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await store.load(TENANT, run.run_id)
        assert (await store.load(TENANT, run.run_id)).run == run

    async def test_a_deadline_of_the_caller(self, store: Store) -> None:
        run = await created(store)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await store.write(a_write(run, chunks=chunks(1, 1), end=an_end()))
        await asyncio.wait_for(store.write(a_write(await created(store))), 20)
        # Written in any case, and before what is asked for now.
        await store.delete_run(TENANT, run.run_id, force=False, request=None)


class ClosingSuite(StoreSuite):
    """`close`."""

    async def test_what_was_submitted_is_finished(self, open_store: OpenStore) -> None:
        store = await open_store()
        run = await created(store)
        futures = [store.submit(a_write(run, chunks=chunks(n, n))) for n in range(1, 1001)]
        await store.close()
        assert all(future.result() == Written() for future in futures)
        again = await open_store()
        assert await log_of(again, run) == chunks(1, 1000).data

    async def test_a_closed_store_refuses(self, open_store: OpenStore) -> None:
        store = await open_store()
        run = await created(store)
        await asyncio.gather(store.close(), store.close())
        await store.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.write(a_write(run))
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.submit(a_write(run))
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.get_run(TENANT, run.run_id)
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.renew("process", 1)

    async def test_reads_in_flight_are_finished(self, open_store: OpenStore) -> None:
        store = await open_store()
        run = await created(store)
        reads = [asyncio.create_task(store.get_run(TENANT, run.run_id)) for _ in range(50)]
        await asyncio.sleep(0)
        await store.close()
        assert await asyncio.gather(*reads) == [run] * 50

    async def test_a_cancelled_close_goes_on(self, open_store: OpenStore) -> None:
        store = await open_store()
        run = await created(store)
        write = store.submit(a_write(run, chunks=chunks(1, 1)))
        task = asyncio.create_task(store.close())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await write == Written()
        await store.close()
