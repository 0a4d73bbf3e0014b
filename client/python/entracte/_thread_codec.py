"""Threads and their messages from the wire."""

from entracte._enums import INVOCATION_STATES, ROLES, RUN_STATES
from entracte._message_codec import file_of, image_of, reasoning_of, text_part_of
from entracte._outcomes import text_of, time_of
from entracte._thread_records import (
    DataPart,
    ErrorPart,
    SourcePart,
    ThreadInfo,
    ThreadMessage,
    ThreadPart,
    ToolInvocationPart,
)
from entracte._working_memory import WorkingMemory
from entracte.v1 import thread_pb2 as pb
from entracte.v1 import working_memory_pb2


def thread_of(message: pb.Thread) -> ThreadInfo:
    """Reads a thread."""
    state = message.active_run_state
    return ThreadInfo(
        thread_id=message.thread_id,
        resource_id=message.resource_id,
        title=message.title,
        metadata_json=text_of(message, "metadata"),
        create_time=time_of(message.create_time) if message.HasField("create_time") else None,
        update_time=time_of(message.update_time) if message.HasField("update_time") else None,
        message_count=message.message_count,
        active_run_id=message.active_run_id,
        active_run_state=RUN_STATES.get(state, "unknown") if state else None,
        queued_runs=message.queued_runs,
    )


def working_memory_of(message: working_memory_pb2.WorkingMemory) -> WorkingMemory:
    """Reads a working memory."""
    return WorkingMemory(
        thread_id=message.thread_id,
        resource_id=message.resource_id,
        content=message.content,
        version=message.version,
        update_time=time_of(message.update_time) if message.HasField("update_time") else None,
    )


def thread_message_of(message: pb.ThreadMessage) -> ThreadMessage:
    """Reads a message of a thread. Parts that this version does not know are left out."""
    parts = (_part_of(part) for part in message.parts)
    return ThreadMessage(
        id=message.id,
        position=message.position,
        role=ROLES.get(message.role, "unknown"),
        parts=tuple(part for part in parts if part is not None),
        author=message.author,
        create_time=time_of(message.create_time) if message.HasField("create_time") else None,
        run_id=message.run_id,
        step=message.step,
        metadata_json=text_of(message, "metadata"),
        aborted=message.aborted,
        omitted_parts=message.omitted_parts,
    )


def _part_of(part: pb.ThreadPart) -> ThreadPart | None:
    match part.WhichOneof("part"):
        case "text":
            return text_part_of(part.text)
        case "reasoning":
            return reasoning_of(part.reasoning)
        case "tool_invocation":
            return _invocation_of(part.tool_invocation)
        case "image":
            return image_of(part.image)
        case "file":
            return file_of(part.file)
        case "source":
            return SourcePart(part.source.id, part.source.url, part.source.title)
        case "error":
            return ErrorPart(part.error.code, part.error.message)
        case "data":
            return DataPart(part.data.name, text_of(part.data, "data"))
        case _:
            return None


def _invocation_of(call: pb.ToolInvocation) -> ToolInvocationPart:
    return ToolInvocationPart(
        tool_call_id=call.tool_call_id,
        tool_name=call.tool_name,
        args_json=text_of(call, "args"),
        state=INVOCATION_STATES.get(call.state, "unknown"),
        result_json=text_of(call, "result"),
        error=call.error,
    )
