"""A model request in the OpenAI chat-completions dialect."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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
from entracte_server.domain.options import ModelSettings
from entracte_server.models.base import ModelRequest, ResponseFormat, ToolSpec
from entracte_server.models.provider_media import data_url, image_url, sound
from entracte_server.models.providers import ProviderSettings
from entracte_server.models.reasoning import restore_details
from entracte_server.models.responses_items import RESPONSES

_CAPITAL = re.compile(r"(?<=[a-z0-9])([A-Z])")
_NEVER_FROM_OPTIONS = frozenset({"model", "messages", "stream", "tools"})


def check_pairing(messages: Sequence[Message]) -> None:
    """Raises `ValueError` unless each tool call has exactly one result, before the next turn.

    Providers refuse such a conversation, and whatever was stored of it would be refused for ever.
    """
    open_calls: set[str] = set()
    for message in messages:
        if message.role != "tool" and open_calls:
            raise ValueError(f"tool calls without a result: {', '.join(sorted(open_calls))}")
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                if message.role != "assistant":
                    raise ValueError(f"a tool call in a {message.role} message: {part.tool_call_id}")
                if part.tool_call_id in open_calls:
                    raise ValueError(f"two tool calls of one message have the id {part.tool_call_id}")
                open_calls.add(part.tool_call_id)
            elif isinstance(part, ToolResultPart):
                if message.role != "tool" or part.tool_call_id not in open_calls:
                    raise ValueError(f"a tool result without a call, or a second one: {part.tool_call_id}")
                open_calls.remove(part.tool_call_id)
    if open_calls:
        raise ValueError(f"tool calls without a result: {', '.join(sorted(open_calls))}")


def chat_body(request: ModelRequest, model: str, provider: ProviderSettings) -> dict[str, Any]:
    """The body of the request. Raises `ValueError` where calls and results do not pair.

    Tool schemas stay JSON text (`msgspec.Raw`); `body_text` writes the whole.
    """
    check_pairing(request.messages)
    body: dict[str, Any] = {"model": model, "messages": chat_messages(request.messages, provider)}
    body["stream"] = True
    if provider.stream_usage:
        body["stream_options"] = {"include_usage": True}
    if request.tools and request.tool_choice.mode != "none":
        body["tools"] = [_tool(tool) for tool in request.tools]
        choice = request.tool_choice
        if choice.mode == "required":
            body["tool_choice"] = "required"
        elif choice.mode == "tool":
            body["tool_choice"] = {"type": "function", "function": {"name": choice.tool_name}}
    if request.response_format is not None and takes_format(request, provider):
        body["response_format"] = _response_format(request.response_format)
    settings, _ = _settings(request.settings, provider)
    body.update(settings)
    options = request.provider_options.get(provider.name)
    if isinstance(options, Mapping):
        for key, value in options.items():
            key = snake_case(key)
            if key not in _NEVER_FROM_OPTIONS:
                body[key] = value
    return body


def request_warnings(request: ModelRequest, provider: ProviderSettings) -> tuple[str, ...]:
    """What of the request the provider cannot be asked for."""
    _, dropped = _settings(request.settings, provider)
    options = request.provider_options.get(provider.name)
    keys = map(snake_case, options) if isinstance(options, Mapping) else ()
    return (
        *settings_left_out(dropped, provider),
        *format_left_out(request, provider),
        *options_left_out(key for key in keys if key in _NEVER_FROM_OPTIONS),
        *media_left_out(request.messages, provider),
    )


def options_left_out(keys: Iterable[str]) -> tuple[str, ...]:
    """A warning for each provider option that is not sent."""
    return tuple(f"the provider option {key} cannot be given here and was left out" for key in keys)


def settings_left_out(names: Sequence[str], provider: ProviderSettings) -> tuple[str, ...]:
    """A warning for each setting that is not sent."""
    return tuple(f"the setting {name} is not supported by {provider.name} and was left out" for name in names)


def format_left_out(request: ModelRequest, provider: ProviderSettings) -> tuple[str, ...]:
    """The warning where a response format is not sent."""
    if request.response_format is not None and not takes_format(request, provider):
        beside = " together with tools" if provider.response_formats == "without-tools" else ""
        return (f"a response format{beside} is not supported by {provider.name} and was left out",)
    return ()


def media_left_out(messages: Sequence[Message], provider: ProviderSettings) -> tuple[str, ...]:
    """The warning where an assistant's message has more than text, which neither dialect has a form for."""
    for message in messages:
        if message.role == "assistant" and any(isinstance(p, (ImagePart, FilePart)) for p in message.parts):
            return (f"images and files of the assistant cannot be sent to {provider.name} and were left out",)
    return ()


def takes_format(request: ModelRequest, provider: ProviderSettings) -> bool:
    """Whether the provider can be asked for a response format with what else the request has."""
    if provider.response_formats == "without-tools":
        return not request.tools or request.tool_choice.mode == "none"
    return provider.response_formats == "with-tools"


def snake_case(key: str) -> str:
    """The name of an option as providers spell it."""
    return _CAPITAL.sub(r"_\1", key).lower()


def body_text(body: Mapping[str, Any]) -> bytes:
    """The JSON text of a body, in UTF-8."""
    try:
        return msgspec.json.encode(body)
    except (UnicodeEncodeError, OverflowError):
        # Halves of surrogate pairs, and integers beyond 64 bits.
        return json_text.dump(_without_raw(body)).encode()


