"""Messages between protobuf and the domain."""

from collections.abc import Iterable, Sequence
from typing import Any

from entracte.v1 import message_pb2
from entracte_server.domain import json_text
from entracte_server.domain import messages as d
from entracte_server.domain.errors import invalid
from entracte_server.rpc import checks
from entracte_server.wire import values

_ROLES: dict[int, d.Role] = {
    message_pb2.ROLE_SYSTEM: "system",
    message_pb2.ROLE_USER: "user",
    message_pb2.ROLE_ASSISTANT: "assistant",
    message_pb2.ROLE_TOOL: "tool",
}
_ROLE_NUMBERS: dict[str, Any] = {text: number for number, text in _ROLES.items()}

_ALLOWED: dict[d.Role, frozenset[str]] = {
    "system": frozenset({"text"}),
    "user": frozenset({"text", "image", "file"}),
    "assistant": frozenset({"text", "image", "file", "tool_call", "reasoning"}),
    "tool": frozenset({"tool_result"}),
}


def messages_from(field: str, messages: Iterable[message_pb2.Message]) -> tuple[d.Message, ...]:
    """Messages of a request, checked one by one and as a history: every tool call has one result."""
    result = tuple(_message_from(f"{field}[{i}]", message) for i, message in enumerate(messages))
    _check_pairs(field, result)
    return result


def system_from(field: str, messages: Iterable[message_pb2.Message]) -> tuple[str, ...]:
    """System texts of a request; the role may be left out."""
    texts = []
    for i, message in enumerate(messages):
        if message.role not in (message_pb2.ROLE_UNSPECIFIED, message_pb2.ROLE_SYSTEM):
            raise invalid(f"{field}[{i}].role", "must be ROLE_SYSTEM")
        if not message.parts:
            raise invalid(f"{field}[{i}].parts", "must not be empty")
        for j, part in enumerate(message.parts):
            if part.WhichOneof("part") != "text":
                raise invalid(f"{field}[{i}].parts[{j}]", "a system message has text parts only")
            texts.append(part.text.text)
    return tuple(texts)


def _message_from(field: str, message: message_pb2.Message) -> d.Message:
    role = _ROLES.get(message.role)
    if role is None:
        raise invalid(f"{field}.role", "is required: one of system, user, assistant, tool")
    if not message.parts:
        raise invalid(f"{field}.parts", "must not be empty")
    parts = []
    for j, part in enumerate(message.parts):
        name = f"{field}.parts[{j}]"
        kind = part.WhichOneof("part")
        if kind is None:
            raise invalid(name, "is empty")
        if kind not in _ALLOWED[role]:
            raise invalid(f"{name}.{kind}", f"does not belong in a message of role {role}")
        parts.append(_part_from(f"{name}.{kind}", kind, getattr(part, kind)))
    metadata = None
    if message.HasField("metadata"):
        metadata, _ = checks.json_object(f"{field}.metadata", message.metadata)
    return d.Message(
        role, tuple(parts), metadata, checks.identifier(f"{field}.id", message.id, required=False)
    )


def _part_from(field: str, kind: str, part: Any) -> d.AnyPart:
    if kind == "text":
        return d.TextPart(part.text, _provider_metadata(field, part))
    if kind in ("image", "file"):
        source = part.WhichOneof("source")
        if source is None:
            raise invalid(field, "needs a url or data")
        if source == "data" and not part.media_type:
            raise invalid(f"{field}.media_type", "is required with data")
        if source == "url" and not part.url.strip():
            raise invalid(f"{field}.url", "must not be empty")
        if kind == "image":
            return d.ImagePart(part.url, part.data, part.media_type)
        return d.FilePart(part.url, part.data, part.media_type, part.filename)
    if kind == "tool_call":
        args = "{}"
        if part.HasField("args"):
            args, _ = checks.json_object(f"{field}.args", part.args)
        return d.ToolCallPart(
            checks.identifier(f"{field}.tool_call_id", part.tool_call_id),
            checks.identifier(f"{field}.tool_name", part.tool_name),
            args,
            _provider_metadata(field, part),
        )
    if kind == "tool_result":
        if not part.HasField("result"):
            raise invalid(f"{field}.result", "is required")
        raw, value = checks.json_value(f"{field}.result", part.result)
        output = value if part.is_error and isinstance(value, str) else raw
        return d.ToolResultPart(
            checks.identifier(f"{field}.tool_call_id", part.tool_call_id),
            part.tool_name,
            output,
            "error" if part.is_error else "json",
        )
    return d.ReasoningPart(
        part.text,
        part.signature if part.HasField("signature") else None,
        part.redacted if part.HasField("redacted") else None,
        _provider_metadata(field, part),
    )


