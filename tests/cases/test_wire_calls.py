"""Tool calls as providers send them, in all the shapes they should not have."""

import json
from typing import Any

import pytest

from entracte_server import Tool, ToolContext, tool
from tests.cases.backend import (
    DONE,
    Cut,
    Part,
    asking,
    calls,
    finish,
    piece,
    sent_calls,
    sent_results,
    usual,
    well_formed,
)
from tests.cases.backend import text as said
from tests.cases.support import (
    announced,
    app_of,
    finish_of,
    kinds,
    payloads,
    reason_name,
    value_of,
)

ran: list[tuple[str, Any]] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


@tool
async def look_up(key: str) -> str:
    ran.append(("look_up", key))
    return key.upper()


@tool
async def count(n: int) -> int:
    ran.append(("count", n))
    return n


@tool
async def now() -> str:
    ran.append(("now", None))
    return "noon"


@tool
async def save(path: str, body: str = "") -> str:
    ran.append(("save", path))
    return "saved"


TOOLS: tuple[Tool, ...] = (look_up, count, now, save)
APP = app_of("mock/m", TOOLS)

OAK, ELM = '{"key":"oak"}', '{"key":"elm"}'


async def check(
    answer: list[Part],
    expected: list[tuple[str, Any]],
    ids: list[str] | None = None,
    *,
    split: int = 1 << 20,
) -> list[Any]:
    """Play an answer and then `the end`. These tools ran, once each; each call has one id in the stream
    and in the next request, with one result. Returns the chunks."""
    async with asking(APP, answer, split=split) as (caller, provider):
        chunks = await caller.stream()
    assert ran == expected
    assert reason_name(finish_of(chunks).reason) == "stop"
    assert len(provider.requests) == 2
    assert well_formed(provider.requests[1])
    sent = sent_calls(provider.requests[1])
    shown = payloads(chunks, "tool_call")
    assert [(c.tool_call_id, c.tool_name) for c in shown] == [(i, name) for i, name, _ in sent]
    assert [json.loads(arguments) for _, _, arguments in sent] == [value_of(c.args) for c in shown]
    assert sorted(i for i, _ in sent_results(provider.requests[1])) == sorted(i for i, _, _ in sent)
    if ids is not None:
        assert [i for i, _, _ in sent] == ids
    return chunks


BOTH: list[tuple[str, Any]] = [("look_up", "oak"), ("look_up", "elm")]


async def test_calls_without_an_index() -> None:
    """MW-01: pieces have no index: a new id opens a new call, a piece with neither goes to the newest."""
    whole = [calls(piece("look_up", OAK, id="c_1")), calls(piece("look_up", ELM, id="c_2"))]
    await check(usual(*whole, word="tool_calls"), BOTH, ["c_1", "c_2"])
    ran.clear()
    fragments = [
        calls(piece("look_up", "", id="c_1")),
        calls(piece(arguments='{"key"')),
        calls(piece(arguments=':"oak"}')),
        calls(piece("count", "", id="c_2")),
        calls(piece(arguments='{"n":')),
        calls(piece(arguments="3}")),
    ]
    await check(usual(*fragments, word="tool_calls"), [("look_up", "oak"), ("count", 3)], ["c_1", "c_2"])


async def test_a_second_call_that_says_it_is_the_first() -> None:
    """MW-03: the head of the second call has the first one's index, its tail its own: two whole calls."""
    answer = [
        calls(piece("look_up", '{"key":', index=0, id="c_1")),
        calls(piece(arguments='"oak"}', index=0)),
        calls(piece("look_up", '{"key":', index=0, id="c_2")),
        calls(piece(arguments='"elm"}', index=1)),
    ]
    await check(usual(*answer, word="tool_calls"), BOTH, ["c_1", "c_2"])


async def test_an_index_that_starts_at_one() -> None:
    """MW-04: the only call is numbered 1, after some text: one call."""
    answer = [
        said("Checking. "),
        calls(piece("look_up", "", index=1, id="c_1")),
        calls(piece(arguments=OAK, index=1)),
    ]
    await check(usual(*answer, word="tool_calls"), [("look_up", "oak")], ["c_1"])


async def test_a_name_that_comes_with_every_piece() -> None:
    """MW-05: the full name is repeated: it is set once."""
    parts = ('{"ke', 'y":"', 'oak"}')
    answer = [calls(piece("look_up", part, index=0, id="c_1")) for part in parts]
    await check(usual(*answer, word="tool_calls"), [("look_up", "oak")], ["c_1"])


