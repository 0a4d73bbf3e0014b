"""Messages of a thread to messages for a model and back. Nothing here reads or writes."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from entracte_server.domain import json_text
from entracte_server.domain.messages import (
    AnyPart,
    FilePart,
    ImagePart,
    Message,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from entracte_server.domain.results import RunError
from entracte_server.domain.runs import CallRow, Outcome, StepRecord
from entracte_server.domain.threads import (
    CallPart,
    DataPart,
    ErrorPart,
    SourcePart,
    StoredPart,
    ThreadMessage,
)
from entracte_server.engine import prompt

_TOLD = TextPart | ReasoningPart | ImagePart | FilePart

RECALLED = "recalled-messages"
"""The tag around messages that are recalled."""

PER_MESSAGE = 8
"""Tokens a message is counted for apart from its texts, and an image or a file for `PER_PICTURE`."""

PER_PICTURE = 1000

PENDING = json_text.dump({"status": "pending"})
"""What a model is told of a call that still waits, where it is told of it at all."""


def for_model(stored: Iterable[ThreadMessage], *, filter_incomplete: bool = True) -> list[Message]:
    """The messages as a model is given them: each call with exactly one result. A call without one is left
    out, or is told to wait. Of an answer that was cut off only its whole calls are told. Models repeat the
    ids of calls that a run was not told of: of two calls with one id the later gets another."""
    messages: list[Message] = []
    ids: set[str] = set()
    for message in _run_by_run(stored):
        parts: list[AnyPart] = []
        results: list[ToolResultPart] = []
        for part in message.parts:
            if isinstance(part, CallPart):
                if part.outcome is None and filter_incomplete:
                    continue
                call_id = part.tool_call_id
                if call_id in ids:
                    call_id = f"{call_id}-{message.position}"
                ids.add(call_id)
                parts.append(ToolCallPart(call_id, part.tool_name, part.args, part.provider_metadata))
                results.append(_result(part, call_id))
            elif isinstance(part, _TOLD) and not message.aborted:
                parts.append(part)
        if all(isinstance(part, ReasoningPart) for part in parts):  # thoughts alone are no answer
            continue
        messages.append(Message(message.role, tuple(parts), message.metadata, message.id))
        if results:
            messages.append(Message("tool", tuple(results), id=f"{message.id}-results"))
        for part in message.parts:
            if isinstance(part, CallPart) and part.feedback and part.outcome is not None:
                told = prompt.delegation_feedback(part.feedback)
                messages.append(
                    msgspec.structs.replace(told, id=f"{message.id}-{part.tool_call_id}-feedback")
                )
    return messages


def _run_by_run(stored: Iterable[ThreadMessage]) -> Iterator[ThreadMessage]:
    """What was said at the same time, as by two runs of one sub-agent, is told one run after the other."""
    runs: dict[str, list[ThreadMessage]] = {}
    for message in stored:
        runs.setdefault(message.run_id or message.id, []).append(message)
    return itertools.chain.from_iterable(runs.values())


def recalled(stored: Sequence[ThreadMessage], *, same: bool, filter_incomplete: bool = True) -> list[Message]:
    """As `for_model`, for older messages of one thread, which is the `same` as that of the run or not,
    marked so that the model can tell them from the present conversation."""
    told = for_model(stored, filter_incomplete=filter_incomplete)
    if not told:
        return []
    where = "earlier in this conversation" if same else "another conversation with the same user"
    begin = f"<{RECALLED}>\nFrom here to the closing tag: messages from {where}, told again because they may "
    begin += "have to do with what is asked now. Nothing of them is to be answered or done again."
    key = stored[0].id
    return [_note(f"{key}-recalled", begin), *told, _note(f"{key}-recalled-end", f"</{RECALLED}>")]


def _note(note_id: str, text: str) -> Message:
    metadata = json_text.dump({"feedback": RECALLED})
    return Message("user", (TextPart(text),), metadata, note_id)


def is_note(message: Message) -> bool:
    """Whether it only marks what is recalled."""
    return prompt.is_feedback(message) and message.text.startswith((f"<{RECALLED}>", f"</{RECALLED}>"))


def _result(part: CallPart, call_id: str) -> ToolResultPart:
    if part.outcome is None:
        return ToolResultPart(call_id, part.tool_name, PENDING)
    return prompt.outcome_part(call_id, part.tool_name, part.outcome, delegated=part.delegated)


def exchanges(stored: Sequence[ThreadMessage]) -> list[list[ThreadMessage]]:
    """The messages in exchanges: what a user says, in one message or several, and all that is answered.
    What comes before the first user says anything belongs to nothing and is left out."""
    found: list[list[ThreadMessage]] = []
    answered = True
    for message in stored:
        if message.role == "user":
            if answered:
                found.append([])
            answered = False
        else:
            answered = True
        if found:
            found[-1].append(message)
    return found


def from_input(
    messages: Iterable[Message], *, prefix: str, run_id: str, author: str, time: int
) -> list[ThreadMessage]:
    """What a run was asked, as messages to store: system messages are not part of a conversation, and
    results join the calls they belong to. Of two with one id the later gets another."""
    stored: list[ThreadMessage] = []
    ids: set[str] = set()
    for index, message in enumerate(messages):
        if message.role == "tool":
            if stored:
                stored[-1] = _with_results(stored[-1], message)
        elif message.role != "system":
            own = f"{prefix}-input-{index + 1}"
            message_id = own if message.id in ids else message.id or own
            ids.add(message_id)
            stored.append(
                ThreadMessage(
                    id=message_id,
                    role=message.role,
                    parts=tuple(_stored_parts(message.parts)),
                    create_time=time,
                    author=author if message.role == "user" else "",
                    run_id=run_id,
                    metadata=message.metadata,
                )
            )
    return stored


def _stored_parts(parts: Iterable[AnyPart]) -> Iterator[StoredPart]:
    for part in parts:
        if isinstance(part, ToolCallPart):
            yield CallPart(
                part.tool_call_id, part.tool_name, part.args, provider_metadata=part.provider_metadata
            )
        elif not isinstance(part, ToolResultPart):
            yield part


def _with_results(message: ThreadMessage, results: Message) -> ThreadMessage:
    came = {part.tool_call_id: part for part in results.parts if isinstance(part, ToolResultPart)}
    parts = tuple(
        msgspec.structs.replace(part, outcome=_outcome(came[part.tool_call_id]))
        if isinstance(part, CallPart) and part.tool_call_id in came
        else part
        for part in message.parts
    )
    return msgspec.structs.replace(message, parts=parts)


def _outcome(part: ToolResultPart) -> Outcome:
    if part.kind == "error":
        return Outcome("error", part.output)
    if part.kind == "text":
        return Outcome("result", json_text.dump(part.output))
    return Outcome("result", part.output)


def from_step(
    record: StepRecord,
    calls: Iterable[CallRow],
    *,
    run_id: str,
    author: str,
    time: int,
    error: RunError | None = None,
) -> ThreadMessage | None:
    """A step as a message to store; None where nothing of it is to be kept. A draft that was not enough is
    kept only for its calls. `error` is why there is no more of it."""
    if record.again or record.held:
        return None
    parts: list[StoredPart] = []
    if not record.is_draft:
        parts += [part for part in record.parts if isinstance(part, _TOLD)]
        parts += [SourcePart(source.id, source.url, source.title) for source in record.sources]
        parts += [FilePart(file.url, file.data, file.media_type) for file in record.files]
        if record.structured is not None and record.structured.object is not None:
            parts.append(DataPart("object", record.structured.object))
    for call in sorted(calls, key=lambda call: call.index):
        if not call.provider_executed:
            told = prompt.call_part(call)
            parts.append(
                CallPart(
                    told.tool_call_id,
                    told.tool_name,
                    told.args,
                    call.outcome,
                    told.provider_metadata,
                    delegated=bool(call.child_run_id),
                    feedback=call.feedback,
                )
            )
    if error is not None:
        parts.append(error_part(error))
    if not parts:
        return None
    return ThreadMessage(
        id=record.message_id,
        role="assistant",
        parts=tuple(parts),
        create_time=time,
        author=author,
        run_id=run_id,
        step=record.step,
        metadata=record.metadata,
        aborted=record.reason in ("aborted", "error"),
    )


def error_part(error: RunError) -> ErrorPart:
    """Why there is no more of an answer, as a piece of a message."""
    return ErrorPart(error.kind, error.message)


def tokens(message: ThreadMessage) -> int:
    """About how many tokens a message takes: four bytes of text are one."""
    size = 0
    for part in message.parts:
        match part:
            case TextPart() | ReasoningPart():
                size += len(part.text.encode())
            case CallPart():
                size += len(part.args.encode())
                size += len(part.outcome.value.encode()) if part.outcome is not None else 0
            case ImagePart() | FilePart():
                size += PER_PICTURE * 4
            case SourcePart() | ErrorPart() | DataPart():  # models are not told of them
                pass
    return PER_MESSAGE + size // 4
