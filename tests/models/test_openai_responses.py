"""Answers of the Responses API, from a server that speaks it."""

import base64
import json
from typing import Any

import pytest

from entracte_server.domain.chunks import (
    File,
    Raw,
    ReasoningDelta,
    ReasoningEnd,
    Source,
    TextDelta,
    TextEnd,
    ToolCallDelta,
)
from entracte_server.domain.messages import text_message
from entracte_server.domain.results import Usage
from entracte_server.models import ModelError, ModelRequest, ModelSettings
from entracte_server.models.response_body import BodyReader
from entracte_server.models.responses_assembler import ResponsesAssembler
from tests.models.responses_wire import begin, calls, end, item, response, says, stream, thinks
from tests.models.support import HI, Answer, FakeProvider, Outcome, ask, check_shape, model_of


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("entracte_server.models.openai_model._FIRST_BACK_OFF", 0.02)


async def answer_of(provider: FakeProvider, *groups: Any, request: ModelRequest = HI, **more: Any) -> Outcome:
    """What comes of one answer made of these events."""
    provider.say(stream(*groups))
    async with model_of(provider, api="responses", max_retries=0, **more) as model:
        return await ask(model, request)


async def test_a_text(provider: FakeProvider) -> None:
    outcome = await answer_of(provider, begin(), says(0, "Hel", "lo"), end())
    assert [event.text for event in outcome.of(TextDelta)] == ["Hel", "lo"]
    finish = outcome.finish
    assert (finish.reason, finish.raw_reason) == ("stop", "completed")
    assert (finish.response_id, finish.response_model) == ("resp_1", "toy-1-2026")
    assert finish.response_time == 1_700_000_000_000
    assert finish.usage == Usage(input=100, output=30, total=130, reasoning=20, cached_input=64)
    [received] = provider.requests
    assert received.path == "/v1/responses"
    assert received.headers["authorization"] == "Bearer secret-key-1"
    assert received.body == {
        "model": "m",
        "input": [{"role": "user", "content": "hi"}],
        "stream": True,
        "store": False,
    }


async def test_thinking_is_shown_as_its_summary_and_kept_as_it_came(provider: FakeProvider) -> None:
    outcome = await answer_of(provider, begin(), thinks(0, "First.", "Then."), says(1, "Hi"), end())
    assert outcome.reasoning == "First.\n\nThen."
    assert outcome.text == "Hi"
    [ended] = outcome.of(ReasoningEnd)
    assert json.loads(ended.provider_metadata or "") == {
        "openai_responses": {
            "provider": "test",
            "at": 0,
            "item": {
                "type": "reasoning",
                "id": "rs_0",
                "summary": [
                    {"type": "summary_text", "text": "First."},
                    {"type": "summary_text", "text": "Then."},
                ],
                "encrypted_content": "enc-1",
            },
        }
    }


async def test_thinking_without_a_summary_is_kept(provider: FakeProvider) -> None:
    outcome = await answer_of(provider, begin(), thinks(0), says(1, "Hi"), end())
    assert outcome.of(ReasoningDelta) == []
    [ended] = outcome.of(ReasoningEnd)
    assert '"encrypted_content":"enc-1"' in (ended.provider_metadata or "").replace(" ", "")


async def test_thinking_that_cannot_be_sent_back_is_shown_only(provider: FakeProvider) -> None:
    outcome = await answer_of(provider, begin(), thinks(0, "Hm.", encrypted=None), says(1, "Hi"), end())
    assert outcome.reasoning == "Hm."
    assert [ended.provider_metadata for ended in outcome.of(ReasoningEnd)] == [None]


async def test_open_thinking(provider: FakeProvider) -> None:
    """Models whose thoughts are open stream these in place of a summary."""
    content = [{"type": "reasoning_text", "text": "Hmm."}]
    events = item(
        0,
        "reasoning",
        {"summary": [], "content": content},
        {"type": "response.reasoning_text.delta", "content_index": 0, "delta": "Hmm."},
    )
    outcome = await answer_of(provider, begin(), events, says(1, "Hi"), end())
    assert outcome.reasoning == "Hmm."
    [ended] = outcome.of(ReasoningEnd)
    kept = json.loads(ended.provider_metadata or "")["openai_responses"]["item"]
    assert kept == {"type": "reasoning", "id": "re_0", "summary": [], "content": content}


