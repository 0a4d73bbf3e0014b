"""Hooks after steps and around tool calls: what they see, what they change, what an error of theirs means."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from entracte import AgentUnavailable, RequestInvalid
from entracte_server import (
    Hook,
    Iteration,
    IterationInfo,
    Skip,
    ToolCallDone,
    ToolCallInfo,
    ToolContext,
    hook,
    tool,
)
from entracte_server.engine.hooking import HookRunner
from entracte_server.engine.settings import EngineSettings
from tests.loop.support import call, serving

# ---- after each step ----


def iteration(answers: dict[int, Iteration], seen: list[IterationInfo]) -> Hook:
    async def look(info: IterationInfo) -> Iteration | None:
        seen.append(info)
        return answers.get(info.iteration)

    return Hook(kind="iteration_complete", name="look", function=look)


async def test_what_an_iteration_is_told() -> None:
    seen: list[IterationInfo] = []
    async with serving(app={"hooks": [iteration({}, seen)]}) as it:
        result = await it.both("hi", on_iteration_complete="look", request_context={"tier": 1})
        assert result.stop_cause == "model-finished"
        assert [(i.iteration, i.is_final, i.finish_reason, i.max_iterations) for i in seen] == [
            (1, False, "tool-calls", None),
            (2, False, "tool-calls", None),
            (3, False, "tool-calls", None),
            (4, True, "stop", None),
        ]
        assert seen[1].text == "s2 "
        [use] = seen[1].tool_uses
        assert (use.tool_name, use.args, use.status, use.result) == ("echo", {"msg": "2"}, "result", "echo 2")
        assert seen[1].run.request_context == {"tier": 1}
        assert [m.role for m in seen[1].messages] == ["user", "assistant", "tool", "assistant", "tool"]
    async with serving(app={"hooks": [iteration({}, seen)]}) as it:
        await it.both("hi", on_iteration_complete="look", max_steps=2)
        assert [(i.max_iterations, i.is_final) for i in seen[4:]] == [(2, False), (2, True)]


async def test_feedback_and_stop() -> None:
    """Feedback is the user's turn, tagged; it goes to the model only if the run goes on."""
    answers = {1: Iteration(feedback="try harder"), 2: Iteration(go_on=False, feedback="wrap up")}
    async with serving(app={"hooks": [iteration(answers, [])]}) as it:
        result = await it.both(on_iteration_complete="look")
        assert (result.stop_cause, result.finish_reason) == ("hook", "tool-calls")
        assert it.model.calls == 2
        assert it.prompts[1][-1] == ("user", "<iteration>\ntry harder\n</iteration>")
        assert [m.text for m in result.messages if m.role == "user"] == ["hi", it.prompts[1][-1][1]]


async def test_going_on_where_the_model_would_stop() -> None:
    answers = {1: Iteration(go_on=True, feedback="more please")}
    script = [[{"text": "first"}], [{"text": "second"}], [{"text": "third"}]]
    async with serving(script, app={"hooks": [iteration(answers, [])]}) as it:
        result = await it.both(on_iteration_complete="look")
        assert (result.text, result.stop_cause) == ("firstsecond", "model-finished")
        assert it.prompts[1][1:] == [
            ("assistant", "first"),
            ("user", "<iteration>\nmore please\n</iteration>"),
        ]
        limited = await it.both(on_iteration_complete="look", max_steps=1)
        assert limited.stop_cause == "max-steps"


async def test_feedback_after_a_restart(tmp_path: Path) -> None:
    """What the model was told is told again by the next process."""
    answers = {1: Iteration(feedback="try harder")}
    script = [call("s1 ", 1), call("s2 ", 2, "gated"), [{"text": "end"}]]
    app = {"hooks": [iteration(answers, [])]}
    async with serving(script, store=tmp_path / "db", app=app) as it:
        parked = await it.agent.generate("hi", on_iteration_complete="look")
    async with serving(script[2:], store=tmp_path / "db", app=app) as it:
        await it.agent.approve(parked.pending_calls[0])
        assert it.prompts[0][3] == ("user", "<iteration>\ntry harder\n</iteration>")