async def test_a_first_piece_that_has_arguments() -> None:
    """MW-06: the piece that opens a call already has the first character of its arguments."""
    answer = [
        calls(piece("look_up", "{", index=0, id="c_1", type="function")),
        calls(piece(arguments='"key":"oak"', index=0)),
        calls(piece(arguments="}", index=0)),
    ]
    await check(usual(*answer, word="tool_calls"), [("look_up", "oak")], ["c_1"])


async def test_arguments_before_the_name() -> None:
    """MW-07: arguments come first: the call is announced when its name is known, with all of them."""
    answer = [
        calls(piece(arguments='{"key":', index=0, id="c_1")),
        calls(piece(arguments='"o', index=0)),
        calls(piece("look_up", 'ak"}', index=0)),
    ]
    chunks = await check(usual(*answer, word="tool_calls"), [("look_up", "oak")], ["c_1"])
    (opened,) = payloads(chunks, "tool_call_input_streaming_start")
    assert opened.tool_name == "look_up"
    assert "".join(d.args_text_delta for d in payloads(chunks, "tool_call_delta")) == OAK


ODD_IDS: dict[str, list[Part]] = {
    "absent": [calls(piece("look_up", OAK, index=0)), calls(piece("look_up", ELM, index=1))],
    "empty": [calls(piece("look_up", OAK, index=0, id="")), calls(piece("look_up", ELM, index=1, id=""))],
    "null": [calls(piece("look_up", OAK, index=0, id=None)), calls(piece("look_up", ELM, index=1, id=None))],
}


@pytest.mark.parametrize("shape", ODD_IDS)
async def test_ids_that_are_missing(shape: str) -> None:
    """MW-08: a call without an id gets one of ours, once, for the stream, the store and the next
    request."""
    chunks = await check(usual(*ODD_IDS[shape], word="tool_calls"), BOTH)
    ids = [c.tool_call_id for c in payloads(chunks, "tool_call")]
    assert all(ids)
    assert len(set(ids)) == 2
    opened = [c.tool_call_id for c in payloads(chunks, "tool_call_input_streaming_start")]
    results = [c.tool_call_id for c in payloads(chunks, "tool_result")]
    assert opened == ids
    assert sorted(results) == sorted(ids)


async def test_an_id_that_comes_late() -> None:
    """MW-08: a real id that arrives before the call was announced replaces the empty one."""
    answer = [
        calls(piece(arguments="", index=0, id="")),
        calls(piece("look_up", OAK, index=0, id="c_1")),
    ]
    await check(usual(*answer, word="tool_calls"), [("look_up", "oak")], ["c_1"])


async def test_two_calls_under_one_id() -> None:
    """MW-09: the second of two calls with one id gets a fresh one; both have their own result."""
    both = calls(piece("look_up", OAK, index=0, id="same"), piece("look_up", ELM, index=1, id="same"))
    chunks = await check(usual(both, word="tool_calls"), BOTH)
    one, two = payloads(chunks, "tool_call")
    assert one.tool_call_id == "same"
    assert two.tool_call_id != "same"
    results = {r.tool_call_id: value_of(r.result) for r in payloads(chunks, "tool_result")}
    assert results == {"same": "OAK", two.tool_call_id: "ELM"}


async def test_an_id_of_an_earlier_step() -> None:
    """MW-09: a provider that numbers each answer's calls from zero: the second step's id is replaced."""
    one = usual(calls(piece("look_up", OAK, index=0, id="call_0")), word="tool_calls")
    two = usual(calls(piece("look_up", ELM, index=0, id="call_0")), word="tool_calls")
    async with asking(APP, one, two) as (caller, provider):
        chunks = await caller.stream()
    assert ran == BOTH
    assert len({c.tool_call_id for c in payloads(chunks, "tool_call")}) == 2
    assert well_formed(provider.requests[2])


async def test_a_ghost_call() -> None:
    """MW-10: a call without id and name is never stored as one: the run does not take the answer for a
    complete one in silence, and what is asked next is well formed."""
    ghost = calls(piece("", OAK, index=0, id=""))
    real = calls(piece("look_up", OAK, index=1, id="c_1"))
    async with asking(APP, usual(ghost, real, word="tool_calls")) as (caller, provider):
        chunks = await caller.stream()
    assert ran == [("look_up", "oak")]
    assert well_formed(provider.requests[1])
    assert [c.tool_call_id for c in payloads(chunks, "tool_call")] == ["c_1"]

    for pieces in ([ghost], [said("Let me look."), ghost]):
        async with asking(APP, usual(*pieces, word="tool_calls")) as (caller, provider):
            done = await caller.generate()
        assert (done.result.error.kind, done.result.error.retryable) == ("provider_error", True)
        assert not done.result.tool_calls
    async with asking(APP, usual(said("All done."), ghost)) as (caller, provider):
        done = await caller.generate()
    assert (done.result.text, reason_name(done.result.finish_reason)) == ("All done.", "stop")
    assert len(done.result.warnings) == 1