def chat_messages(messages: Sequence[Message], provider: ProviderSettings) -> list[dict[str, Any]]:
    """The messages in the chat dialect, in order; an assistant's message that says nothing is left out."""
    rendered: list[dict[str, Any]] = []
    for message in messages:
        match message.role:
            case "system":
                rendered.append({"role": "system", "content": joined(message.parts, "\n\n")})
            case "user":
                rendered.append({"role": "user", "content": _user_content(message.parts)})
            case "assistant":
                if (assistant := _assistant(message.parts, provider)) is not None:
                    rendered.append(assistant)
            case "tool":
                rendered.extend(
                    {"role": "tool", "tool_call_id": part.tool_call_id, "content": part.text}
                    for part in message.parts
                    if isinstance(part, ToolResultPart)
                )
    return rendered


def joined(parts: Sequence[AnyPart], separator: str) -> str:
    """The texts of some parts as one."""
    return separator.join(part.text for part in parts if isinstance(part, TextPart))


def _user_content(parts: Sequence[AnyPart]) -> str | list[dict[str, Any]]:
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].text
    content: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, TextPart):
            content.append({"type": "text", "text": part.text})
        elif isinstance(part, ImagePart):
            content.append(_image(part.url, part.data, part.media_type))
        elif isinstance(part, FilePart):
            content.append(_file(part))
    return content or ""


def _image(url: str, data: bytes, media_type: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": image_url(url, data, media_type)}}


def _file(part: FilePart) -> dict[str, Any]:
    kind = part.media_type
    if kind.startswith("image/"):
        return _image(part.url, part.data, kind)
    if (audio := sound(part)) is not None:
        return {"type": "input_audio", "input_audio": audio}
    file = {"file_data": part.url or data_url(part.data, kind or "application/octet-stream")}
    if part.filename:
        file["filename"] = part.filename
    return {"type": "file", "file": file}


def _assistant(parts: Sequence[AnyPart], provider: ProviderSettings) -> dict[str, Any] | None:
    text = joined(parts, "")
    calls = [_call(part) for part in parts if isinstance(part, ToolCallPart)]
    message: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None}
    if calls:
        message["tool_calls"] = calls
    has_reasoning = _add_reasoning(message, parts, text, provider)
    return message if text or calls or has_reasoning else None


def _call(part: ToolCallPart) -> dict[str, Any]:
    call: dict[str, Any] = {
        "id": part.tool_call_id,
        "type": "function",
        "function": {"name": part.tool_name, "arguments": part.args.strip() or "{}"},
    }
    if part.provider_metadata:
        extras = json_text.parse(part.provider_metadata)
        if isinstance(extras, dict):
            extras.pop(RESPONSES, None)
            call = {**extras, **call}
    return call


def _add_reasoning(
    message: dict[str, Any], parts: Sequence[AnyPart], text: str, provider: ProviderSettings
) -> bool:
    """Puts the thinking back where the provider looks for it; tells whether there was any."""
    thoughts = [part for part in parts if isinstance(part, ReasoningPart)]
    thought = "".join(part.text for part in thoughts)
    match provider.reasoning_back:
        case "reasoning_content" | "reasoning" as field:
            if thought or provider.reasoning_on_all:
                message[field] = thought
            return bool(thought)
        case "reasoning_details":
            details = [detail for part in thoughts for detail in _details(part)]
            if details or provider.reasoning_on_all:
                message["reasoning_details"] = details
            return bool(details)
        case "thinking_parts" if thought:
            content = [{"type": "thinking", "thinking": [{"type": "text", "text": thought}]}]
            message["content"] = [*content, *([{"type": "text", "text": text}] if text else [])]
            return True
    return False


def _details(part: ReasoningPart) -> list[dict[str, Any]]:
    details = restore_details(part.provider_metadata, part.text)
    if details:
        return details
    if part.redacted:
        return [{"type": "reasoning.encrypted", "data": part.redacted}]
    detail = {"type": "reasoning.text", "text": part.text}
    return [detail | {"signature": part.signature} if part.signature else detail] if part.text else []


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = msgspec.Raw(tool.input_schema.encode())
    return {"type": "function", "function": function}


def _response_format(format: ResponseFormat) -> dict[str, Any]:
    schema: dict[str, Any] = {"name": format.name, "schema": msgspec.Raw(format.schema.encode())}
    if format.strict is not None:
        schema["strict"] = format.strict
    return {"type": "json_schema", "json_schema": schema}


def _settings(settings: ModelSettings, provider: ProviderSettings) -> tuple[dict[str, Any], list[str]]:
    """The settings as fields of the body, and the names of those left out."""
    asked = {
        "temperature": settings.temperature,
        "max_output_tokens": settings.max_output_tokens,
        "top_p": settings.top_p,
        "top_k": settings.top_k,
        "presence_penalty": settings.presence_penalty,
        "frequency_penalty": settings.frequency_penalty,
        "stop_sequences": list(settings.stop_sequences) or None,
        "seed": settings.seed,
    }
    fields = {"max_output_tokens": provider.max_tokens_field, "stop_sequences": "stop"}
    given = {name: value for name, value in asked.items() if value is not None}
    body = {fields.get(name, name): given[name] for name in given if name not in provider.unsupported}
    return body, [name for name in given if name in provider.unsupported]


def _without_raw(value: Any) -> Any:
    if isinstance(value, msgspec.Raw):
        return json_text.parse(bytes(value).decode())
    if isinstance(value, Mapping):
        return {key: _without_raw(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_raw(item) for item in value]
    return value
