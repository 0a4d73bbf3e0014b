"""The runs of a tree of agents in this process: a root's, and those that were delegated to."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from entracte_server.agents.agent import Agent
from entracte_server.domain import chunks as c
from entracte_server.domain.ids import new_id
from entracte_server.domain.options import RunOptions
from entracte_server.domain.runs import TERMINAL, CallRow, RunRow, RunSpec, Snapshot
from entracte_server.engine import below
from entracte_server.engine.runlog import now_ms
from entracte_server.engine.subrun import SubRun

if TYPE_CHECKING:
    from entracte_server.engine.run import RunExecution


class Family:
    """See the module. `stored` are the runs of sub-agents that the root waits for, as they are stored;
    `agents` are those that may have a run here, by id; `entering` are calls that are marked as started and
    were not entered, whoever made them. `recovered`: the process that executed them before is gone."""

    def __init__(
        self,
        root: Snapshot,
        stored: Sequence[Snapshot] = (),
        *,
        agents: Mapping[str, Agent],
        entering: frozenset[str] = frozenset(),
        recovered: bool = False,
    ) -> None:
        self.agents = agents
        self.entering = entering
        self._members: dict[str, SubRun] = {}
        self._early: list[CallRow] = []
        self._stored = {
            one.run.run_id: replace(one, pending=root.pending)
            for one in (map(again, stored) if recovered else stored)
        }

    def deliver(self, call: CallRow) -> bool:
        """A waiting call of a sub-agent was decided; False where it does not wait any more."""
        member = self._members.get(call.run_id)
        if member is None and call.run_id in self._stored:  # it is not entered yet
            self._early.append(call)
            return True
        return member is not None and member.decided(call)

    def begin(self, parent: "RunExecution", call: CallRow, agent: Agent, spec: RunSpec) -> CallRow:
        """A run of a sub-agent, for the call that delegates to it, to be written with the next commit; the
        call, which names it."""
        now, memory = now_ms(), spec.options.memory
        row = RunRow(
            tenant=parent.home.tenant,
            run_id=new_id(),
            agent_id=agent.id,
            state="running",
            principal=parent.home.principal,
            create_time=now,
            update_time=now,
            step=1,
            root_run_id=parent.home.run_id,
            parent_run_id=parent.row.run_id,
            agent_version=agent.version,
            thread_id="" if memory is None else memory.thread_id,
            resource_id="" if memory is None else memory.resource_id,
        )
        path = (*parent.path, c.PathElement(agent.id, call.call_id))
        spec = replace(spec, path=path, message_id=new_id())
        member = self._add(parent, call, agent, Snapshot(row, spec))
        thread = below.thread(row, agent, memory, parent.row.thread_id)
        member.log.create(row, spec, thread, c.Start(agent.id, spec.message_id))
        return replace(call, child_run_id=row.run_id)

    def enter(self, parent: "RunExecution", call: CallRow) -> SubRun:
        """The run that a call delegated to: begun here, or as it is stored."""
        if (known := parent.children.get(call.call_id)) is not None:
            return known
        snapshot = self._stored.pop(call.child_run_id)
        # To be settled and ended, a run needs no agent.
        nobody = Agent(id=snapshot.run.agent_id, model="none/none")
        agent = self.agents.get(snapshot.run.agent_id, nobody)
        return self._add(parent, call, agent, snapshot)

    def _add(self, parent: "RunExecution", call: CallRow, agent: Agent, snapshot: Snapshot) -> SubRun:
        member = SubRun(parent, call.call_id, agent, snapshot)
        parent.children[call.call_id] = self._members[snapshot.run.run_id] = member
        for early in [it for it in self._early if it.run_id == snapshot.run.run_id]:
            self._early.remove(early)
            member.decided(early)
        return member

    def leave(self, parent: "RunExecution", call: CallRow) -> CallRow:
        """A call has an outcome: its sub-agent's run is over, and what it used is the call's."""
        member = parent.children.pop(call.call_id, None)
        if member is None:
            return call
        del self._members[member.row.run_id]
        return replace(call, usage=member.total(), cost=member.cost())


def again(snapshot: Snapshot) -> Snapshot:
    """A run whose process is gone: the answer that was being received is void; the model is asked again."""
    run, last = snapshot.run, snapshot.steps[-1] if snapshot.steps else None
    if run.state in TERMINAL or (last is not None and last.step == run.step and not last.again):
        return snapshot
    return replace(snapshot, run=replace(run, attempt=run.attempt + 1))


def bare(snapshot: Snapshot) -> Snapshot:
    """A run that only has to be settled and ended, for which it needs no options."""
    return replace(snapshot, spec=replace(snapshot.spec, options=RunOptions()))
