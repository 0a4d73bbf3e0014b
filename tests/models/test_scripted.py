"""The model that plays a script."""

import asyncio
import json
import pathlib
import sys
import time
from typing import Any

import pytest

from entracte_server.domain.chunks import File, Raw, Source, TextDelta, TextStart, ToolCallDelta
from entracte_server.domain.messages import Message, ToolCallPart, ToolResultPart, text_message
from entracte_server.domain.results import Usage
from entracte_server.models import ModelRequest, ModelSettings, ResponseFormat, ScriptedModel, scripted
from tests.models.support import HI, ask

ASKS = {"tool": "look", "id": "c1", "args": {"key": "oak"}}


def after(answers: int) -> ModelRequest:
    """A request whose conversation has this many assistant messages."""
    turn = [
        Message("assistant", (ToolCallPart("c1", "look", "{}"),)),
        Message("tool", (ToolResultPart("c1", "look", "1"),)),
    ]
    return ModelRequest([text_message("user", "hi"), *(turn * answers)])


async def test_how_parts_stream() -> None:
    outcome = await ask(scripted([[{"reasoning": "let me"}, {"text": "Done now"}, ASKS]]))
    assert [type(event).__name__ for event in outcome.events] == [
        "ReasoningStart",
        "ReasoningDelta",
        "ReasoningDelta",
        "ReasoningEnd",
        "TextStart",
        "TextDelta",
        "TextDelta",
        "TextEnd",
        "ToolCallInputStreamingStart",
        "ToolCallDelta",
        "ToolCallDelta",
        "ToolCallInputStreamingEnd",
        "ToolCall",
        "ModelFinish",
    ]
    assert [event.text for event in outcome.of(TextDelta)] == ["Done ", "now"]
    assert [event.id for event in outcome.of(TextStart)] == ["t0-1"]
    assert [event.args_text_delta for event in outcome.of(ToolCallDelta)] == ['{"key":', '"oak"}']
    assert outcome.calls[0].args == '{"key":"oak"}'
    assert (outcome.finish.reason, outcome.finish.usage) == ("tool-calls", Usage(10, 5, 15))


async def test_steps_in_order_and_the_last_again() -> None:
    model = scripted([[{"text": "a"}], [{"text": "b"}]])
    assert [(await ask(model)).text for _ in range(4)] == ["a", "b", "b", "b"]
    assert model.calls == len(model.requests) == 4
    assert model.requests[0] is HI


async def test_the_transcript_tells_the_step() -> None:
    steps: list[Any] = [[ASKS], [{"text": "b"}], [{"text": "c"}]]
    for answers, expected in [(2, "c"), (0, ""), (1, "b"), (1, "b"), (7, "c")]:
        # A new object each time: nothing of the position is in the object.
        assert (await ask(scripted(steps, position="transcript"), after(answers))).text == expected


async def test_throws_do_not_shift_the_transcript() -> None:
    down = {"throw": "down", "retryable": True}
    model = scripted([[down], [down], [{"text": "a"}], [down], [{"text": "b"}]], position="transcript")
    assert (await ask(model, after(0))).text == "a"
    assert (await ask(model, after(0))).text == "a"
    assert (await ask(model, after(1))).text == "b"
    assert model.calls == 6


@pytest.mark.parametrize(
    ("finish", "reason", "raw"),
    [
        ("length", "length", "length"),
        ("stop", "stop", "stop"),
        ("odd", "other", "odd"),
        ({"reason": "content-filter"}, "content-filter", "content-filter"),
        ({}, "tool-calls", "tool-calls"),
    ],
)
async def test_finish(finish: Any, reason: str, raw: str) -> None:
    finished = (await ask(scripted([[ASKS, {"finish": finish}, {"text": "never"}]]))).finish
    assert (finished.reason, finished.raw_reason) == (reason, raw)


async def test_usage() -> None:
    step = [{"text": "a"}, {"finish": {"usage": {"input": 3, "output": 4, "reasoning": 2}}}]
    assert (await ask(scripted([step]))).finish.usage == Usage(3, 4, 7, 2)


async def test_no_finish() -> None:
    outcome = await ask(scripted([[{"text": "a"}, {"finish": None}]]))
    assert (outcome.text, outcome.kind) == ("a", "cut")


async def test_errors() -> None:
    outcome = await ask(scripted([[{"text": "a"}, {"error": "broke"}, {"finish": "error"}]]))
    assert outcome.error is not None
    assert (outcome.text, outcome.kind, outcome.error.message) == ("a", "provider_error", "broke")
    outcome = await ask(scripted([[{"text": "a"}, {"breakStream": "reset"}]]))
    assert (outcome.text, outcome.kind) == ("a", "connection")
    assert (await ask(scripted([[{"finish": "error"}]]))).kind == "provider_error"
    details = {"message": "slow", "kind": "stall", "status": 504, "code": "x", "retryAfter": 3}
    outcome = await ask(scripted([[{"error": details}]]))
    assert outcome.error is not None
    assert (outcome.kind, outcome.error.status, outcome.error.retry_after) == ("stall", 504, 3.0)


