"""Texts, reasons, errors and silences as providers send them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from entracte_server import ToolContext, tool
from tests.cases.backend import (
    DONE,
    Answer,
    Cut,
    Stall,
    Status,
    asking,
    calls,
    chunk,
    finish,
    piece,
    record,
    sent_calls,
    text,
    usual,
)
from tests.cases.support import (
    announced,
    app_of,
    finish_of,
    gap_free,
    kind_of,
    kinds,
    payloads,
    reason_name,
    serving,
    text_of,
)

APP = app_of("mock/m")
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


async def said(answer: Answer, **options: Any) -> tuple[str, str, list[Any]]:
    """Text, reason and chunks of a run that gets this answer; the result must say the same."""
    async with asking(APP, answer, **options) as (caller, _):
        chunks = await caller.stream()
        result = (await caller.get_run(chunks[0].run_id)).result
    reason = reason_name(finish_of(chunks).reason)
    assert gap_free(chunks)
    assert kinds(chunks).count("finish") == 1
    assert (result.text, reason_name(result.finish_reason)) == (text_of(chunks), reason)
    return text_of(chunks), reason, chunks


async def failure(answer: Answer, **options: Any) -> tuple[str, Any]:
    """Text so far and the error of a run that this answer fails."""
    so_far, reason, chunks = await said(answer, **options)
    assert reason == "error"
    (error,) = payloads(chunks, "error")
    assert kinds(chunks)[-2:] == ["step_finish", "finish"] or kinds(chunks)[-2:] == ["error", "finish"]
    return so_far, error.error


# ---- usage and choices ----


async def test_chunks_without_choices() -> None:
    """MW-16: chunks with empty or absent choices are no answer and no error; usage is the last one's."""
    filters = record({"id": "a1", "choices": [], "prompt_filter_results": []})
    absent = record({"id": "a1", "object": "chat.completion.chunk"})
    tail = record({"id": "a1", "choices": [], "usage": USAGE})
    for pieces in ([filters], [absent], [filters, absent]):
        whole, reason, chunks = await said([*pieces, text("Hi"), finish(), tail, DONE])
        assert (whole, reason) == ("Hi", "stop")
        usage = finish_of(chunks).usage
        assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (11, 7, 18)


async def test_usage_with_every_chunk() -> None:
    """MW-16: usage that grows from chunk to chunk is not added up."""
    grown = [{**USAGE, "completion_tokens": n, "total_tokens": 11 + n} for n in (1, 2)]
    pieces = [
        record(chunk({"content": "Hi"}, usage=grown[0])),
        record(chunk({"content": " you"}, usage=grown[1])),
        finish(usage=USAGE),
        record({"id": "a1", "choices": [], "usage": USAGE}),
    ]
    whole, _, chunks = await said([*pieces, DONE])
    assert whole == "Hi you"
    assert finish_of(chunks).usage.total_tokens == 18


async def test_several_choices() -> None:
    """MW-26: one choice is followed: number 0, or the only one whatever its number."""
    two = [
        record(chunk({"content": "A"})),
        record(chunk({"content": "x"}, index=1)),
        record(chunk({"content": "B"})),
        record(chunk({"content": "y"}, index=1)),
        finish(),
        record(chunk(finish="stop", index=1)),
    ]
    assert (await said([*two, DONE]))[:2] == ("AB", "stop")
    alone = [record(chunk({"content": letter}, index=1)) for letter in "AB"]
    assert (await said([*alone, record(chunk(finish="stop", index=1)), DONE]))[:2] == ("AB", "stop")


async def test_chunks_that_repeat_the_whole_text() -> None:
    """MW-27: only the delta counts where chunks also carry the message so far."""
    pieces = []
    so_far = ""
    for part in ("One", " and", " two"):
        so_far += part
        data = chunk({"content": part})
        data["choices"][0]["message"] = {"role": "assistant", "content": so_far}
        pieces.append(record(data))
    assert (await said(usual(*pieces)))[:2] == ("One and two", "stop")


# ---- reasons ----


