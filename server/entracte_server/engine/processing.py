"""The processors of one run: called in their order at every point, and what they keep.

What passed is committed and stays passed. What may still be stopped is not shown: of an answer until its
step has passed, of the last answer until the result has.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from entracte_server.agents.hooks import StepInfo
from entracte_server.agents.processors.base import Processor, hooks_of
from entracte_server.agents.processors.views import (
    Answer,
    ApiFailure,
    CachedAnswer,
    Input,
    LlmRequest,
    Result,
    StreamInfo,
    ToolOutput,
)
from entracte_server.domain import json_text
from entracte_server.domain.chunks import FinishReason, Payload, Raw
from entracte_server.domain.messages import Message, ReasoningPart, TextPart, ToolCallPart, text_message
from entracte_server.domain.options import StepOverrides
from entracte_server.domain.results import RunError, Usage
from entracte_server.domain.runs import CallRow, Outcome, StepRecord
from entracte_server.domain.runs import Processing as Kept
from entracte_server.engine import prompt
from entracte_server.engine.execution import MAX_MESSAGE
from entracte_server.engine.processor_calls import ProcessorCalls, ProcessorFailed, Vetoed
from entracte_server.engine.questions import ask, step_text
from entracte_server.engine.views import run_view, step_views
from entracte_server.models.base import ModelRequest

if TYPE_CHECKING:
    from entracte_server.engine.run import RunExecution

MAX_FAILURES = 3
"""How often a failed model call is made again where `max_processor_retries` does not say."""

_OF_ANSWERS = frozenset(
    {"process_output_stream", "end_output_stream", "process_llm_response", "process_output_step"}
)

_HELD = _OF_ANSWERS | {"process_output_result"}

Ask = Callable[[Processor, ModelRequest], Awaitable[tuple[str, Usage]]]
Chain = Sequence[tuple[Processor, frozenset[str]]]


class Processing:
    """See the module. `kept` is what was stored; `ask` gives the text of a model's answer and what it used.

    `holds_answers`, `holds_results`: whether a step's answer, or the last one, is shown only after it
    passed. `held`: the chunks of an answer that waits for the result to pass. `sent`: the messages of the
    last model call, where they were changed for it.
    """

    def __init__(
        self,
        run: "RunExecution",
        inputs: Sequence[Processor],
        outputs: Sequence[Processor],
        *,
        calls: ProcessorCalls,
        ask: Ask,
        kept: Kept | None,
        max_retries: int | None,
    ) -> None:
        self._run = run
        self._calls = calls
        self._ask = ask
        self._kept = self._stored = kept or Kept()
        self._max_retries = max_retries
        self._one_at_a_time = asyncio.Lock()
        self._inputs: Chain = [(p, hooks_of(p)) for p in inputs]
        self._outputs: Chain = [(p, hooks_of(p)) for p in outputs]
        self._by_key = _keyed((*inputs, *outputs))
        for key, processor in self._by_key.items():
            if (state := self._kept.states.get(key)) is not None:
                processor.state = json_text.parse_stored(state)
            processor.connect(self._asking(processor))
        self._streams = self._has("process_output_stream", "end_output_stream")
        self.has_tool_results = self._has("process_tool_result")
        self.has_results = self._has("process_output_result")
        self.holds_answers = any(
            (p.can_veto and not hooks.isdisjoint(_OF_ANSWERS))
            or (p.can_rewrite and "process_output_step" in hooks)
            for p, hooks in self._outputs
        )
        self.holds_results = any(
            (p.can_veto or p.can_rewrite) and "process_output_result" in hooks for p, hooks in self._outputs
        )
        # What a provider sent is what was there before any rewriting.
        self._hides_raw = any(p.can_veto or p.can_rewrite for p in outputs)
        self.held: list[Payload] | None = None
        self.sent: Sequence[Message] | None = None

    def _has(self, *hooks: str) -> bool:
        return any(not own.isdisjoint(hooks) for _, own in self._outputs)

    async def _call(
        self, processor: Processor, hook: str, *given: Any, answers: tuple[type, ...] = ()
    ) -> Any:
        async with self._one_at_a_time:
            try:
                return await self._calls.call(processor, hook, given, answers)
            except Vetoed:
                if hook in _HELD and not processor.can_veto:
                    raise ProcessorFailed(processor.name, hook, "aborts, but `can_veto` is not set") from None
                raise

    def _asking(self, processor: Processor) -> Callable[[ModelRequest], Awaitable[str]]:
        async def ask(request: ModelRequest) -> str:
            text, used = await self._ask(processor, request)
            self._kept = msgspec.structs.replace(self._kept, spent=self._kept.spent + used)
            return text

        return ask

    # ---- what is kept ----

    def keep(self) -> None:
        """Have what the processors keep written with the next commit, if it changed."""
        states = {}
        for key, processor in self._by_key.items():
            if processor.state:
                try:
                    states[key] = json_text.dump_for_storage(processor.state)
                except Exception as error:  # a value's own code may raise anything
                    raise ProcessorFailed(processor.name, "its state", error) from None
        self._kept = msgspec.structs.replace(self._kept, states=states)
        if self._kept != self._stored:
            self._stored = self._kept
            self._run.log.stage(processing=self._kept)

    def settle(self, record: StepRecord, *, ends: bool = False) -> StepRecord:
        """The record of a step with what processors used, warned of and attached since the last one. Where
        the run `ends` with it, what they keep is of no use any more, and cannot fail the run."""
        spent, warnings = self._kept.spent, list(record.warnings)
        metadata = json_text.parse_stored(record.metadata) if record.metadata is not None else {}
        for processor in self._by_key.values():
            warnings += (json_text.scrub(text) for text in processor.warnings)
            metadata.update(processor.metadata)
            processor.warnings, processor.metadata = [], {}
        self._kept = msgspec.structs.replace(self._kept, spent=Usage(), failures=0)
        if not ends:
            self.keep()
        options = self._run.spec.options
        if self.sent is not None and options.include_request_body and options.structured_output is None:
            # It is asked for, so it is kept, although it repeats the conversation.
            seen = StepOverrides(
                messages=tuple(message for message in self.sent if message.role != "system"),
                system=tuple(message.text for message in self.sent if message.role == "system"),
            )
            record = msgspec.structs.replace(record, overrides=over(record.overrides, seen))
            self.sent = None
        return msgspec.structs.replace(
            record,
            usage=record.usage + spent,
            warnings=tuple(warnings),
            metadata=json_text.dump_for_storage(metadata) if metadata else None,
        )

    @property
    def retries(self) -> int:
        """How many answers of the step that is due were sent back."""
        steps = self._run.steps
        return len(steps[-1].rejected) if steps and steps[-1].again else 0

    def may_retry(self) -> bool:
        """Whether another answer of the step may be sent back."""
        return self.retries < (self._max_retries or 0)

    # ---- what goes in ----

    @property
    def input_passed(self) -> bool:
        """Whether the input was processed."""
        return self._kept.input_passed

    async def opening(self) -> None:
        """Process what the run was asked, which happens once."""
        if self._kept.input_passed:
            return
        run = self._run
        messages = prompt.opening(run.spec)
        given = before = Input(
            run_view(run),
            tuple(message for message in messages if message.role != "system"),
            tuple(message for message in messages if message.role == "system"),
        )
        for processor in _with(self._inputs, "process_input"):
            given = await self._call(processor, "process_input", given, answers=(Input,)) or given
        changed = (given.messages, given.system) != (before.messages, before.system)
        opening = (*given.system, *given.messages) if changed else None
        self._kept = msgspec.structs.replace(self._kept, input_passed=True, opening=opening)
        run.spec = prompt.processed(run.spec, self._kept)
        self.keep()

    async def step(self, info: StepInfo, overrides: StepOverrides | None) -> StepOverrides | None:
        """What is to be different in the step that is due, over what is different already."""
        if overrides is not None:
            info = _seen(info, overrides)
        for processor in _with(self._inputs, "process_input_step"):
            said = await self._call(processor, "process_input_step", info, answers=(StepOverrides,))
            if said is not None:
                overrides = over(overrides, said)
                info = _seen(info, said)
        self.keep()
        return overrides

    @property
    def has_steps(self) -> bool:
        """Whether `step` may answer."""
        return any("process_input_step" in hooks for _, hooks in self._inputs)

    async def request(self, model: str, messages: Sequence[Message]) -> Sequence[Message] | CachedAnswer:
        """The messages of a model call as they are to be sent, or what is answered without it."""
        request = LlmRequest(run_view(self._run), self._run.step, model, tuple(messages))
        for processor in _with(self._inputs, "process_llm_request"):
            answer = await self._call(
                processor, "process_llm_request", request, answers=(LlmRequest, CachedAnswer)
            )
            if isinstance(answer, CachedAnswer):
                return answer
            request = answer or request
        return request.messages

    async def ask_again(self, model: str, error: RunError, messages: Sequence[Message]) -> bool:
        """Whether a model call that failed is to be made again."""
        most = MAX_FAILURES if self._max_retries is None else self._max_retries
        if self._kept.failures >= most:
            return False
        failure = ApiFailure(
            run_view(self._run), self._run.step, model, error, self._kept.failures, tuple(messages)
        )
        for processor in self._by_key.values():
            if "process_api_error" in hooks_of(processor) and await self._call(
                processor, "process_api_error", failure, answers=(bool,)
            ):
                self._kept = msgspec.structs.replace(self._kept, failures=self._kept.failures + 1)
                self.keep()
                return True
        return False

    # ---- what comes out ----

    async def parts(self, parts: list[Payload], *, ends: bool) -> list[Payload]:
        """The chunks of an answer as they are after their processing. `ends`: they are the last."""
        if self._hides_raw:
            parts = [part for part in parts if type(part) is not Raw]
        if not self._streams:
            return parts
        info = StreamInfo(run_view(self._run), self._run.step, self._run.attempt, self.retries)
        for processor, hooks in self._outputs:
            if parts and "process_output_stream" in hooks:
                said = await self._call(
                    processor, "process_output_stream", list(parts), info, answers=(list,)
                )
                parts = self._rewritten(processor, "process_output_stream", parts, said)
            if ends and "end_output_stream" in hooks:
                said = await self._call(processor, "end_output_stream", info, answers=(list,))
                parts = self._rewritten(processor, "end_output_stream", parts, [*parts, *(said or ())])
        return parts

    def _rewritten(self, processor: Processor, hook: str, before: Any, after: Any) -> Any:
        if after is None or after == before:
            return before
        if not processor.can_rewrite:
            raise ProcessorFailed(processor.name, hook, "it rewrites, but `can_rewrite` is not set")
        if isinstance(after, list) and not all(isinstance(part, Payload) for part in after):
            raise ProcessorFailed(processor.name, hook, "it answered with something that is no part")
        return after

    async def answer(
        self, record: StepRecord, calls: Iterable[CallRow], messages: Sequence[Message]
    ) -> Answer:
        """A complete answer as it is after its processing: `text` and `reasoning_text` may be others."""
        given = Answer(
            run=run_view(self._run),
            number=record.step,
            text=step_text(record),
            reasoning_text="".join(part.text for part in record.parts if isinstance(part, ReasoningPart)),
            tool_calls=tuple(ToolCallPart(call.call_id, call.tool_name, call.args or "{}") for call in calls),
            finish_reason=record.reason,
            usage=record.usage,
            messages=tuple(messages),
            retry_count=self.retries,
        )
        for processor in _with(self._outputs, "process_llm_response"):
            await self._call(processor, "process_llm_response", given)
        for processor in _with(self._outputs, "process_output_step"):
            said = await self._call(processor, "process_output_step", given, answers=(Answer,))
            given = self._rewritten(processor, "process_output_step", given, said)
        return given

    def looks_at(self, outcome: Outcome) -> bool:
        """Whether `tool_result` has something to do with what came of a call."""
        return any(_sees(p, outcome) for p in _with(self._outputs, "process_tool_result"))

    async def tool_result(self, call: CallRow, outcome: Outcome) -> Outcome:
        """What a tool returned, or said when it failed, as it is after its processing."""
        args = call.run_args or call.args
        is_error = outcome.kind == "error"
        given = ToolOutput(
            run=run_view(self._run),
            tool_call_id=call.call_id,
            tool_name=call.tool_name,
            args=json_text.parse_stored(args) if args else {},
            value=outcome.value if is_error else json_text.parse_stored(outcome.value),
            is_error=is_error,
        )
        before = given
        for processor in _with(self._outputs, "process_tool_result"):
            if not _sees(processor, outcome):
                continue
            said = await self._call(processor, "process_tool_result", given, answers=(ToolOutput,))
            given = self._rewritten(processor, "process_tool_result", given, said)
        self.keep()
        if given is before:
            return outcome
        if is_error and isinstance(given.value, str):
            return msgspec.structs.replace(outcome, value=json_text.scrub(given.value)[:MAX_MESSAGE])
        try:
            return msgspec.structs.replace(outcome, value=json_text.dump_for_storage(given.value))
        except Exception as error:  # a value's own code may raise anything
            raise ProcessorFailed("", "process_tool_result", error) from None

    async def result(self, record: StepRecord, reason: FinishReason) -> StepRecord:
        """The last step of a run as it is after the processing of the run's result."""
        run, made = self._run, record.structured
        final = step_text(record)
        earlier = "".join(
            step_text(step) for step in run.steps if step.step != record.step and not step.is_draft
        )
        given = Result(
            run=run_view(run),
            text=earlier + final,
            final_text=final,
            finish_reason=reason,
            usage=run.total(),
            steps=step_views(run),
            messages=tuple(prompt.conversation(run.spec, run.steps, run.calls.values())),
            object=None if made is None or made.object is None else json_text.parse_stored(made.object),
        )
        for processor in _with(self._outputs, "process_output_result"):
            said = await self._call(processor, "process_output_result", given, answers=(Result,))
            said = self._rewritten(processor, "process_output_result", given, said)
            if made is not None and said.final_text != final:
                fault = "it rewrites a text that an object was made of; do so in process_output_step"
                raise ProcessorFailed(processor.name, "process_output_result", fault)
            if not record.held and said.final_text != final:
                processor.warn(f"{processor.name}: the last answer had been shown, so it was not changed.")
                said = said.replace(final_text=final)
            given = msgspec.structs.replace(said, text=earlier + said.final_text)
        if given.final_text != final:
            others = tuple(part for part in record.parts if not isinstance(part, TextPart))
            text = (TextPart(given.final_text),) if given.final_text else ()
            record = msgspec.structs.replace(record, parts=(*others, *text))
        return self.settle(record)


