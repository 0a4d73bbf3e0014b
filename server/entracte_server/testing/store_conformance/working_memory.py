"""Working memories: replaced whole, by version or by the run that notes, and gone with their threads."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from entracte_server.domain.runs import Outcome, RunRow
from entracte_server.domain.working_memory import WorkingMemoryRow
from entracte_server.store.base import LeaseLost, MemoryChanged, NotFound, RequestReused, Store
from entracte_server.store.threads import CreateThread, DeleteThread
from entracte_server.store.working_memory import Note, SetWorkingMemory
from entracte_server.testing.store_conformance.builders import (
    NOW,
    TENANT,
    a_call,
    a_request,
    a_thread,
    a_write,
    an_end,
    chunks,
    claiming,
    taken_over,
)
from entracte_server.testing.store_conformance.isolation import ODD
from entracte_server.testing.store_conformance.suite import OpenStore, StoreSuite

THREAD = {"thread_id": "t"}
RESOURCE = {"resource_id": "alice"}


async def put(store: Store, content: str, **changes: Any) -> WorkingMemoryRow:
    op = SetWorkingMemory(**{"tenant": TENANT, "content": content, "now": NOW, **changes})
    row, made = await store.set_working_memory(op)
    assert made is None
    return row


async def get(store: Store, tenant: str = TENANT, **owner: str) -> tuple[str, int]:
    """Content and version."""
    row = await store.get_working_memory(tenant, **owner)
    return row.content, row.version


async def note(store: Store, run: RunRow, what: Note, first: int, **changes: Any) -> None:
    """What a run notes, with the result of the call that says so."""
    call = a_call(run, state="done", outcome=Outcome("result", "{}"))
    await store.write(a_write(run, chunks=chunks(first, first), calls=(call,), notes=(what,), **changes))


class WorkingMemorySuite(StoreSuite):
    """`get_working_memory`, `set_working_memory`, `RunWrite.notes`."""

    async def test_what_nobody_noted_has_no_version(self, store: Store) -> None:
        assert await store.get_working_memory(TENANT, resource_id="new") == WorkingMemoryRow(
            TENANT, resource_id="new"
        )
        for missing in ("no", "t"):
            with pytest.raises(NotFound):
                await store.get_working_memory(TENANT, thread_id=missing)
            with pytest.raises(NotFound):
                await put(store, "x", thread_id=missing)
        await store.create_thread(CreateThread(a_thread(thread_id="t")))
        assert await store.get_working_memory(TENANT, thread_id="t") == WorkingMemoryRow(TENANT, "t")

    @pytest.mark.parametrize("owner", [THREAD, RESOURCE], ids=["thread", "resource"])
    async def test_it_is_replaced_by_version(self, store: Store, owner: dict[str, str]) -> None:
        await store.create_thread(CreateThread(a_thread(thread_id="t", resource_id="alice")))
        first = await put(store, "one", expected=0, now=NOW + 7, **owner)
        assert first == WorkingMemoryRow(TENANT, **owner, content="one", version=1, update_time=NOW + 7)
        for stale in (0, 2):
            with pytest.raises(MemoryChanged) as refused:
                await put(store, "lost", expected=stale, **owner)
            assert refused.value.row == first
        assert (await put(store, "two", expected=1, **owner)).version == 2
        assert (await put(store, "", **owner)).version == 3
        assert await get(store, **owner) == ("", 3)
        # The one is not the other.
        assert await get(store, **(RESOURCE if owner == THREAD else THREAD)) == ("", 0)

    async def test_one_that_is_not_there_has_no_other_version_than_0(self, store: Store) -> None:
        with pytest.raises(MemoryChanged) as refused:
            await put(store, "lost", expected=1, **RESOURCE)
        assert refused.value.row == WorkingMemoryRow(TENANT, resource_id="alice")
        assert await get(store, **RESOURCE) == ("", 0)

    @pytest.mark.parametrize("content", ODD)
    async def test_any_text(self, store: Store, content: str) -> None:
        await put(store, content, **RESOURCE)
        assert await get(store, **RESOURCE) == (content, 1)

    async def test_tenants_and_owners_do_not_mix(self, store: Store) -> None:
        for tenant in (TENANT, "other"):
            for name in ("a", "b"):
                await store.create_thread(CreateThread(a_thread(tenant=tenant, thread_id=name)))
                for owner in ({"thread_id": name}, {"resource_id": name}):
                    await put(store, f"{tenant} {owner}", tenant=tenant, **owner)
        for tenant in (TENANT, "other"):
            for name in ("a", "b"):
                for owner in ({"thread_id": name}, {"resource_id": name}):
                    assert await get(store, tenant, **owner) == (f"{tenant} {owner}", 1)
        assert await get(store, "nobody", resource_id="a") == ("", 0)
        with pytest.raises(NotFound):
            await get(store, "nobody", thread_id="a")

    async def test_a_request_that_is_repeated_changes_nothing(self, store: Store) -> None:
        request = a_request(method="UpdateWorkingMemory")
        op = SetWorkingMemory(TENANT, "one", NOW, **RESOURCE, expected=0, request=request)
        await store.set_working_memory(op)
        await put(store, "two", **RESOURCE)
        row, made = await store.set_working_memory(op)
        assert made is not None
        assert made.run_id == "alice"
        assert (row.content, row.version) == ("two", 2)
        other = replace(request, body_hash=b"other")
        with pytest.raises(RequestReused):
            await store.set_working_memory(replace(op, request=other))
        refused = replace(op, expected=7, request=a_request(method="UpdateWorkingMemory"))
        with pytest.raises(MemoryChanged):
            await store.set_working_memory(refused)
        assert refused.request is not None
        assert await store.find_request(refused.request) is None

    async def test_a_request_that_is_sent_many_times_at_once_is_done_once(self, store: Store) -> None:
        request = a_request(method="UpdateWorkingMemory")
        op = SetWorkingMemory(TENANT, "one", NOW, **RESOURCE, expected=0, request=request)
        outcomes = await asyncio.gather(*(store.set_working_memory(op) for _ in range(10)))
        assert {(row.content, row.version) for row, _ in outcomes} == {("one", 1)}
        assert [made for _, made in outcomes].count(None) == 1

    async def test_of_many_who_read_one_version_one_changes_it(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(2)]
        for version in range(3):
            outcomes = await asyncio.gather(
                *(
                    put(stores[number % 2], f"{version}-{number}", expected=version, **RESOURCE)
                    for number in range(8)
                ),
                return_exceptions=True,
            )
            [won] = [row for row in outcomes if isinstance(row, WorkingMemoryRow)]
            assert all(isinstance(row, (WorkingMemoryRow, MemoryChanged)) for row in outcomes)
            assert await get(stores[0], **RESOURCE) == (won.content, version + 1)

    @pytest.mark.parametrize("owner", [THREAD, RESOURCE], ids=["thread", "resource"])
    async def test_a_run_notes_once(self, store: Store, owner: dict[str, str]) -> None:
        run, _ = await claiming(store, "t")
        resource_id = owner.get("resource_id", "")
        what = Note("one", version=1, now=NOW + 3, resource_id=resource_id)
        for _ in range(2):  # nobody knows whether the first was committed
            await note(store, run, what, 1)
        row = WorkingMemoryRow(TENANT, **owner, content="one", version=1, update_time=NOW + 3)
        assert await store.get_working_memory(TENANT, **owner) == row
        await note(store, run, Note("two", 2, NOW, resource_id), 2)
        await put(store, "theirs", expected=2, **owner)
        await note(store, run, Note("late", 3, NOW, resource_id), 3)
        assert await get(store, **owner) == ("late", 4)
        # Two changes that became one write.
        await note(store, run, Note("both", 6, NOW, resource_id), 4, end=an_end())
        assert await get(store, **owner) == ("both", 6)

    async def test_who_lost_a_run_notes_nothing(self, store: Store) -> None:
        run, _ = await claiming(store, "t")
        taken = await taken_over(store, run, "another")
        for resource_id in ("", "alice"):
            with pytest.raises(LeaseLost):
                await note(store, run, Note("lost", 1, NOW, resource_id), 1)
        assert await get(store, **THREAD) == ("", 0)
        assert await get(store, **RESOURCE) == ("", 0)
        await note(store, taken, Note("kept", 1, NOW), 1)
        assert await get(store, **THREAD) == ("kept", 1)

    async def test_that_of_a_thread_goes_with_it(self, store: Store) -> None:
        run, _ = await claiming(store, "t")
        await put(store, "kept", **RESOURCE)
        await note(store, run, Note("mine", 1, NOW), 1)
        await store.delete_thread(DeleteThread(TENANT, "t", NOW, force=True))
        with pytest.raises(NotFound):
            await get(store, **THREAD)
        await store.create_thread(CreateThread(a_thread(thread_id="t")))
        assert await get(store, **THREAD) == ("", 0)
        # The run has no thread any more; that of its resource is another matter.
        await note(store, run, Note("late", 2, NOW), 2)
        await note(store, run, Note("later", 2, NOW, "alice"), 3)
        assert await get(store, **THREAD) == ("", 0)
        assert await get(store, **RESOURCE) == ("later", 2)

    async def test_an_empty_one_of_a_resource_without_threads_is_not_kept(self, store: Store) -> None:
        for name in ("t", "s"):
            await store.create_thread(CreateThread(a_thread(thread_id=name, resource_id="alice")))
        await store.create_thread(CreateThread(a_thread(thread_id="b", resource_id="bob")))
        await put(store, "bob's", resource_id="bob")
        await put(store, "one", **RESOURCE)
        assert (await put(store, "", **RESOURCE)).version == 2
        await store.delete_thread(DeleteThread(TENANT, "t", NOW))
        assert await get(store, **RESOURCE) == ("", 2)  # whoever read the first one cannot write over it
        await store.delete_thread(DeleteThread(TENANT, "s", NOW))
        assert await get(store, **RESOURCE) == ("", 0)
        await put(store, "again", **RESOURCE)
        emptied = await put(store, "", expected=1, **RESOURCE)
        assert (emptied.content, emptied.version) == ("", 2)
        assert await get(store, **RESOURCE) == ("", 0)
        await store.delete_thread(DeleteThread(TENANT, "b", NOW))
        assert await get(store, resource_id="bob") == ("bob's", 1)

    async def test_runs_of_one_resource_note_side_by_side(self, open_store: OpenStore) -> None:
        """In any order; no change is lost as a version, and nobody waits for anybody for long."""
        stores = [await open_store() for _ in range(2)]
        runs = [(await claiming(stores[0], f"t-{number}"))[0] for number in range(6)]
        await asyncio.gather(
            *(
                note(stores[number % 2], run, Note(str(number), 1, NOW, ("alice", "bob")[number // 3]), 1)
                for number, run in enumerate(runs)
            )
        )
        assert (await get(stores[0], **RESOURCE))[1] == 3
        assert (await get(stores[0], resource_id="bob"))[1] == 3