async def test_finish_reasons() -> None:
    """MW-28: absent, null, repeated and unknown reasons: exactly one finish, the provider's word kept."""
    middle = chunk({"content": "Hi"})
    del middle["choices"][0]["finish_reason"]
    for answer in (usual(record(middle)), usual(text("Hi"), finish()), usual(text("Hi"))):
        assert (await said(answer))[:2] == ("Hi", "stop")
    whole, reason, chunks = await said(usual(text("Hi"), word="model_length"))
    assert (whole, reason) == ("Hi", "other")
    assert payloads(chunks, "step_finish")[0].raw_reason == "model_length"


async def test_a_reason_that_never_comes() -> None:
    """MW-28: without any finish reason the answer is cut, though its body ended properly."""
    for tail in ([DONE], []):
        so_far, error = await failure([text("Hi"), *tail])
        assert (so_far, error.kind) == ("Hi", "cut")


async def test_the_reason_error() -> None:
    """ST-06: a provider that ends with the reason `error` and nothing else: the run fails as a provider
    error, and what the provider said is kept."""
    for answer in ([finish("error"), DONE], [text("Hal"), finish("error"), DONE]):
        so_far, error = await failure(answer)
        assert so_far == ("Hal" if len(answer) == 3 else "")
        assert error.kind == "provider_error"
        assert error.message


async def test_an_answer_without_a_chunk() -> None:
    """MW-17: an empty stream is an error, and asked again only so often."""
    _, error = await failure([DONE])
    assert error.kind == "empty_stream"
    async with asking(APP, [DONE], [DONE], [DONE], provider={"max_retries": 1}) as (caller, provider):
        result = (await caller.generate()).result
        assert result.error.kind == "empty_stream"
        assert len(provider.requests) == 2
    async with asking(APP, [DONE], provider={"max_retries": 1}) as (caller, provider):
        assert (await caller.generate()).result.text == "the end"


# ---- errors, cuts and silences ----


ERRORS: dict[str, bytes] = {
    "flat event": record({"message": "upstream gone", "code": "502"}, event="error"),
    "nested event": record({"error": {"message": "upstream gone", "code": 502}}, event="error"),
    "record": record({"error": {"message": "upstream gone", "type": "server_error"}}),
    "error beside choices": record({**chunk(), "error": {"message": "upstream gone", "code": 502}}),
}


@pytest.mark.parametrize("shape", ERRORS)
@pytest.mark.parametrize("before", ["", "Par"])
async def test_an_error_in_the_middle(shape: str, before: str) -> None:
    """ST-05: an error record in a stream that began well: the run fails with what was said, the text
    so far is kept and its step is marked as failed."""
    answer: Answer = [*([text(before)] if before else []), ERRORS[shape], DONE]
    async with asking(APP, answer) as (caller, _):
        chunks = await caller.stream()
        done = await caller.get_run(chunks[0].run_id)
    (error,) = payloads(chunks, "error")
    assert error.error.kind == "provider_error"
    assert "upstream gone" in error.error.message
    assert text_of(chunks) == done.result.text == before
    assert reason_name(finish_of(chunks).reason) == "error"
    assert done.result.error == error.error
    if before:
        assert reason_name(done.result.steps[0].finish_reason) == "error"


@pytest.mark.parametrize("before", [0, 1])
async def test_an_error_ends_the_stream(before: int) -> None:
    """ST-07: an error is the end: the RPC ends right after it, before and after a first chunk."""
    broken: Answer = [text("Par"), ERRORS["record"], 30.0] if before else Status(500, {"error": "x"})
    async with asking(APP, broken) as (caller, _):
        async with asyncio.timeout(10):
            chunks = await caller.stream()
    assert kinds(chunks)[-1] == "finish"
    assert len(payloads(chunks, "error")) == 1


async def test_an_answer_that_breaks_off() -> None:
    """MW-18: the connection breaks in the text: the run fails as cut, with the text so far."""
    so_far, error = await failure([text("Once", " upon"), Cut()])
    assert (so_far, error.kind, error.retryable) == ("Once upon", "cut", True)


