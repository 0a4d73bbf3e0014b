"""What is sent to a server of the Responses API."""

import base64
import json
from typing import Any

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
)
from entracte_server.models.openai_request import body_text, chat_messages
from entracte_server.models.responses_items import keep
from entracte_server.models.responses_request import responses_body, responses_input, responses_warnings

PLAIN = ProviderSettings("acme", base_url="http://x", api="responses", response_formats="with-tools")
SCHEMA = '{"type":"object","properties":{"n":{"maximum":18446744073709551617}}}'
SENT_SCHEMA = {"type": "object", "properties": {"n": {"maximum": 18446744073709551617}}}
TOOL = ToolSpec("find", "Finds.", SCHEMA)
SENT_TOOL = {
    "type": "function",
    "name": "find",
    "description": "Finds.",
    "parameters": SENT_SCHEMA,
    "strict": False,
}
HI = [text_message("user", "hi")]


def message(role: Role, *parts: AnyPart) -> Message:
    return Message(role, parts)


def body_of(request: ModelRequest, model: str = "m") -> dict[str, Any]:
    body = json.loads(body_text(responses_body(request, model, PLAIN)))
    assert isinstance(body, dict)
    return body


def options_of(model: str = "m", **options: Any) -> dict[str, Any]:
    """The body for these options of the provider, without what every body has."""
    body = body_of(ModelRequest(HI, provider_options={"acme": options}), model)
    return {key: value for key, value in body.items() if key not in ("model", "input", "stream", "store")}


def test_every_role() -> None:
    messages = [
        message("system", TextPart("Be brief."), TextPart("Be kind.")),
        text_message("user", "Find oak"),
        message("assistant", ReasoningPart("Hm"), TextPart("Sure. "), ToolCallPart("c1", "find", "")),
        message("tool", ToolResultPart("c1", "find", '{"found":true}')),
        text_message("assistant", "Found."),
    ]
    assert responses_input(messages, PLAIN) == [
        {"role": "system", "content": "Be brief.\n\nBe kind."},
        {"role": "user", "content": "Find oak"},
        {"role": "assistant", "content": "Sure. "},
        {"type": "function_call", "call_id": "c1", "name": "find", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": '{"found":true}'},
        {"role": "assistant", "content": "Found."},
    ]


def test_an_answer_goes_back_in_the_order_it_was_made() -> None:
    def thought(at: int) -> ReasoningPart:
        return ReasoningPart("Hm", provider_metadata=keep("acme", at, item=item(at)))

    def item(at: int) -> dict[str, Any]:
        return {"type": "reasoning", "id": f"rs_{at}", "summary": [], "encrypted_content": f"e{at}"}

    answer = message(
        "assistant",
        thought(0),
        thought(2),
        thought(5),
        TextPart("Wait.", keep("acme", 1, phase="commentary")),
        ToolCallPart("c1", "find", "{}", keep("acme", 3, item={"namespace": "n"})),
        ToolCallPart("c2", "find", "{}", keep("acme", 4)),
    )
    results = message("tool", ToolResultPart("c1", "find", "1"), ToolResultPart("c2", "find", "2"))
    call = {"type": "function_call", "name": "find", "arguments": "{}"}
    assert responses_input([answer, results], PLAIN) == [
        item(0),
        {"role": "assistant", "content": "Wait.", "phase": "commentary"},
        item(2),
        {**call, "call_id": "c1", "namespace": "n"},
        {**call, "call_id": "c2"},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
        {"type": "function_call_output", "call_id": "c2", "output": "2"},
    ]


def test_what_one_provider_wrote_is_not_shown_to_another() -> None:
    metadata = keep("other", 0, item={"type": "reasoning", "encrypted_content": "secret"})
    answer = message(
        "assistant",
        ReasoningPart("Hm", provider_metadata=metadata),
        TextPart("Hi", keep("other", 1, phase="p")),
        ToolCallPart("c1", "find", "{}", keep("other", 2, item={"namespace": "n"})),
    )
    results = message("tool", ToolResultPart("c1", "find", "1"))
    assert responses_input([answer, results], PLAIN)[:2] == [
        {"role": "assistant", "content": "Hi"},
        {"type": "function_call", "call_id": "c1", "name": "find", "arguments": "{}"},
    ]
    chat = ProviderSettings("chat", base_url="http://x", reasoning_back="reasoning_details")
    assert chat_messages([answer], chat) == [
        {
            "role": "assistant",
            "content": "Hi",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{}"}}],
            "reasoning_details": [{"type": "reasoning.text", "text": "Hm"}],
        }
    ]


def test_media() -> None:
    png = b"\x89PNG..."

    def encoded(data: bytes) -> str:
        return base64.b64encode(data).decode()

    parts = (
        TextPart("Look"),
        ImagePart(url="https://a.example/x.png"),
        ImagePart(data=png),
        FilePart(data=png, media_type="image/png"),
        FilePart(data=b"%PDF", media_type="application/pdf"),
        FilePart(data=b"%PDF", media_type="application/pdf", filename="b.pdf"),
        FilePart(url="https://a.example/c.pdf", media_type="application/pdf"),
        FilePart(data=b"RIFF", media_type="audio/x-wav"),
    )
    [sent] = responses_input([message("user", *parts)], PLAIN)
    image = {"type": "input_image", "detail": "auto"}
    pdf = f"data:application/pdf;base64,{encoded(b'%PDF')}"
    assert sent["content"] == [
        {"type": "input_text", "text": "Look"},
        {**image, "image_url": "https://a.example/x.png"},
        {**image, "image_url": f"data:image/png;base64,{encoded(png)}"},
        {**image, "image_url": f"data:image/png;base64,{encoded(png)}"},
        {"type": "input_file", "filename": "file.pdf", "file_data": pdf},
        {"type": "input_file", "filename": "b.pdf", "file_data": pdf},
        {"type": "input_file", "file_url": "https://a.example/c.pdf"},
        {"type": "input_audio", "input_audio": {"data": encoded(b"RIFF"), "format": "wav"}},
    ]


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        (ToolChoice("auto"), None),
        (ToolChoice("required"), "required"),
        (ToolChoice("tool", "find"), {"type": "function", "name": "find"}),
    ],
)
def test_tools(choice: ToolChoice, sent: Any) -> None:
    body = body_of(ModelRequest(HI, [TOOL], choice))
    assert body["tools"] == [SENT_TOOL]
    assert body.get("tool_choice") == sent