async def test_a_run_whose_hook_is_gone_waits_for_it(tmp_path: Path) -> None:
    app = {"hooks": [iteration({}, [])]}
    script = [call("s1 ", 1, "gated"), [{"text": "end"}]]
    async with serving(script, store=tmp_path / "db", app=app) as it:
        parked = await it.agent.generate("hi", on_iteration_complete="look")
    another = Hook(kind="prepare_step", name="look", function=lambda info: None)
    for hooks in ([], [another]):  # none of this name, or one of another kind
        async with serving(script[1:], store=tmp_path / "db", app={"hooks": hooks}) as it:
            with pytest.raises(AgentUnavailable, match="needs the iteration_complete hook look"):
                await it.agent.approve(parked.pending_calls[0])
            assert it.model.calls == 0
    async with serving(script[1:], store=tmp_path / "db", app=app) as it:
        assert (await it.agent.approve(parked.pending_calls[0])).text == "s1 end"


# ---- around tool calls ----


async def test_before_and_after() -> None:
    """A call may be given a result in place of being made; only a call that was made is shown after."""
    seen: list[Any] = []

    @hook("before_tool_call")
    def before(info: ToolCallInfo) -> Skip | None:
        seen.append(("before", info.tool_name, info.args))
        return Skip({"blocked": [1, None]}) if info.args == {"msg": "b"} else None

    @hook("after_tool_call")
    async def after(done: ToolCallDone) -> None:
        seen.append(("after", done.use.tool_name, done.use.result))
        raise RuntimeError("who looks on changes nothing")

    calls = [
        {"tool": "echo", "id": "c1", "args": {"msg": "a"}},
        {"tool": "echo", "id": "c2", "args": {"msg": "b"}},
        {"tool": "nobody", "id": "c3", "args": {}},
    ]
    async with serving([calls, [{"text": "fin"}]], app={"hooks": [before, after]}) as it:
        result = await it.both(hooks={"before_tool_call": "before", "after_tool_call": "after"})
        assert {chunk.tool_call_id: chunk.result for chunk in result.tool_results} == {
            "c1": "echo a",
            "c2": {"blocked": [1, None]},
        }
        assert sorted(map(str, seen)) == sorted(
            map(
                str,
                [
                    ("before", "echo", {"msg": "a"}),
                    ("before", "echo", {"msg": "b"}),
                    ("after", "echo", "echo a"),
                ],
            )
        )


async def test_order_around_an_approval_and_a_restart(tmp_path: Path) -> None:
    """Who approves is asked first; the hook is asked before the tool is entered, with what was approved."""
    seen: list[Any] = []

    @hook("before_tool_call")
    async def before(info: ToolCallInfo) -> None:
        seen.append(info.args)

    script = [call("", 1, "gated"), [{"text": "end"}]]
    async with serving(script, store=tmp_path / "db", before_tool_call=before) as it:
        parked = await it.agent.generate("hi")
        assert parked.finish_reason == "suspended"
        assert seen == []
    async with serving(script[1:], store=tmp_path / "db", before_tool_call=before) as it:
        result = await it.agent.approve(parked.pending_calls[0], edited_args={"msg": "edited"})
        assert result.tool_results[0].result == "gated edited"
        assert seen == [{"msg": "edited"}]


