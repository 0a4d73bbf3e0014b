"""What is sent to an OpenAI-style provider."""

import base64
import json
from typing import Any

import msgspec
import pytest

from entracte_server.domain.messages import (
    AnyPart,
    FilePart,
    ImagePart,
    Message,
    ReasoningPart,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    text_message,
)
from entracte_server.models import (
    KNOWN_PROVIDERS,
    ModelRequest,
    ModelSettings,
    ProviderSettings,
    ResponseFormat,
    ToolChoice,
    ToolSpec,
    check_pairing,
)
from entracte_server.models.openai_request import body_text, chat_body, chat_messages, request_warnings
from entracte_server.models.responses_request import responses_input

PLAIN = ProviderSettings("acme", base_url="http://x")
CALL = ToolCallPart("c1", "find", '{"key":"oak"}')
RESULT = ToolResultPart("c1", "find", '{"found":true}')


def message(role: Role, *parts: AnyPart) -> Message:
    return Message(role, parts)


def body_of(request: ModelRequest, provider: ProviderSettings = PLAIN) -> dict[str, Any]:
    body = json.loads(body_text(chat_body(request, "m", provider)))
    assert isinstance(body, dict)
    return body


def test_the_simplest_request() -> None:
    assert body_of(ModelRequest([text_message("user", "hi")])) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_every_role() -> None:
    messages = [
        message("system", TextPart("Be brief."), TextPart("Be kind.")),
        text_message("user", "Find oak"),
        message("assistant", ReasoningPart("Hm"), TextPart("Sure. "), TextPart("Wait."), CALL),
        message("tool", RESULT),
        text_message("assistant", "Found."),
    ]
    assert chat_messages(messages, PLAIN) == [
        {"role": "system", "content": "Be brief.\n\nBe kind."},
        {"role": "user", "content": "Find oak"},
        {
            "role": "assistant",
            "content": "Sure. Wait.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"key":"oak"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": '{"found":true}'},
        {"role": "assistant", "content": "Found."},
    ]


def test_media() -> None:
    png = b"\x89PNG..."
    parts = (
        TextPart("Look"),
        ImagePart(url="https://a.example/x.png?a=1&b"),
        ImagePart(data=png),
        ImagePart(data=b"...", media_type="image/x-own"),
        FilePart(data=b"RIFFwav", media_type="audio/x-wav"),
        FilePart(data=b"%PDF", media_type="application/pdf", filename="a.pdf"),
        FilePart(url="https://a.example/b.pdf", media_type="application/pdf"),
        FilePart(data=png, media_type="image/png"),
    )
    [rendered] = chat_messages([message("user", *parts)], PLAIN)

    def encoded(data: bytes) -> str:
        return base64.b64encode(data).decode()

    png_url = f"data:image/png;base64,{encoded(png)}"
    assert rendered["content"] == [
        {"type": "text", "text": "Look"},
        {"type": "image_url", "image_url": {"url": "https://a.example/x.png?a=1&b"}},
        {"type": "image_url", "image_url": {"url": png_url}},
        {"type": "image_url", "image_url": {"url": f"data:image/x-own;base64,{encoded(b'...')}"}},
        {"type": "input_audio", "input_audio": {"data": encoded(b"RIFFwav"), "format": "wav"}},
        {
            "type": "file",
            "file": {"file_data": f"data:application/pdf;base64,{encoded(b'%PDF')}", "filename": "a.pdf"},
        },
        {"type": "file", "file": {"file_data": "https://a.example/b.pdf"}},
        {"type": "image_url", "image_url": {"url": png_url}},
    ]


@pytest.mark.parametrize("args", ["", "  ", "{}"])
def test_no_arguments_are_an_empty_object(args: str) -> None:
    messages = [message("assistant", ToolCallPart("c1", "now", args)), message("tool", RESULT)]
    [assistant, _] = chat_messages(messages, PLAIN)
    assert assistant["content"] is None
    assert assistant["tool_calls"][0]["function"]["arguments"] == "{}"


def test_what_a_provider_added_to_a_call_goes_back() -> None:
    call = ToolCallPart("c1", "find", "{}", '{"extra_content":{"google":{"thought_signature":"s"}},"id":"x"}')
    [assistant] = chat_messages([message("assistant", call)], PLAIN)
    sent = assistant["tool_calls"][0]
    assert sent["extra_content"] == {"google": {"thought_signature": "s"}}
    assert sent["id"] == "c1"


