"""Whether a process can go on with a run: it needs every agent of the tree that waits, and what they use."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from entracte_server.agents.agent import Agent
from entracte_server.domain.runs import RunRow, Snapshot
from entracte_server.engine.stored_agents import Lacking
from entracte_server.engine.toolsets import agent_need, needs_of
from entracte_server.store.base import Store

if TYPE_CHECKING:
    from entracte_server.engine.engine import Engine


async def lacking(engine: "Engine", run: RunRow) -> str | None:
    """What a process lacks to go on with a run as it is stored; None where it has everything,
    or where the run is to be cancelled, for which it needs nothing. Raises `NotFound`, `StoreUnavailable`."""
    snapshot = await engine.store.load(run.tenant, run.run_id)
    if snapshot.run.cancel_reason is not None:
        return None
    missing = engine.lacks(needs(snapshot, await children_of(engine.store, snapshot)))
    if missing is not None:
        return missing
    try:
        await engine.agents.tree(run.tenant, run.agent_id, snapshot.spec.options.versions)
    except Lacking as lack:
        return str(lack)
    return None


async def lacking_below(engine: "Engine", run: RunRow, agent: Agent) -> str | None:
    """As `lacking`, for a run of an agent that is here, and that nobody owns: None where it has no
    sub-agents."""
    if run.owner or not agent.agents:
        return None
    return await lacking(engine, run)


def needs(snapshot: Snapshot, children: Sequence[Snapshot]) -> Iterator[str]:
    """What a process must have registered to go on with a run and those of the sub-agents it waits for,
    beside the agent of the run."""
    for one in (snapshot, *children):
        if one.spec.path:
            yield from agent_need(one.run.agent_id, one.spec.options)
        yield from needs_of(one.spec.options)


async def children_of(store: Store, snapshot: Snapshot) -> Sequence[Snapshot]:
    """The runs of sub-agents that a run waits for, at any depth. Raises `StoreUnavailable`."""
    if below := snapshot.delegated:
        return await store.load_children(snapshot.run.tenant, snapshot.run.run_id, below)
    return ()