@pytest.mark.parametrize("comments", [False, True], ids=["silence", "keep-alives"])
async def test_an_answer_that_stalls(comments: bool) -> None:
    """MW-19: bytes stop and the socket stays open: after the idle limit the run fails as stalled and
    the provider's connection is closed; keep-alive comments do not count as progress for ever."""
    stalled: Answer = [text("Once"), Stall(comments)]
    limits = {"patience": 2.0}
    async with asking(APP, stalled, model_idle_timeout=0.3, provider=limits) as (caller, provider):
        chunks = await caller.stream()
        assert [e.error.kind for e in payloads(chunks, "error")] == ["stall"]
        assert text_of(chunks) == "Once"
        for _ in range(200):
            if provider.closed:
                break
            await asyncio.sleep(0.01)
        assert provider.closed == 1


async def test_each_chunk_starts_the_idle_limit_anew() -> None:
    """MW-19: an answer that takes longer than the limit in all is fine while no silence does."""
    slow: list[Any] = []
    for letter in "abcdef":
        slow += [text(letter), 0.2]
    async with asking(APP, usual(*slow), model_idle_timeout=0.8) as (caller, _):
        assert (await caller.generate()).result.text == "abcdef"


async def test_nothing_is_asked_again_once_something_was_seen() -> None:
    """ST-04: an answer that breaks after some text is not asked again under the same attempt: clients
    see its beginning once, and one start."""
    broken: Answer = [text("One ", "two "), Cut()]
    async with asking(APP, broken, provider={"max_retries": 3}) as (caller, provider):
        chunks = await caller.stream()
        assert len(provider.requests) == 1
        assert kinds(chunks).count("start") == 1
        assert text_of(chunks) == "One two "
        assert reason_name(finish_of(chunks).reason) == "error"


async def test_a_second_model_is_another_attempt() -> None:
    """ST-04: where another model goes on, its answer is an attempt of its own that voids the first: the
    text and the history hold one version."""
    app = app_of(["mock/a", "mock/b"])
    async with asking(app, [text("One ", "two "), Cut()], usual(text("One ", "two ", "three"))) as (
        caller,
        _,
    ):
        chunks = await caller.stream()
        result = (await caller.get_run(chunks[0].run_id)).result
        assert kinds(chunks).count("start") == 1
        starts = [(c.step, c.attempt) for c in chunks if kind_of(c) == "step_start"]
        assert starts == [(1, 1), (1, 2)]
        assert text_of(chunks) == result.text == "One two three"
        assert len(result.steps) == 1


async def test_it_is_asked_again_before_anything_was_seen() -> None:
    """ST-04, CT-08: failures before the first byte are tried again, those of the caller's are not."""
    for code, asked in ((500, 3), (503, 3), (429, 3), (408, 3), (400, 1), (401, 1), (404, 1)):
        again = Status(code, {"error": {"message": "x"}}, {"retry-after-ms": "1", "retry-after": "0.001"})
        async with asking(APP, again, again, provider={"max_retries": 2}) as (caller, provider):
            result = (await caller.generate()).result
            assert len(provider.requests) == asked, code
            assert (result.text == "the end") == (asked == 3)
            if asked == 1:
                assert result.error.provider_status == code


# ---- bytes ----


async def test_odd_event_streams() -> None:
    """MW-21: comments, blank data, foreign events and other line ends are not answers and not errors."""
    noise = b": ping\n\ndata: \n\nevent: ping\ndata: {}\n\nretry: 10\n\nid: 7\n\n"
    answer = [noise, text("H"), noise, text("i"), noise, finish(), DONE]
    assert (await said(answer))[:2] == ("Hi", "stop")
    for end in (b"\r\n", b"\r"):
        other = b"".join(usual(text("Hi"))).replace(b"\n", end).replace(b"data: ", b"data:")  # type: ignore[arg-type]
        assert (await said([other]))[:2] == ("Hi", "stop")
    joined = b'\xef\xbb\xbfdata: {"choices":\ndata: [{"index":0,"delta":{"content":"Hi"}}]}\n\n'
    assert (await said([joined, finish(), DONE]))[:2] == ("Hi", "stop")