def test_no_tools_where_none_may_be_called() -> None:
    request = ModelRequest(
        HI, [TOOL], ToolChoice("none"), provider_options={"acme": {"tools": [{"type": "web_search"}]}}
    )
    assert not {"tools", "tool_choice"} & set(body_of(request))


def test_settings() -> None:
    settings = ModelSettings(
        temperature=0.0,
        max_output_tokens=9,
        top_p=0.5,
        top_k=3,
        presence_penalty=-1.0,
        frequency_penalty=1.0,
        stop_sequences=("END",),
        seed=0,
    )
    request = ModelRequest(HI, settings=settings)
    body = body_of(request)
    assert {key: body[key] for key in body if key not in ("model", "input", "stream", "store")} == {
        "temperature": 0.0,
        "max_output_tokens": 9,
        "top_p": 0.5,
    }
    warnings = responses_warnings(request, PLAIN)
    left = ("top_k", "presence_penalty", "frequency_penalty", "stop_sequences", "seed")
    assert [next(name for name in left if name in warning) for warning in warnings] == list(left)


@pytest.mark.parametrize("strict", [None, True, False])
def test_a_response_format(strict: bool | None) -> None:
    request = ModelRequest(HI, [TOOL], response_format=ResponseFormat("tree", SCHEMA, strict))
    sent = {"type": "json_schema", "name": "tree", "schema": SENT_SCHEMA}
    assert body_of(request)["text"] == {"format": sent if strict is None else {**sent, "strict": strict}}
    without = ProviderSettings("acme", base_url="http://x", api="responses")
    assert "text" not in responses_body(request, "m", without)
    [warning] = responses_warnings(request, without)
    assert "response format together with tools" in warning


@pytest.mark.parametrize(
    ("model", "encrypted"),
    [
        ("o3", True),
        ("gpt-5.1-mini", True),
        ("openai/gpt-5", True),
        ("codex-mini-latest", True),
        ("gpt-5-chat-latest", False),
        ("gpt-4.1", False),
        ("llama", False),
    ],
)
def test_thinking_is_asked_for_where_there_is_some(model: str, encrypted: bool) -> None:
    include = body_of(ModelRequest(HI), model).get("include")
    assert include == (["reasoning.encrypted_content"] if encrypted else None)


def test_options_of_the_provider() -> None:
    assert options_of(reasoningEffort="low", reasoningSummary="auto", verbosity="high") == {
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"verbosity": "high"},
    }
    assert options_of(reasoning={"effort": "low"}, reasoning_summary="auto", serviceTier="flex") == {
        "reasoning": {"effort": "low", "summary": "auto"},
        "service_tier": "flex",
    }
    sources = "web_search_call.action.sources"
    assert options_of("o3", include=[sources]) == {"include": ["reasoning.encrypted_content", sources]}
    assert options_of(store=True) == {}
    assert body_of(ModelRequest(HI, provider_options={"acme": {"store": True}}))["store"] is True
    assert body_of(ModelRequest(HI, provider_options={"other": {"store": True}}))["store"] is False


def test_options_beside_a_response_format() -> None:
    request = ModelRequest(
        HI,
        provider_options={"acme": {"text": {"verbosity": "low"}}},
        response_format=ResponseFormat("tree", SCHEMA),
    )
    assert set(body_of(request)["text"]) == {"format", "verbosity"}


def test_tools_of_the_provider_are_added() -> None:
    search = {"type": "web_search"}
    assert options_of(tools=[search])["tools"] == [search]
    assert options_of(tools=[search, {"type": "function", "name": "mine"}])["tools"] == [search]
    body = body_of(ModelRequest(HI, [TOOL], provider_options={"acme": {"tools": [search]}}))
    assert body["tools"] == [SENT_TOOL, search]


def test_what_is_ours_cannot_be_set() -> None:
    given = {
        "previousResponseId": "resp_0",
        "input": [],
        "model": "x",
        "tools": [{"type": "function", "name": "mine"}, 1],
        "user": "u",
    }
    request = ModelRequest(HI, provider_options={"acme": given})
    body = body_of(request)
    assert body["input"] == [{"role": "user", "content": "hi"}]
    assert not {"previous_response_id", "tools"} & set(body)
    assert (body["model"], body["user"]) == ("m", "u")
    warnings = " ".join(responses_warnings(request, PLAIN))
    for name in ("previous_response_id", "input", "model", "tools[0]", "tools[1]"):
        assert f"option {name} " in warnings


def test_openai_by_its_other_interface() -> None:
    settings = KNOWN_PROVIDERS["openai-responses"]
    assert (settings.api, settings.key_variable, settings.base_url) == ("responses", "OPENAI_API_KEY", None)
