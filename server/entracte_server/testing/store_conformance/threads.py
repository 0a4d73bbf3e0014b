"""Threads: made, listed, changed, deleted with all that was said on them, and whose they are."""

import asyncio

import pytest
from msgspec.structs import replace

from entracte_server.domain.runs import RunRow
from entracte_server.domain.threads import ThreadRun, ThreadView
from entracte_server.store.base import (
    Created,
    LeaseLost,
    Made,
    NotFound,
    Refused,
    RequestReused,
    RunFilter,
    Store,
    ThreadExists,
    Written,
)
from entracte_server.store.threads import (
    CreateThread,
    DeletedThread,
    DeleteThread,
    ThreadClaim,
    UpdateThread,
)
from entracte_server.testing.store_conformance.builders import (
    NOW,
    OWNER,
    TENANT,
    a_message,
    a_request,
    a_thread,
    a_write,
    an_end,
    chunks,
    claiming,
    created,
    taken_over,
    unique,
)
from entracte_server.testing.store_conformance.messages import placed, read, say
from entracte_server.testing.store_conformance.processes import alive, orphans
from entracte_server.testing.store_conformance.suite import OpenStore, StoreSuite
from entracte_server.testing.store_conformance.turns import WAITS_ALWAYS, end, go_on, park


def a_deletion(thread_id: str, **changes: object) -> DeleteThread:
    return replace(DeleteThread(TENANT, thread_id, NOW + 5, reason="gone"), **changes)


async def gone(store: Store, run: RunRow) -> bool:
    try:
        await store.get_run(run.tenant, run.run_id)
    except NotFound:
        return True
    return False


async def swept(store: Store, limit: int = 100) -> int:
    """Sweep until nothing is left to do; how often."""
    times = 0
    while touched := await store.sweep_threads(limit=limit):
        times += 1
        assert touched <= limit
    return times


