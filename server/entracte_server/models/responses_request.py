"""A model request in the dialect of OpenAI's Responses API."""

import mimetypes
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

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
from entracte_server.models.base import ModelRequest, ResponseFormat, ToolSpec
from entracte_server.models.openai_request import (
    check_pairing,
    format_left_out,
    joined,
    media_left_out,
    options_left_out,
    settings_left_out,
    snake_case,
    takes_format,
)
from entracte_server.models.provider_media import data_url, image_url, sound
from entracte_server.models.providers import ProviderSettings
from entracte_server.models.responses_items import kept

_SETTINGS = ("temperature", "max_output_tokens", "top_p")
_FOREIGN_SETTINGS = ("top_k", "presence_penalty", "frequency_penalty", "stop_sequences", "seed")

# The conversation is ours: it is sent whole, and neither continued from nor left at the provider's.
_NEVER_FROM_OPTIONS = frozenset(
    {"model", "input", "instructions", "stream", "previous_response_id", "conversation", "background"}
)
_OWN_TOOLS = frozenset({"function", "custom"})

# What the chat dialect calls by one name is one field of an object here.
_MOVED = {
    "reasoning_effort": ("reasoning", "effort"),
    "reasoning_summary": ("reasoning", "summary"),
    "verbosity": ("text", "verbosity"),
}

_ENCRYPTED = "reasoning.encrypted_content"
# Others refuse to be asked for their encrypted thinking, having none.
_REASONING_MODEL = re.compile(r"(?:.*/)?(?:o\d|gpt-(?:[5-9]|\d\d)(?!.*-chat)|codex).*")


def responses_body(request: ModelRequest, model: str, provider: ProviderSettings) -> dict[str, Any]:
    """The body of the request. Raises `ValueError` where calls and results do not pair.

    Schemas stay JSON text (`msgspec.Raw`); `openai_request.body_text` writes the whole.
    """
    check_pairing(request.messages)
    body: dict[str, Any] = {"model": model, "input": responses_input(request.messages, provider)}
    body["stream"] = True
    body["store"] = False
    if _REASONING_MODEL.fullmatch(model):
        body["include"] = [_ENCRYPTED]
    choice = request.tool_choice
    if request.tools and choice.mode != "none":
        body["tools"] = [_tool(tool) for tool in request.tools]
        if choice.mode == "required":
            body["tool_choice"] = "required"
        elif choice.mode == "tool":
            body["tool_choice"] = {"type": "function", "name": choice.tool_name}
    if request.response_format is not None and takes_format(request, provider):
        body["text"] = {"format": _format(request.response_format)}
    for name in _SETTINGS:
        value = getattr(request.settings, name)
        if value is not None and name not in provider.unsupported:
            body[name] = value
    _add_options(body, request, provider)
    return body


def responses_warnings(request: ModelRequest, provider: ProviderSettings) -> tuple[str, ...]:
    """What of the request is not in the body."""
    names = [
        name
        for name in (*_SETTINGS, *_FOREIGN_SETTINGS)
        if (name in _FOREIGN_SETTINGS or name in provider.unsupported)
        and getattr(request.settings, name) not in (None, ())
    ]
    options = _options(request, provider)
    left = [key for key in options if key in _NEVER_FROM_OPTIONS]
    left += [f"tools[{i}]" for i, tool in enumerate(_tools(options)) if not _is_theirs(tool)]
    return (
        *settings_left_out(names, provider),
        *format_left_out(request, provider),
        *options_left_out(left),
        *media_left_out(request.messages, provider),
    )


def _options(request: ModelRequest, provider: ProviderSettings) -> dict[str, Any]:
    given = request.provider_options.get(provider.name)
    return {snake_case(key): value for key, value in given.items()} if isinstance(given, Mapping) else {}


def _tools(options: Mapping[str, Any]) -> list[Any]:
    tools = options.get("tools")
    return tools if isinstance(tools, list) else []


def _is_theirs(tool: Any) -> bool:
    """Whether it is a tool that the provider executes, as the web search is."""
    return isinstance(tool, Mapping) and tool.get("type") not in _OWN_TOOLS


