"""The conversation of a run as a model is given it. The one place where model requests are built."""

from collections.abc import Iterable, Sequence

import msgspec

from entracte_server.domain import json_text
from entracte_server.domain.messages import (
    AnyPart,
    Message,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    text_message,
)
from entracte_server.domain.runs import CallRow, Feedback, Outcome, Processing, RunSpec, StepRecord


def opening(spec: RunSpec) -> list[Message]:
    """System messages, then history, then context, then input. Order: instructions, system messages of the
    context and of the input, the `system` option, what is known of the user, the history, the other
    context, the other input."""
    system = [text_message("system", text) for text in spec.system]
    for group in (spec.options.context, spec.input):
        system += [message for message in group if message.role == "system"]
    system += [text_message("system", text) for text in (*spec.options.system, *spec.known)]
    return [*system, *spec.history, *_turns(spec.options.context), *_turns(spec.input)]


def _turns(messages: Iterable[Message]) -> list[Message]:
    return [message for message in messages if message.role != "system"]


def processed(spec: RunSpec, processing: Processing | None) -> RunSpec:
    """What the run was asked, with what processors made of it in the place of what was said."""
    if processing is None or processing.opening is None:
        return spec
    turns = _turns(processing.opening)
    before, asked = _turns(spec.options.context), _turns(spec.input)
    remembered = {message.id for message in spec.history}
    history = [message for message in turns if message.id in remembered] if remembered else []
    turns = [message for message in turns if message.id not in remembered]
    if len(turns) == len(before) + len(asked):
        context = len(before)
    else:  # of what was left out or added, nobody says where it belongs: it is the input's
        pairs = enumerate(zip(before, turns, strict=False))
        context = next((index for index, (old, new) in pairs if old != new), min(len(before), len(turns)))
    return msgspec.structs.replace(
        spec,
        system=tuple(message.text for message in processing.opening if message.role == "system"),
        known=(),
        history=tuple(history),
        input=tuple(turns[context:]),
        options=msgspec.structs.replace(spec.options, context=tuple(turns[:context]), system=()),
    )


def result_part(call: CallRow) -> ToolResultPart:
    """What the model is told came of a call that has an outcome."""
    assert call.outcome is not None
    return outcome_part(call.call_id, call.tool_name, call.outcome, delegated=bool(call.child_run_id))


def outcome_part(call_id: str, tool_name: str, outcome: Outcome, *, delegated: bool) -> ToolResultPart:
    """What the model is told came of a call, which a sub-agent took over or not."""
    if outcome.kind == "result":
        return ToolResultPart(call_id, tool_name, _told(outcome.value) if delegated else outcome.value)
    if outcome.kind == "denied":
        told: dict[str, object] = {"status": "declined", "reason": outcome.value}
        if outcome.reason_json is not None:
            told["data"] = json_text.parse(outcome.reason_json)
        return ToolResultPart(call_id, tool_name, json_text.dump(told), "denied")
    return ToolResultPart(call_id, tool_name, outcome.value, "error")


def _told(result: str) -> str:
    """Of a sub-agent's result, the model is told the answer: not which run it came from."""
    value = json_text.parse_stored(result)
    is_answer = isinstance(value, dict) and isinstance(value.get("text"), str)
    return json_text.dump(value["text"]) if is_answer else result  # a processor may have changed it


def call_part(call: CallRow) -> ToolCallPart:
    """A call as the history shows it: as the model wrote it, or as a reviewer edited it."""
    args = (call.run_args if call.edited else call.args) or "{}"
    return ToolCallPart(call.call_id, call.tool_name, args, call.provider_metadata)


def step_messages(record: StepRecord, calls: Sequence[CallRow]) -> list[Message]:
    """What one step adds: the model's answer, then the results of its calls in call order. A call
    that has no outcome yet has no result: models are asked only when every call has one."""
    own = [call for call in calls if not call.provider_executed]
    parts: tuple[AnyPart, ...] = (*record.parts, *(call_part(call) for call in own))
    messages = []
    if parts:
        messages.append(Message("assistant", parts, id=record.message_id))
    results = tuple(result_part(call) for call in own if call.outcome is not None)
    if results:
        messages.append(Message("tool", results))
    told = [delegation_feedback(call.feedback) for call in own if call.feedback]
    return messages + told + [feedback_message(feedback) for feedback in record.feedback]


def delegation_feedback(text: str) -> Message:
    """What a hook has to say to a model of what its sub-agent came to."""
    return feedback_message(Feedback("delegation", text))


def feedback_message(feedback: Feedback) -> Message:
    """What a model is told by something that is no person, so tagged that it can tell."""
    return Message(
        "user",
        (TextPart(f"<{feedback.source}>\n{feedback.text}\n</{feedback.source}>"),),
        metadata=json_text.dump({"feedback": feedback.source}),
    )


def is_feedback(message: Message) -> bool:
    """Whether `feedback_message` made it."""
    return message.metadata is not None and message.metadata.startswith('{"feedback":')


def rejected_messages(record: StepRecord) -> list[Message]:
    """What the model is shown of the attempts at this step whose answers were sent back. Where it is not
    shown an answer, it is told of the last one only: of others it cannot know what is meant."""
    messages = []
    for position, rejected in enumerate(record.rejected):
        if rejected.parts:
            messages.append(Message("assistant", rejected.parts))
        elif position < len(record.rejected) - 1:
            continue
        messages += [feedback_message(feedback) for feedback in rejected.feedback]
    return messages


def conversation(spec: RunSpec, steps: Iterable[StepRecord], calls: Iterable[CallRow]) -> list[Message]:
    """The whole conversation so far, as a model is given it."""
    return opening(spec) + answers(steps, calls)


def answers(steps: Iterable[StepRecord], calls: Iterable[CallRow]) -> list[Message]:
    """What the steps of a run added to its conversation."""
    by_step: dict[int, list[CallRow]] = {}
    for call in calls:
        by_step.setdefault(call.step, []).append(call)
    messages: list[Message] = []
    for record in steps:
        messages += step_messages(record, sorted(by_step.get(record.step, []), key=lambda c: c.index))
    return messages
