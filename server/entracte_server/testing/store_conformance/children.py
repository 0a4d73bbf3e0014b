"""Runs of sub-agents: written with their root, under its fence."""

import pytest
from msgspec.structs import replace

from entracte_server.domain.chunks import PathElement
from entracte_server.domain.results import Usage
from entracte_server.domain.runs import CallRow, PendingRow, Processing, Remembered, RunRow, RunSpec
from entracte_server.store.base import (
    ChildWrite,
    CreateRun,
    LeaseLost,
    NotFound,
    Refused,
    RunPatch,
    RunWrite,
    Standing,
    Store,
    ThreadBelow,
)
from entracte_server.store.threads import DeleteThread, MessageRange, ThreadClaim
from entracte_server.store.working_memory import Note
from entracte_server.testing.store_conformance.builders import (
    NOW,
    OWNER,
    SPEC,
    TENANT,
    a_call,
    a_decide,
    a_message,
    a_park,
    a_pending,
    a_run,
    a_step,
    a_thread,
    a_write,
    an_end,
    chunks,
    claiming,
    created,
)
from entracte_server.testing.store_conformance.suite import StoreSuite

PATH = (PathElement("helper", "delegation"),)


def a_child(root: RunRow) -> tuple[RunRow, RunSpec]:
    """A run that a call of `root` began."""
    run = a_run(
        agent_id="helper", owner="", fence=0, root_run_id=root.run_id, parent_run_id=root.run_id, step=1
    )
    return run, replace(SPEC, path=PATH)


def beginning(root: RunRow, child: RunRow, spec: RunSpec) -> RunWrite:
    """What a root writes when it delegates."""
    call = a_call(root, call_id="delegation", state="started", child_run_id=child.run_id)
    return a_write(
        root, chunks=chunks(1, 2), calls=(call,), children=(ChildWrite(child.run_id, run=child, spec=spec),)
    )


async def with_child(store: Store) -> tuple[RunRow, RunRow]:
    """A root that has delegated."""
    root = await created(store)
    child, spec = a_child(root)
    await store.write(beginning(root, child, spec))
    return root, child


async def waiting_below(store: Store) -> tuple[RunRow, RunRow, CallRow, PendingRow]:
    """A parked root whose sub-agent waits."""
    root, child = await with_child(store)
    call = a_call(child, run_id=child.run_id)
    pending = replace(a_pending(root, call), agent_id="helper", agent_path=PATH)
    rests = ChildWrite(
        child.run_id, standing=Standing("suspended", "suspended", "suspended"), steps=(a_step(),)
    )
    write = a_write(root, calls=(call,), opened=(pending,), children=(rests,), park=a_park(3))
    assert (await store.write(write)).parked
    return root, child, call, pending


async def saying(store: Store, thread_id: str = "t") -> tuple[RunRow, RunRow]:
    """A root with the thread `t` whose sub-agent has said something on its own."""
    root, _ = await claiming(store, thread_id)
    child, spec = a_child(root)
    thread = a_thread(thread_id=f"{thread_id}/helper", resource_id="alice-helper", title="Helper")
    child = replace(child, thread_id=thread.thread_id, resource_id=thread.resource_id)
    begin = ChildWrite(
        child.run_id,
        run=child,
        spec=spec,
        thread=thread,
        messages=(a_message(id="m1", run_id=child.run_id),),
        remembered=Remembered(first=1, last=2),
    )
    await store.write(a_write(root, chunks=chunks(1, 2), children=(begin,)))
    return root, child


