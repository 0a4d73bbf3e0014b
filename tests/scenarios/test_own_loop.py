"""Our own sequences: text, tools, limits, prompts. They need nothing but this repository."""

import pathlib
from collections.abc import Sequence
from typing import Any

import pytest

from entracte.v1 import message_pb2, result_pb2
from entracte.v1 import options_pb2 as options
from entracte.v1.json_pb2 import Json
from tests.scenarios import lines
from tests.scenarios.own import BEGIN, course, ending, events_of, prompt_of, result_of, shop, use
from tests.scenarios.play import Mode, Start, conversation, play, said, text_input


@pytest.mark.parametrize("mode", ["stream", "generate"])
async def test_text_and_thinking(tmp_path: pathlib.Path, mode: Mode) -> None:
    """Thinking and text stream as blocks of their own; the result has both, apart."""
    script = [{"reasoning": "Hm, let me see."}, {"text": "Yes. "}, {"text": "It is."}]
    came = await course(tmp_path, shop(), script, mode=mode)
    assert events_of(came) == [
        *BEGIN,
        *lines.think("Hm, let me see."),
        *lines.say("Yes. "),
        *lines.say("It is."),
        lines.step_finish("stop", 1),
        lines.finish("stop", 1),
    ]
    assert result_of(came) == lines.Result(
        "stop",
        "Yes. It is.",
        lines.cost(1),
        steps=[f'stop {lines.cost(1)} "Yes. It is."'],
        reasoning="Hm, let me see.",
    )


async def test_a_tool(tmp_path: pathlib.Path) -> None:
    """A call, its result, and a second step that sees both; thinking stays in the conversation."""
    came = await course(
        tmp_path,
        shop(),
        [{"reasoning": "ask"}, {"text": "One moment. "}, use("weather", city="Oslo")],
        [{"text": "Rain."}],
    )
    assert events_of(came) == [
        *BEGIN,
        *lines.think("ask"),
        *lines.say("One moment. "),
        *lines.call("c1", "weather", {"city": "Oslo"}),
        lines.result("c1", "weather", {"city": "Oslo"}, {"city": "Oslo", "days": 1}),
        lines.step_finish("tool-calls", 1, goes_on=True),
        *ending("Rain.", 2),
    ]
    assert result_of(came).text == "One moment. Rain."
    assert came.entered == ['["weather","Oslo",1]']
    assert prompt_of(came, 1) == [
        'assistant reasoning "ask"',
        'assistant + text "One moment. "',
        'assistant + call c1 weather {"city":"Oslo"}',
        'tool c1 weather json {"city":"Oslo","days":1}',
    ]


async def test_results_come_when_they_are_there(tmp_path: pathlib.Path) -> None:
    """The quicker tool's result is told first; the model sees results in the order of its calls."""
    came = await course(
        tmp_path,
        shop(),
        [use("wait", "slow", ms=400), use("wait", "quick", ms=1), use("weather", "now", city="Rome")],
        [{"text": "ok"}],
    )
    told = [line.split()[1] for line in events_of(came) if line.startswith("tool-result")]
    assert told[-1] == "slow"
    assert set(told[:2]) == {"quick", "now"}
    assert prompt_of(came, 1)[3:] == [
        "tool slow wait json 400",
        "tool + quick wait json 1",
        'tool + now weather json {"city":"Rome","days":1}',
    ]
    assert [call.split()[0] for call in result_of(came).tool_results] == ["slow", "quick", "now"]


async def test_a_tool_that_blocks_freezes_nothing(tmp_path: pathlib.Path) -> None:
    """Plain functions run in threads: two that sleep do not hold up a third tool."""
    came = await course(
        tmp_path,
        shop(),
        [use("block", "b1", ms=300), use("block", "b2", ms=300), use("weather", "w", city="Rome")],
        [{"text": "ok"}],
    )
    told = [line.split()[1] for line in events_of(came) if line.startswith("tool-result")]
    assert told[0] == "w"
    assert came.entered is not None
    assert sorted(came.entered) == ['["block",300]', '["block",300]', '["weather","Rome",1]']


async def test_a_tool_that_fails(tmp_path: pathlib.Path) -> None:
    """The message of what a tool raises goes to the stream and to the model; the run goes on."""
    came = await course(tmp_path, shop(), [use("fail", why="rain")], [{"text": "Pity."}])
    assert events_of(came) == [
        *BEGIN,
        *lines.call("c1", "fail", {"why": "rain"}),
        lines.error("c1", "fail", {"why": "rain"}, "exception", "it failed: rain"),
        lines.step_finish("tool-calls", 1, goes_on=True),
        *ending("Pity.", 2),
    ]
    assert prompt_of(came, 1)[-1] == "tool c1 fail error it failed: rain"
    assert result_of(came).tool_results == []


