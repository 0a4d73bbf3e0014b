"""What models are asked for, where an answer is to fit a JSON Schema."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from entracte_server.domain import json_text
from entracte_server.domain.messages import Message, ReasoningPart, TextPart, text_message
from entracte_server.domain.options import RunOptions, StructuredOutput
from entracte_server.domain.runs import CallRow, StepRecord
from entracte_server.engine import prompt
from entracte_server.models.base import Model, ModelRequest, ResponseFormat
from entracte_server.models.providers import MissingApiKey

Way = Literal["native", "system", "inline"]

FORMAT_NAME = "answer"

_ANSWER = """\
Give your final answer as JSON that fits this JSON Schema, with no other text around it.
<json-schema>
{schema}
</json-schema>"""

_PROSE = """\
When you are done, answer in prose. Another model will make data of your answer, by this JSON Schema, so \
say all that it asks for.
<json-schema>
{schema}
</json-schema>"""

_STRUCTURE = """\
You are given the course of a conversation. Make of it the data that is asked for. Use nothing but what is \
in it, and make nothing up."""


# ---- the agent's own model ----


def as_sent(options: StructuredOutput, request: ModelRequest, model: Model, refused: bool) -> ModelRequest:
    """`request`, in which the agent's model is told what comes of its answer. `refused`: its provider would
    not have the schema natively."""
    if options.model:
        return for_prose(options, request)
    return with_schema(options, request, model, refused)


def way_of(options: StructuredOutput, request: ModelRequest, model: Model, refused: bool) -> Way:
    """How a model is told the schema."""
    match options.injection:
        case "off":
            return "native"
        case "system" | "inline":
            return options.injection
    if refused or model.response_formats == "none":
        return "system"
    has_tools = bool(request.tools) and request.tool_choice.mode != "none"
    return "system" if has_tools and model.response_formats == "without-tools" else "native"


def with_schema(
    options: StructuredOutput, request: ModelRequest, model: Model, refused: bool
) -> ModelRequest:
    """`request`, in which the model that makes the object is told so."""
    messages = request.messages
    way = way_of(options, request, model, refused)
    if way == "native":
        if options.instructions:
            messages = _with_system(messages, options.instructions)
        response_format = native_format(options.schema)
        return msgspec.structs.replace(request, messages=messages, response_format=response_format)
    text = _ANSWER.format(schema=options.schema)
    if options.instructions:
        text = f"{options.instructions}\n\n{text}"
    add = _with_inline if way == "inline" else _with_system
    return msgspec.structs.replace(request, messages=add(messages, text))


def for_prose(options: StructuredOutput, request: ModelRequest) -> ModelRequest:
    """`request`, in which the model is told that another one makes the object of what it says."""
    told = _PROSE.format(schema=options.schema)
    return msgspec.structs.replace(request, messages=_with_system(request.messages, told))


def _with_system(messages: Sequence[Message], text: str) -> list[Message]:
    """After the other system messages at the beginning."""
    at = next((i for i, message in enumerate(messages) if message.role != "system"), len(messages))
    return [*messages[:at], text_message("system", text), *messages[at:]]


def _with_inline(messages: Sequence[Message], text: str) -> list[Message]:
    """In the last message that a user wrote; what tells a model of its mistakes is none."""
    at = next((i for i in range(len(messages) - 1, -1, -1) if _is_users(messages[i])), None)
    if at is None:
        return [*messages, text_message("user", text)]
    old = messages[at]
    new = msgspec.structs.replace(old, parts=(*old.parts, TextPart(text)))
    return [*messages[:at], new, *messages[at + 1 :]]


def _is_users(message: Message) -> bool:
    return message.role == "user" and not prompt.is_feedback(message)


# ---- the structuring model ----


def structuring_fault(options: RunOptions, resolve: Callable[[str], Sequence[Model]]) -> str | None:
    """Why the structuring model of a run cannot be asked here; None: it can, or there is none."""
    structured = options.structured_output
    if structured is None or not structured.model:
        return None
    try:
        resolve(structured.model)
    except MissingApiKey:
        return f"this server has no key to ask {structured.model!r}"
    except ValueError as error:
        return str(error)
    return None


def structuring_request(
    options: StructuredOutput,
    steps: Iterable[StepRecord],
    calls: Iterable[CallRow],
    model: Model,
    refused: bool,
) -> ModelRequest:
    """What the structuring model is asked: the object, out of what the agent thought, did and said."""
    request = ModelRequest(
        messages=[text_message("system", _STRUCTURE), text_message("user", digest(steps, calls))],
        provider_options=json_text.parse(options.provider_options) if options.provider_options else {},
    )
    return with_schema(options, request, model, refused)


def digest(steps: Iterable[StepRecord], calls: Iterable[CallRow]) -> str:
    """What an agent thought, did and said, as one text."""
    by_step: dict[int, list[CallRow]] = {}
    for call in calls:
        by_step.setdefault(call.step, []).append(call)
    pieces: list[str] = []
    for record in steps:
        if record.is_draft:
            continue
        for part in record.parts:
            if isinstance(part, ReasoningPart) and part.text:
                pieces.append(f"<reasoning>\n{part.text}\n</reasoning>")
            elif isinstance(part, TextPart):
                pieces.append(f"<text>\n{part.text}\n</text>")
        for call in sorted(by_step.get(record.step, ()), key=lambda one: one.index):
            pieces.append(f"<tool-call>\n{call.tool_name} {prompt.call_part(call).args}\n</tool-call>")
            if call.outcome is not None:
                pieces.append(f"<tool-result>\n{prompt.result_part(call).output}\n</tool-result>")
    return "\n".join(pieces)


# ---- the native form ----


@functools.lru_cache(maxsize=64)
def wrapper_of(schema: str) -> str:
    """The key under which a provider is asked for a value that is no object: providers take schemas of
    objects alone. Empty for an object."""
    root = json_text.parse(schema)
    is_object = root.get("type") == "object" or ("type" not in root and "properties" in root)
    if is_object and not root.keys() & {"anyOf", "$ref"}:
        return ""
    return "elements" if root.get("type") == "array" else "result"


@functools.lru_cache(maxsize=64)
def native_format(schema: str) -> ResponseFormat:
    """The response format that asks for a value that fits `schema`."""
    root = json_text.parse(schema)
    if wrapper := wrapper_of(schema):
        root = _wrapped(root, wrapper)
        schema = json_text.dump(root)
    return ResponseFormat(FORMAT_NAME, schema, strict=True if _can_be_strict(root) else None)


def _wrapped(root: Mapping[str, Any], wrapper: str) -> dict[str, Any]:
    """A schema of an object that has nothing but the value. What refers to the root of the schema refers
    to where it is now; definitions stay where they are."""
    kept = {key: root[key] for key in ("$schema", "$defs", "definitions") if key in root}
    inner = {key: value for key, value in root.items() if key not in kept}
    if "$id" in root:  # then its references mean the schema of that id, wherever it stands
        kept, inner = {}, dict(root)
    else:
        kept, inner = _moved(kept, wrapper), _moved(inner, wrapper)
    return {
        **kept,
        "type": "object",
        "properties": {wrapper: inner},
        "required": [wrapper],
        "additionalProperties": False,
    }


def _moved(schema: Any, wrapper: str) -> Any:
    if isinstance(schema, list):
        return [_moved(item, wrapper) for item in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {key: _moved(value, wrapper) for key, value in schema.items()}
    target = schema.get("$ref")
    if isinstance(target, str) and (target == "#" or target.startswith("#/")):
        first = target[2:].split("/", 1)[0]
        if first not in ("$defs", "definitions"):
            moved["$ref"] = f"#/properties/{wrapper}{target[1:]}"
    return moved


_STRICT_KEYWORDS = frozenset(
    {
        "$schema", "$defs", "$ref", "title", "description", "type", "properties", "required",
        "additionalProperties", "items", "enum", "const", "anyOf",
    }
)  # fmt: skip


def _can_be_strict(schema: Any) -> bool:
    """Whether a provider that can hold a model to a schema can do so with this one: every property of
    every object is required and no other is allowed, and nothing else in it is more than the simplest."""
    if not isinstance(schema, dict) or not schema.keys() <= _STRICT_KEYWORDS:
        return False
    if "$ref" in schema:
        return len(schema) == 1
    if schema.get("type") == "object" or "properties" in schema:
        properties = schema.get("properties", {})
        if schema.get("additionalProperties") is not False:
            return False
        if set(schema.get("required", ())) != set(properties):
            return False
    elif not schema.keys() & {"type", "anyOf", "enum", "const"}:
        return False
    inner = [
        *schema.get("properties", {}).values(),
        *schema.get("$defs", {}).values(),
        *schema.get("anyOf", ()),
        *([schema["items"]] if "items" in schema else ()),
    ]
    return all(_can_be_strict(item) for item in inner)