class ChildSuite(StoreSuite):
    """`RunWrite.children`, `load_children`, and what others make of such runs."""

    async def test_its_thread_goes_with_that_of_the_root(self, store: Store) -> None:
        root, child = await saying(store)
        below = "t/helper"
        view = await store.get_thread(TENANT, below)
        assert (view.thread.title, view.thread.resource_id) == ("Helper", "alice-helper")
        assert view.holder is not None
        assert (view.holder.run_id, view.queued) == (root.run_id, 0)
        snapshot = await store.load(TENANT, child.run_id)
        assert (snapshot.run.thread_id, snapshot.remembered) == (below, Remembered(first=1, last=2))

        # What is said again takes the place of what was said; what is noted is that thread's.
        later = (a_message(id="m1", run_id=child.run_id), a_message(id="m2", run_id=child.run_id))
        more = ChildWrite(child.run_id, messages=later)
        notes = (
            Note("above", 1, NOW),
            Note("below", 1, NOW, thread_id=below),
            Note("for all", 1, NOW, "alice"),
        )
        write = a_write(root, chunks=chunks(3, 3), children=(more,), notes=notes)
        for _ in range(2):
            await store.write(write)
        said = await store.read_messages(TENANT, below, MessageRange(), limit=9)
        assert [(m.position, m.parts) for m in said] == [(1, later[0].parts), (2, later[1].parts)]
        assert await store.read_messages(TENANT, "t", MessageRange(), limit=9) == []
        for owner, content in (("t", "above"), (below, "below")):
            noted = await store.get_working_memory(TENANT, thread_id=owner)
            assert (noted.content, noted.version) == (content, 1)
        assert (await store.get_working_memory(TENANT, resource_id="alice")).content == "for all"

        # Nobody else has it, and it is there for the next run of the root's thread.
        with pytest.raises(ThreadBelow):
            await claiming(store, below, resource_id="alice-helper")
        reader = a_run(thread_id=below, resource_id="alice-helper")
        await store.create_run(CreateRun(reader, SPEC, claim=ThreadClaim(reads_only=True)))
        with pytest.raises(Refused) as refused:
            await store.delete_thread(DeleteThread(TENANT, below, NOW))
        assert refused.value.run is not None
        assert refused.value.run.run_id == root.run_id
        await store.write(a_write(root, chunks=chunks(4, 4), end=an_end()))
        await saying(store)
        assert len(await store.read_messages(TENANT, below, MessageRange(), limit=9)) == 2

    async def test_its_thread_is_deleted_with_that_of_the_root(self, store: Store) -> None:
        root, child = await saying(store)
        other, _ = await saying(store, "other")
        await store.write(a_write(root, notes=(Note("below", 1, NOW, thread_id="t/helper"),)))
        deleted = await store.delete_thread(DeleteThread(TENANT, "t", NOW, force=True, reason="gone"))
        assert deleted.cancelled == (root.run_id,)
        for thread_id in ("t", "t/helper"):
            with pytest.raises(NotFound):
                await store.get_thread(TENANT, thread_id)
        assert len(await store.read_messages(TENANT, "other/helper", MessageRange(), limit=9)) == 1

        # What is still said goes nowhere, also where a later run has threads of the same names.
        await saying(store)
        late = ChildWrite(child.run_id, messages=(a_message(),))
        note = Note("late", 9, NOW, thread_id="t/helper")
        await store.write(a_write(root, chunks=chunks(3, 3), children=(late,), notes=(note,)))
        assert len(await store.read_messages(TENANT, "t/helper", MessageRange(), limit=9)) == 1
        assert (await store.get_working_memory(TENANT, thread_id="t/helper")).version == 0
        await store.write(a_write(root, chunks=chunks(4, 4), end=an_end(state="cancelled")))
        while await store.sweep_threads(limit=100):
            pass
        with pytest.raises(NotFound):
            await store.get_run(TENANT, child.run_id)

        # By itself it goes alone, and its root is asked to end.
        deleted = await store.delete_thread(DeleteThread(TENANT, "other/helper", NOW, force=True, reason="x"))
        assert deleted.cancelled == (other.run_id,)
        assert (await store.get_thread(TENANT, "other")).holder is not None
        while await store.sweep_threads(limit=100):
            pass
        assert (await store.get_run(TENANT, other.run_id)).cancel_reason == "x"

    async def test_without_a_thread_of_the_root_there_is_none(self, store: Store) -> None:
        root = await created(store)
        child, spec = a_child(root)
        child = replace(child, thread_id="free", resource_id="alice-helper")
        begin = ChildWrite(
            child.run_id,
            run=child,
            spec=spec,
            thread=a_thread(thread_id="free"),
            messages=(a_message(),),
        )
        await store.write(a_write(root, chunks=chunks(1, 2), children=(begin,)))
        with pytest.raises(NotFound):
            await store.get_thread(TENANT, "free")
        assert (await store.load(TENANT, child.run_id)).run.thread_id == "free"

    async def test_a_child_is_written_with_its_root(self, store: Store) -> None:
        root, child = await with_child(store)
        call = a_call(child, run_id=child.run_id, state="done")
        change = ChildWrite(
            child.run_id,
            patch=RunPatch(step=2, attempt=1, usage=Usage(1, 2, 3)),
            steps=(a_step(1), a_step(2)),
            processing=Processing(input_passed=True),
        )
        await store.write(a_write(root, chunks=chunks(3, 3), calls=(call,), children=(change,)))
        snapshot = await store.load(TENANT, child.run_id)
        assert (snapshot.run.state, snapshot.run.step, snapshot.run.attempt) == ("running", 2, 1)
        assert (snapshot.run.usage, snapshot.spec.path) == (Usage(1, 2, 3), PATH)
        assert (snapshot.steps, snapshot.calls) == ((a_step(1), a_step(2)), (call,))
        assert snapshot.processing == Processing(input_passed=True)
        above = await store.load(TENANT, root.run_id)
        assert ([c.call_id for c in above.calls], above.below) == (["delegation"], (call,))
        assert above.delegated == [child.run_id]
        assert await store.load_children(TENANT, root.run_id, [child.run_id, "nobody", root.run_id]) == [
            snapshot
        ]
        assert await store.load_children("other", root.run_id, [child.run_id]) == []

        end = ChildWrite(child.run_id, standing=Standing("failed", "error", "error"))
        await store.write(a_write(root, children=(end,)))
        row = await store.get_run(TENANT, child.run_id)
        assert (row.state, row.finish_reason, row.stop_cause) == ("failed", "error", "error")
        assert row.finish_time > 0

    async def test_the_fence_is_the_root_s(self, store: Store) -> None:
        root, child = await with_child(store)
        taken = await store.take_over(TENANT, root.run_id, fence=root.fence, owner="next")
        assert taken is not None
        before = await store.load(TENANT, child.run_id)
        other, spec = a_child(root)
        for write in (
            ChildWrite(child.run_id, patch=RunPatch(step=9), steps=(a_step(9),)),
            ChildWrite(other.run_id, run=other, spec=spec),
        ):
            with pytest.raises(LeaseLost):
                await store.write(a_write(root, children=(write,)))
        assert await store.load(TENANT, child.run_id) == before
        with pytest.raises(NotFound):
            await store.get_run(TENANT, other.run_id)

    async def test_a_repeated_write(self, store: Store) -> None:
        root = await created(store)
        child, spec = a_child(root)
        for _ in range(2):
            await store.write(beginning(root, child, spec))
        assert (await store.load(TENANT, child.run_id)).run.step == 1

    async def test_a_decision_below_takes_the_root(self, store: Store) -> None:
        root, child, call, pending = await waiting_below(store)
        assert (await store.get_run(TENANT, child.run_id)).state == "suspended"
        assert (await store.load(TENANT, child.run_id)).pending == (pending,)
        assert (await store.load(TENANT, root.run_id)).pending == (pending,)
        row, found, decided = await store.pending_of_run(TENANT, root.run_id, call.call_id)
        assert (row.run_id, found, decided) == (root.run_id, [(pending, call)], 0)
        taken = await store.decide(a_decide(pending, call))
        assert taken.snapshot is not None
        assert (taken.run.run_id, taken.run.owner) == (root.run_id, OWNER)
        [below] = taken.snapshot.below
        assert (below.state, below.run_id) == ("started", child.run_id)

    async def test_a_root_does_not_park_over_a_decision_below(self, store: Store) -> None:
        root, child = await with_child(store)
        call = a_call(child, run_id=child.run_id)
        pending = replace(a_pending(root, call), agent_path=PATH)
        await store.write(a_write(root, calls=(call,), opened=(pending,)))
        await store.decide(a_decide(pending, call))
        await store.enter(OWNER, 60.0)
        assert await store.commands(OWNER) == [(TENANT, root.run_id)]
        assert not (await store.write(a_write(root, park=a_park(3)))).parked

    async def test_a_child_is_nobody_s_orphan(self, store: Store) -> None:
        root, _ = await with_child(store)
        orphans = await store.orphans(frozenset({"support", "helper"}), limit=10)
        assert [row.run_id for row in orphans] == [root.run_id]

    async def test_a_child_goes_with_its_root(self, store: Store) -> None:
        root, child = await with_child(store)
        last = ChildWrite(child.run_id, standing=Standing("cancelled", "aborted", "cancelled"))
        await store.write(a_write(root, chunks=chunks(3, 3), children=(last,), end=an_end()))
        assert (await store.get_run(TENANT, child.run_id)).state == "cancelled"
        await store.delete_run(TENANT, root.run_id, force=False, request=None)
        with pytest.raises(NotFound):
            await store.load(TENANT, child.run_id)
