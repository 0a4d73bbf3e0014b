"""Structured output: an answer that is to fit a JSON Schema, from asking for it to the object, or to what
there is in its place."""

import re
from typing import TYPE_CHECKING

import msgspec
import structlog

from entracte_server.agents.schemas import Violation
from entracte_server.domain import chunks as c
from entracte_server.domain import json_text
from entracte_server.domain.data import Data
from entracte_server.domain.messages import Message
from entracte_server.domain.options import StructuredOutput
from entracte_server.domain.results import RunError
from entracte_server.domain.runs import Feedback, ObjectRecord, StepRecord
from entracte_server.engine import prompt
from entracte_server.engine import structured_request as asks
from entracte_server.engine.answer import Answer
from entracte_server.engine.configure import rate_limit_wait
from entracte_server.engine.object_text import PartialObject, Unfit, read_object
from entracte_server.engine.questions import step_text
from entracte_server.models.base import Model, ModelError, ModelRequest
from entracte_server.models.streams import closing

if TYPE_CHECKING:
    from entracte_server.engine.run import RunExecution

_log = structlog.get_logger(__name__)

SOURCE = "structured-output"
"""Who tells a model of its mistakes."""

TOLD_VIOLATIONS = 10
MAX_TOLD = 300
"""How many violations are told, and how long each is, in characters."""

INVALID = "structured_output_invalid"
TRUNCATED = "structured_output_truncated"

_CUT = {
    "length": "The answer was cut by the token limit before the object was complete.",
    "content-filter": "The answer was cut by the provider's filter before the object was complete.",
}

_REFUSED = re.compile(r"response_?format|json_?schema|structured[ _]?output|text\.format", re.IGNORECASE)


class _Failure(Data, frozen=True):
    """Why there is no object. `feedback` is what the model is told when it may try again; empty where
    that is of no use."""

    error: RunError
    feedback: str = ""


