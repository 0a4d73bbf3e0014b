"""Whether a process can go on with a run: it needs every agent of the tree that waits, and what they use."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from entracte_server.domain.runs import RunRow, Snapshot
from entracte_server.engine.toolsets import needs_of
from entracte_server.store.base import Store

if TYPE_CHECKING:
    from entracte_server.engine.engine import Engine


async def lacking(engine: "Engine", run: RunRow) -> str | None:
    """What a process lacks to go on with a run as it is stored; None where it has everything,
    or where the run is to be cancelled, for which it needs nothing. Raises `NotFound`, `StoreUnavailable`."""
    snapshot = await engine.store.load(run.tenant, run.run_id)
    if snapshot.run.cancel_reason is not None:
        return None
    return lacks(engine, snapshot, await children_of(engine.store, snapshot))


async def lacking_below(engine: "Engine", run: RunRow) -> str | None:
    """As `lacking`, for a run of an agent that is here, and that nobody owns: None where it has no
    sub-agents."""
    if run.owner or not engine.app.agents[run.agent_id].agents:
        return None
    return await lacking(engine, run)


def lacks(engine: "Engine", snapshot: Snapshot, children: Sequence[Snapshot]) -> str | None:
    """The first thing that a process lacks to go on with a run and those of the sub-agents it waits for."""
    return engine.lacks(need for one in (snapshot, *children) for need in _needs(one))


def _needs(snapshot: Snapshot) -> Iterator[str]:
    """What a process must have registered, for a root beside its agent."""
    if snapshot.spec.path:
        yield f"agent {snapshot.run.agent_id}"
    yield from needs_of(snapshot.spec.options)


async def children_of(store: Store, snapshot: Snapshot) -> Sequence[Snapshot]:
    """The runs of sub-agents that a run waits for, at any depth. Raises `StoreUnavailable`."""
    if below := snapshot.delegated:
        return await store.load_children(snapshot.run.tenant, snapshot.run.run_id, below)
    return ()
