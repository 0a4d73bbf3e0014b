"""Messages to and from the wire."""

from collections.abc import Iterable
from typing import Any

from entracte import _json
from entracte._enums import ROLES, number_of
from entracte._messages import (
    FilePart,
    ImagePart,
    Message,
    MessagePart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from entracte.v1 import message_pb2 as pb


def to_messages(messages: Iterable[Message]) -> list[pb.Message]:
    """Writes messages."""
    return [_to_message(message) for message in messages]


def message_of(message: pb.Message) -> Message:
    """Reads a message. Parts that this version does not know are left out."""
    parts = (_part_of(part) for part in message.parts)
    return Message(
        role=ROLES.get(message.role, "unknown"),
        parts=tuple(part for part in parts if part is not None),
        metadata=_value(message, "metadata"),
        id=message.id,
    )


def text_part_of(part: pb.TextPart) -> TextPart:
    """Reads a text."""
    return TextPart(part.text, _value(part, "provider_metadata"))


def image_of(part: pb.ImagePart) -> ImagePart:
    """Reads a picture."""
    return ImagePart(part.url, part.data, part.media_type)


def file_of(part: pb.FilePart) -> FilePart:
    """Reads a file."""
    return FilePart(part.url, part.data, part.media_type, part.filename)


def reasoning_of(part: pb.ReasoningPart) -> ReasoningPart:
    """Reads a piece of thinking."""
    return ReasoningPart(
        text=part.text,
        signature=part.signature if part.HasField("signature") else None,
        redacted=part.redacted if part.HasField("redacted") else None,
        provider_metadata=_value(part, "provider_metadata"),
    )


def _to_message(message: Message) -> pb.Message:
    return pb.Message(
        role=number_of(ROLES, message.role, "a message's role"),
        parts=[_to_part(part) for part in message.parts],
        metadata=None if message.metadata is None else _json.to_json(message.metadata),
        id=message.id,
    )


def _to_part(part: MessagePart) -> pb.MessagePart:
    match part:
        case TextPart():
            said = pb.TextPart(text=part.text, provider_metadata=_metadata(part.provider_metadata))
            return pb.MessagePart(text=said)
        case ImagePart():
            image = pb.ImagePart(media_type=part.media_type)
            _set_source(image, part)
            return pb.MessagePart(image=image)
        case FilePart():
            file = pb.FilePart(media_type=part.media_type, filename=part.filename)
            _set_source(file, part)
            return pb.MessagePart(file=file)
        case ToolCallPart():
            call = pb.ToolCallPart(
                tool_call_id=part.tool_call_id,
                tool_name=part.tool_name,
                args=_json.to_json(part.args),
                provider_metadata=_metadata(part.provider_metadata),
            )
            return pb.MessagePart(tool_call=call)
        case ToolResultPart():
            result = pb.ToolResultPart(
                tool_call_id=part.tool_call_id,
                tool_name=part.tool_name,
                result=_json.to_json(part.result),
                is_error=part.is_error,
            )
            return pb.MessagePart(tool_result=result)
        case ReasoningPart():
            thinking = pb.ReasoningPart(
                text=part.text,
                signature=part.signature,
                redacted=part.redacted,
                provider_metadata=_metadata(part.provider_metadata),
            )
            return pb.MessagePart(reasoning=thinking)


def _metadata(value: Any) -> Any:
    return None if value is None else _json.to_json(value)


def _set_source(target: pb.ImagePart | pb.FilePart, part: ImagePart | FilePart) -> None:
    if part.data:
        target.data = part.data
    else:
        target.url = part.url


def _part_of(part: pb.MessagePart) -> MessagePart | None:
    match part.WhichOneof("part"):
        case "text":
            return text_part_of(part.text)
        case "image":
            return image_of(part.image)
        case "file":
            return file_of(part.file)
        case "tool_call":
            call = part.tool_call
            metadata = _value(call, "provider_metadata")
            return ToolCallPart(call.tool_call_id, call.tool_name, _value(call, "args"), metadata)
        case "tool_result":
            result = part.tool_result
            return ToolResultPart(
                result.tool_call_id, result.tool_name, _value(result, "result"), result.is_error
            )
        case "reasoning":
            return reasoning_of(part.reasoning)
        case _:
            return None


def _value(holder: Any, field: str) -> Any:
    return _json.parse(getattr(holder, field).text) if holder.HasField(field) else None
