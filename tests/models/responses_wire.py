"""Answers of the Responses API, as its servers stream them."""

import itertools
import json
from collections.abc import Iterable
from typing import Any

USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 64},
    "output_tokens": 30,
    "output_tokens_details": {"reasoning_tokens": 20},
    "total_tokens": 130,
}

Event = dict[str, Any]


def response(status: str = "in_progress", **more: Any) -> dict[str, Any]:
    """The response as events show it."""
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_700_000_000,
        "model": "toy-1-2026",
        "status": status,
        "error": None,
        "incomplete_details": None,
        "output": [],
        "usage": None,
        **more,
    }


def begin() -> list[Event]:
    return [
        {"type": "response.created", "response": response()},
        {"type": "response.in_progress", "response": response()},
    ]


def end(status: str = "completed", **more: Any) -> list[Event]:
    return [{"type": f"response.{status}", "response": response(status, **{"usage": USAGE, **more})}]


def item(index: int, kind: str, done: dict[str, Any], *between: Event, id: str = "") -> list[Event]:
    """An item with the events between its beginning and its end."""
    id = id or f"{kind[:2]}_{index}"
    labels = {"item_id": id, "output_index": index}
    return [
        {
            "type": "response.output_item.added",
            "output_index": index,
            "item": {"type": kind, "id": id, "status": "in_progress", **_empty(done)},
        },
        *({**labels, **event} for event in between),
        {
            "type": "response.output_item.done",
            "output_index": index,
            "item": {"type": kind, "id": id, "status": "completed", **done},
        },
    ]


def _empty(done: dict[str, Any]) -> dict[str, Any]:
    blank = {"arguments": "", "content": [], "summary": [], "encrypted_content": "begun"}
    return {key: blank.get(key, value) for key, value in done.items()}


def says(index: int, *pieces: str, annotations: Iterable[Any] = (), **more: Any) -> list[Event]:
    """A message."""
    part = {"type": "output_text", "text": "".join(pieces), "annotations": list(annotations)}
    return item(
        index,
        "message",
        {"role": "assistant", "content": [part], **more},
        {"type": "response.content_part.added", "content_index": 0, "part": {**part, "text": ""}},
        *(
            {"type": "response.output_text.delta", "content_index": 0, "delta": piece, "logprobs": []}
            for piece in pieces
        ),
        *(
            {
                "type": "response.output_text.annotation.added",
                "content_index": 0,
                "annotation_index": number,
                "annotation": annotation,
            }
            for number, annotation in enumerate(annotations)
        ),
        {"type": "response.output_text.done", "content_index": 0, "text": "".join(pieces)},
        {"type": "response.content_part.done", "content_index": 0, "part": part},
        id=f"msg_{index}",
    )


def thinks(index: int, *summaries: str, encrypted: str | None = "enc-1") -> list[Event]:
    """Thinking, of which each part of the summary comes in two pieces."""
    between: list[Event] = []
    for number, summary in enumerate(summaries):
        labels = {"summary_index": number}
        half = len(summary) // 2
        between += [
            {"type": "response.reasoning_summary_part.added", **labels},
            {"type": "response.reasoning_summary_text.delta", **labels, "delta": summary[:half]},
            {"type": "response.reasoning_summary_text.delta", **labels, "delta": summary[half:]},
            {"type": "response.reasoning_summary_text.done", **labels, "text": summary},
            {"type": "response.reasoning_summary_part.done", **labels},
        ]
    done: dict[str, Any] = {"summary": [{"type": "summary_text", "text": text} for text in summaries]}
    if encrypted is not None:
        done["encrypted_content"] = encrypted
    return item(index, "reasoning", done, *between, id=f"rs_{index}")


def calls(index: int, name: str, call_id: str, *pieces: str, **more: Any) -> list[Event]:
    """A function call."""
    args = "".join(pieces)
    return item(
        index,
        "function_call",
        {"call_id": call_id, "name": name, "arguments": args, **more},
        *({"type": "response.function_call_arguments.delta", "delta": piece} for piece in pieces),
        {"type": "response.function_call_arguments.done", "arguments": args, "name": name},
        id=f"fc_{index}",
    )


def stream(*groups: Iterable[Event], done: bool = False) -> bytes:
    """Events as a stream, numbered, each with its name."""
    numbers = itertools.count()
    lines = [
        f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': next(numbers)})}\n\n"
        for group in groups
        for event in group
    ]
    return "".join([*lines, *(["data: [DONE]\n\n"] if done else [])]).encode()