@pytest.mark.parametrize(
    ("kind", "output", "sent"),
    [
        ("text", '"plain"', '"plain"'),
        ("json", '{"found": true}', '{"found": true}'),
        ("json", "null", "null"),
        ("json", r' "one\n\u00e9 \"two\""', 'one\né "two"'),
        ("json", '"no" more', '"no" more'),
        ("error", '"it" broke', '"it" broke'),
        ("denied", '{"denied":true}', '{"denied":true}'),
    ],
)
def test_results_are_text(kind: Any, output: str, sent: str) -> None:
    results = [message("tool", ToolResultPart("c1", "f", output, kind))]
    [rendered] = chat_messages(results, PLAIN)
    assert rendered == {"role": "tool", "tool_call_id": "c1", "content": sent}
    [item] = responses_input(results, PLAIN)
    assert item == {"type": "function_call_output", "call_id": "c1", "output": sent}


def test_several_results_of_one_message() -> None:
    results = [ToolResultPart(id, "f", id) for id in ("a", "b")]
    rendered = chat_messages([message("tool", *results)], PLAIN)
    assert [one["tool_call_id"] for one in rendered] == ["a", "b"]


def test_an_assistant_that_says_nothing_is_left_out() -> None:
    messages = [
        message("assistant"),
        message("assistant", ReasoningPart("Hm")),
        message("assistant", TextPart("")),
    ]
    assert chat_messages(messages, PLAIN) == []


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("on_all", [False, True])
def test_thinking_goes_back(field: Any, on_all: bool) -> None:
    provider = ProviderSettings("a", base_url="http://x", reasoning_back=field, reasoning_on_all=on_all)
    thought = message("assistant", ReasoningPart("Hm"), ReasoningPart("m."), CALL)
    plain = text_message("assistant", "Yes")
    first, second = chat_messages([thought, plain], provider)
    assert first[field] == "Hmm."
    assert second.get(field) == ("" if on_all else None)


def test_thinking_goes_back_as_parts() -> None:
    provider = ProviderSettings("a", base_url="http://x", reasoning_back="thinking_parts")
    [rendered] = chat_messages([message("assistant", ReasoningPart("Hm"), TextPart("Yes"))], provider)
    assert rendered["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]},
        {"type": "text", "text": "Yes"},
    ]
    assert chat_messages([text_message("assistant", "Yes")], provider)[0]["content"] == "Yes"


TOOL = ToolSpec("find", "Finds.", '{"type":"object","properties":{"n":{"maximum":18446744073709551617}}}')


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        (ToolChoice("auto"), None),
        (ToolChoice("required"), "required"),
        (ToolChoice("tool", "find"), {"type": "function", "function": {"name": "find"}}),
    ],
)
def test_tools(choice: ToolChoice, sent: Any) -> None:
    request = ModelRequest([text_message("user", "hi")], [TOOL, ToolSpec("now", "", "{}")], choice)
    body = body_of(request)
    assert body.get("tool_choice") == sent
    assert body["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "find",
                "description": "Finds.",
                "parameters": {"type": "object", "properties": {"n": {"maximum": 18446744073709551617}}},
            },
        },
        {"type": "function", "function": {"name": "now", "parameters": {}}},
    ]


def test_no_tools_where_none_may_be_called() -> None:
    body = body_of(ModelRequest([text_message("user", "hi")], [TOOL], ToolChoice("none")))
    assert "tools" not in body
    assert "tool_choice" not in body
    assert "tool_choice" not in body_of(
        ModelRequest([text_message("user", "hi")], (), ToolChoice("required"))
    )


ALL_SETTINGS = ModelSettings(
    temperature=0.0,
    max_output_tokens=9,
    top_p=0.5,
    top_k=3,
    presence_penalty=-1.0,
    frequency_penalty=1.0,
    stop_sequences=("END",),
    seed=0,
)


def test_settings() -> None:
    request = ModelRequest([text_message("user", "hi")], settings=ALL_SETTINGS)
    body = body_of(request)
    sent = {key: body[key] for key in body if key not in ("model", "messages", "stream", "stream_options")}
    assert sent == {
        "temperature": 0.0,
        "max_tokens": 9,
        "top_p": 0.5,
        "top_k": 3,
        "presence_penalty": -1.0,
        "frequency_penalty": 1.0,
        "stop": ["END"],
        "seed": 0,
    }
    assert request_warnings(request, PLAIN) == ()


FORMAT = ResponseFormat("tree", '{"type":"object","properties":{"n":{"maximum":18446744073709551617}}}')
SENT_FORMAT = {
    "type": "json_schema",
    "json_schema": {
        "name": "tree",
        "schema": {"type": "object", "properties": {"n": {"maximum": 18446744073709551617}}},
    },
}