async def test_calls_that_cannot_be_made(tmp_path: pathlib.Path) -> None:
    """A tool that does not exist, arguments that are no JSON object, arguments that do not fit: each is an
    error of its own, nothing is entered, and the model may try again."""
    came = await course(
        tmp_path,
        shop(),
        [
            use("fly", "c1", to="Mars"),
            {"tool": "weather", "id": "c2", "rawArgs": '{"city": "Os'},
            {"tool": "weather", "id": "c3", "rawArgs": '["Oslo"]'},
            use("weather", "c4", city=5),
            use("weather", "c5", city="Oslo", more=1),
        ],
        [{"text": "Sorry."}],
    )
    assert events_of(came) == [
        *BEGIN,
        *lines.call("c1", "fly", {"to": "Mars"}),
        *lines.call("c2", "weather", raw='{"city": "Os'),
        *lines.call("c3", "weather", raw='["Oslo"]'),
        *lines.call("c4", "weather", {"city": 5}),
        *lines.call("c5", "weather", {"city": "Oslo", "more": 1}),
        lines.error("c1", "fly", {"to": "Mars"}, "unknown-tool"),
        lines.error("c2", "weather", None, "invalid-args"),
        lines.error("c3", "weather", None, "invalid-args"),
        lines.error("c4", "weather", {"city": 5}, "invalid-args"),
        lines.error("c5", "weather", {"city": "Oslo", "more": 1}, "invalid-args"),
        lines.step_finish("tool-calls", 1, goes_on=True),
        *ending("Sorry.", 2),
    ]
    assert came.entered == []
    assert prompt_of(came, 1)[5:] == [
        "tool c1 fly error unknown-tool",
        "tool + c2 weather error invalid-args",
        "tool + c3 weather error invalid-args",
        "tool + c4 weather error invalid-args",
        "tool + c5 weather error invalid-args",
    ]


async def test_ids_are_unique(tmp_path: pathlib.Path) -> None:
    """A call whose id the run had before gets another one before it is first shown; so no result can hide
    another, and every call has its own."""
    came = await course(
        tmp_path,
        shop(),
        [use("weather", city="Oslo"), use("weather", city="Rome")],
        [use("weather", city="Bern")],
        [{"text": "ok"}],
    )
    told = [line for line in events_of(came) if line.startswith("tool-result")]
    assert sorted(told) == [
        lines.result("c1", "weather", {"city": "Oslo"}, {"city": "Oslo", "days": 1}),
        lines.result("new1", "weather", {"city": "Rome"}, {"city": "Rome", "days": 1}),
        lines.result("new2", "weather", {"city": "Bern"}, {"city": "Bern", "days": 1}),
    ]
    calls = [line for line in prompt_of(came, 2) if " call " in line]
    assert [line.split(" call ")[1].split()[0] for line in calls] == ["c1", "new1", "new2"]


async def test_trying_again_has_an_end(tmp_path: pathlib.Path) -> None:
    """A model that makes no usable call, step after step, does not use up a large limit."""
    came = await course(tmp_path, shop(max_steps=50), [{"tool": "fly", "args": {}}])
    assert result_of(came).finish == "error"
    assert came.prompts is not None
    assert 1 < len(came.prompts) < 10


@pytest.mark.parametrize("raw", ["", "null", "{}", "  "])
async def test_no_arguments(tmp_path: pathlib.Path, raw: str) -> None:
    """Arguments that are absent, empty or `null` are none."""
    call = {"tool": "nothing", "id": "c1", "rawArgs": raw}
    came = await course(tmp_path, shop(), [call], [{"text": "ok"}])
    assert came.entered == ['["nothing"]']
    assert lines.result("c1", "nothing", {}, None) in events_of(came)
    assert prompt_of(came, 1)[-1] == "tool c1 nothing json null"


async def test_numbers_and_letters_survive(tmp_path: pathlib.Path) -> None:
    """Integers of any size and letters of any kind reach the client and the model as they are."""
    came = await course(tmp_path, shop(), [use("big")], [{"text": "ok"}])
    value = {"n": 2**70, "text": "ä\u2028"}
    assert lines.result("c1", "big", {}, value) in events_of(came)
    assert prompt_of(came, 1)[-1] == f"tool c1 big json {lines.compact(value)}"


async def test_calls_under_length_are_not_made(tmp_path: pathlib.Path) -> None:
    """An answer that the token limit cut may have cut a call: none is executed, the model is told."""
    came = await course(
        tmp_path,
        shop(),
        [{"text": "I "}, use("pay", account="a", cents=1), {"finish": "length"}],
        [{"text": "ok"}],
    )
    assert events_of(came) == [
        *BEGIN,
        *lines.say("I "),
        *lines.call("c1", "pay", {"account": "a", "cents": 1}),
        lines.error("c1", "pay", {"account": "a", "cents": 1}, "not-executed"),
        lines.step_finish("length", 1, goes_on=True),
        *ending("ok", 2),
    ]
    assert came.entered == []


async def test_tools_that_are_not_active(tmp_path: pathlib.Path) -> None:
    """With an empty list no tool is on offer, and one that is called all the same is unknown."""
    setup = shop(active_tools=options.ToolNames())
    came = await course(tmp_path, setup, [use("nothing")], [{"text": "ok"}])
    assert came.prompts is not None
    assert [prompt.tools for prompt in came.prompts] == [[], []]
    assert lines.error("c1", "nothing", {}, "unknown-tool") in events_of(came)
    assert came.entered == []


