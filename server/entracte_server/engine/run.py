"""One segment of a run: from its start, its resumption or its recovery to its parking or its end.

The loop: ask the model, settle the calls it made, finish the step, again. Everything it needs is in
the store; what it holds in memory can be made anew from a `Snapshot`, which is what happens after a
parking and after a crash.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import structlog

from entracte_server.agents.agent import Agent
from entracte_server.agents.tools import Tool
from entracte_server.domain import chunks as c
from entracte_server.domain import json_text
from entracte_server.domain.data import Data
from entracte_server.domain.ids import new_id
from entracte_server.domain.messages import Message
from entracte_server.domain.options import (
    DEFAULT_MAX_STEPS,
    DEFAULT_TOOL_CALL_CONCURRENCY,
    ClientTool,
)
from entracte_server.domain.results import RunError, Usage
from entracte_server.domain.runs import (
    CallRow,
    DecisionRow,
    Outcome,
    PendingRow,
    RunState,
    Snapshot,
    StepRecord,
)
from entracte_server.engine import prompt
from entracte_server.engine.answer import Answer, is_empty
from entracte_server.engine.configure import merge_options, model_request, tools_of
from entracte_server.engine.execution import ToolRunner
from entracte_server.engine.runlog import RunLog, now_ms
from entracte_server.engine.settings import EngineSettings
from entracte_server.engine.settle import HandedOver, Settlement
from entracte_server.models.base import Model, ModelError
from entracte_server.models.streams import closing
from entracte_server.store.base import LeaseLost, RunPatch, Store, StoreUnavailable
from entracte_server.store.signals import FREE_RUNS

_log = structlog.get_logger(__name__)


class Ending(Data, frozen=True):
    """How a run ends."""

    state: RunState
    reason: c.FinishReason
    cause: c.StopCause
    error: RunError | None = None


class RunExecution:
    """See the module. Owned by the engine, which runs `drive` in a task."""

    def __init__(
        self,
        *,
        snapshot: Snapshot,
        agent: Agent,
        models: Sequence[Model],
        store: Store,
        log: RunLog,
        runner: ToolRunner,
        settings: EngineSettings,
        entering: frozenset[str] = frozenset(),
        announced: bool = False,
        exhausted: bool = False,
    ) -> None:
        self.row = snapshot.run
        self.spec = snapshot.spec
        self.agent = agent
        self.log = log
        self.runner = runner
        self.entering = set(entering)
        """Calls that are marked as started and whose bodies were not entered."""
        self.steps = list(snapshot.steps)
        self.calls = {call.call_id: call for call in snapshot.calls}
        self.inbox: deque[CallRow] = deque()
        self.pending = {row.pending_call_id: row for row in snapshot.pending}
        self.step = snapshot.run.step
        self.attempt = snapshot.run.attempt
        self.cancel_reason = snapshot.run.cancel_reason
        self.leaving = False
        self.rested = False
        """Whether it parked or ended here."""
        options = snapshot.spec.options
        self.tools: dict[str, Tool | ClientTool] = tools_of(agent, options)
        self.tool_choice = merge_options(agent, options).tool_choice
        self.concurrency = (
            options.tool_call_concurrency or agent.tool_call_concurrency or DEFAULT_TOOL_CALL_CONCURRENCY
        )
        self._models = models
        self._store = store
        self._settings = settings
        self._announced = announced
        self._exhausted = exhausted
        self._asking: asyncio.Timeout | None = None
        self._max_steps = options.max_steps or agent.max_steps or DEFAULT_MAX_STEPS
        self._messages: list[Message] | None = None
        self._answer: Answer | None = None
        self._model_name = ""
        self._settlement: Settlement | None = None
        self._scope: asyncio.Timeout | None = None
        self._started = 0.0
        self._faulty_steps = 0
        self._request_context: Mapping[str, Any] | None = None

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

    def opened(self, pending: PendingRow) -> None:
        """A call waits; written with the next commit."""
        self.pending[pending.pending_call_id] = pending
        self.log.stage(opened=(pending,))

    def shown(self, call: CallRow) -> CallRow:
        """Show the decision on a call, if the stream has not shown it yet."""
        resolution = call.resolution
        if resolution is None:
            return call
        self.pending.pop(resolution.pending_call_id, None)
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

    async def park(self, waiting: list[CallRow]) -> bool:
        """Give the run up until somebody decides; False when a decision or cancellation is there."""
        by_call = {row.call_id: row for row in self.pending.values()}
        open_calls = tuple(
            c.OpenCall(row.pending_call_id, row.call_id, row.tool_name, row.kind)
            for row in (by_call[call.call_id] for call in waiting)
        )
        cause: c.StopCause = (
            "client-tool" if all(call.kind == "client-tool" for call in open_calls) else "suspended"
        )
        finish = c.Finish("suspended", cause, self._total(), open_calls)
        return await self.log.park(finish, "suspended", cause, self._executed_ms())

    async def decided_calls(self) -> list[CallRow]:
        """The calls decided since the run last looked; notices a cancellation, too. Raises
        `RuntimeError` when there is neither, so that a run that cannot park does not spin."""
        snapshot = await self._store.load(*self.log.key)
        if snapshot.run.cancel_reason is not None:
            self.request_cancel(snapshot.run.cancel_reason)
            return []
        decided = [
            call
            for call in snapshot.calls
            if call.state == "decided"
            and self.calls[call.call_id].state == "waiting"
            and self.calls[call.call_id].round == call.round
        ]
        if not decided and not self.inbox:
            raise RuntimeError("the run may not park, but nothing of it was decided")
        return decided

    # ---- what the engine calls ----

    def deliver(self, call: CallRow) -> None:
        """A waiting call of the run was decided."""
        self.inbox.append(call)
        if self._settlement is not None:
            self._settlement.wake()

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
        if self._settlement is not None:
            self._settlement.wake()
        if self._asking is not None and not self._asking.expired():
            self._asking.reschedule(asyncio.get_running_loop().time())

    async def drive(self) -> None:
        """Execute the run until it parks or ends, or is handed over."""
        self._started = asyncio.get_running_loop().time()
        try:
            ending = await self._until_rest()
            if ending is not None:
                await self._end(ending)
            self.rested = True
            _log.info(
                "run_parked" if ending is None else "run_ended",
                run_id=self.log.key[1],
                state="suspended" if ending is None else ending.state,
                step=self.step,
                executed_ms=self._executed_ms(),
            )
        except HandedOver:
            await self._give_up()
        except LeaseLost as error:
            _log.warning("run_given_up", run_id=self.log.key[1], error=str(error))
            if not self.log.failed:
                await self._give_up()
        except StoreUnavailable as error:
            _log.error("run_abandoned", run_id=self.log.key[1], error=str(error))

    @property
    def executing(self) -> bool:
        """Whether a tool of the run executes now."""
        return self._settlement is not None and self._settlement.executing

    async def _give_up(self) -> None:
        for call_id in self.entering:
            call = self.calls[call_id]
            if call.state == "started":  # so its decision marked it, but its body was not entered
                self.update(msgspec.structs.replace(call, state="decided"))
        try:
            await self.log.release(self._executed_ms())
            self._store.signals.tell(FREE_RUNS)
            _log.info("run_handed_over", run_id=self.log.key[1], step=self.step)
        except (LeaseLost, StoreUnavailable) as error:  # then its lease has to run out
            _log.warning("run_given_up", run_id=self.log.key[1], error=str(error))

    async def _until_rest(self) -> Ending | None:
        """The loop within the run's time; None when it parked."""
        limit = self.spec.options.execution_timeout or self._settings.execution_timeout
        deadline = None
        if limit is not None:
            deadline = self._started + max(0.0, limit - self.row.executed_ms / 1000)
        if self.cancel_reason is not None:
            return self._cancelled()
        if self._exhausted:
            return self._given_up_on()
        self._scope = scope = asyncio.timeout_at(deadline)
        try:
            async with scope:
                return await self._loop()
        except TimeoutError:
            if not scope.expired():
                return self._broken()
            return self._cancelled() if self.cancel_reason is not None else self._timed_out(limit)
        except (HandedOver, LeaseLost, StoreUnavailable, asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException:  # an author's code may raise anything; SystemExit would end the server
            return self._broken()
        finally:
            self._scope = None

    async def _loop(self) -> Ending | None:
        while True:
            if self.leaving:
                raise HandedOver
            record = self.steps[-1] if self.steps and self.steps[-1].step == self.step else None
            if record is None:
                try:
                    record = await self._ask_until_leaving()
                except ModelError as failure:
                    return self._failed(failure.error)
            if record.requested_tools:
                self._settlement = Settlement(self, record)
                if await self._settlement.settle():
                    return None
                if self._settlement.expired is not None:
                    return self._expired(self._settlement.expired)
                self._faulty_steps = self._faulty_steps + 1 if self._settlement.faulty else 0
            ending = self._after(record)
            self._finish_step(record, continued=ending is None)
            if ending is not None:
                return ending
            if self._messages is not None:
                # A new list: the requests that were made keep what they were made with.
                added = prompt.step_messages(record, self.calls_of(record.step))
                self._messages = [*self._messages, *added]
            self.step += 1
            self.attempt = 1
            self._announced = False
            # With the end of the step, so that whoever takes the run over here does not end it again.
            self.log.stage(patch=RunPatch(step=self.step, attempt=0))

    # ---- one model call ----

    async def _ask_until_leaving(self) -> StepRecord:
        """As `_ask`, but cut when the run is to be handed over. What is cut is the question only: no
        moment between a tool's `started` and its body is."""
        self._asking = asking = asyncio.timeout(None)
        try:
            async with asking:
                return await self._ask()
        except TimeoutError:
            if asking.expired():
                raise HandedOver from None
            raise
        finally:
            self._asking = None

    async def _ask(self) -> StepRecord:
        """Ask the models of the agent, each when the one before it failed. What a failed one showed
        is void: the next one is another attempt."""
        if self._messages is None:
            self._messages = prompt.conversation(self.spec, self.steps, self.calls.values())
        for position, model in enumerate(self._models):
            self.log.check()
            self._answer = answer = Answer()
            self._model_name = model.name
            if not self._announced:
                self._begin_attempt(model.name)
            try:
                await self._read(model, answer)
            except ModelError as failure:
                if position == len(self._models) - 1:
                    raise
                _log.info("model_fallback", run_id=self.log.key[1], model=model.name, kind=failure.error.kind)
                if answer.shown:
                    self.attempt += 1
                    self._announced = False
                continue
            record = answer.record(
                step=self.step,
                attempt=self.attempt,
                message_id=self._message_id(),
                model=model.name,
            )
            self._answer = None
            self.steps.append(record)
            calls = answer.call_rows(self.step)
            self.calls.update((call.call_id, call) for call in calls)
            self.log.stage(steps=(record,), calls=calls, patch=RunPatch(usage=self._total()))
            return record
        raise AssertionError("an agent has at least one model")

    def _begin_attempt(self, model: str) -> None:
        self.log.begin(self.step, self.attempt)
        self.log.emit(c.StepStart(self._message_id(), model))
        self.log.stage(patch=RunPatch(step=self.step, attempt=self.attempt))
        self.log.flush()
        self._announced = True

    async def _read(self, model: Model, answer: Answer) -> None:
        request = model_request(self.agent, self.spec.options, self.tools, self._messages or (), self.calls)
        async with closing(model.stream(request)) as batches:
            async for batch in batches:
                shown = answer.add(batch)
                if answer.finish is None:
                    self.log.extend(shown)
                    self.log.flush()
                    await self.log.room()
                elif shown:  # the end of the answer is written with what follows from it
                    self.log.extend(shown)
        if (fault := answer.fault()) is not None:
            raise ModelError(fault)

    def _message_id(self) -> str:
        return f"{self.spec.message_id}-{self.step}"

    # ---- the end of a step ----

    def _after(self, record: StepRecord) -> Ending | None:
        """Whether the run ends with this step."""
        if not record.requested_tools or all(call.provider_executed for call in self.calls_of(record.step)):
            return Ending("succeeded", record.reason, "model-finished")
        if self._faulty_steps >= self._settings.max_faulty_steps:
            error = RunError(
                "tool_limit",
                f"The model made no usable tool call in {self._faulty_steps} steps in a row.",
            )
            return Ending("failed", "error", "error", error)
        if self.step >= self._max_steps:
            return Ending("succeeded", "tool-calls", "max-steps")
        return None

    def _finish_step(self, record: StepRecord, *, continued: bool) -> None:
        self.log.emit(
            c.StepFinish(
                message_id=record.message_id,
                reason=record.reason,
                is_continued=continued,
                usage=record.usage,
                total_usage=self._total(),
                raw_reason=record.raw_reason,
                response_id=record.response.id,
                response_model=record.response.model,
                warnings=record.warnings,
            )
        )

    def _total(self) -> Usage:
        total = Usage()
        for record in self.steps:
            total = total + record.usage
        return total

    def _executed_ms(self) -> int:
        return int((asyncio.get_running_loop().time() - self._started) * 1000)

    # ---- the end of a run ----

    async def _end(self, ending: Ending) -> None:
        if ending.error is not None:
            self.log.emit(c.Error(ending.error))
            if self.steps and self.steps[-1].reason == "error":
                self._finish_step(self.steps[-1], continued=False)
        if ending.reason == "aborted":
            self.log.emit(c.Abort(self.cancel_reason or ""))
        self.log.emit(c.Finish(ending.reason, ending.cause, self._total()))
        await self.log.end(ending.state, ending.reason, ending.cause, self._executed_ms(), ending.error)

    def _failed(self, error: RunError) -> Ending:
        self._keep_partial("error")
        return Ending("failed", "error", "error", error)

    def _cancelled(self) -> Ending:
        self._keep_partial("aborted")
        self._drop_calls("The run was cancelled before the call was settled.")
        return Ending("cancelled", "aborted", "cancelled")

    def _timed_out(self, limit: float | None) -> Ending:
        self._keep_partial("error")
        self._drop_calls("The run's time was over before the call was settled.")
        error = RunError("timeout", f"The run executed for longer than {limit:g} s.", retryable=True)
        return Ending("failed", "error", "timeout", error)

    def _expired(self, call: CallRow) -> Ending:
        self._drop_calls("The run failed before the call was settled: nobody decided another in time.")
        message = call.outcome.value if call.outcome is not None else ""
        return Ending("failed", "error", "error", RunError("expired", message))

    def _given_up_on(self) -> Ending:
        self._drop_calls("The run was given up before the call was settled.")
        error = RunError(
            "recovery_exhausted",
            "The processes that executed the run died again and again without getting it any further.",
        )
        return Ending("failed", "error", "error", error)

    def _broken(self) -> Ending:
        _log.exception("run_failed", run_id=self.log.key[1])
        self._keep_partial("error")
        self._drop_calls("The run failed before the call was settled.")
        return Ending("failed", "error", "error", RunError("internal", "The server failed."))

    def _keep_partial(self, reason: c.FinishReason) -> None:
        """What had arrived of an answer that was cut stays in the result; its calls do not."""
        answer, self._answer = self._answer, None
        if answer is None:
            return
        record = answer.record(
            step=self.step,
            attempt=self.attempt,
            message_id=self._message_id(),
            model=self._model_name,
            reason=reason,
        )
        if reason == "error" or not is_empty(record):
            self.steps.append(record)
            self.log.stage(steps=(record,), patch=RunPatch(usage=self._total()))

    def _drop_calls(self, message: str) -> None:
        """Every call gets a result, so that the history stays valid; every pending call is closed."""
        now = now_ms()
        for call in list(self.calls.values()):
            if call.state != "done":
                self.update(
                    msgspec.structs.replace(
                        self.shown(call),
                        state="done",
                        outcome=Outcome("cancelled", message, "cancelled"),
                    )
                )
        self.log.stage(
            closed=[
                DecisionRow(
                    tenant=row.tenant,
                    decision_id=new_id(),
                    pending_call_id=row.pending_call_id,
                    run_id=row.run_id,
                    call_id=row.call_id,
                    tool_name=row.tool_name,
                    verb="cancel",
                    principal="system",
                    decide_time=now,
                    args=row.args,
                    reason=message,
                    sequence=self.log.last_sequence,
                )
                for row in self.pending.values()
            ]
        )
        self.pending.clear()