def test_a_response_format() -> None:
    request = ModelRequest([text_message("user", "hi")], response_format=FORMAT)
    assert body_of(request)["response_format"] == SENT_FORMAT
    for strict in (True, False):
        request = msgspec.structs.replace(
            request, response_format=msgspec.structs.replace(FORMAT, strict=strict)
        )
        assert body_of(request)["response_format"]["json_schema"]["strict"] is strict
    assert request_warnings(request, PLAIN) == ()


@pytest.mark.parametrize(
    ("formats", "choice", "sent"),
    [
        ("with-tools", "auto", True),
        ("without-tools", "auto", False),
        ("without-tools", "none", True),
        ("none", "none", False),
    ],
)
def test_a_response_format_with_tools(formats: Any, choice: Any, sent: bool) -> None:
    provider = ProviderSettings("acme", base_url="http://x", response_formats=formats)
    request = ModelRequest([text_message("user", "hi")], [TOOL], ToolChoice(choice), response_format=FORMAT)
    assert body_of(request, provider).get("response_format") == (SENT_FORMAT if sent else None)
    warnings = request_warnings(request, provider)
    assert len(warnings) == (not sent)
    assert all("response format" in warning and "acme" in warning for warning in warnings)
    assert ("together with tools" in str(warnings)) == (not sent and formats == "without-tools")


def test_quirks() -> None:
    request = ModelRequest([text_message("user", "hi")], settings=ALL_SETTINGS)
    body = body_of(request, KNOWN_PROVIDERS["openai"])
    assert body["max_completion_tokens"] == 9
    assert "max_tokens" not in body
    assert "top_k" not in body
    [warning] = request_warnings(request, KNOWN_PROVIDERS["openai"])
    assert "top_k" in warning
    quiet = ProviderSettings("a", base_url="http://x", stream_usage=False)
    assert "stream_options" not in body_of(request, quiet)


def test_options_of_the_provider() -> None:
    options = {
        "acme": {"reasoningEffort": "low", "user_tag": 1, "temperature": 1, "stream": False, "messages": []},
        "other": {"reasoningEffort": "high"},
    }
    settings = ModelSettings(temperature=0.5)
    request = ModelRequest([text_message("user", "hi")], settings=settings, provider_options=options)
    body = body_of(request)
    assert (body["reasoning_effort"], body["user_tag"], body["temperature"]) == ("low", 1, 1)
    assert body["stream"] is True
    assert body["messages"]


def test_text_that_is_hard_to_write() -> None:
    options = {"acme": {"n": 2**80}}
    request = ModelRequest([text_message("user", "a\ud83c 🌳")], [TOOL], provider_options=options)
    body = body_of(request)
    assert body["messages"][0]["content"] == "a\ufffd 🌳"
    assert body["n"] == 2**80
    assert body["tools"][0]["function"]["parameters"]["properties"]["n"]["maximum"] == 18446744073709551617


USER = text_message("user", "hi")
ASKS = message("assistant", CALL)
TELLS = message("tool", RESULT)
OTHER = ToolCallPart("c2", "find", "{}")
OTHER_RESULT = ToolResultPart("c2", "find", "1")


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [USER, ASKS, TELLS],
        [ASKS, TELLS, ASKS, TELLS, USER],
        [message("assistant", CALL, OTHER), message("tool", OTHER_RESULT, RESULT)],
        [message("assistant", CALL, OTHER), message("tool", RESULT), message("tool", OTHER_RESULT)],
    ],
)
def test_calls_and_results_that_pair(messages: list[Message]) -> None:
    check_pairing(messages)


@pytest.mark.parametrize(
    "messages",
    [
        [ASKS],
        [ASKS, USER],
        [ASKS, USER, TELLS],
        [TELLS],
        [ASKS, TELLS, TELLS],
        [ASKS, message("tool", RESULT, RESULT)],
        [ASKS, message("tool", OTHER_RESULT)],
        [message("assistant", CALL, CALL), TELLS],
        [message("assistant", CALL, OTHER), TELLS],
        [message("user", CALL), TELLS],
        [ASKS, message("user", RESULT)],
        [ASKS, message("assistant", OTHER), message("tool", RESULT, OTHER_RESULT)],
    ],
)
def test_calls_and_results_that_do_not_pair(messages: list[Message]) -> None:
    with pytest.raises(ValueError, match=r"tool (call|result)"):
        chat_body(ModelRequest(messages), "m", PLAIN)
