"""What is said to models and tools and what they answer, as JSON texts in the form of the conventions.
Made only for spans that are to carry it."""

from collections.abc import Iterable, Sequence
from typing import Any

from entracte_server.domain import chunks as c
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
from entracte_server.models.base import ModelEvent, ToolSpec


def messages(given: Iterable[Message]) -> str:
    """Messages but those of the system."""
    return json_text.dump(
        [
            {"role": message.role, "parts": [_part(part) for part in message.parts]}
            for message in given
            if message.role != "system"
        ]
    )


def system_instructions(given: Iterable[Message]) -> str:
    """The messages of the system; empty where there are none."""
    parts = [_part(part) for message in given if message.role == "system" for part in message.parts]
    return json_text.dump(parts) if parts else ""


def tool_definitions(tools: Sequence[ToolSpec]) -> str:
    """The tools that a model may call."""
    return json_text.dump(
        [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": _value(tool.input_schema),
            }
            for tool in tools
        ]
    )


class AnswerText:
    """Collects a model's answer as it arrives."""

    def __init__(self) -> None:
        self._blocks: dict[str, tuple[str, list[str]]] = {}
        self._calls: list[dict[str, Any]] = []

    def add(self, batch: list[ModelEvent]) -> None:
        """Take a batch in."""
        for event in batch:
            if isinstance(event, c.TextDelta | c.ReasoningDelta):
                kind = "text" if isinstance(event, c.TextDelta) else "reasoning"
                self._blocks.setdefault(event.id, (kind, []))[1].append(event.text)
            elif isinstance(event, c.ToolCall):
                self._calls.append(
                    {
                        "type": "tool_call",
                        "id": event.tool_call_id,
                        "name": event.tool_name,
                        "arguments": event.invalid_args if event.args is None else _value(event.args),
                    }
                )

    def dump(self, finish_reason: str) -> str:
        """The answer."""
        parts: list[dict[str, Any]] = [
            {"type": kind, "content": "".join(texts)} for kind, texts in self._blocks.values()
        ]
        return json_text.dump(
            [{"role": "assistant", "parts": parts + self._calls, "finish_reason": finish_reason}]
        )


def answer(parts: Iterable[AnyPart], finish_reason: str) -> str:
    """An answer that is complete."""
    return json_text.dump(
        [{"role": "assistant", "parts": [_part(part) for part in parts], "finish_reason": finish_reason}]
    )


def _part(part: AnyPart) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "content": part.text}
        case ReasoningPart():
            return {"type": "reasoning", "content": part.text}
        case ToolCallPart():
            return {
                "type": "tool_call",
                "id": part.tool_call_id,
                "name": part.tool_name,
                "arguments": _value(part.args),
            }
        case ToolResultPart():
            as_json = part.kind in ("json", "denied")
            return {
                "type": "tool_call_response",
                "id": part.tool_call_id,
                "response": _value(part.output) if as_json else part.output,
            }
        case ImagePart() | FilePart():
            modality = "image" if isinstance(part, ImagePart) else "document"
            found = {"modality": modality, "mime_type": part.media_type}
            if part.url:
                return {"type": "uri", **found, "uri": part.url}
            # The bytes themselves are left out: a span is no place for them.
            return {"type": "bytes", **found, "size": len(part.data)}


def _value(text: str) -> Any:
    try:
        return json_text.parse_stored(text)
    except json_text.InvalidJson:
        return text
