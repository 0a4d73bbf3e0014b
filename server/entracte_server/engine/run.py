"""One segment of a run: from its start, its resumption or its recovery to its parking or its end.

The loop: ask the model, settle the calls it made, finish the step, again. Everything it needs is in
the store; what it holds in memory can be made anew from a `Snapshot`, which is what happens after a
parking and after a crash.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from entracte_server.agents.agent import Agent
from entracte_server.domain import chunks as c
from entracte_server.domain import json_text
from entracte_server.domain.options import (
    DEFAULT_MAX_STEPS,
    DEFAULT_TOOL_CALL_CONCURRENCY,
)
from entracte_server.domain.results import RunError, Usage
from entracte_server.domain.runs import (
    CallRow,
    PendingRow,
    RunRow,
    Snapshot,
    StepRecord,
)
from entracte_server.domain.work import CloseWork
from entracte_server.engine import endings, processed, prompt, spending
from entracte_server.engine.approving import Approving
from entracte_server.engine.asking import Asking
from entracte_server.engine.childlog import Log
from entracte_server.engine.configure import merge_options
from entracte_server.engine.endings import Ending
from entracte_server.engine.hooking import HookFailed
from entracte_server.engine.judging import Budget, Judging
from entracte_server.engine.outside import OpenedWork
from entracte_server.engine.processing import processing_of
from entracte_server.engine.processor_calls import ProcessorFailed, Vetoed
from entracte_server.engine.questions import step_text
from entracte_server.engine.remembering import memory_of
from entracte_server.engine.runlog import RunLog
from entracte_server.engine.services import Services
from entracte_server.engine.settle import HandedOver, Settlement
from entracte_server.engine.structured import Structuring
from entracte_server.engine.toolsets import Toolsets, needs_of
from entracte_server.models.base import Model, ModelError
from entracte_server.store.base import LeaseLost, RunPatch, StoreUnavailable
from entracte_server.store.signals import FREE_RUNS
from entracte_server.telemetry.base import Segment

if TYPE_CHECKING:
    from entracte_server.engine.family import Family
    from entracte_server.engine.subrun import SubRun

_log = structlog.get_logger(__name__)


class RunExecution:
    """See the module. Owned by the engine, which runs `drive` in a task."""

    def __init__(
        self,
        *,
        snapshot: Snapshot,
        agent: Agent,
        models: Sequence[Model],
        services: Services,
        log: Log,
        family: "Family",
        toolsets: Toolsets,
        approving: Approving,
        segment: Segment,
        entering: frozenset[str] = frozenset(),
        announced: bool = False,
        exhausted: bool = False,
    ) -> None:
        self.row = snapshot.run
        self.spec = prompt.processed(snapshot.spec, snapshot.processing)
        self.agent = agent
        self.log = log
        self.segment = segment
        self.services = services
        self.family = family
        self.path = snapshot.spec.path
        self.steps = list(snapshot.steps)
        self.calls = {call.call_id: call for call in snapshot.calls}
        self.entering = {call_id for call_id in entering if call_id in self.calls}
        """Calls that are marked as started and whose bodies were not entered."""
        self.children: dict[str, SubRun] = {}
        """The runs of sub-agents that it waits for, by the call that delegated."""
        self.work: dict[str, OpenedWork] = {}
        """What workers do for it, by the call."""
        self.inbox: deque[CallRow] = deque()
        self.pending = {row.pending_call_id: row for row in snapshot.pending if row.agent_path == self.path}
        self.step = snapshot.run.step
        self.attempt = snapshot.run.attempt or 1
        self.cancel_reason = snapshot.run.cancel_reason
        self.leaving = False
        self.rested = False
        """Whether it parked or ended here."""
        self.has_follow_ups = False
        """Whether it ended here and something is still to be done about it."""
        options = snapshot.spec.options
        self.toolsets = toolsets
        self.tools = toolsets.tools_of(agent, options)
        self.approving = approving
        self.tool_choice = merge_options(agent, options).tool_choice
        self.concurrency = (
            options.tool_call_concurrency or agent.tool_call_concurrency or DEFAULT_TOOL_CALL_CONCURRENCY
        )
        structured = options.structured_output
        self.structuring = None if structured is None else Structuring(self, structured)
        self.asking = Asking(self, models, announced=announced)
        self._exhausted = exhausted
        self._cut: asyncio.Timeout | None = None
        self.max_steps = options.max_steps or agent.max_steps or DEFAULT_MAX_STEPS
        self._settlement: Settlement | None = None
        self._scope: asyncio.Timeout | None = None
        self._started = 0.0
        self._request_context: Mapping[str, Any] | None = None
        self.judging = Judging(self)
        self.processing = processing_of(self, snapshot.processing)
        self.memory = memory_of(self, snapshot)

    # ---- what the settlement works with ----

    @property
    def request_context(self) -> Mapping[str, Any]:
        """The caller's values."""
        if self._request_context is None:
            text = self.spec.options.request_context
            self._request_context = json_text.parse(text) if text else {}
        return self._request_context

    def calls_of(self, step: int) -> list[CallRow]:
        """The calls of a step, in the model's order."""
        return sorted((k for k in self.calls.values() if k.step == step), key=lambda k: k.index)

    def update(self, call: CallRow) -> None:
        """A call's row changes; written with the next commit."""
        self.calls[call.call_id] = call
        self.log.stage(calls=(call,))
        if call.state != "started" and (work := self.work.pop(call.call_id, None)) is not None:
            self.log.stage(closed_work=(CloseWork(work.work_id, unwanted=not work.heard),))

    def opened(self, pending: PendingRow) -> None:
        """A call waits; written with the next commit."""
        self.pending[pending.pending_call_id] = pending
        self.log.stage(opened=(pending,))
        self.segment.opened(pending)

    def shown(self, call: CallRow) -> CallRow:
        """Show the decision on a call, if the stream has not shown it yet."""
        resolution = call.resolution
        if resolution is None:
            return call
        self.pending.pop(resolution.pending_call_id, None)
        self.segment.decided(call.call_id, call.tool_name, resolution)
        self.log.emit(
            c.ToolCallResolved(
                pending_call_id=resolution.pending_call_id,
                tool_call_id=call.call_id,
                tool_name=call.tool_name,
                verb=resolution.verb,
                principal=resolution.principal,
                decision_id=resolution.decision_id,
                edited_args=call.run_args if resolution.edited else None,
            )
        )
        return msgspec.structs.replace(call, resolution=None)

    def is_late(self, call_id: str) -> bool:
        """Whether nobody waits for the tool of a call any more."""
        call = self.calls.get(call_id)
        return call is None or call.state != "started"

    def write_out(self, call_id: str, payload: c.Payload) -> None:
        """A running tool reports. What comes too late is dropped."""
        if self.is_late(call_id):
            return
        try:
            self.log.emit(payload)
            self.log.flush()
        except (LeaseLost, StoreUnavailable):
            return

    async def park(self) -> bool:
        """Give the run up until somebody decides; False when a decision or cancellation is there."""
        assert isinstance(self.log, RunLog)
        below = [it for child in self.children.values() for it in child.parked()]
        if below:
            self.note_spending()
        finish = self.parking()
        if self.memory is not None:
            self.memory.keep_steps()
        parked = await self.log.park(finish, "suspended", finish.stop_cause, self.executed_ms(), below)
        if parked:
            self.segment.rested("suspended", "suspended", finish.stop_cause)
        return parked

    def parking(self) -> c.Finish:
        """How the run shows that it parks: with all calls that wait, in the order they were made, those of
        a sub-agent where it was delegated to."""
        open_calls = tuple(self._open_calls())
        cause: c.StopCause = (
            "client-tool" if all(call.kind == "client-tool" for call in open_calls) else "suspended"
        )
        return c.Finish("suspended", cause, self.total(), open_calls)

    def _open_calls(self) -> Iterator[c.OpenCall]:
        by_call = {row.call_id: row for row in self.pending.values()}
        for call in self.calls_of(self.step):
            if (row := by_call.get(call.call_id)) is not None:
                yield c.OpenCall(row.pending_call_id, row.call_id, row.tool_name, row.kind, self.path)
            elif (child := self.children.get(call.call_id)) is not None:
                yield from child._open_calls()

    def note_spending(self) -> None:
        """What sub-agents that have not ended used so far is stored; written with the next commit."""
        for call_id, child in self.children.items():
            child.note_spending()
            spent = msgspec.structs.replace(self.calls[call_id], usage=child.total(), cost=child.cost())
            self.update(spent)
        self.log.stage(patch=RunPatch(usage=self.total()))

    async def decided_calls(self) -> list[CallRow]:
        """The calls decided since the run last looked; notices a cancellation, too. Raises
        `RuntimeError` when there is neither, so that a run that cannot park does not spin."""
        if self._settlement is not None and self._settlement.busy:  # a sub-agent goes on
            return []
        snapshot = await self.services.store.load(*self.log.key)
        if snapshot.run.cancel_reason is not None:
            self.request_cancel(snapshot.run.cancel_reason)
            return []
        below = [call for call in snapshot.below if call.state == "decided" and self.family.deliver(call)]
        decided = [
            call
            for call in snapshot.calls
            if call.state == "decided"
            and self.calls[call.call_id].state == "waiting"
            and self.calls[call.call_id].round == call.round
        ]
        if not decided and not below and not self.inbox:
            raise RuntimeError("the run may not park, but nothing of it was decided")
        return decided

    # ---- what the engine calls ----

    def deliver(self, call: CallRow) -> None:
        """A waiting call of the run, or of one below it, was decided."""
        if call.run_id != self.own_id:
            self.family.deliver(call)
            return
        self.inbox.append(call)
        self.stir()

    def stir(self) -> None:
        """There is something to look at."""
        if self._settlement is not None:
            self._settlement.wake()

    def awake(self) -> None:
        """Something of it goes on that had waited for people."""

    @property
    def own_id(self) -> str:
        """Whose its calls are, as `CallRow.run_id` has it."""
        return ""

    @property
    def home(self) -> RunRow:
        """The row of the root of the tree."""
        return self.row

    @property
    def needs(self) -> tuple[str, ...]:
        """What a process that goes on with it must have registered, beside the root's agent."""
        return needs_of(self.spec.options)

    @property
    def budgets_above(self) -> "Sequence[Budget]":
        """Limits of the runs that delegated to it."""
        return ()

    @property
    def time_limit(self) -> float | None:
        """How long it may execute, in seconds."""
        return self.spec.options.execution_timeout or self.services.settings.execution_timeout

    def request_cancel(self, reason: str) -> None:
        """Somebody asked to cancel the run."""
        if self.cancel_reason is None:
            self.cancel_reason = reason
        if self._scope is not None and not self._scope.expired():
            self._scope.reschedule(asyncio.get_running_loop().time())

    def hand_over(self) -> None:
        """Give the run up as soon as no tool of it executes; another process goes on with it. A model
        call is cut at once: it is made again as the next attempt."""
        self.leaving = True
        self.stir()
        for child in self.children.values():
            child.hand_over()
        if self._cut is not None and not self._cut.expired():
            self._cut.reschedule(asyncio.get_running_loop().time())

    async def drive(self) -> None:
        """Execute the run until it parks or ends, or is handed over."""
        self._started = asyncio.get_running_loop().time()
        try:
            ending = await self.until_rest()
            if ending is not None:
                await endings.write(self, ending)
            self.rested = True
            _log.info(
                "run_parked" if ending is None else "run_ended",
                run_id=self.log.key[1],
                state="suspended" if ending is None else ending.state,
                step=self.step,
                executed_ms=self.executed_ms(),
            )
        except HandedOver:
            await self._give_up()
        except LeaseLost as error:
            _log.warning("run_given_up", run_id=self.log.key[1], error=str(error))
            if not self.log.failed:
                await self._give_up()
        except StoreUnavailable as error:
            _log.error("run_abandoned", run_id=self.log.key[1], error=str(error))
        except Exception:  # nobody foresaw it: nothing of an end is written by halves
            self.log.abandon()
            raise

    @property
    def executing(self) -> bool:
        """Whether a tool of the run executes now, or one of a sub-agent."""
        return self._settlement is not None and self._settlement.executing

    @property
    def is_entering(self) -> bool:
        """Whether a call, also of a sub-agent, is marked as started whose body was not entered."""
        return bool(self.entering) or any(child.is_entering for child in self.children.values())

    def undo_entering(self) -> None:
        """What was marked as started and not entered is not to be asked about."""
        for call_id in self.entering:
            call = self.calls[call_id]
            # So its decision marked it, but its body was not entered. A worker's call goes on as it is.
            if call.state == "started" and call_id not in self.work:
                self.update(msgspec.structs.replace(call, state="decided"))

    async def _give_up(self) -> None:
        assert isinstance(self.log, RunLog)
        self.undo_entering()
        try:
            await self.log.release(self.executed_ms())
            self.services.store.signals.tell(FREE_RUNS)
            _log.info("run_handed_over", run_id=self.log.key[1], step=self.step)
        except (LeaseLost, StoreUnavailable) as error:  # then its lease has to run out
            _log.warning("run_given_up", run_id=self.log.key[1], error=str(error))

    async def until_rest(self) -> Ending | None:
        """The loop within the run's time; None when it parked."""
        limit = self.time_limit
        deadline = None
        if limit is not None:
            deadline = self._started + max(0.0, limit - self.row.executed_ms / 1000)
        self._scope = scope = asyncio.timeout_at(deadline)
        try:
            async with scope:
                if self.memory is not None:
                    await self.memory.load()
                if self.cancel_reason is not None:
                    return endings.cancelled(self)
                if self._exhausted:
                    return endings.given_up_on(self)
                return await self._loop()
        except TimeoutError:
            if not scope.expired():
                return endings.broken(self)
            return (
                endings.cancelled(self) if self.cancel_reason is not None else endings.timed_out(self, limit)
            )
        except Vetoed as veto:
            return endings.tripped(self, veto)
        except ProcessorFailed as failure:
            return endings.unprocessed(self, failure)
        except (HandedOver, LeaseLost, StoreUnavailable, asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException:  # an author's code may raise anything; SystemExit would end the server
            return endings.broken(self)
        finally:
            self._scope = None

    async def _loop(self) -> Ending | None:
        while True:
            if self.leaving:
                raise HandedOver
            record = self.steps[-1] if self.steps else None
            if record is None or record.step != self.step or record.again:
                try:
                    async with self.until_leaving():
                        record = await self.asking.ask()
                except ModelError as failure:
                    return endings.failed(self, failure.error)
                except HookFailed as failure:
                    return endings.failed(self, RunError("hook", str(failure)))
                if record.again:
                    continue
            if record.requested_tools:
                self._settlement = Settlement(self, record)
                if await self._settlement.settle():
                    return None
                if self._settlement.expired is not None:
                    return endings.expired(self, self._settlement.expired)
                if self._settlement.stopped is not None:
                    raise self._settlement.stopped
                self.judging.settled(faulty=self._settlement.faulty)
            if self.structuring is not None and self.structuring.is_due(record):
                async with self.until_leaving():
                    record, error = await self.structuring.conclude(record)
                if error is not None:
                    return endings.without_object(error)
                if record.again:
                    continue
            record, ending = await self.judging.judge(record)
            if self.processing is not None:
                record = await self._passed(record, ending)
            self.finish_step(record, continued=ending is None)
            if self.memory is not None and self.spec.options.save_per_step:
                self.memory.keep_steps()
            if ending is not None:
                return ending
            self.asking.next_step(record)
            self.step += 1
            self.attempt = 1
            # With the end of the step, so that whoever takes the run over here does not end it again.
            self.log.stage(patch=RunPatch(step=self.step, attempt=0))

    @asynccontextmanager
    async def until_leaving(self) -> AsyncIterator[None]:
        """What is done in here is cut when the run is to be handed over, and done again by the next
        process. No moment between a tool's `started` and its body may be in here."""
        self._cut = cut = asyncio.timeout(None)
        try:
            async with cut:
                yield
        except TimeoutError:
            if cut.expired():
                raise HandedOver from None
            raise
        finally:
            self._cut = None

    async def _passed(self, record: StepRecord, ending: Ending | None) -> StepRecord:
        """The step after the processing of the result, where it is the last, and shown if it was held."""
        processing, before = self.processing, record
        assert processing is not None
        if ending is not None and ending.state == "failed":
            return record
        if ending is not None and processing.has_results:
            async with self.until_leaving():
                record = await processing.result(record, ending.reason)
        if record.held:
            if step_text(record) != step_text(before):
                processed.rewrite_held(self, step_text(record))
            record = processed.release(self, record)
        if record is not before:
            self.remember(record)
        return record

    @property
    def message_id(self) -> str:
        """The id of the message that the answer of this step becomes."""
        return f"{self.spec.message_id}-{self.step}"

    # ---- the end of a step ----

    def remember(self, record: StepRecord) -> None:
        """The last step has something added to it; written with the next commit."""
        self.steps[-1] = record
        self.log.stage(steps=(record,), patch=RunPatch(usage=self.total()))

    def show(self, payload: c.Payload) -> None:
        """Add a chunk that was made of the step's answer, which is shown when the answer is."""
        if self.processing is not None and self.steps and self.steps[-1].held:
            processed.hold(self, self.steps[-1], payload)
        else:
            self.log.emit(payload)

    def finish_step(self, record: StepRecord, *, continued: bool) -> None:
        self.segment.step_ended(record)
        self.log.emit(
            c.StepFinish(
                message_id=record.message_id,
                reason=record.reason,
                is_continued=continued,
                usage=record.whole_usage,
                total_usage=self.total(),
                raw_reason=record.raw_reason,
                response_id=record.response.id,
                response_model=record.response.model,
                warnings=record.warnings,
            )
        )

    def total(self) -> Usage:
        """The tokens used so far, those of sub-agents included."""
        return spending.total(self)

    def cost(self) -> float:
        """What it cost so far, in millionths, with what sub-agents cost. A model without a price costs more
        than any limit."""
        return spending.cost(self)

    def executed_ms(self) -> int:
        return int((asyncio.get_running_loop().time() - self._started) * 1000)
