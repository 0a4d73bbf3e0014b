"""Threads and their messages as the messages of responses."""

from typing import Any, assert_never

from entracte.v1 import message_pb2, run_pb2, thread_pb2
from entracte_server.domain.messages import FilePart, ImagePart, ReasoningPart, TextPart
from entracte_server.domain.threads import (
    Author,
    CallPart,
    DataPart,
    ErrorPart,
    SourcePart,
    StoredPart,
    ThreadMessage,
    ThreadView,
)
from entracte_server.rpc.messages import to_part, to_reasoning
from entracte_server.rpc.resources import STATES
from entracte_server.wire import values

AUTHORS: dict[int, Author] = {
    message_pb2.ROLE_SYSTEM: "system",
    message_pb2.ROLE_USER: "user",
    message_pb2.ROLE_ASSISTANT: "assistant",
}
"""Who may speak in a thread, by the number of the role."""

_ROLES: dict[str, Any] = {author: number for number, author in AUTHORS.items()}
_STATES = values.EnumTexts(thread_pb2.ToolInvocationState.DESCRIPTOR)


def thread_message(view: ThreadView) -> thread_pb2.Thread:
    """A thread."""
    thread, holder = view.thread, view.holder
    return thread_pb2.Thread(
        thread_id=thread.thread_id,
        resource_id=thread.resource_id,
        title=thread.title,
        metadata=values.json(thread.metadata),
        create_time=values.timestamp(thread.create_time),
        update_time=values.timestamp(thread.update_time),
        message_count=thread.last_position,
        active_run_id="" if holder is None else holder.run_id,
        active_run_state=run_pb2.RUN_STATE_UNSPECIFIED if holder is None else STATES.number(holder.state),
        queued_runs=view.queued,
    )


def said_message(message: ThreadMessage, room: int) -> thread_pb2.ThreadMessage:
    """A message of a thread. Where it would be larger than `room` bytes, its largest parts are left out."""
    said = thread_pb2.ThreadMessage(
        id=message.id,
        position=message.position,
        role=_ROLES[message.role],
        parts=[_part(part) for part in message.parts],
        author=message.author,
        create_time=values.timestamp(message.create_time),
        run_id=message.run_id,
        step=message.step,
        metadata=values.json(message.metadata),
        aborted=message.aborted,
    )
    while said.ByteSize() > room and said.parts:
        largest = max(range(len(said.parts)), key=lambda index: said.parts[index].ByteSize())
        del said.parts[largest]
        said.omitted_parts += 1
    return said


def _part(part: StoredPart) -> thread_pb2.ThreadPart:
    match part:
        case TextPart():
            return thread_pb2.ThreadPart(text=to_part(part).text)
        case ImagePart():
            return thread_pb2.ThreadPart(image=to_part(part).image)
        case FilePart():
            return thread_pb2.ThreadPart(file=to_part(part).file)
        case ReasoningPart():
            return thread_pb2.ThreadPart(reasoning=to_reasoning(part))
        case CallPart():
            return thread_pb2.ThreadPart(tool_invocation=_invocation(part))
        case SourcePart(id, url, title):
            return thread_pb2.ThreadPart(source=thread_pb2.SourcePart(id=id, url=url, title=title))
        case ErrorPart(code, text):
            return thread_pb2.ThreadPart(error=thread_pb2.ErrorPart(code=code, message=text))
        case DataPart(name, json):
            return thread_pb2.ThreadPart(data=thread_pb2.DataPart(name=name, data=values.json(json)))
        case _:
            assert_never(part)


def _invocation(part: CallPart) -> thread_pb2.ToolInvocation:
    outcome = part.outcome
    message = thread_pb2.ToolInvocation(
        tool_call_id=part.tool_call_id,
        tool_name=part.tool_name,
        args=values.json(part.args),
        state=_STATES.number("pending" if outcome is None else outcome.kind),
    )
    if outcome is None:
        return message
    if outcome.kind == "result":
        message.result.text = outcome.value
    else:
        message.error = outcome.value
    return message