async def test_calls(provider: FakeProvider) -> None:
    outcome = await answer_of(
        provider,
        begin(),
        says(0, "Wait.", phase="commentary"),
        calls(1, "find", "call_a", '{"key"', ':"oak"}'),
        calls(2, "now", "call_b"),
        end(),
    )
    assert [(call.tool_call_id, call.tool_name, call.args) for call in outcome.calls] == [
        ("call_a", "find", '{"key":"oak"}'),
        ("call_b", "now", "{}"),
    ]
    assert [delta.args_text_delta for delta in outcome.of(ToolCallDelta)] == ['{"key"', ':"oak"}']
    assert outcome.finish.reason == "tool-calls"
    [said] = outcome.of(TextEnd)
    assert json.loads(said.provider_metadata or "")["openai_responses"]["phase"] == "commentary"


async def test_ids_that_are_taken_or_missing_are_replaced(provider: FakeProvider) -> None:
    request = ModelRequest(HI.messages, reserved_ids=frozenset({"call_a"}))
    outcome = await answer_of(
        provider,
        begin(),
        calls(0, "find", "call_a", "{}"),
        calls(1, "find", "", "{}"),
        calls(2, "find", "call_c", "{}"),
        calls(3, "find", "call_c", "{}"),
        end(),
        request=request,
    )
    ids = [call.tool_call_id for call in outcome.calls]
    assert len(set(ids)) == 4
    assert ids[2] == "call_c"
    assert "call_a" not in ids


async def test_bad_arguments_are_reported(provider: FakeProvider) -> None:
    outcome = await answer_of(provider, begin(), calls(0, "find", "c", "[1]"), end())
    [call] = outcome.calls
    assert (call.args, call.invalid_args) == (None, "[1]")


@pytest.mark.parametrize(
    ("why", "reason"),
    [
        ({"reason": "max_output_tokens"}, "length"),
        ({"reason": "content_filter"}, "content-filter"),
        ({"reason": "steered"}, "other"),
        (None, "other"),
    ],
)
async def test_an_incomplete_answer(provider: FakeProvider, why: Any, reason: str) -> None:
    outcome = await answer_of(
        provider, begin(), says(0, "So")[:-1], end("incomplete", incomplete_details=why)
    )
    assert (outcome.text, outcome.finish.reason) == ("So", reason)
    assert outcome.finish.raw_reason == (why["reason"] if why else "incomplete")
    assert outcome.finish.usage.total == 130


async def test_a_call_that_was_cut_cannot_be_executed(provider: FakeProvider) -> None:
    """Not even one of which no argument came, which otherwise means that it has none."""
    begun = calls(0, "wipe", "c1")[:1]
    cut = {"reason": "content_filter"}
    outcome = await answer_of(provider, begin(), begun, end("incomplete", incomplete_details=cut))
    [call] = outcome.calls
    assert call.args is None
    assert "not complete" in (call.args_error or "")
    ended = item(0, "function_call", {"call_id": "c", "name": "wipe", "arguments": ""})
    ended[-1]["item"]["status"] = "incomplete"
    outcome = await answer_of(provider, begin(), ended, end("incomplete", incomplete_details=cut))
    assert [call.args for call in outcome.calls] == [None]


async def test_nothing_but_a_filter(provider: FakeProvider) -> None:
    cut = {"reason": "content_filter"}
    outcome = await answer_of(provider, begin(), end("incomplete", incomplete_details=cut))
    assert outcome.kind == "content_filter"


async def test_a_refusal_is_shown(provider: FakeProvider) -> None:
    part = {"type": "refusal", "refusal": "I will not."}
    events = item(
        0,
        "message",
        {"role": "assistant", "content": [part]},
        {"type": "response.refusal.delta", "content_index": 0, "delta": "I will "},
        {"type": "response.refusal.delta", "content_index": 0, "delta": "not."},
        {"type": "response.refusal.done", "content_index": 0, "refusal": "I will not."},
    )
    for streamed in (events, events[-1:]):
        outcome = await answer_of(provider, begin(), streamed, end())
        assert (outcome.text, outcome.finish.refusal) == ("I will not.", "I will not.")
        assert outcome.finish.reason == "stop"


PAGE = {"type": "url_citation", "url": "https://a.example/x", "title": "X", "start_index": 0, "end_index": 2}
PAPER = {"type": "file_citation", "file_id": "file-1", "filename": "a.pdf", "index": 2}