class ThreadSuite(StoreSuite):
    """`create_thread`, `get_thread`, `list_threads`, `update_thread`, `delete_thread`, `sweep_threads`."""

    async def test_made_once(self, store: Store) -> None:
        thread, request = a_thread(title="Refunds\0", metadata='{"a":1}'), a_request()
        op = CreateThread(thread, request)
        assert await store.create_thread(op) is None
        assert await store.get_thread(TENANT, thread.thread_id) == ThreadView(thread)
        assert await store.create_thread(op) == Made(thread.thread_id)
        assert await store.find_request(request) == Made(thread.thread_id)
        with pytest.raises(RequestReused):
            await store.create_thread(CreateThread(a_thread(), replace(request, body_hash=b"other")))
        with pytest.raises(ThreadExists):
            await store.create_thread(CreateThread(replace(thread, resource_id="bob"), a_request()))
        assert await store.get_thread(TENANT, thread.thread_id) == ThreadView(thread)

    async def test_made_at_the_same_time(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(3)]
        thread_id = unique("thread")
        made = await asyncio.gather(
            *(
                store.create_thread(CreateThread(a_thread(thread_id=thread_id, title=str(number))))
                for number, store in enumerate(stores * 2)
            ),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in made if outcome is not None] == [ThreadExists] * 5

    async def test_requests_that_are_repeated_at_the_same_time(self, open_store: OpenStore) -> None:
        one, two = await open_store(), await open_store()
        thread = a_thread()
        creation = CreateThread(thread, a_request())
        update = UpdateThread(TENANT, thread.thread_id, NOW + 7, title="One", request=a_request())
        deletion = a_deletion(thread.thread_id, request=a_request())
        made = await asyncio.gather(*((one, two)[number % 2].create_thread(creation) for number in range(6)))
        assert [before for before in made if before] == [Made(thread.thread_id)] * 5
        changed = await asyncio.gather(*((one, two)[number % 2].update_thread(update) for number in range(6)))
        assert [before for _, before in changed if before] == [Made(thread.thread_id)] * 5
        deleted = await asyncio.gather(
            *((one, two)[number % 2].delete_thread(deletion) for number in range(6))
        )
        assert [row.made for row in deleted if row.made] == [Made(thread.thread_id)] * 5

    async def test_whose_it_is(self, store: Store) -> None:
        mine, theirs = a_thread(), a_thread(tenant="other", resource_id="bob")
        theirs = replace(theirs, thread_id=mine.thread_id)
        for thread in (mine, theirs):
            await store.create_thread(CreateThread(thread))
        assert (await store.get_thread("other", mine.thread_id)).thread == theirs
        with pytest.raises(NotFound):
            await store.get_thread("third", mine.thread_id)
        update = UpdateThread("third", mine.thread_id, NOW, title="x")
        with pytest.raises(NotFound):
            await store.update_thread(update)
        with pytest.raises(NotFound):
            await store.delete_thread(a_deletion(mine.thread_id, tenant="third"))
        await store.update_thread(replace(update, tenant="other"))
        await store.delete_thread(a_deletion(mine.thread_id, tenant="other"))
        assert await store.get_thread(TENANT, mine.thread_id) == ThreadView(mine)
        assert await store.list_threads("other", "", cursor="", limit=9) == ([], "")

    async def test_lists(self, store: Store) -> None:
        made = [a_thread(resource_id=("alice", "bob")[number % 2]) for number in range(7)]
        for thread in made:
            await store.create_thread(CreateThread(thread))
        await store.create_thread(CreateThread(a_thread(tenant="other")))
        run, _ = await claiming(store, made[4].thread_id)
        message = a_message()
        await say(store, run, message)
        await claiming(store, made[4].thread_id, WAITS_ALWAYS)
        busy = replace(made[4], last_position=1, update_time=message.create_time)
        views = [ThreadView(thread) for thread in made]
        views[4] = ThreadView(busy, ThreadRun(run.run_id, "running"), 1)
        for resource_id, expected in (("", views), ("alice", views[::2]), ("bob", views[1::2])):
            found: list[ThreadView] = []
            cursor, pages = "", 0
            while pages == 0 or cursor:
                page, cursor = await store.list_threads(TENANT, resource_id, cursor=cursor, limit=3)
                found += page
                pages += 1
            assert found == expected[::-1]
            assert pages == -(-len(expected) // 3)
        _, cursor = await store.list_threads(TENANT, "", cursor="", limit=3)
        for tenant, wrong in (("other", cursor), (TENANT, "x"), (TENANT, cursor[:-1])):
            with pytest.raises(ValueError, match="cursor"):
                await store.list_threads(tenant, "", cursor=wrong, limit=3)
        with pytest.raises(ValueError, match="cursor"):
            await store.list_runs(TENANT, RunFilter(), cursor=cursor, limit=3)
        await store.delete_thread(a_deletion(made[6].thread_id))
        page, cursor = await store.list_threads(TENANT, "alice", cursor="", limit=3)
        assert (page, cursor) == (views[4::-2], "")

    async def test_pages_are_bounded_in_bytes(self, store: Store) -> None:
        for _ in range(4):
            await store.create_thread(CreateThread(a_thread(metadata=f'"{"x" * 3_000_000}"')))
        page, cursor = await store.list_threads(TENANT, "", cursor="", limit=9)
        rest, last = await store.list_threads(TENANT, "", cursor=cursor, limit=9)
        assert (len(page), len(rest), last) == (2, 2, "")

    async def test_changed(self, store: Store) -> None:
        thread = a_thread(metadata='{"a":1}')
        await store.create_thread(CreateThread(thread))

        async def update(**changes: object) -> tuple[ThreadView, Made | None]:
            op = UpdateThread(TENANT, thread.thread_id, NOW + 7)
            return await store.update_thread(replace(op, **changes))

        assert await update() == (ThreadView(thread), None)
        titled = replace(thread, title="One", update_time=NOW + 7)
        request = a_request()
        assert await update(title="One", if_untitled=True, request=request) == (ThreadView(titled), None)
        assert await update(title="Two", if_untitled=True) == (ThreadView(titled), None)
        told = replace(titled, metadata='{"b":2}')
        assert await update(metadata='{"b":2}') == (ThreadView(told), None)
        plain = replace(told, title="", metadata=None, update_time=NOW + 8)
        assert await update(title="", metadata="", now=NOW + 8) == (ThreadView(plain), None)
        assert await update(title="One", if_untitled=True, request=request) == (
            ThreadView(plain),
            Made(thread.thread_id),
        )
        with pytest.raises(RequestReused):
            await update(title="x", request=replace(request, body_hash=b"other"))
        unused = a_request()
        with pytest.raises(NotFound):
            await update(thread_id="unknown", title="x", request=unused)
        assert await store.find_request(unused) is None
        assert await store.get_thread(TENANT, thread.thread_id) == ThreadView(plain)

    async def test_changed_only_where_a_run_said_something(self, store: Store) -> None:
        run, _ = await claiming(store, "t")
        await say(store, run, a_message(run_id=run.run_id))
        op = UpdateThread(TENANT, "t", NOW, title="Mine", if_run=run.run_id)
        view, _ = await store.update_thread(replace(op, title="Other", if_run="another"))
        assert view.thread.title == ""
        view, _ = await store.update_thread(op)
        assert view.thread.title == "Mine"
        await store.delete_thread(a_deletion("t", force=True))
        other = a_thread(thread_id="t")
        await store.create_thread(CreateThread(other))
        assert await store.update_thread(op) == (ThreadView(other), None)

    async def test_deleted(self, store: Store) -> None:
        run, _ = await claiming(store, "t")
        await say(store, run, a_message(), a_message())
        unused = a_request()
        with pytest.raises(Refused) as refused:
            await store.delete_thread(a_deletion("t", request=unused))
        assert refused.value.cause == "not-finished"
        assert refused.value.run == await store.get_run(TENANT, run.run_id)
        assert await store.find_request(unused) is None
        await end(store, run)
        op = a_deletion("t", request=a_request())
        assert await store.delete_thread(op) == DeletedThread()
        assert await store.delete_thread(op) == DeletedThread(made=Made("t"))
        with pytest.raises(NotFound):
            await store.delete_thread(a_deletion("t"))
        with pytest.raises(NotFound):
            await store.get_thread(TENANT, "t")
        with pytest.raises(NotFound):
            await read(store)
        assert await store.list_threads(TENANT, "", cursor="", limit=9) == ([], "")
        await swept(store)
        assert await gone(store, run)
        assert await store.sweep_threads(limit=9) == 0

    async def test_deleted_while_runs_have_it(self, store: Store) -> None:
        """Those that are parked or wait go on without an owner, to end; the one that runs is told."""
        process_id = await alive(store)
        running, _ = await claiming(store, "r", owner=process_id)
        parked, _ = await claiming(store, "p", owner=process_id)
        await park(store, parked)
        queued = [(await claiming(store, thread_id, WAITS_ALWAYS))[0] for thread_id in "rp"]
        for thread_id, holder, waits in (("r", running, queued[0]), ("p", parked, queued[1])):
            deleted = await store.delete_thread(a_deletion(thread_id, force=True))
            assert deleted.cancelled == (holder.run_id, waits.run_id)
        rows = [await store.get_run(TENANT, run.run_id) for run in (running, parked, *queued)]
        assert [row.state for row in rows] == ["running"] * 4
        assert [row.cancel_reason for row in rows] == ["gone"] * 4
        assert [row.owner for row in rows] == [process_id, "", "", ""]
        assert (rows[1].finish_reason, rows[1].stop_cause) == (None, None)
        assert await store.commands(process_id) == [(TENANT, running.run_id)]
        found = {run.run_id for run in await orphans(store, frozenset())}
        assert found == {parked.run_id, *(run.run_id for run in queued)}
        assert await store.overdue(2**52, limit=9) == []
        # Their rows are left until they have ended.
        assert await store.sweep_threads(limit=9) == 0
        for run in (parked, *queued):
            await taken_over(store, run, OWNER)
        for run in (running, parked, *queued):
            assert await end(store, run) == Written()
        await swept(store)
        assert [await gone(store, run) for run in (running, parked, *queued)] == [True] * 4

    async def test_the_name_is_used_again_while_old_runs_go_on(self, store: Store) -> None:
        old, _ = await claiming(store, "t")
        before = a_message()
        await say(store, old, before)
        await store.delete_thread(a_deletion("t", force=True))
        new, made = await claiming(store, "t", ThreadClaim(title="New"), resource_id="bob")
        assert made == Created()
        waits, _ = await claiming(store, "t", WAITS_ALWAYS, resource_id="bob")
        said = a_message(id=before.id)
        await say(store, new, said)
        assert await swept(store) == 1
        await say(store, old, a_message(), before)
        assert await swept(store) == 0  # nothing was added to what is gone
        assert await read(store) == placed(said)
        assert await say(store, old, a_message(), chunks=chunks(1, 1), end=an_end()) == Written()
        assert await end(store, new) == Written(freed=True)
        await go_on(store, waits)
        await swept(store)
        assert [await gone(store, run) for run in (old, new, waits)] == [True, False, False]
        view = await store.get_thread(TENANT, "t")
        assert (view.thread.title, view.thread.last_position) == ("New", 1)
        assert view.holder == ThreadRun(waits.run_id, "running")
        assert await read(store) == placed(said)
        # And once more, with what is left of both.
        await store.delete_thread(a_deletion("t", force=True))
        await end(store, waits)
        third, _ = await claiming(store, "t")
        await swept(store)
        assert [await gone(store, run) for run in (new, waits, third)] == [True, True, False]

    async def test_a_thread_without_runs_takes_none_along(self, store: Store) -> None:
        await store.create_thread(CreateThread(a_thread(thread_id="t")))
        await store.delete_thread(a_deletion("t"))
        run, _ = await claiming(store, "t")
        await end(store, run)
        assert await swept(store) == 1
        assert not await gone(store, run)

    async def test_swept_a_little_at_a_time(self, store: Store) -> None:
        other, _ = await claiming(store, "kept")
        runs = []
        for _ in range(3):
            run, _ = await claiming(store, "t")
            child = await created(store, root_run_id=run.run_id, parent_run_id=run.run_id)
            await say(store, run, *(a_message() for _ in range(5)), chunks=chunks(1, 3), end=an_end())
            runs += [run, child]
        kept = a_message()
        await say(store, other, kept)
        await store.delete_thread(a_deletion("t"))
        assert await swept(store, limit=4) == 5
        assert [await gone(store, run) for run in runs] == [True] * 6
        assert await read(store, thread_id="kept") == placed(kept)
        with pytest.raises(LeaseLost):
            await store.write(a_write(runs[0], chunks=chunks(4, 4)))

    async def test_large_ones_are_swept_in_several_goes(self, store: Store) -> None:
        run, _ = await claiming(store, "t")
        big = a_message(metadata=f'"{"x" * 5_000_000}"')
        for number in range(4):
            await say(store, run, replace(big, id=f"big-{number}"))
        await end(store, run)
        await store.delete_thread(a_deletion("t"))
        assert await store.sweep_threads(limit=100) == 2
        assert await swept(store) >= 2
        assert await gone(store, run)

    async def test_swept_by_several_at_the_same_time(self, open_store: OpenStore) -> None:
        one, two = await open_store(), await open_store()
        for number in range(4):
            run, _ = await claiming(one, f"t{number}")
            await say(one, run, *(a_message() for _ in range(6)), chunks=chunks(1, 1), end=an_end())
            await one.delete_thread(a_deletion(f"t{number}"))
        await asyncio.gather(swept(one, 3), swept(two, 3))
        assert await swept(one) == 0
        assert (await one.list_runs(TENANT, RunFilter(), cursor="", limit=9))[0] == []

    async def test_deleted_and_wanted_at_the_same_time(self, open_store: OpenStore) -> None:
        one, two = await open_store(), await open_store()
        await claiming(one, "t")
        for _ in range(8):
            deleted, (run, made) = await asyncio.gather(
                one.delete_thread(a_deletion("t", force=True)), claiming(two, "t", WAITS_ALWAYS)
            )
            assert made.queued is (run.run_id in deleted.cancelled)
            now = await one.get_run(TENANT, run.run_id)
            if made.queued:
                assert (now.state, now.owner, now.cancel_reason) == ("running", "", "gone")
                run, made = await claiming(two, "t")
                assert not made.queued
            view = await one.get_thread(TENANT, "t")
            assert (view.holder, view.queued) == (ThreadRun(run.run_id, "running"), 0)