@pytest.mark.parametrize(
    ("throw", "asked", "calls"),
    [
        ({"throw": "no"}, None, 1),
        ({"throw": "no", "retryable": True}, None, 3),
        ({"throw": {"message": "no", "retryable": True}}, 1, 2),
        ({"throw": "no", "props": {"isRetryable": True, "statusCode": 503}}, 0, 1),
    ],
)
async def test_throws(throw: dict[str, Any], asked: int | None, calls: int) -> None:
    model = scripted([[throw]])
    settings = ModelSettings(max_retries=asked)
    outcome = await ask(model, ModelRequest([text_message("user", "hi")], settings=settings))
    assert outcome.error is not None
    assert outcome.error.message == "no"
    assert model.calls == calls


async def test_a_retry_takes_the_next_step() -> None:
    outcome = await ask(scripted([[{"throw": "no", "retryable": True}], [{"text": "ok"}]]))
    assert outcome.text == "ok"
    assert outcome.of(TextStart)[0].id == "t1-0"


async def test_a_failure_in_the_middle_is_not_retried() -> None:
    model = scripted([[{"text": "a"}, {"error": {"message": "no", "retryable": True}}], [{"text": "b"}]])
    assert (await ask(model)).text == "a"
    assert model.calls == 1


async def test_calls() -> None:
    request = ModelRequest([text_message("user", "hi")], reserved_ids=frozenset({"c1"}))
    step = [
        ASKS,
        {**ASKS, "id": "c2"},
        {**ASKS, "id": "c2"},
        {"tool": "now"},
        {"tool": "x", "rawArgs": '{"a": tru'},
    ]
    outcome = await ask(scripted([step]), request)
    ids = [call.tool_call_id for call in outcome.calls]
    assert len(set(ids)) == 5
    assert ids[1] == "c2"
    assert [call.args for call in outcome.calls] == ['{"key":"oak"}'] * 3 + ["{}", None]
    assert outcome.calls[-1].invalid_args == '{"a": tru'


async def test_raw_files_and_sources() -> None:
    step = [
        {"raw": {"a": 1}},
        {"file": "abc", "mediaType": "text/csv"},
        {"source": "https://a.example", "title": "A"},
    ]
    asked = ModelRequest([text_message("user", "hi")], include_raw=True)
    outcome = await ask(scripted([step]), asked)
    assert [raw.value for raw in outcome.of(Raw)] == ['{"a":1}']
    assert outcome.of(File) == [File("text/csv", b"abc")]
    assert [source.url for source in outcome.of(Source)] == ["https://a.example"]
    assert (await ask(scripted([step]))).of(Raw) == []


async def test_delay_and_pace() -> None:
    start = time.monotonic()
    await ask(scripted([[{"text": "a"}, {"delay": 100}, {"text": "b"}]]))
    assert time.monotonic() - start >= 0.1
    outcome = await ask(ScriptedModel([[{"text": "a b c"}]], pace=0.001))
    assert len(outcome.batches) == 6


async def test_a_delay_can_be_cancelled() -> None:
    task = asyncio.create_task(ask(scripted([[{"delay": 60_000}]])))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_step_may_be_a_function() -> None:
    def echo(request: ModelRequest) -> list[dict[str, Any]]:
        return [{"text": f"{len(request.messages)} messages"}]

    assert (await ask(scripted(echo))).text == "1 messages"
    model = scripted([[{"text": "first"}], echo], position="transcript")
    assert (await ask(model, after(1))).text == "3 messages"
    with pytest.raises(ValueError, match="step 0"):
        await ask(scripted(lambda _: [{"nothing": 1}]))


def test_from_file(tmp_path: pathlib.Path) -> None:
    steps = [[{"text": "a"}], [ASKS]]
    whole, lines = tmp_path / "demo.json", tmp_path / "demo.jsonl"
    whole.write_text(json.dumps(steps))
    lines.write_text("\n\n".join(json.dumps(step) for step in steps))
    for path in (whole, str(lines)):
        model = ScriptedModel.from_file(path)
        assert model.name == "scripted/demo"
        assert asyncio.run(ask(model)).text == "a"
    for text in ("{", "{}", '[{"text":"a"}]', "[]"):
        whole.write_text(text)
        with pytest.raises(ValueError, match=r"demo\.json"):
            ScriptedModel.from_file(whole)


@pytest.mark.parametrize(
    "steps", [[], ["text"], [{"text": "a"}], [[{}]], [[{"text": "a", "tool": "b"}]], [["a"]]]
)
def test_what_is_no_script(steps: Any) -> None:
    with pytest.raises(ValueError, match="script"):
        scripted(steps)


def test_the_request_can_be_seen() -> None:
    shown = json.loads(scripted([[{"text": "a"}]]).request_body(HI))
    assert shown["messages"][0]["role"] == "user"
    assert "response_format" not in shown


async def test_a_response_format_is_recorded() -> None:
    format = ResponseFormat("tree", '{"type":"object"}', strict=True)
    request = ModelRequest(HI.messages, response_format=format)
    model = scripted([[{"text": "{}"}]])
    await ask(model, request)
    assert model.requests[0].response_format == format
    assert json.loads(model.request_body(request))["response_format"]["name"] == "tree"
    assert model.response_formats == "with-tools"
    assert scripted([[{"text": "a"}]], response_formats="none").response_formats == "none"


async def test_only_the_last_requests_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[ScriptedModel.__module__], "MAX_REQUESTS", 3)
    model = scripted([[{"text": "a"}]])
    sent = [after(answers) for answers in range(5)]
    for request in sent:
        await ask(model, request)
    assert model.calls == 5
    assert model.requests == sent[2:]
