"""The model call of a step: which models are asked, what of the answer is shown, and what is kept of
it when it is cut."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import structlog

from entracte_server.agents.hooks import StepInfo
from entracte_server.domain import chunks as c
from entracte_server.domain.messages import Message
from entracte_server.domain.options import StepOverrides
from entracte_server.domain.runs import Feedback, Rejected, StepRecord
from entracte_server.engine import prompt
from entracte_server.engine.answer import Answer, is_empty
from entracte_server.engine.configure import model_request
from entracte_server.engine.hooking import HookFailed
from entracte_server.engine.object_text import PartialObject
from entracte_server.engine.views import run_view, step_views
from entracte_server.models.base import Model, ModelError, ModelRequest
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
        is void: the next one is another attempt. Raises the last one's `ModelError`, and `HookFailed`."""
        run = self._run
        if self._messages is None:
            self._messages = prompt.conversation(run.spec, run.steps, run.calls.values())
        overrides = await self._prepared(self._messages) if self._prepare is not None else None
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
                await self._read(model, answer, overrides, last=position == len(models) - 1)
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
            record = self._kept(record)
            self._answer = None
            calls = answer.call_rows(run.step)
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

    async def _prepared(self, messages: list[Message]) -> StepOverrides | None:
        """What the hook wants to be different in this step."""
        run = self._run
        assert self._prepare is not None
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
        overrides: StepOverrides | None = await run.services.hooks.call(self._prepare, info, StepOverrides)
        if overrides is not None:
            self._check(overrides)
        return overrides

    def _check(self, overrides: StepOverrides) -> None:
        assert self._prepare is not None
        known = self._run.tools
        chosen = overrides.tool_choice.tool_name if overrides.tool_choice is not None else ""
        for name in (*(overrides.active_tools or ()), *((chosen,) if chosen else ())):
            if name not in known:
                raise HookFailed(
                    f"The hook {self._prepare.name} named a tool the run does not have: {name!r}."
                )

    def _named(self, name: str) -> Sequence[Model]:
        assert self._prepare is not None
        try:
            return self._run.services.resolve(name)
        except ValueError as error:
            raise HookFailed(
                f"The hook {self._prepare.name} named a model that cannot be asked: {error}"
            ) from None

    async def _read(
        self, model: Model, answer: Answer, overrides: StepOverrides | None, *, last: bool
    ) -> None:
        run = self._run
        messages = self._messages or []
        if run.steps and run.steps[-1].again:
            messages = [*messages, *prompt.rejected_messages(run.steps[-1])]
        # Another model that can be asked at once is better than a wait.
        request = model_request(
            run.agent, run.spec.options, run.tools, messages, run.calls.values(), overrides, may_wait=last
        )
        structuring = run.structuring
        if structuring is None:
            await self._receive(model, request, answer)
            return
        asked = structuring.request(request, model)
        try:
            await self._receive(model, asked, answer, structuring.partial())
        except ModelError as failure:
            if answer.shown or not structuring.may_ask_otherwise(asked, model, failure.error):
                raise
            asked = structuring.request(request, model)
            await self._receive(model, asked, answer, structuring.partial())

    async def _receive(
        self, model: Model, request: ModelRequest, answer: Answer, partial: PartialObject | None = None
    ) -> None:
        run = self._run
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

    def keep_partial(self, reason: c.FinishReason) -> None:
        """What had arrived of an answer that was cut stays in the result; its calls do not."""
        run = self._run
        answer, self._answer = self._answer, None
        if answer is None:
            return
        record = answer.record(
            step=run.step,
            attempt=run.attempt,
            message_id=run.message_id,
            model=self._model_name,
            reason=reason,
        )
        if reason == "error" or not is_empty(record):
            run.log.stage(steps=(self._kept(record),), patch=RunPatch(usage=run.total()))

    def _kept(self, record: StepRecord) -> StepRecord:
        """The step's record, in place of what was kept of its earlier attempts."""
        steps = self._run.steps
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