def processing_of(run: "RunExecution", kept: Kept | None) -> Processing | None:
    """The processors of a run; None where it has none."""
    services, options = run.services, run.spec.options
    inputs, outputs = services.app.processors_of(run.agent, options)
    if not (inputs or outputs):
        return None

    async def question(processor: Processor, request: ModelRequest) -> tuple[str, Usage]:
        spent: dict[str, Usage] = {}
        text = await ask(services.resolve(processor), request, spent)
        return text, sum(spent.values(), Usage())

    retries = options.max_processor_retries
    return Processing(
        run,
        inputs,
        outputs,
        calls=services.processors,
        ask=question,
        kept=kept,
        max_retries=run.agent.max_processor_retries if retries is None else retries,
    )


def _keyed(processors: Iterable[Processor]) -> dict[str, Processor]:
    """Each processor once, under the name its state is kept by."""
    found: dict[str, Processor] = {}
    for processor in processors:
        if any(known is processor for known in found.values()):
            continue
        key, number = processor.name, 1
        while key in found:
            number += 1
            key = f"{processor.name}#{number}"
        found[key] = processor
    return found


def _sees(processor: Processor, outcome: Outcome) -> bool:
    """Whether a processor of tools' results is asked about what came of a call. What the server says of
    calls that it did not make is its own."""
    if outcome.kind == "error":
        return outcome.code == "exception" and processor.sees_tool_errors
    return outcome.kind == "result"


def _with(chain: Chain, hook: str) -> Iterator[Processor]:
    return (processor for processor, hooks in chain if hook in hooks)


def over(first: StepOverrides | None, second: StepOverrides | None) -> StepOverrides | None:
    """The second's over the first's, value by value."""
    if first is None or second is None:
        return first or second
    values = {name: getattr(second, name) for name in StepOverrides.__struct_fields__}
    return msgspec.structs.replace(
        first, **{name: value for name, value in values.items() if value is not None}
    )


def _seen(info: StepInfo, overrides: StepOverrides) -> StepInfo:
    """What the next processor is told of the step."""
    changes: dict[str, Any] = {}
    if overrides.messages is not None:
        changes["messages"] = overrides.messages
    if overrides.system is not None:
        changes["system"] = tuple(text_message("system", text) for text in overrides.system)
    if overrides.active_tools is not None:
        changes["tools"] = overrides.active_tools
    if overrides.tool_choice is not None:
        changes["tool_choice"] = overrides.tool_choice
    if overrides.model is not None:
        changes["model"] = overrides.model
    return msgspec.structs.replace(info, **changes)
