"""The model call of a step: which models are asked, what of the answer is shown, and what is kept of
it when it is cut."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import structlog

from entracte_server.agents.hooks import StepInfo
from entracte_server.agents.processors.base import OUTPUT_HOOKS
from entracte_server.domain import chunks as c
from entracte_server.domain.messages import Message
from entracte_server.domain.options import StepOverrides
from entracte_server.domain.results import Tripwire
from entracte_server.domain.runs import Feedback, Rejected, StepRecord
from entracte_server.engine import processed, prompt
from entracte_server.engine.answer import Answer, is_empty
from entracte_server.engine.configure import model_request
from entracte_server.engine.hooking import HookFailed
from entracte_server.engine.object_text import PartialObject
from entracte_server.engine.processor_calls import Vetoed
from entracte_server.engine.views import run_view, step_views
from entracte_server.models.base import EveryId, Model, ModelError, ModelRequest
from entracte_server.models.openai_request import check_pairing
from entracte_server.models.streams import closing
from entracte_server.store.base import RunPatch

if TYPE_CHECKING:
    from entracte_server.engine.run import RunExecution

_log = structlog.get_logger(__name__)


class Asking:
    """Asks the models of one run. `announced`: the attempt that is due was begun in the log already."""

    def __init__(self, run: "RunExecution", models: Sequence[Model], *, announced: bool) -> None:
        self._run = run
        self._models = models
        self._announced = announced
        self._messages: list[Message] | None = None
        self._answer: Answer | None = None
        self._model_name = ""
        name = run.spec.options.prepare_step or run.agent.prepare_step
        self._prepare = run.services.app.hooks[name] if name else None

    def next_step(self, record: StepRecord) -> None:
        """The step with this answer is over; the next model call is that of another step."""
        self._announced = False
        if self._messages is not None:
            # A new list: the requests that were made keep what they were made with.
            added = prompt.step_messages(record, self._run.calls_of(record.step))
            self._messages = [*self._messages, *added]

    async def ask(self) -> StepRecord:
        """Ask the models of the agent, each when the one before it failed. What a failed one showed
        is void: the next one is another attempt. Where the record says `again`, a processor sent the answer
        back. Raises the last one's `ModelError`, `HookFailed`, `Vetoed` and `ProcessorFailed`."""
        processing = self._run.processing
        while True:
            try:
                return await self._ask()
            except ModelError as failure:
                if processing is None or not await processing.ask_again(
                    self._model_name, failure.error, self._messages or ()
                ):
                    raise
                _log.info("model_asked_again", run_id=self._run.log.key[1], kind=failure.error.kind)
                self._run.attempt += 1
                self._announced = False

    async def _ask(self) -> StepRecord:
        run = self._run
        if run.processing is not None:
            run.processing.held = None
        if self._messages is None:
            if run.processing is not None:
                await run.processing.opening()
            if run.memory is not None:
                run.memory.keep_input()
            self._messages = prompt.conversation(run.spec, run.steps, run.calls.values())
        overrides = await self._prepared(self._messages) if self._prepares() else None
        models = self._models
        if overrides is not None and overrides.model is not None:
            models = self._named(overrides.model)
        for position, model in enumerate(models):
            run.log.check()
            self._answer = answer = Answer()
            self._model_name = model.name
            if not self._announced:
                self._begin_attempt(model.name)
            try:
                answer = await self._read(model, answer, overrides, last=position == len(models) - 1)
            except Vetoed as veto:
                return self._sent_back(veto, answer)
            except ModelError as failure:
                if position == len(models) - 1:
                    raise
                _log.info("model_fallback", run_id=run.log.key[1], model=model.name, kind=failure.error.kind)
                if answer.shown:
                    run.attempt += 1
                    self._announced = False
                continue
            record = answer.record(
                step=run.step, attempt=run.attempt, message_id=run.message_id, model=model.name
            )
            if overrides is not None:
                record = msgspec.structs.replace(record, overrides=overrides)
            if run.processing is not None:
                record = run.processing.settle(record)
                if run.processing.held is not None:
                    record = msgspec.structs.replace(record, held=True)
            record = self._kept(record)
            self._answer = None
            calls = answer.call_rows(run.step)
            if run.own_id:
                calls = [msgspec.structs.replace(call, run_id=run.own_id) for call in calls]
            run.calls.update((call.call_id, call) for call in calls)
            run.log.stage(steps=(record,), calls=calls, patch=RunPatch(usage=run.total()))
            return record
        raise AssertionError("an agent has at least one model")

    def _begin_attempt(self, model: str) -> None:
        run = self._run
        run.log.begin(run.step, run.attempt)
        run.log.emit(c.StepStart(run.message_id, model))
        run.log.stage(patch=RunPatch(step=run.step, attempt=run.attempt))
        run.log.flush()
        self._announced = True

    def _prepares(self) -> bool:
        """Whether something may be different in each step."""
        processing = self._run.processing
        return self._prepare is not None or (processing is not None and processing.has_steps)

    async def _prepared(self, messages: list[Message]) -> StepOverrides | None:
        """What the hook and the processors want to be different in this step."""
        run = self._run
        request = model_request(run.agent, run.spec.options, run.tools, messages, run.calls.values())
        info = StepInfo(
            run=run_view(run),
            number=run.step,
            attempt=run.attempt,
            steps=step_views(run),
            messages=tuple(message for message in messages if message.role != "system"),
            system=tuple(message for message in messages if message.role == "system"),
            model=self._models[0].name,
            tools=tuple(run.tools),
            tool_choice=request.tool_choice,
            model_settings=request.settings,
            provider_options=request.provider_options,
        )
        overrides: StepOverrides | None = None
        if self._prepare is not None:
            overrides = await run.services.hooks.call(self._prepare, info, StepOverrides)
        if run.processing is not None:
            overrides = await run.processing.step(info, overrides)
        if overrides is not None:
            self._check(overrides)
        return overrides

    @property
    def _who(self) -> str:
        """Who prepares the steps."""
        return f"The hook {self._prepare.name}" if self._prepare is not None else "A processor"

    def _check(self, overrides: StepOverrides) -> None:
        known, choice = self._run.tools, overrides.tool_choice
        chosen = (choice.tool_name,) if choice is not None and choice.mode == "tool" else ()
        for name in (*(overrides.active_tools or ()), *chosen):
            if name not in known:
                raise HookFailed(f"{self._who} named a tool the run does not have: {name!r}.")
        try:
            check_pairing(overrides.messages or ())
        except ValueError as error:
            raise HookFailed(f"{self._who} gave messages that are no conversation: {error}") from None

    def _named(self, name: str) -> Sequence[Model]:
        try:
            return self._run.services.resolve(name)
        except ValueError as error:
            raise HookFailed(f"{self._who} named a model that cannot be asked: {error}") from None

    async def _read(
        self, model: Model, answer: Answer, overrides: StepOverrides | None, *, last: bool
    ) -> Answer:
        """The answer, once it is complete: the one given, or what processors made of it."""
        run = self._run
        messages = self._messages or []
        if run.steps and run.steps[-1].again:
            messages = [*messages, *prompt.rejected_messages(run.steps[-1])]
        # Another model that can be asked at once is better than a wait.
        request = model_request(
            run.agent, run.spec.options, run.tools, messages, run.calls.values(), overrides, may_wait=last
        )
        if run.own_id:  # unique in the tree, whatever other models of it choose
            request = msgspec.structs.replace(request, reserved_ids=EveryId())
        structuring = run.structuring
        if structuring is None:
            return await self._receive(model, request, answer)
        asked = structuring.request(request, model)
        try:
            return await self._receive(model, asked, answer, structuring.partial())
        except ModelError as failure:
            if answer.shown or not structuring.may_ask_otherwise(asked, model, failure.error):
                raise
            asked = structuring.request(request, model)
            return await self._receive(model, asked, answer, structuring.partial())

    async def _receive(
        self, model: Model, request: ModelRequest, answer: Answer, partial: PartialObject | None = None
    ) -> Answer:
        run = self._run
        if run.processing is not None:
            return await processed.read(run, run.processing, model, request, answer, partial)
        async with closing(model.stream(request)) as batches:
            async for batch in batches:
                shown = answer.add(batch)
                if partial is not None:
                    shown = partial.shown_with(shown)
                if answer.finish is None:
                    run.log.extend(shown)
                    run.log.flush()
                    await run.log.room()
                elif shown:  # the end of the answer is written with what follows from it
                    run.log.extend(shown)
        if (fault := answer.fault()) is not None:
            raise ModelError(fault)
        return answer

    def _sent_back(self, veto: Vetoed, answer: Answer) -> StepRecord:
        """A processor stopped the answer: it is sent back, or else the run stops. Raises `Vetoed`."""
        run, processing = self._run, self._run.processing
        assert processing is not None
        if not (veto.tripwire.retry and veto.hook in OUTPUT_HOOKS and processing.may_retry()):
            raise veto
        record = answer.record(
            step=run.step, attempt=run.attempt, message_id=run.message_id, model=self._model_name
        )
        self._answer = None
        run.log.emit(c.Tripwire(veto.tripwire))
        record = self._kept(processing.settle(record))
        return self.send_back(record, Feedback("processor", veto.tripwire.reason), shown=False)

    def keep_vetoed(self, tripwire: Tripwire) -> StepRecord:
        """The record of a step that a processor stopped before there was an answer that passed."""
        run, processing = self._run, self._run.processing
        assert processing is not None
        if not self._announced:
            self._begin_attempt(self._model_name or self._models[0].name)
        answer, self._answer = self._answer or Answer(), None
        record = answer.record(
            step=run.step,
            attempt=run.attempt,
            message_id=run.message_id,
            model=self._model_name,
            reason="tripwire",
        )
        record = msgspec.structs.replace(processed.withheld(record), tripwire=tripwire)
        record = self._kept(processing.settle(record, ends=True))
        run.log.stage(steps=(record,), patch=RunPatch(usage=run.total()))
        return record

    def keep_partial(self, reason: c.FinishReason, *, begun: bool = True) -> None:
        """What had arrived of an answer that was cut stays in the result; its calls do not. Where the answer
        was not `begun`, there is a step with nothing in it."""
        run = self._run
        answer, self._answer = self._answer, None
        if answer is None and not begun:
            answer = Answer()
            if not self._announced:
                self._begin_attempt(self._models[0].name)
        if answer is None:
            return
        record = answer.record(
            step=run.step,
            attempt=run.attempt,
            message_id=run.message_id,
            model=self._model_name,
            reason=reason,
        )
        if run.processing is not None:
            if run.processing.holds_answers or run.processing.holds_results:
                record = processed.withheld(record)
            record = run.processing.settle(record, ends=True)
        if reason == "error" or not is_empty(record):
            run.log.stage(steps=(self._kept(record),), patch=RunPatch(usage=run.total()))

    def _kept(self, record: StepRecord) -> StepRecord:
        """The step's record, in place of what was kept of its earlier attempts."""
        steps = self._run.steps
        if record.step == 1 and self._run.memory is not None:
            record = msgspec.structs.replace(record, warnings=record.warnings + self._run.memory.warnings)
        if self._run.structuring is not None:
            record = self._run.structuring.marked(record)
        if steps and steps[-1].again:
            earlier = steps.pop()
            record = msgspec.structs.replace(
                record, usage=earlier.usage + record.usage, rejected=earlier.rejected
            )
        steps.append(record)
        return record

    def send_back(self, record: StepRecord, feedback: Feedback, *, shown: bool) -> StepRecord:
        """The last answer is not accepted: the step is to be asked again, in another attempt, and the
        model is told why. `shown`: it is shown its answer, too."""
        run = self._run
        rejected = Rejected(record.parts if shown else (), (feedback,))
        record = StepRecord(
            step=record.step,
            attempt=record.attempt,
            message_id=record.message_id,
            reason=record.reason,
            usage=record.usage,
            model=record.model,
            rejected=(*record.rejected, rejected),
            again=True,
        )
        run.steps[-1] = record
        run.log.stage(steps=(record,), patch=RunPatch(usage=run.total()))
        run.attempt += 1
        self._announced = False
        return record