async def test_no_tools_by_choice(tmp_path: pathlib.Path) -> None:
    """The choice `none` holds in every step: nothing is on offer and nothing is executed."""
    setup = shop(tool_choice=options.ToolChoice(mode=options.ToolChoice.MODE_NONE))
    came = await course(tmp_path, setup, [use("nothing")], [{"text": "ok"}])
    assert came.prompts is not None
    assert [prompt.choice for prompt in came.prompts] == ["none", "none"]
    assert lines.error("c1", "nothing", {}, "not-executed") in events_of(came)
    assert came.entered == []


async def test_one_at_a_time(tmp_path: pathlib.Path) -> None:
    """`tool_call_concurrency` 1: tools run one after the other, in the order of the calls."""
    came = await course(
        tmp_path,
        shop(tool_call_concurrency=1),
        [use("wait", "c1", ms=60), use("wait", "c2", ms=1), use("wait", "c3", ms=30)],
        [{"text": "ok"}],
    )
    told = [line.split()[1] for line in events_of(came) if line.startswith("tool-result")]
    assert told == ["c1", "c2", "c3"]
    assert came.entered == ['["wait",60]', '["wait",1]', '["wait",30]']


@pytest.mark.parametrize(("limit", "steps"), [(None, 5), (1, 1), (3, 3)])
async def test_the_limit_of_steps(tmp_path: pathlib.Path, limit: int | None, steps: int) -> None:
    """Five unless told otherwise; the last step's tools have run, and the run says what ended it."""
    setup = shop() if limit is None else shop(max_steps=limit)
    async with conversation(setup, [[{"tool": "nothing", "args": {}}]], tmp_path) as talk:
        answered = await talk.take(Start(), "stream")
    assert answered.result is not None
    assert talk.model.calls == steps
    assert len(talk.log) == steps
    assert lines.lines_of(answered.chunks)[-2:] == [
        lines.step_finish("tool-calls", steps),
        lines.finish("tool-calls", steps),
    ]
    assert answered.result.stop_cause == result_pb2.STOP_CAUSE_MAX_STEPS


async def test_the_order_of_a_prompt(tmp_path: pathlib.Path) -> None:
    """Instructions of the run in place of the agent's, system messages of context and input, the `system`
    option, then the context's turns, then the input. Values of the request context are in none."""

    def system(*texts: str) -> Sequence[message_pb2.Message]:
        return [said(message_pb2.ROLE_SYSTEM, text) for text in texts]

    setup = shop(
        instructions=system("I1", "I2"),
        system=system("S"),
        context=[*system("C1"), *text_input("C2"), said(message_pb2.ROLE_ASSISTANT, "C3")],
        request_context=Json(text='{"secret":"word"}'),
    )
    start = Start([*text_input("one"), *system("in"), *text_input("two")])
    came = await play(setup, [[{"text": "ok"}]], [start], "stream", tmp_path)
    assert came.prompts is not None
    assert came.prompts[0].messages == [
        'system text "I1"',
        'system text "I2"',
        'system text "C1"',
        'system text "in"',
        'system text "S"',
        'user text "C2"',
        'assistant text "C3"',
        'user text "one"',
        'user text "two"',
    ]


async def test_a_tool_that_reports(tmp_path: pathlib.Path) -> None:
    """What a tool writes comes before its result, in order; the request context reaches it."""
    setup = shop(request_context=Json(text='{"user":"bob","n":1.0}'))
    came = await course(tmp_path, setup, [use("report")], [{"text": "ok"}])
    assert events_of(came)[2:-8] == [
        *lines.call("c1", "report"),
        'tool-output c1 report {"done":1}',
        'data-progress {"percent":50}',
        'tool-output c1 report "almost"',
    ]
    assert events_of(came)[-8] == lines.result("c1", "report", {}, {"user": "bob", "n": 1.0})


@pytest.mark.parametrize("wanted", [True, False])
async def test_raw_chunks(tmp_path: pathlib.Path, wanted: bool) -> None:
    """What the provider sent is streamed where it is asked for, and only there."""
    script = [{"raw": {"b": [1, None], "a": 1}}, {"text": "x"}]
    came = await course(tmp_path, shop(include_raw_chunks=wanted), script)
    raw = [line for line in events_of(came) if line.startswith("raw")]
    assert raw == (['raw {"a":1,"b":[1,null]}'] if wanted else [])


async def test_usage_is_added_up(tmp_path: pathlib.Path) -> None:
    """Each step's usage is the provider's, the run's is their sum."""

    def used(count_in: int, count_out: int) -> dict[str, Any]:
        return {"finish": {"usage": {"input": count_in, "output": count_out, "total": count_in + count_out}}}

    came = await course(tmp_path, shop(), [use("nothing"), used(100, 20)], [{"text": "ok"}, used(130, 7)])
    assert events_of(came)[-1] == "finish stop 230/27/257"
    assert result_of(came).steps == ['tool-calls 100/20/120 ""', 'stop 130/7/137 "ok"']