NO_ARGUMENTS: dict[str, Any] = {"empty": "", "null": None, "absent": ..., "null text": "null", "object": {}}


@pytest.mark.parametrize("shape", NO_ARGUMENTS)
async def test_a_tool_without_parameters(shape: str) -> None:
    """MW-11: empty, null or absent arguments are `{}`, and `{}` is what goes back to the provider."""
    answer = usual(calls(piece("now", NO_ARGUMENTS[shape], index=0, id="c_1")), word="tool_calls")
    async with asking(APP, answer) as (caller, provider):
        chunks = await caller.stream()
    assert ran == [("now", None)]
    assert [c.args.text for c in payloads(chunks, "tool_call")] == ["{}"]
    assert sent_calls(provider.requests[1]) == [("c_1", "now", "{}")]


BAD_ARGUMENTS = {
    "malformed": '{"key": oak',
    "not an object": '["oak"]',
    "cut": '{"key":"oa',
    "text": '"oak"',
    "two": '{"key":"oak"}{"key":"elm"}',
    "duplicate": '{"key":"oak","key":"elm"}',
}


@pytest.mark.parametrize("shape", BAD_ARGUMENTS)
async def test_bad_arguments_are_not_executed(shape: str) -> None:
    """MW-12: what is not a JSON object is not executed; the model gets an error under that id and can
    try again."""
    raw = BAD_ARGUMENTS[shape]
    bad = usual(calls(piece("look_up", raw, index=0, id="c_1")), word="tool_calls")
    good = usual(calls(piece("look_up", OAK, index=0, id="c_2")), word="tool_calls")
    async with asking(APP, bad, good) as (caller, provider):
        chunks = await caller.stream()
    assert ran == [("look_up", "oak")]
    assert [(e.tool_call_id, e.code) for e in payloads(chunks, "tool_error")] == [("c_1", "invalid-args")]
    assert [c.invalid_args for c in payloads(chunks, "tool_call")] == [raw, ""]
    assert all(well_formed(request) for request in provider.requests)
    assert sent_results(provider.requests[1])[0][0] == "c_1"


async def test_a_model_that_never_makes_a_usable_call_is_stopped() -> None:
    """MW-12: bad calls without end: the run fails after a few, with a history that is well formed."""
    bad = usual(calls(piece("look_up", "{", index=0)), word="tool_calls")
    async with asking(APP, *[bad] * 20) as (caller, provider):
        result = (await caller.generate(max_steps=20)).result
    assert result.error.kind == "tool_limit"
    assert len(provider.requests) <= 5
    assert not ran


async def test_calls_of_an_answer_that_was_cut_by_its_limit() -> None:
    """MW-12: with the reason `length` no call is executed, whole or not, and the loop does not spin."""
    whole = calls(piece("save", '{"path":"a.txt"}', index=0, id="c_1"))
    half = calls(piece("save", '{"path":"b.txt","body":"once upo', index=1, id="c_2"))
    async with asking(APP, usual(whole, half, word="length")) as (caller, provider):
        chunks = await caller.stream()
    assert not ran
    assert {e.code for e in payloads(chunks, "tool_error")} == {"not-executed"}
    assert reason_name(payloads(chunks, "step_finish")[0].reason) == "length"
    assert well_formed(provider.requests[1])
    assert len(provider.requests) == 2


async def test_calls_decide_and_not_the_word() -> None:
    """MW-14: with `stop` and calls the calls run; with `tool_calls` and none the answer is final."""
    answer = usual(calls(piece("look_up", OAK, index=0, id="c_1")), word="stop")
    await check(answer, [("look_up", "oak")], ["c_1"])
    async with asking(APP, usual(said("All done."), word="tool_calls")) as (caller, provider):
        result = (await caller.generate()).result
    assert (result.text, reason_name(result.finish_reason)) == ("All done.", "stop")
    assert len(provider.requests) == 1