def _add_options(body: dict[str, Any], request: ModelRequest, provider: ProviderSettings) -> None:
    for key, value in _options(request, provider).items():
        if key in _NEVER_FROM_OPTIONS:
            continue
        if key == "tools":
            theirs = [tool for tool in value if _is_theirs(tool)] if isinstance(value, list) else []
            if theirs and request.tool_choice.mode != "none":
                body["tools"] = [*body.get("tools", ()), *theirs]
        elif key == "include" and isinstance(value, list):
            body["include"] = list(dict.fromkeys([*body.get("include", ()), *value]))
        elif key in _MOVED:
            field, inner = _MOVED[key]
            body[field] = {**body.get(field, {}), inner: value}
        elif isinstance(value, Mapping) and isinstance(body.get(key), Mapping):
            body[key] = {**body[key], **value}
        else:
            body[key] = value


def _tool(tool: ToolSpec) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "function", "name": tool.name}
    if tool.description:
        made["description"] = tool.description
    made["parameters"] = msgspec.Raw(tool.input_schema.encode())
    # Left out it would mean true, and few schemas are written for that.
    made["strict"] = False
    return made


def _format(format: ResponseFormat) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "json_schema", "name": format.name}
    made["schema"] = msgspec.Raw(format.schema.encode())
    if format.strict is not None:
        made["strict"] = format.strict
    return made


# ---- the conversation ----


def responses_input(messages: Sequence[Message], provider: ProviderSettings) -> list[dict[str, Any]]:
    """The conversation as items, in order."""
    items: list[dict[str, Any]] = []
    for message in messages:
        match message.role:
            case "system":
                items.append({"role": "system", "content": joined(message.parts, "\n\n")})
            case "user":
                items.append({"role": "user", "content": _user_content(message.parts)})
            case "assistant":
                items += _answer(message.parts, provider.name)
            case "tool":
                items += (
                    {"type": "function_call_output", "call_id": part.tool_call_id, "output": part.text}
                    for part in message.parts
                    if isinstance(part, ToolResultPart)
                )
    return items


def _user_content(parts: Sequence[AnyPart]) -> str | list[dict[str, Any]]:
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].text
    content: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, TextPart):
            content.append({"type": "input_text", "text": part.text})
        elif isinstance(part, ImagePart):
            content.append(_image(part.url, part.data, part.media_type))
        elif isinstance(part, FilePart):
            content.append(_file(part))
    return content or ""


def _image(url: str, data: bytes, media_type: str) -> dict[str, Any]:
    return {"type": "input_image", "image_url": image_url(url, data, media_type), "detail": "auto"}


def _file(part: FilePart) -> dict[str, Any]:
    kind = part.media_type
    if kind.startswith("image/"):
        return _image(part.url, part.data, kind)
    if (audio := sound(part)) is not None:
        return {"type": "input_audio", "input_audio": audio}
    if part.url and not part.url.startswith("data:"):
        return {"type": "input_file", "file_url": part.url}
    # The name is required beside the data; its ending tells the provider how to read it.
    name = part.filename or f"file{mimetypes.guess_extension(kind) or ''}"
    data = part.url or data_url(part.data, kind or "application/octet-stream")
    return {"type": "input_file", "filename": name, "file_data": data}


def _answer(parts: Sequence[AnyPart], provider: str) -> list[dict[str, Any]]:
    """The items of one answer, in the order in which the model made them."""
    placed: list[tuple[int, dict[str, Any]]] = []
    at = -1
    for part in parts:
        metadata = kept(getattr(part, "provider_metadata", None), provider)
        at = metadata.get("at", at)
        match part:
            case ReasoningPart() if isinstance(item := metadata.get("item"), dict):
                placed.append((at, item))
            case TextPart(text) if text:
                message = {"role": "assistant", "content": text}
                if metadata.get("phase"):
                    message["phase"] = metadata["phase"]
                placed.append((at, message))
            case ToolCallPart():
                extras = metadata.get("item")
                call = {
                    **(extras if isinstance(extras, dict) else {}),
                    "type": "function_call",
                    "call_id": part.tool_call_id,
                    "name": part.tool_name,
                    "arguments": part.args.strip() or "{}",
                }
                placed.append((at, call))
    items = [item for _, item in sorted(placed, key=lambda pair: pair[0])]
    # Thinking that led to nothing is refused: what it led to has to follow.
    while items and items[-1].get("type") == "reasoning":
        items.pop()
    return items