async def test_halves_of_characters() -> None:
    """MW-29: surrogate halves over two chunks are joined, lone ones become U+FFFD, in text and in
    arguments, before anything is stored or sent."""
    pair = [record(chunk({"content": "a\ud83c"})), record(chunk({"content": "\udf33b"}))]
    assert (await said(usual(*pair)))[0] == "a\N{DECIDUOUS TREE}b"
    lone = [record(chunk({"content": "a\ud83c"})), record(chunk({"content": "b\udf33"}))]
    assert (await said(usual(*lone)))[0] == "a�b�"
    got: list[str] = []

    @tool
    async def note(text: str) -> str:
        got.append(text)
        return text

    arguments = calls(
        piece("note", '{"text":"x\\ud83c', index=0, id="c_1"),
    ) + calls(piece(arguments='\\udf33 \\ud83c y \ud83c"}', index=0))
    async with asking(app_of("mock/m", [note]), usual(arguments, word="tool_calls")) as (caller, provider):
        result = (await caller.generate()).result
    assert got == ["x\N{DECIDUOUS TREE} � y �"]
    assert result.text == "the end"
    assert json.loads(sent_calls(provider.requests[1])[0][2])["text"] == got[0]


async def test_halves_of_characters_from_a_caller(tmp_path: Path) -> None:
    """MW-29: a caller's whole characters arrive as they are; halves in its JSON are refused."""
    words = "Grüße \N{DECIDUOUS TREE} \N{ZERO WIDTH JOINER}"
    async with asking(APP) as (caller, provider):
        await caller.generate(words)
        assert provider.requests[0]["messages"][-1]["content"] == words


async def test_characters_split_over_reads() -> None:
    """MW-30: a character whose bytes come one at a time stays one character."""
    words = "Grüße \N{DECIDUOUS TREE}"
    pieces = record(chunk({"content": words}), ascii=False)
    assert (await said(usual(pieces), split=1))[0] == words


# ---- thinking ----


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
async def test_thinking_goes_back_over_a_pause(key: str, tmp_path: Path) -> None:
    """MW-22: what a model thought is stored with its message, survives a suspension and a restart, and
    goes back on every assistant message where the provider wants it."""

    @tool
    async def ask(ctx: ToolContext) -> str:
        if not ctx.resumed:
            ctx.suspend()
        return "yes"

    thought = record(chunk({key: "Need the tool."}))
    first = usual(thought, calls(piece("ask", "{}", index=0, id="c_1")), word="tool_calls")
    second = usual(calls(piece("ask", "{}", index=0, id="c_2")), word="tool_calls")
    provider = {"reasoning_back": "reasoning_content", "reasoning_on_all": True}
    app, store = app_of("mock/m", [ask]), tmp_path / "db"
    async with asking(app, first, provider=provider, store=store) as (caller, _):
        chunks = await caller.stream()
        assert "".join(d.text for d in payloads(chunks, "reasoning_delta")) == "Need the tool."
    async with asking(app, second, provider=provider, store=store) as (caller, back):
        result = (await caller.resume(announced(chunks)[0], "yes")).result
        await caller.resume(result.pending_calls[0], "yes")
    for request in back.requests:
        thinking = [m.get("reasoning_content") for m in request["messages"] if m["role"] == "assistant"]
        assert thinking == ["Need the tool.", ""][: len(thinking)]
        assert None not in thinking
    assert len(back.requests) == 2
    assert result.reasoning_text == "Need the tool."


async def test_the_server_needs_no_provider_to_start() -> None:
    """MW-19: a provider that cannot be reached fails the run and not the server."""
    providers = {"mock": {"base_url": "http://127.0.0.1:9/v1", "requires_key": False, "max_retries": 0}}
    async with serving(APP, providers=providers) as caller:
        result = (await caller.generate()).result
        assert (result.error.kind, result.error.retryable) == ("connection", True)