async def test_sources(provider: FakeProvider) -> None:
    outcome = await answer_of(
        provider, begin(), says(0, "Hi", annotations=[PAGE, PAPER, {**PAGE, "end_index": 9}]), end()
    )
    assert outcome.of(Source) == [
        Source("s0", "https://a.example/x", "X", json.dumps(PAGE, separators=(",", ":"))),
        Source("s1", "", "a.pdf", json.dumps(PAPER, separators=(",", ":"))),
    ]


async def test_what_the_provider_executes(provider: FakeProvider) -> None:
    """Its tools are calls that need no execution; what they made are files."""
    png = b"\x89PNG..."
    search = {"action": {"type": "search", "query": "oak"}}
    code = {
        "code": "1+1",
        "container_id": "cntr_1",
        "outputs": [{"type": "logs", "logs": "2"}, {"type": "image", "url": "https://a.example/p.png"}],
    }
    image = {"result": base64.b64encode(png).decode(), "output_format": "png", "revised_prompt": "An oak"}
    outcome = await answer_of(
        provider,
        begin(),
        item(0, "web_search_call", search, {"type": "response.web_search_call.searching"}, id="ws_1"),
        item(1, "code_interpreter_call", code, id="ci_1"),
        item(2, "image_generation_call", image, id="ig_1"),
        item(3, "mcp_call", {"name": "roll", "server_label": "dice", "arguments": '{"n":6}'}, id="mcp_1"),
        item(4, "mcp_list_tools", {"tools": []}),
        says(5, "There."),
        end(),
    )
    assert all(call.provider_executed for call in outcome.calls)
    assert [(call.tool_call_id, call.tool_name, json.loads(call.args or "")) for call in outcome.calls] == [
        ("ws_1", "web_search", search),
        ("ci_1", "code_interpreter", {"code": "1+1", "container_id": "cntr_1"}),
        ("ig_1", "image_generation", {"revised_prompt": "An oak"}),
        ("mcp_1", "roll", {"server_label": "dice", "arguments": '{"n":6}'}),
    ]
    assert outcome.of(File) == [File("image/*", url="https://a.example/p.png"), File("image/png", png)]
    assert (outcome.text, outcome.finish.reason, outcome.finish.warnings) == ("There.", "stop", ())


async def test_items_of_an_unknown_kind_are_reported(provider: FakeProvider) -> None:
    outcome = await answer_of(provider, begin(), item(0, "dance_call", {}), says(1, "Hi"), end())
    [warning] = outcome.finish.warnings
    assert "dance_call" in warning
    assert outcome.text == "Hi"


async def test_raw_events(provider: FakeProvider) -> None:
    request = ModelRequest(HI.messages, include_raw=True)
    outcome = await answer_of(provider, begin(), says(0, "Hi"), end(), request=request)
    kinds = [json.loads(raw.value)["type"] for raw in outcome.of(Raw)]
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert len(kinds) == 9


# ---- what servers leave out, and what they send instead ----


WHOLE = [
    {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Hm."}]},
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Hi", "annotations": [PAGE]}],
    },
    {"type": "function_call", "call_id": "c1", "name": "find", "arguments": '{"key":"oak"}'},
]


@pytest.mark.parametrize(
    "body",
    [
        json.dumps(response("completed", output=WHOLE)).encode(),
        stream(end(output=WHOLE)),
        stream(end(output=WHOLE), done=True),
        stream(begin(), [{"type": "response.output_item.done", "output_index": 0, "item": WHOLE[0]}])
        + stream(end(output=WHOLE)),
    ],
    ids=["document", "end-only", "done", "some-items"],
)
async def test_what_was_not_streamed_is_taken_from_the_whole(provider: FakeProvider, body: bytes) -> None:
    provider.say(body)
    async with model_of(provider, api="responses") as model:
        outcome = await ask(model)
    assert (outcome.reasoning, outcome.text) == ("Hm.", "Hi")
    assert [call.args for call in outcome.calls] == ['{"key":"oak"}']
    assert len(outcome.of(Source)) == 1
    assert outcome.finish.reason == "tool-calls"


async def test_nothing_is_shown_twice(provider: FakeProvider) -> None:
    streamed = [*thinks(0, "Hm.", encrypted=None), *says(1, "Hi", annotations=[PAGE])]
    streamed += calls(2, "find", "c1", '{"key":"oak"}')
    outcome = await answer_of(provider, begin(), streamed, end(output=WHOLE))
    assert (outcome.reasoning, outcome.text) == ("Hm.", "Hi")
    assert [call.args for call in outcome.calls] == ['{"key":"oak"}']
    assert len(outcome.of(Source)) == 1


