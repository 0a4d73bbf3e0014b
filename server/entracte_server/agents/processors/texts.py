"""Reading and changing the text in messages and JSON values."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from entracte_server.domain import json_text
from entracte_server.domain.messages import (
    AnyPart,
    Message,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

Change = Callable[[str], str]


def in_json(value: Any, change: Change) -> Any:
    """A JSON value with `change` made to each text in it; keys stay as they are."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [in_json(item, change) for item in value]
    if isinstance(value, dict):
        return {key: in_json(item, change) for key, item in value.items()}
    return value


def _in_json_text(text: str, change: Change) -> str:
    value = json_text.parse_stored(text)
    changed = in_json(value, change)
    return text if changed == value else json_text.dump_for_storage(changed)


def _in_part(part: AnyPart, change: Change) -> AnyPart:
    match part:
        case TextPart():
            return TextPart(change(part.text))
        case ReasoningPart():
            text = change(part.text)
            # A signature is over the text that was.
            return part if text == part.text else ReasoningPart(text)
        case ToolCallPart():
            return msgspec.structs.replace(part, args=_in_json_text(part.args, change))
        case ToolResultPart(kind="json" | "denied"):
            return msgspec.structs.replace(part, output=_in_json_text(part.output, change))
        case ToolResultPart():
            return msgspec.structs.replace(part, output=change(part.output))
        case _:
            return part


def in_messages(messages: Iterable[Message], change: Change) -> tuple[Message, ...]:
    """The messages with `change` made to each text in them, arguments and results of tools included."""
    changed = []
    for message in messages:
        parts = tuple(_in_part(part, change) for part in message.parts)
        changed.append(message if parts == message.parts else msgspec.structs.replace(message, parts=parts))
    return tuple(changed)


def texts_in(value: Any) -> list[str]:
    """The texts in a JSON value, keys left out."""
    found: list[str] = []

    def note(text: str) -> str:
        found.append(text)
        return text

    in_json(value, note)
    return found


def texts_of(messages: Iterable[Message]) -> list[str]:
    """All the text that `in_messages` would change."""
    found: list[str] = []

    def note(text: str) -> str:
        found.append(text)
        return text

    in_messages(messages, note)
    return found


def asked(messages: Iterable[Message]) -> str:
    """What users said, a paragraph for each message."""
    return "\n\n".join(message.text for message in messages if message.role == "user")