def _provider_metadata(field: str, part: Any) -> str | None:
    if not part.HasField("provider_metadata"):
        return None
    return checks.json_object(f"{field}.provider_metadata", part.provider_metadata)[0]


def _check_pairs(field: str, messages: Sequence[d.Message]) -> None:
    waiting: dict[str, str] = {}
    for i, message in enumerate(messages):
        if message.role != "tool" and waiting:
            break
        for j, part in enumerate(message.parts):
            name = f"{field}[{i}].parts[{j}]"
            if isinstance(part, d.ToolCallPart):
                if part.tool_call_id in waiting:
                    raise invalid(name, f"a second call with the id {part.tool_call_id!r}")
                waiting[part.tool_call_id] = name
            elif isinstance(part, d.ToolResultPart) and waiting.pop(part.tool_call_id, None) is None:
                raise invalid(name, f"answers no call before it (id {part.tool_call_id!r})")
    for call_id, name in waiting.items():
        raise invalid(name, f"the call {call_id!r} has no result in the messages that follow it")


def to_messages(messages: Iterable[d.Message]) -> list[message_pb2.Message]:
    """Messages for a response."""
    return [
        message_pb2.Message(
            role=_ROLE_NUMBERS[message.role],
            parts=[to_part(part) for part in message.parts],
            metadata=values.json(message.metadata),
            id=message.id,
        )
        for message in messages
    ]


def to_part(part: d.AnyPart) -> message_pb2.MessagePart:
    """A piece of a message for a response."""
    match part:
        case d.TextPart(text, provider_metadata):
            said = message_pb2.TextPart(text=text, provider_metadata=values.json(provider_metadata))
            return message_pb2.MessagePart(text=said)
        case d.ReasoningPart():
            return message_pb2.MessagePart(reasoning=to_reasoning(part))
        case d.ImagePart(url, data, media_type):
            image = message_pb2.ImagePart(media_type=media_type)
            if url:
                image.url = url
            else:
                image.data = data
            return message_pb2.MessagePart(image=image)
        case d.FilePart(url, data, media_type, filename):
            file = message_pb2.FilePart(media_type=media_type, filename=filename)
            if url:
                file.url = url
            else:
                file.data = data
            return message_pb2.MessagePart(file=file)
        case d.ToolCallPart(call_id, name, args, provider_metadata):
            return message_pb2.MessagePart(
                tool_call=message_pb2.ToolCallPart(
                    tool_call_id=call_id,
                    tool_name=name,
                    args=values.json(args),
                    provider_metadata=values.json(provider_metadata),
                )
            )
        case d.ToolResultPart(call_id, name, output, kind):
            is_text = kind in ("text", "error")
            return message_pb2.MessagePart(
                tool_result=message_pb2.ToolResultPart(
                    tool_call_id=call_id,
                    tool_name=name,
                    result=values.json(json_text.dump(output) if is_text else output),
                    is_error=kind == "error",
                )
            )


def to_reasoning(part: d.ReasoningPart) -> message_pb2.ReasoningPart:
    """A piece of thinking for a response."""
    return message_pb2.ReasoningPart(
        text=part.text,
        signature=part.signature,
        redacted=part.redacted,
        provider_metadata=values.json(part.provider_metadata),
    )