async def test_a_finish_reason_before_the_end() -> None:
    """MW-15: calls after a finish reason count: the answer is read to its end."""
    one = calls(piece("look_up", OAK, index=0, id="c_1"), finish="tool_calls")
    two = calls(piece("look_up", ELM, index=1, id="c_2"), finish="tool_calls")
    chunks = await check([one, two, finish("stop"), DONE], BOTH, ["c_1", "c_2"])
    assert kinds(chunks).count("step_finish") == 2


async def test_an_answer_cut_in_a_call() -> None:
    """MW-18: the connection breaks in the arguments: the call is not executed, the run fails as cut."""
    half = calls(piece("save", '{"path":"a.txt","bo', index=0, id="c_1"))
    whole = calls(piece("look_up", OAK, index=0, id="c_0"))
    for pieces in ([half], [whole, half], [whole]):
        async with asking(APP, [*pieces, Cut()]) as (caller, _):
            chunks = await caller.stream()
        assert not ran
        assert [e.error.kind for e in payloads(chunks, "error")] == ["cut"]
        assert reason_name(finish_of(chunks).reason) == "error"
        assert not payloads(chunks, "tool_result")


async def test_an_answer_cut_after_its_reason() -> None:
    """MW-18: a finish reason came and `[DONE]` did not: that is a success, with calls and without."""
    call = calls(piece("look_up", OAK, index=0, id="c_1"))
    for last in ([Cut()], []):
        ran.clear()
        await check([call, finish("tool_calls"), *last], [("look_up", "oak")], ["c_1"])
        async with asking(APP, [said("Hi"), finish("stop"), *last]) as (caller, _):
            result = (await caller.generate()).result
        assert (result.text, reason_name(result.finish_reason)) == ("Hi", "stop")


async def test_an_unknown_tool_goes_back_to_the_model() -> None:
    """MW-12: a tool that does not exist is an error result with the names of those that do."""
    answer = usual(calls(piece("no_such_tool", "{}", index=0, id="c_1")), word="tool_calls")
    async with asking(APP, answer) as (caller, provider):
        chunks = await caller.stream()
    assert [e.code for e in payloads(chunks, "tool_error")] == ["unknown-tool"]
    assert "look_up" in sent_results(provider.requests[1])[0][1]


async def test_interleaved_calls() -> None:
    """MW-01: correct indexes, and pieces of two calls that alternate and share chunks."""
    answer = [
        calls(piece("look_up", "", index=0, id="c_1"), piece("count", "", index=1, id="c_2")),
        calls(piece(arguments='{"n"', index=1)),
        calls(piece(arguments='{"key":"o', index=0)),
        calls(piece(arguments=":4}", index=1), piece(arguments='ak"}', index=0)),
    ]
    await check(usual(*answer, word="tool_calls"), [("look_up", "oak"), ("count", 4)], ["c_1", "c_2"])


async def test_calls_that_all_say_zero() -> None:
    """MW-01: every call says index 0 and has its own id."""
    paths = ["a", "b", "c"]
    answer = [
        calls(piece("save", json.dumps({"path": path}), index=0, id=f"c_{path}", type="function"))
        for path in paths
    ]
    await check(
        usual(*answer, word="tool_calls"), [("save", path) for path in paths], [f"c_{p}" for p in paths]
    )


async def test_arguments_that_are_an_object_already() -> None:
    """MW-11: arguments that are an object instead of its text are those arguments."""
    answer = calls(piece("look_up", {"key": "oak"}, index=0, id="c_1"))
    await check(usual(answer, word="tool_calls"), [("look_up", "oak")], ["c_1"])


async def test_gated_calls_from_a_provider() -> None:
    """SR-04, SR-08: two gated calls of one tool and a plain one, as a provider sends them: both wait,
    the plain one runs, and the results stand in the order of the calls."""

    @tool(requires_approval=True)
    async def transfer(to: str, ctx: ToolContext) -> str:
        ran.append(("transfer", to))
        return f"to {to}"

    answer = calls(
        piece("transfer", '{"to":"a"}', index=0, id="c_1"),
        piece("now", "{}", index=1, id="c_2"),
        piece("transfer", '{"to":"b"}', index=2, id="c_3"),
    )
    async with asking(app_of("mock/m", [transfer, now]), usual(answer, word="tool_calls")) as (
        caller,
        provider,
    ):
        chunks = await caller.stream()
        assert ran == [("now", None)]
        one, two = announced(chunks)
        await caller.approve(two)
        await caller.approve(one)
    assert ran[1:] == [("transfer", "b"), ("transfer", "a")]
    assert sent_results(provider.requests[1]) == [("c_1", "to a"), ("c_2", "noon"), ("c_3", "to b")]
    assert well_formed(provider.requests[1])
