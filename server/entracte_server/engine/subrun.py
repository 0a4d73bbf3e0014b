"""The run of a sub-agent: the same loop, inside the run of the agent that delegated.

It executes under its root's ownership and writes to its root's log. When all that is left of it waits for
people it does not park by itself: it rests, and the root parks when every run below it rests.
"""

import asyncio
from collections.abc import Sequence

from entracte_server.agents.agent import Agent
from entracte_server.domain import chunks as c
from entracte_server.domain.runs import TERMINAL, CallRow, PendingRow, Resolution, RunRow, Snapshot
from entracte_server.engine import endings, processed
from entracte_server.engine.approving import Approving
from entracte_server.engine.childlog import ChildLog, root_log
from entracte_server.engine.endings import Ending
from entracte_server.engine.judging import Budget
from entracte_server.engine.run import RunExecution
from entracte_server.engine.toolsets import agent_need, needs_of
from entracte_server.telemetry.base import Segment
from entracte_server.wire.codec import ChunkEncoder


class _Within(Segment):
    """What waits in a sub-agent's run counts as the root's; the rest is a part of its parent's."""

    def __init__(self, around: Segment) -> None:
        self._around = around

    def opened(self, pending: PendingRow) -> None:
        """See `Segment`."""
        self._around.opened(pending)

    def decided(self, call_id: str, tool_name: str, resolution: Resolution) -> None:
        """See `Segment`."""
        self._around.decided(call_id, tool_name, resolution)


class SubRun(RunExecution):
    """See the module. Owned by the settlement of the step that delegated, which runs `execute` in a task."""

    log: ChildLog

    def __init__(self, parent: RunExecution, call_id: str, agent: Agent, snapshot: Snapshot) -> None:
        self.parent = parent
        self.call_id = call_id
        run, services = snapshot.run, parent.services
        super().__init__(
            snapshot=snapshot,
            agent=agent,
            models=services.resolve(agent) if agent.id in parent.family.agents else (),
            services=services,
            log=ChildLog(root_log(parent.log), run, snapshot.spec.path),
            family=parent.family,
            toolsets=parent.toolsets,
            approving=Approving(
                agent, snapshot.spec.options, services.app.approval_predicates, parent.home.run_id
            ),
            segment=_Within(parent.segment),
            entering=parent.family.entering,
        )
        self._snapshot = snapshot
        self.leaving = parent.leaving
        self._quiet = False
        self._rests = run.state == "suspended"
        self.ending: Ending | None = None
        """How it ended, once it has."""
        if run.state in TERMINAL and run.finish_reason is not None and run.stop_cause is not None:
            self.ending = Ending(run.state, run.finish_reason, run.stop_cause, run.error)

    @property
    def own_id(self) -> str:
        """See `RunExecution`."""
        return self.row.run_id

    @property
    def prompt(self) -> str:
        """What its agent was asked to do."""
        return self._snapshot.spec.input[-1].text

    @property
    def home(self) -> RunRow:
        """See `RunExecution`."""
        return self.parent.home

    @property
    def needs(self) -> tuple[str, ...]:
        """See `RunExecution`."""
        own = (*agent_need(self.agent.id, self.spec.options), *needs_of(self.spec.options))
        return tuple(dict.fromkeys((*self.parent.needs, *own)))

    @property
    def budgets_above(self) -> Sequence[Budget]:
        """See `RunExecution`."""
        return self.parent.judging.budgets

    @property
    def time_limit(self) -> float | None:
        """The root's is enough."""
        return None

    @property
    def is_idle(self) -> bool:
        """Whether nothing of it, and of what it delegated, goes on without people."""
        settlement = self._settlement
        return self._quiet and not self.inbox and settlement is not None and not settlement.busy

    async def execute(self) -> Ending:
        """Until it has ended. Raises `HandedOver`, `LeaseLost`, `StoreUnavailable`."""
        if self.ending is not None:
            return self.ending
        self._started = asyncio.get_running_loop().time()
        with self.services.telemetry.below(self._snapshot, self.agent):
            try:
                ending = await self.until_rest()
            except BaseException:
                self.undo_entering()
                raise
            assert ending is not None
            await endings.write(self, ending)
        self.ending = ending
        return ending

    def drop(self, message: str) -> None:
        """The run that delegated ends: so does this one, without another step."""
        if self.ending is not None:
            return
        self.asking.keep_partial("aborted")
        endings.drop_calls(self, message)
        if self.steps and self.steps[-1].held:  # what did not pass is dropped
            self.remember(processed.withheld(self.steps[-1]))
        self.ending = Ending("cancelled", "aborted", "cancelled")
        if self.memory is not None:
            self.memory.keep_all(None)
        self.log.emit(c.Abort(message), c.Finish("aborted", "cancelled", self.total()))
        self.log.stand("cancelled", "aborted", "cancelled")

    # ---- resting ----

    async def park(self) -> bool:
        """All that is left waits for people: rest until something happens."""
        if not self._rests:
            self._rests = True
            if self.memory is not None:
                self.memory.keep_steps()
            self.log.stand("suspended", "suspended", self.parking().stop_cause)
            self.log.flush()
        self._quiet = True
        self.parent.stir()
        try:
            assert self._settlement is not None
            await self._settlement.event()
        finally:
            self._quiet = False
        return False

    def parked(self) -> list[tuple[ChunkEncoder, c.Payload]]:
        """What is shown of it when the root parks, with the runs below it first."""
        below = [it for child in self.children.values() for it in child.parked()]
        return [*below, (self.log.encoder, self.parking())]

    async def decided_calls(self) -> list[CallRow]:
        """They are delivered."""
        return []

    def decided(self, call: CallRow) -> bool:
        """A waiting call of it was decided; False where it does not wait any more."""
        known = self.calls.get(call.call_id)
        if known is None or known.state != "waiting" or known.round != call.round:
            return False
        self.inbox.append(call)
        self.stir()
        return True

    def awake(self) -> None:
        """See `RunExecution`."""
        if self._rests:
            self._rests = False
            self.log.stand("running")
        self.parent.awake()
