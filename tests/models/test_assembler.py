"""One answer out of records: each shape known to break a plain assembler of deltas."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from entracte_server.domain.chunks import File, Raw, Source, TextDelta
from entracte_server.domain.results import Usage
from entracte_server.models.assembler import AnswerAssembler
from tests.models.answers import CALLED, ELM, OAK, ONE, STOP, TWO, Records, args_of, assemble
from tests.models.support import calls, choice, piece, sse, text


@pytest.mark.parametrize(
    ("words", "reason", "raw"),
    [
        (["stop"], "stop", "stop"),
        (["length", None], "length", "length"),
        (["tool_calls", "stop"], "stop", "stop"),
        (["", "stop", ""], "stop", "stop"),
        (["max_tokens"], "length", "max_tokens"),
        (["model_length"], "other", "model_length"),
        ([7], "other", "7"),
    ],
)
def test_the_last_finish_reason_holds(words: list[Any], reason: str, raw: str) -> None:
    outcome = assemble([*text("Hi"), *(choice({}, word) for word in words)])
    assert (outcome.finish.reason, outcome.finish.raw_reason) == (reason, raw)


def test_what_comes_after_the_finish_reason_counts() -> None:
    outcome = assemble(
        [
            choice({"tool_calls": [piece("find", OAK, id="a", index=0)]}, "tool_calls"),
            choice({"tool_calls": [piece("find", ELM, id="b", index=1)]}, "tool_calls"),
            STOP,
        ]
    )
    assert args_of(outcome) == TWO
    assert outcome.finish.reason == "stop"


def test_presence_of_calls_is_not_the_reason() -> None:
    assert args_of(assemble([calls(piece("find", OAK, id="a", index=0)), STOP])) == ONE
    assert assemble([*text("Hi"), CALLED]).calls == []


@pytest.mark.parametrize("done", [True, False])
def test_done_is_optional(done: bool) -> None:
    assert assemble([*text("Hi"), STOP], done=done).text == "Hi"


@pytest.mark.parametrize(
    "records",
    [
        [*text("Hi")],
        [calls(piece("find", '{"key":"o', id="a", index=0))],
        [choice({"role": "assistant"})],
        [*text("Hi"), {"choices": [], "usage": {"prompt_tokens": 1}}],
    ],
)
def test_without_a_finish_reason_it_is_cut(records: Records) -> None:
    outcome = assemble(records)
    assert outcome.kind == "cut"
    assert outcome.error is not None
    assert outcome.error.retryable
    assert outcome.calls == []


def test_a_provider_without_finish_reasons() -> None:
    assert assemble(text("Hi"), finish_optional=True).finish.reason == "stop"
    call = calls(piece("find", OAK, id="a", index=0))
    assert assemble([call], finish_optional=True).finish.reason == "tool-calls"
    assert assemble([{"choices": []}], finish_optional=True).kind == "empty_stream"


@pytest.mark.parametrize("records", [[], [{"choices": []}], [{"id": "x"}], [{"choices": None}]])
def test_an_empty_answer(records: Records) -> None:
    assert assemble(records).kind == "empty_stream"


def test_an_empty_answer_that_is_finished_is_an_answer() -> None:
    assert assemble([STOP]).events == [assemble([STOP]).finish]


@pytest.mark.parametrize(
    ("usages", "expected"),
    [
        ([{"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}], Usage(1, 2, 3)),
        (
            [{"prompt_tokens": 1, "completion_tokens": 1}, {"prompt_tokens": 1, "completion_tokens": 5}],
            Usage(1, 5, 6),
        ),
        ([{"prompt_tokens": 4, "completion_tokens": 2}, None, {}], Usage(4, 2, 6)),
        (
            [
                {
                    "prompt_tokens": 9,
                    "completion_tokens": 8,
                    "total_tokens": 17,
                    "prompt_tokens_details": {"cached_tokens": 4},
                    "completion_tokens_details": {"reasoning_tokens": 5},
                }
            ],
            Usage(9, 8, 17, 5, 4),
        ),
        ([{"prompt_tokens": "9", "completion_tokens": None, "prompt_tokens_details": 3}], Usage()),
        ([], Usage()),
    ],
)
def test_the_last_usage_holds(usages: list[Any], expected: Usage) -> None:
    chunks = [{"choices": [], "usage": usage} for usage in usages]
    assert assemble([*text("Hi"), STOP, *chunks]).finish.usage == expected


def test_usage_in_odd_places() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    assert assemble([choice({}, "stop", x_groq={"usage": usage})]).finish.usage == Usage(1, 2, 3)
    nested = choice({}, "stop")
    nested["choices"][0]["usage"] = usage
    assert assemble([nested]).finish.usage == Usage(1, 2, 3)


def two_choices(first: int, second: int) -> Records:
    def numbered(index: int, content: str, finish: str | None = None) -> dict[str, Any]:
        return {"choices": [{"index": index, "delta": {"content": content}, "finish_reason": finish}]}

    return [
        numbered(first, "A"),
        numbered(second, "x"),
        numbered(first, "B"),
        numbered(second, "y", "length"),
        numbered(first, "", "stop"),
    ]


def test_one_choice_is_followed() -> None:
    outcome = assemble(two_choices(0, 1))
    assert (outcome.text, outcome.finish.reason) == ("AB", "stop")
    together = {"choices": [{"index": 1, "delta": {"content": "x"}}, {"index": 0, "delta": {"content": "A"}}]}
    assert assemble([together, STOP]).text == "A"
    only_one = [{"choices": [{"index": 1, "delta": {"content": "A"}, "finish_reason": "stop"}]}]
    assert assemble(only_one).text == "A"
    opened_by_one = [{"choices": [{"index": 1, "delta": {"role": "assistant"}}]}, *text("A"), STOP]
    assert assemble(opened_by_one).text == "A"


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["a\ud83c", "\udf33b"], "a🌳b"),
        (["\ud83c", "", "\udf33"], "🌳"),
        (["a\ud83c", "b"], "a\ufffdb"),
        (["a\udf33b"], "a\ufffdb"),
        (["a\ud83c"], "a\ufffd"),
        (["\ud83c"], "\ufffd"),
        (["ü", "\ud83c\udf33", "é"], "ü🌳é"),
    ],
)
def test_split_characters(pieces: list[str], expected: str) -> None:
    assert assemble([*text("> "), *text(*pieces), *text("<"), STOP]).text == f"> {expected}<"
    thoughts = [choice({"reasoning_content": part}) for part in pieces]
    outcome = assemble([*thoughts, *text("Yes"), STOP])
    assert (outcome.reasoning, outcome.text) == (expected, "Yes")
    arguments = [calls(piece(None, part, index=0)) for part in ['{"k":"', *pieces, '"}']]
    outcome = assemble([calls(piece("f", "", id="a", index=0)), *arguments, CALLED])
    assert args_of(outcome) == [("f", {"k": expected})]


def test_nothing_but_half_a_character() -> None:
    assert assemble([*text("\ud83c"), STOP]).text == "\ufffd"
    assert assemble([choice({"reasoning": "\ud83c"}), STOP]).reasoning == "\ufffd"


def test_half_characters_written_as_escapes_in_arguments() -> None:
    outcome = assemble(
        [calls(piece("f", '{"k":"\\ud83c \\ud83c\\udf33 \\\\ud83c"}', id="a", index=0)), CALLED]
    )
    assert args_of(outcome) == [("f", {"k": "\ufffd 🌳 \\ud83c"})]


def test_half_characters_in_names_and_ids() -> None:
    outcome = assemble([calls(piece("f\ud83c", "{}", id="a\ud83c", index=0)), CALLED])
    assert [(call.tool_name, call.tool_call_id) for call in outcome.calls] == [("f\ufffd", "a\ufffd")]


@settings(deadline=None)
@given(st.text(max_size=30), st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_any_text_survives_any_reads(content: str, sizes: list[int]) -> None:
    pieces = [content[:7], content[7:9], content[9:]]
    data = sse([*text(*pieces), STOP])
    raw = data.decode("ascii").encode()
    outcome = assemble(raw, sizes=tuple(sizes))
    assert outcome.text == content
    assert all(event.text for event in outcome.of(TextDelta))


@pytest.mark.parametrize(
    "error",
    [
        {"error": {"message": "upstream gone", "code": 502}},
        {"error": {"message": "upstream gone", "code": "502"}},
        {"error": {"message": "upstream gone", "status_code": 502}},
        {"error": {"message": "upstream gone", "code": 502}, "choices": []},
        {"object": "error", "message": "upstream gone", "code": 502},
        {"choices": [{"finish_reason": "error", "error": {"message": "upstream gone", "code": 502}}]},
    ],
)
def test_errors_in_the_stream(error: dict[str, Any]) -> None:
    outcome = assemble([*text("Par"), error])
    assert outcome.text == "Par"
    assert outcome.error is not None
    assert (outcome.kind, outcome.error.status, outcome.error.retryable) == ("provider_error", 502, True)
    assert outcome.error.message == "upstream gone"
    assert outcome.error.raw is not None
    assert json.loads(outcome.error.raw)


def test_an_error_event_with_a_flat_payload() -> None:
    body = sse(text("Par"), done=False) + b'event: error\ndata: {"message":"gone","code":"502"}\n\n'
    outcome = assemble(body)
    assert (outcome.text, outcome.kind) == ("Par", "provider_error")
    assert outcome.error is not None
    assert outcome.error.code == "502"
    outcome = assemble(b"event: error\ndata: it broke\n\n")
    assert outcome.error is not None
    assert outcome.error.message == "it broke"


def test_an_error_may_be_a_text_or_a_word() -> None:
    assert assemble([{"error": "it broke"}]).kind == "provider_error"
    outcome = assemble([{"error": {"message": "busy", "type": "overloaded_error"}}])
    assert outcome.error is not None
    assert outcome.error.retryable
    assert assemble([*text("Hi"), choice({}, "error")]).kind == "provider_error"


def test_secrets_are_not_repeated() -> None:
    message = "Incorrect API key: sk-proj-abcdefgh12345 or hunter2-key, Bearer abcdefghijk" + "x" * 9000
    outcome = assemble([{"error": {"message": message}}], secrets=("hunter2-key",))
    assert outcome.error is not None
    everything = f"{outcome.error.message} {outcome.error.raw}"
    for secret in ("abcdefgh12345", "hunter2", "abcdefghijk"):
        assert secret not in everything
    assert len(outcome.error.message) <= 2048
    assert outcome.error.raw is not None
    assert isinstance(json.loads(outcome.error.raw), str)


def test_blank_records_comments_and_foreign_events() -> None:
    body = (
        b": ping\n\ndata: \n\nevent: ping\ndata: {}\n\nevent: note\ndata: not json\n\n"
        + sse(text("Hi"), done=False)
        + sse([STOP], done=False)
        + b"data: not json either\n\n"
    )
    assert assemble(body).text == "Hi"


def test_a_record_that_is_no_json_is_an_error() -> None:
    outcome = assemble(sse(text("Hi"), done=False) + b"data: upstream timed out\n\n")
    assert outcome.kind == "provider_error"
    assert outcome.error is not None
    assert "upstream timed out" in outcome.error.message
    assert assemble(b"data: 17\n\n").kind == "provider_error"


@pytest.mark.parametrize("delta", [None, {}, "x", [], {"content": None}, {"content": 5}, {"content": ""}])
def test_odd_deltas_are_passed_over(delta: Any) -> None:
    record = {"choices": [{"index": 0, "delta": delta}]}
    outcome = assemble([record, *text("H"), record, *text("i"), record, STOP])
    assert outcome.text == "Hi"


@pytest.mark.parametrize("choices", [[None], ["x"], {"a": 1}, 5, [[]]])
def test_odd_choices_are_passed_over(choices: Any) -> None:
    assert assemble([*text("Hi"), {"choices": choices}, STOP]).text == "Hi"


def test_only_the_delta_counts_beside_a_message() -> None:
    def both(delta: str, message: str, finish: str | None = None) -> dict[str, Any]:
        record = choice({"content": delta}, finish)
        record["choices"][0]["message"] = {"role": "assistant", "content": message}
        return record

    assert assemble([both("A", "A"), both("B", "AB"), both("", "AB", "stop")]).text == "AB"
    whole = {"choices": [{"index": 0, "message": {"content": "AB"}, "finish_reason": "stop"}]}
    assert assemble([*text("A", "B"), whole]).text == "AB"
    assert assemble([whole]).text == "AB"


def test_content_as_a_list_of_parts() -> None:
    outcome = assemble(
        [
            choice({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}, "m"]}]}),
            choice({"content": [{"type": "thinking", "thinking": "."}, {"type": "text", "text": "Y"}]}),
            choice({"content": ["es", {"type": "reference", "ids": [1]}, None]}),
            STOP,
        ]
    )
    assert (outcome.reasoning, outcome.text) == ("Hmm.", "Yes")


def test_a_filtered_answer() -> None:
    filtered = choice({}, "content_filter")
    assert assemble([filtered]).kind == "content_filter"
    outcome = assemble([choice({"reasoning_content": "Hm"}), filtered])
    assert outcome.error is not None
    assert (outcome.kind, outcome.error.retryable) == ("content_filter", False)
    outcome = assemble([*text("Par"), filtered])
    assert (outcome.text, outcome.finish.reason) == ("Par", "content-filter")


def test_a_refusal_is_shown() -> None:
    outcome = assemble(
        [
            choice({"role": "assistant", "content": "", "refusal": "I "}),
            choice({"refusal": "cannot."}),
            choice({"content": "", "refusal": None}, "stop"),
        ]
    )
    assert (outcome.text, outcome.finish.refusal) == ("I cannot.", "I cannot.")


def test_blocks_follow_the_kind_of_content() -> None:
    outcome = assemble(
        [
            choice({"reasoning": "a"}),
            *text("b"),
            choice({"reasoning": "c"}),
            calls(piece("f", "{}", id="x", index=0)),
            *text("d"),
            CALLED,
        ]
    )
    assert [event.type if hasattr(event, "type") else "finish" for event in outcome.events] == [
        "reasoning-start",
        "reasoning-delta",
        "reasoning-end",
        "text-start",
        "text-delta",
        "text-end",
        "reasoning-start",
        "reasoning-delta",
        "reasoning-end",
        "tool-call-input-streaming-start",
        "tool-call-delta",
        "text-start",
        "text-delta",
        "text-end",
        "tool-call-input-streaming-end",
        "tool-call",
        "finish",
    ]


def test_sources() -> None:
    citations = ["https://a.example", "https://b.example", "https://a.example"]
    results = [{"url": "https://b.example", "title": "B"}]
    cited = choice({"content": "Hi"}, citations=citations, search_results=results)
    noted = {"type": "url_citation", "url_citation": {"url": "https://c.example", "title": "C"}}
    outcome = assemble([cited, cited, choice({"annotations": [noted, noted]}), STOP])
    assert [(one.id, one.url, one.title) for one in outcome.of(Source)] == [
        ("s0", "https://a.example", ""),
        ("s1", "https://b.example", "B"),
        ("s2", "https://c.example", "C"),
    ]
    assert outcome.text == "HiHi"


def test_images_and_audio() -> None:
    data = base64.b64encode(b"picture").decode()
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    elsewhere = {"type": "image_url", "image_url": {"url": "https://a.example/x.png"}}
    outcome = assemble(
        [
            choice({"images": [image, elsewhere, {"image_url": {}}, None]}),
            choice({"audio": {"id": "a", "data": base64.b64encode(b"so").decode()}}),
            choice({"audio": {"data": base64.b64encode(b"und").decode(), "transcript": "Hi"}}),
            choice({"content": [image]}),
            STOP,
        ]
    )
    assert [(file.media_type, file.data, file.url) for file in outcome.of(File)] == [
        ("image/png", b"picture", ""),
        ("image/*", b"", "https://a.example/x.png"),
        ("image/png", b"picture", ""),
        ("audio/wav", b"sound", ""),
    ]
    assert outcome.text == "Hi"


def test_raw_records_come_first() -> None:
    outcome = assemble([*text("Hi"), STOP], include_raw=True)
    raws = outcome.of(Raw)
    assert [json.loads(raw.value) for raw in raws] == [*text("Hi"), STOP]
    assert outcome.events[0] is raws[0]


def test_who_answered_and_when() -> None:
    head = {"id": "", "model": "", "choices": [], "prompt_filter_results": []}
    finish = assemble([head, *text("Hi"), STOP]).finish
    assert (finish.response_id, finish.response_model) == ("cmpl-1", "toy-1")
    assert finish.response_time == 1_700_000_000_000


def document(message: dict[str, Any], finish: str | None = "stop", **more: Any) -> bytes:
    return json.dumps(
        {"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": finish}], **more}
    ).encode()


@pytest.mark.parametrize("before", [b"", b"\n \r\n  ", b"\xef\xbb\xbf", b" " * 5000])
def test_a_whole_document(before: bytes) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    body = before + document(
        {
            "reasoning": "Hm",
            "content": "Hi",
            "tool_calls": [piece("find", OAK, id="x"), piece("find", ELM, id="x")],
        },
        "tool_calls",
        usage=usage,
    )
    for sizes in ((), (1,)):
        outcome = assemble(body, sizes=sizes)
        assert (outcome.reasoning, outcome.text, args_of(outcome)) == ("Hm", "Hi", TWO)
        assert outcome.finish.usage == Usage(1, 2, 3)


def test_a_document_that_is_not_whole() -> None:
    body = document({"content": "Hi"})
    for end in range(1, len(body)):
        assert assemble(body[:end]).kind == "cut"
    assert assemble(document({"content": "Hi"}, None)).kind == "cut"
    assert assemble(document({"content": "Hi"}, ""), finish_optional=True).text == "Hi"


def test_a_document_with_an_error() -> None:
    assert assemble(b'{"error":{"message":"no"}}').kind == "provider_error"
    assert assemble(b'[{"error":{"message":"no","code":429}}]').kind == "provider_error"
    assert assemble(b'{"id":"x","choices":[]}').kind == "empty_stream"


@pytest.mark.parametrize("body", [b"<!doctype html><title>Sign in</title>", b"Bad gateway", b"404: no route"])
def test_a_body_that_is_something_else(body: bytes) -> None:
    outcome = assemble(body)
    assert outcome.error is not None
    assert (outcome.kind, outcome.error.retryable) == ("provider_error", False)
    assert body[:7].decode() in outcome.error.message


def test_nothing_at_all() -> None:
    assert assemble(b"").kind == "empty_stream"
    assert assemble(b" \n ").kind == "empty_stream"


@settings(deadline=None)
@given(st.integers(0, 1500), st.lists(st.integers(1, 50), min_size=1, max_size=4))
def test_a_cut_stream_never_passes_for_whole(cut: int, sizes: list[int]) -> None:
    records = [
        choice({"role": "assistant", "content": ""}),
        choice({"reasoning_content": "Hm 🌳"}),
        *text("Sure: ", "ü"),
        calls(piece("find", '{"key":"o', id="a", index=0)),
        calls(piece(None, 'ak"}', index=0)),
    ]
    before = sse(records, done=False)
    whole = before + sse([CALLED])
    end = whole.index(b"\n\n", len(before))
    cut = min(cut, len(whole))
    outcome = assemble(whole[:cut], sizes=tuple(sizes))
    if cut < end:
        assert outcome.kind in ("cut", "empty_stream")
        assert outcome.calls == []
    else:
        assert args_of(outcome) == ONE


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


DEEP_RECORDS = [
    b"%s",
    b'{"choices":%s}',
    b'{"usage":%s,"choices":[{"delta":{"content":"a"}}]}',
    b'{"citations":%s,"choices":[{"delta":{"content":"a"}}]}',
    b'{"choices":[{"delta":{"reasoning_details":[{"text":"a","x":%s}]}}]}',
    b'{"error":%s}',
    b'{"x":"\\ud83d","choices":%s}',
]


@pytest.mark.parametrize("depth", [200, 480, 900, 960, 100_000])
@pytest.mark.parametrize("record", DEEP_RECORDS)
def test_a_record_nested_too_deeply(record: bytes, depth: int) -> None:
    data = record % nested(depth)
    for body in (b"data: %s\n\n" % data, b"data: %s" % data, data):
        assert assemble(body).kind == "provider_error"
    begun = sse([*text("Hi", "."), choice({"content": "!"})], done=False)
    outcome = assemble(begun + b"data: %s\n\n" % data)
    assert (outcome.text, outcome.kind) == ("Hi.!", "provider_error")


def test_a_record_nested_too_deeply_after_the_finish_reason() -> None:
    outcome = assemble(sse([*text("Hi"), STOP], done=False) + b"data: %s\n\n" % nested(100_000))
    assert outcome.text == "Hi"
    assert outcome.finish.reason == "stop"


def test_nesting_within_the_limit() -> None:
    data = b'data: {"x":%s,"choices":[{"delta":{"content":"a[[{{"}}]}\n\n' % nested(127)
    assert assemble(data + sse([STOP])).text == "a[[{{"


def test_many_brackets_are_not_deep() -> None:
    words = "[{" * 500
    assert assemble([choice({"content": words}, probs=[[] for _ in range(500)]), STOP]).text == words


def test_arguments_nested_too_deeply() -> None:
    deep = '{"a":' + "[" * 100_000 + "]" * 100_000 + "}"
    outcome = assemble([calls(piece("f", deep, index=0)), calls(piece("f", "{}", index=0)), CALLED])
    assert outcome.calls[0].args is None


IDLE: list[dict[str, Any]] = [
    {"choices": []},
    {"choices": [], "x_groq": {"id": "r"}},
    {"choices": None},
    {"x": 1},
    choice({}),
    choice({"role": "assistant"}),
    choice({"role": "assistant", "content": ""}),
    choice({"content": []}),
    choice({"content": [{"type": "text", "text": ""}]}),
    choice({"content": "", "reasoning_content": ""}),
    choice({"reasoning_details": [{"type": "reasoning.text", "text": ""}]}),
    choice({"refusal": ""}),
    choice({"audio": {"id": "a"}}),
    choice({"tool_calls": []}),
    choice({"function_call": {"arguments": ""}}),
    {"choices": [{"index": 1, "delta": {"content": "another"}}]},
]
FORWARD: list[dict[str, Any]] = [
    *text("a"),
    choice({"content": [{"type": "text", "text": "a"}]}),
    choice({"content": "a", "role": "assistant"}),
    choice({"reasoning_content": "a"}),
    choice({"reasoning_details": [{"type": "reasoning.encrypted", "data": "a"}]}),
    choice({"refusal": "a"}),
    choice({"audio": {"data": "aGk="}}),
    calls(piece("f", index=0)),
    calls(piece(None, "{", index=0)),
    choice({"function_call": {"name": "f"}}),
    choice({}, "stop"),
    {"choices": [], "usage": {"prompt_tokens": 1}},
    {"choices": [], "citations": ["https://a.example"]},
]


def brings(record: dict[str, Any], *before: dict[str, Any], **options: Any) -> bool:
    answer = AnswerAssembler(**options)
    for one in before:
        answer.record("", json.dumps(one).encode())
    return answer.record("", json.dumps(record).encode())


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("before", [[], text("a", "b"), [calls(piece("f", "{", index=0)), *text("a")]])
def test_only_what_the_answer_is_made_of_is_progress(before: list[dict[str, Any]], raw: bool) -> None:
    first = [choice({}), *before]
    assert [one for one in IDLE if brings(one, *first, include_raw=raw)] == []
    assert [one for one in FORWARD if not brings(one, *first, include_raw=raw)] == []


def test_repeating_is_no_progress() -> None:
    records: list[dict[str, Any]] = [
        {"choices": [], "usage": {"prompt_tokens": 1}},
        {"choices": [], "citations": ["https://a.example"]},
        choice({}, "stop"),
        calls(piece("f", id="c", index=0)),
        calls(piece(None, "", index=0)),
        calls(piece(None, "", index=7)),
    ]
    for record in records:
        assert not brings(record, *text("a"), calls(piece("f", id="c", index=0)), record)