async def test_a_hook_that_fails_fails_the_call_and_not_the_run() -> None:
    entered = []

    @tool
    async def risky(ctx: ToolContext[Any]) -> str:
        entered.append(ctx.tool_call_id)
        return "done"

    @hook("before_tool_call", timeout=0.2)
    async def before(info: ToolCallInfo) -> Any:
        match info.tool_call_id:
            case "c1":
                raise RuntimeError("no")
            case "c2":
                await asyncio.sleep(30)
            case "c3":
                return "an answer it may not give"
            case "c4":
                return Skip(object())
        return None

    calls = [{"tool": "risky", "id": f"c{i}", "args": {}} for i in range(1, 6)]
    async with (
        serving([calls, [{"text": "end"}]], tools=[risky], before_tool_call=before) as it,
        it.agent.stream("hi") as stream,
    ):
        errors = {
            chunk.tool_call_id: (chunk.code, chunk.message)
            async for chunk in stream
            if chunk.type == "tool-error"
        }
        result = await stream.result()
    assert result.stop_cause == "model-finished"
    assert entered == ["c5"]
    assert {code for code, _ in errors.values()} == {"hook"}
    assert "failed: no" in errors["c1"][1]
    assert "no answer within 0.2 s" in errors["c2"][1]
    assert "it answered with str" in errors["c3"][1]
    assert "is no JSON" in errors["c4"][1]


async def test_cancelling_ends_a_hook() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    @hook("before_tool_call")
    async def before(info: ToolCallInfo) -> None:
        began.set()
        try:
            await asyncio.sleep(30)
        finally:
            ended.set()

    async with serving([call("", 1)], before_tool_call=before) as it:
        stream = it.agent.stream("hi")
        run_id = stream.run_id
        reading = asyncio.create_task(stream.result())
        await began.wait()
        await it.client.runs.cancel(run_id)
        assert (await reading).finish_reason == "aborted"
        assert ended.is_set()


# ---- names ----


@pytest.mark.parametrize(
    ("field", "option"),
    {
        "options.on_iteration_complete": {"on_iteration_complete": "nobody"},
        "options.prepare_step": {"prepare_step": "look"},
        "options.hooks.before_tool_call": {"hooks": {"before_tool_call": "look"}},
        "options.hooks.after_tool_call": {"hooks": {"after_tool_call": "nobody"}},
    }.items(),
)
async def test_names_that_are_not_there(field: str, option: dict[str, Any]) -> None:
    """Nor may a hook stand where it is of another kind."""
    async with serving(app={"hooks": [iteration({}, [])]}) as it:
        with pytest.raises(RequestInvalid) as refusal:
            await it.agent.generate("hi", **option)
        [violation] = refusal.value.violations
        assert violation.field == field
        assert "there are: " in violation.description
        assert it.model.calls == 0


def test_hooks_that_cannot_be() -> None:
    for wrong, words in (
        ({"kind": "sometimes", "name": "x"}, "no kind 'sometimes'"),
        ({"kind": "stop_when", "name": "a b"}, "cannot name a hook"),
        ({"kind": "stop_when", "name": "x", "timeout": 0}, "timeout must be over 0"),
    ):
        with pytest.raises(ValueError, match=words):
            Hook(function=print, **wrong)


async def test_a_hook_that_exits_or_cancels_itself() -> None:
    """Nothing an author's code raises gets past the hook."""
    runner = HookRunner(EngineSettings())

    async def cancels(info: Any) -> None:
        raise asyncio.CancelledError

    def exits(info: Any) -> None:
        raise SystemExit

    for function in (cancels, exits):
        careless = Hook(kind="stop_when", name="x", function=function, on_error="continue")
        assert await runner.call(careless, None, bool) is None


@pytest.mark.parametrize(
    "answer",
    [
        Iteration(go_on=True, feedback=5),  # type: ignore[arg-type]
        Iteration(feedback=None),  # type: ignore[arg-type]
        Iteration(go_on="no"),  # type: ignore[arg-type]
        Iteration(go_on=True, feedback="half a letter: \ud800"),
    ],
    ids=str,
)
async def test_an_answer_that_could_not_be_read_again(answer: Iteration) -> None:
    """What a hook says is kept with the run: what cannot be fails it, and it can be read all the same."""
    async with serving([[{"text": "a"}]], app={"hooks": [iteration({1: answer}, [])]}) as it:
        result = await it.both(on_iteration_complete="look")
        assert (result.finish_reason, result.text) == ("error", "a")
        assert result.error is not None
        assert result.error.kind == "hook"
        assert "look failed: its answer cannot be used" in result.error.message
