"""Runs of sub-agents: written with their root, under its fence."""

import pytest
from msgspec.structs import replace

from entracte_server.domain.chunks import PathElement
from entracte_server.domain.results import Usage
from entracte_server.domain.runs import CallRow, PendingRow, Processing, RunRow, RunSpec
from entracte_server.store.base import ChildWrite, LeaseLost, NotFound, RunPatch, RunWrite, Standing, Store
from entracte_server.testing.store_conformance.builders import (
    OWNER,
    SPEC,
    TENANT,
    a_call,
    a_decide,
    a_park,
    a_pending,
    a_run,
    a_step,
    a_write,
    an_end,
    chunks,
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


class ChildSuite(StoreSuite):
    """`RunWrite.children`, `load_children`, and what others make of such runs."""

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