class Structuring:
    """The structured output of one run."""

    def __init__(self, run: "RunExecution", options: StructuredOutput) -> None:
        self._run = run
        self._options = options
        retries = run.spec.options.max_processor_retries
        self._retries = (run.agent.max_processor_retries if retries is None else retries) or 0
        self._wrapper = asks.wrapper_of(options.schema)
        self._refusing = {record.model for record in run.steps if record.schema_injected}
        """Models whose providers would not have the schema natively."""

    # ---- the agent's own model ----

    def request(self, request: ModelRequest, model: Model) -> ModelRequest:
        """`request`, in which the agent's model is told what comes of its answer."""
        request = asks.as_sent(self._options, request, model, model.name in self._refusing)
        self._wrapper = self._wrapper_in(request)
        return request

    def partial(self) -> PartialObject | None:
        """What shows the object while the agent's model writes it."""
        return None if self._options.model else PartialObject(self._wrapper)

    def may_ask_otherwise(self, request: ModelRequest, model: Model, error: RunError) -> bool:
        """Whether a model is to be asked once more, with the schema in its prompt, because its provider
        would not have it natively."""
        if self._options.injection != "auto" or request.response_format is None:
            return False
        words = f"{error.message} {error.code} {error.raw or ''}"
        if error.status not in (400, 422) or not _REFUSED.search(words):
            return False
        _log.info("response_format_refused", run_id=self._run.log.key[1], model=model.name)
        self._refusing.add(model.name)
        return True

    def marked(self, record: StepRecord) -> StepRecord:
        """The record of a step, which says how its model was told the schema."""
        if record.model not in self._refusing:
            return record
        return msgspec.structs.replace(record, schema_injected=True)

    def _wrapper_in(self, request: ModelRequest) -> str:
        return asks.wrapper_of(self._options.schema) if request.response_format is not None else ""

    # ---- the answer ----

    def is_due(self, record: StepRecord) -> bool:
        """Whether the object is to be read out of a step: one without tool calls of ours, once."""
        if record.structured is not None:
            return False
        return all(call.provider_executed for call in self._run.calls_of(record.step))

    async def conclude(self, record: StepRecord) -> tuple[StepRecord, RunError | None]:
        """Reads the object out of a step, and shows it. Gives the step as it is to be remembered, and why
        the run fails with it, if it does. A step that is `again` is to be asked again."""
        made = ObjectRecord()
        if self._options.model:
            outcome, made = await self._made_of(record)
        else:
            outcome = self._read(record, self._wrapper)
            if isinstance(outcome, _Failure) and outcome.feedback and len(record.rejected) < self._retries:
                feedback = Feedback(SOURCE, outcome.feedback)
                return self._run.asking.send_back(record, feedback, shown=True), None
        return self._settled(record, outcome, made)

    def _settled(
        self, record: StepRecord, outcome: "str | _Failure", made: ObjectRecord
    ) -> tuple[StepRecord, RunError | None]:
        run, options = self._run, self._options
        error: RunError | None = None
        if isinstance(outcome, str):
            made = msgspec.structs.replace(made, object=outcome)
            run.show(c.ObjectResult(outcome, False, made.model))
        else:
            _log.info("no_object", run_id=run.log.key[1], kind=outcome.error.kind, step=record.step)
            match options.error_strategy:
                case "strict":
                    error = _without_quotes(outcome.error) if record.held else outcome.error
                case "warn":
                    warning = f"There is no object: {outcome.error.message}"
                    record = msgspec.structs.replace(record, warnings=(*record.warnings, warning))
                case "fallback":
                    assert options.fallback_value is not None
                    made = msgspec.structs.replace(made, object=options.fallback_value, is_fallback=True)
                    run.show(c.ObjectResult(options.fallback_value, True))
        record = msgspec.structs.replace(record, structured=made)
        run.remember(record)
        return record, error

    def _read(self, record: StepRecord, wrapper: str) -> "str | _Failure":
        text = step_text(record)
        if record.response.refused:
            return _Failure(RunError(INVALID, f"The model refused: {text[:MAX_TOLD]}", code="refusal"))
        if record.reason in _CUT:
            return _Failure(RunError(TRUNCATED, _CUT[record.reason]))
        try:
            return read_object(text, self._options.schema, wrapper)
        except Unfit as error:
            return _unfit(error.violations)

    # ---- the structuring model ----

    async def _made_of(self, record: StepRecord) -> "tuple[str | _Failure, ObjectRecord]":
        """The object that the structuring model makes of the agent's answer."""
        run, options = self._run, self._options
        if record.reason in _CUT:
            return _Failure(RunError(TRUNCATED, _CUT[record.reason])), ObjectRecord()
        (model,) = run.services.resolve(options.model)
        made = ObjectRecord(model=model.name)
        added: list[Message] = []
        tries = 0
        while True:
            request = asks.structuring_request(
                options, run.steps, run.calls.values(), model, model.name in self._refusing
            )
            request = msgspec.structs.replace(
                request,
                messages=[*request.messages, *added],
                rate_limit_wait=rate_limit_wait(run.agent, run.spec.options),
            )
            wrapper = self._wrapper_in(request)
            try:
                answer = await self._ask(model, request, PartialObject(wrapper, model.name))
            except ModelError as failure:
                if self.may_ask_otherwise(request, model, failure.error):
                    continue
                return _Failure(failure.error), made
            said = answer.record(step=record.step, attempt=record.attempt, message_id="", model=model.name)
            made = msgspec.structs.replace(made, usage=made.usage + said.usage)
            outcome = self._read(said, wrapper)
            if isinstance(outcome, str) or not outcome.feedback or tries == self._retries:
                return outcome, made
            tries += 1
            added += [Message("assistant", said.parts)] if said.parts else []
            added.append(prompt.feedback_message(Feedback(SOURCE, outcome.feedback)))

    async def _ask(self, model: Model, request: ModelRequest, partial: PartialObject) -> Answer:
        log = self._run.log
        answer = Answer()
        async with closing(model.stream(request)) as batches:
            async for batch in batches:
                answer.add(batch)
                # What the server itself says while it waits.
                log.extend([event for event in batch if type(event) is c.Custom])
                if (chunk := partial.add(batch)) is not None:
                    self._run.show(chunk)
                log.flush()
                await log.room()
        if (fault := answer.fault()) is not None:
            raise ModelError(fault)
        return answer


def _without_quotes(error: RunError) -> RunError:
    """The error of an answer that is never shown, because the run fails before it could pass."""
    if error.kind != INVALID:
        return error
    return msgspec.structs.replace(error, message="The answer does not fit the schema.", raw=None)


def _unfit(violations: tuple[Violation, ...]) -> _Failure:
    told = [
        f"{one.pointer}: {one.message[:MAX_TOLD]}" if one.pointer else one.message[:MAX_TOLD]
        for one in violations[:TOLD_VIOLATIONS]
    ]
    if len(violations) > len(told):
        told.append(f"and {len(violations) - len(told)} more")
    raw = json_text.dump([{"path": one.pointer, "message": one.message} for one in violations])
    error = RunError(
        INVALID, f"The answer does not fit the schema: {'; '.join(told)}", retryable=True, raw=raw
    )
    lines = "\n".join(f"- {line}" for line in told)
    return _Failure(
        error,
        f"Your answer does not fit the JSON Schema:\n{lines}\n"
        "Answer again, with JSON that fits it and no other text.",
    )