@pytest.mark.parametrize("size", [1, 7, 100])
def test_the_reads_do_not_matter(size: int) -> None:
    data = stream(begin(), thinks(0, "Ähm 🌳"), says(1, "Hi 🌳"), calls(2, "f", "c", '{"a":"🌳"}'), end())
    answer = ResponsesAssembler("test")
    reader = BodyReader(answer)
    for at in range(0, len(data), size):
        reader.feed(data[at : at + size])
    reader.end()
    answer.end()
    outcome = Outcome([answer.take()], None)
    check_shape(outcome)
    assert (outcome.reasoning, outcome.text) == ("Ähm 🌳", "Hi 🌳")
    assert json.loads(outcome.calls[0].args or "") == {"a": "🌳"}


async def test_halves_of_characters(provider: FakeProvider) -> None:
    outcome = await answer_of(provider, begin(), says(0, "a\ud83c", "\udf33b\ud83c"), end())
    assert outcome.text == "a🌳b�"


# ---- failures ----


LIMIT = {"code": "rate_limit_exceeded", "message": "Slow down."}


@pytest.mark.parametrize(
    ("events", "kind", "retryable", "words"),
    [
        (end("failed", error={"code": "server_error", "message": "Oh."}), "provider_error", True, "Oh."),
        (end("failed", error=LIMIT), "provider_error", True, "Slow down."),
        (
            end("failed", error={"code": "invalid_prompt", "message": "No."}),
            "provider_error",
            False,
            "No.",
        ),
        ([{"type": "error", **LIMIT, "param": None}], "provider_error", True, "Slow down."),
        ([{"type": "error", "error": LIMIT}], "provider_error", True, "Slow down."),
        (end("cancelled"), "cut", True, "cancelled"),
        ([], "cut", True, "broke off"),
    ],
)
async def test_failures(provider: FakeProvider, events: Any, kind: str, retryable: bool, words: str) -> None:
    outcome = await answer_of(provider, begin(), says(0, "So")[:4], events)
    assert outcome.error is not None
    assert (outcome.kind, outcome.error.retryable) == (kind, retryable)
    assert words in outcome.error.message
    assert outcome.text == "So"


async def test_a_failure_before_anything_was_seen_is_tried_again(provider: FakeProvider) -> None:
    failed = stream(begin(), end("failed", error={"code": "server_error", "message": "Oh."}))
    provider.say(failed, failed, stream(begin(), says(0, "Hi"), end()))
    async with model_of(provider, api="responses") as model:
        assert (await ask(model)).text == "Hi"
    assert len(provider.requests) == 3


@pytest.mark.parametrize("cut", range(0, 1700, 97))
async def test_a_cut_stream_never_passes_for_whole(cut: int) -> None:
    data = stream(begin(), says(0, "Hi"), calls(1, "wipe", "c", "{}"))
    answer = ResponsesAssembler("test")
    reader = BodyReader(answer)
    reader.feed(data[:cut])

    def over() -> None:
        reader.end()
        answer.end()

    with pytest.raises(ModelError):
        over()
    assert all(type(event).__name__ not in ("ToolCall", "ModelFinish") for event in answer.take())


async def test_an_error_status(provider: FakeProvider) -> None:
    body = json.dumps({"error": {"message": "No such model.", "code": "model_not_found"}}).encode()
    provider.say(Answer([body], status=404))
    async with model_of(provider, api="responses") as model:
        outcome = await ask(model)
    assert outcome.error is not None
    assert (outcome.error.status, outcome.error.code) == (404, "model_not_found")


@pytest.mark.parametrize("record", [b'data: "text"\n\n', b"data: {\n\n", b"data: " + b"[" * 300 + b"\n\n"])
async def test_records_that_are_none(provider: FakeProvider, record: bytes) -> None:
    provider.say(stream(begin()) + record)
    async with model_of(provider, api="responses") as model:
        outcome = await ask(model)
    assert outcome.kind == "provider_error"


async def test_headers_and_settings_go_out(provider: FakeProvider) -> None:
    settings = ModelSettings(temperature=0.5, top_k=3, headers={"x-trace": "7"})
    request = ModelRequest([text_message("user", "hi")], settings=settings)
    outcome = await answer_of(provider, begin(), says(0, "Hi"), end(), request=request)
    [received] = provider.requests
    assert received.headers["x-trace"] == "7"
    assert received.body["temperature"] == 0.5
    [warning] = outcome.finish.warnings
    assert "top_k" in warning
