"""What a hook may change of one step, and that it changes nothing else."""

from pathlib import Path
from typing import Any

import pytest

from entracte_server import (
    Hook,
    ModelSettings,
    StepInfo,
    StepOverrides,
    ToolChoice,
    text_message,
)
from entracte_server.domain.messages import Message, ToolCallPart
from tests.loop.support import LOOP, serving


def preparing(answers: dict[int, StepOverrides], seen: list[StepInfo] | None = None) -> Hook:
    async def prepare(info: StepInfo) -> StepOverrides | None:
        if seen is not None:
            seen.append(info)
        return answers.get(info.number)

    return Hook(kind="prepare_step", name="prepare", function=prepare)


async def test_what_it_is_told() -> None:
    seen: list[StepInfo] = []
    async with serving(app={"hooks": [preparing({}, seen)]}, instructions="SYS") as it:
        await it.both(prepare_step="prepare", max_steps=2, request_context={"k": [1]})
        first, second = seen
        assert (first.number, first.attempt, first.steps, first.model) == (1, 1, (), "scripted/script")
        assert first.tools == ("echo", "other", "gated")
        assert [m.text for m in first.system] == ["SYS"]
        assert [m.text for m in first.messages] == ["hi"]
        assert second.run.request_context == {"k": [1]}
        [step] = second.steps
        assert (step.number, step.text, step.tool_uses[0].result) == (1, "s1 ", "echo 1")


async def test_overrides_hold_for_their_step_only() -> None:
    """Tools, choice, settings, provider options, messages, system: the model is sent exactly that."""
    changed = StepOverrides(
        active_tools=("other",),
        tool_choice=ToolChoice("required", every_step=True),
        model_settings=ModelSettings(temperature=0.5),
        provider_options={"p": {"a": 1}},
        messages=(text_message("user", "short"),),
        system=("BRIEF",),
    )
    options: dict[str, Any] = {
        "model_settings": {"seed": 7},
        "provider_options": {"p": {"b": 2}},
        "prepare_step": "prepare",
    }
    async with serving(LOOP, app={"hooks": [preparing({2: changed})]}, instructions="SYS") as it:
        result = await it.both(**options)
        one, two, three, _ = it.model.requests
        assert [t.name for t in two.tools] == ["other"]
        assert (two.tool_choice.mode, two.settings.temperature, two.settings.seed) == ("required", 0.5, 7)
        assert two.provider_options == {"p": {"a": 1, "b": 2}}
        assert it.prompts[1] == [("system", "BRIEF"), ("user", "short")]
        for usual in (one, three):
            assert [t.name for t in usual.tools] == ["echo", "other", "gated"]
            assert (usual.tool_choice.mode, usual.settings.temperature) == ("auto", None)
            assert usual.provider_options == {"p": {"b": 2}}
        # The conversation is what it was: it has the second step, and not what that was asked with.
        assert [text for role, text in it.prompts[2] if role == "assistant"] == ["s1 ", "s2 "]
        assert [m.text for m in result.messages if m.role == "user"] == ["hi"]
        # A tool that was not offered in the step is no tool in it.
        assert [chunk.tool_call_id for chunk in result.tool_results] == ["c1", "c3"]


async def test_a_model_that_cannot_be_asked() -> None:
    async with serving(LOOP, app={"hooks": [preparing({1: StepOverrides(model="scripted/other")})]}) as it:
        result = await it.both(prepare_step="prepare")
        assert result.error is not None
        assert result.error.kind == "hook"
        assert "cannot be asked" in result.error.message
        async with it.agent.stream("hi", prepare_step="prepare") as stream:
            assert [chunk.type async for chunk in stream] == ["start", "error", "finish"]
            assert stream.fold.steps == (await stream.result()).steps == ()


async def test_no_tools_and_a_call_all_the_same() -> None:
    changed = StepOverrides(tool_choice=ToolChoice("none"))
    async with serving(app={"hooks": [preparing({2: changed})]}) as it:
        result = await it.both(prepare_step="prepare")
        assert it.model.requests[1].tools == []
        assert [chunk.tool_call_id for chunk in result.tool_results] == ["c1", "c3"]


async def test_held_over_a_suspension_in_its_step(tmp_path: Path) -> None:
    """The tools of the step are its own also when a person answers in another process; and the request is
    shown as it was made."""
    changed = StepOverrides(active_tools=("gated",), messages=(text_message("user", "only this"),))
    script = [
        [
            {"tool": "gated", "id": "c1", "args": {"msg": "x"}},
            {"tool": "echo", "id": "c2", "args": {"msg": "y"}},
        ],
        [{"text": "end"}],
    ]
    app = {"hooks": [preparing({1: changed})]}
    async with serving(script, store=tmp_path / "db", app=app) as it:
        parked = await it.agent.generate("hi", prepare_step="prepare", include_request_body=True)
        assert [c.tool_name for c in parked.pending_calls] == ["gated"]
        assert parked.request is not None
        body = str(parked.request.body)
        assert "only this" in body
        assert "'hi'" not in body
    async with serving(script[1:], store=tmp_path / "db", app=app) as it:
        result = await it.agent.approve(parked.pending_calls[0])
        assert [chunk.tool_call_id for chunk in result.tool_results] == ["c1"]
        assert result.text == "end"


async def test_a_step_that_cannot_be_prepared_fails_the_run() -> None:
    """No model is asked."""
    missing = ToolChoice("tool", "nobody")
    for wrong in (StepOverrides(active_tools=("nobody",)), StepOverrides(tool_choice=missing)):
        async with serving(app={"hooks": [preparing({1: wrong})]}) as it:
            result = await it.both(prepare_step="prepare")
            assert (result.finish_reason, it.model.calls) == ("error", 0)
            assert result.error is not None
            assert (result.error.kind, "does not have" in result.error.message) == ("hook", True)


WRONG: dict[str, Any] = {
    "system": StepOverrides(system="Be brief."),  # type: ignore[arg-type]
    "messages": StepOverrides(messages=({"role": "user", "text": "hi"},)),  # type: ignore[arg-type]
    "active_tools": StepOverrides(active_tools="echo"),  # type: ignore[arg-type]
    "tool_choice": StepOverrides(tool_choice="none"),  # type: ignore[arg-type]
    "mode": StepOverrides(tool_choice=ToolChoice("sometimes")),  # type: ignore[arg-type]
    "temperature": StepOverrides(model_settings=ModelSettings(temperature="hot")),  # type: ignore[arg-type]
    "provider_options": StepOverrides(provider_options={"p": 3}),  # type: ignore[dict-item]
    "unsupported": StepOverrides(provider_options={"p": {"x": object()}}),
    "surrogates": StepOverrides(system=("half a letter: \ud800",)),
    "does not have: ''": StepOverrides(tool_choice=ToolChoice("tool")),
    "without a result": StepOverrides(
        messages=(Message("assistant", (ToolCallPart("c9", "echo", "{}"),)), text_message("user", "hi"))
    ),
}


@pytest.mark.parametrize("words", WRONG)
async def test_overrides_that_cannot_be_used_fail_the_run(words: str) -> None:
    """They are told by what is wrong with them, and the run can be read."""
    async with serving(app={"hooks": [preparing({2: WRONG[words]})]}) as it:
        result = await it.both(prepare_step="prepare")
        assert (result.finish_reason, result.text, it.model.calls) == ("error", "s1 ", 1)
        assert result.error is not None
        assert (result.error.kind, words in result.error.message) == ("hook", True), result.error.message


async def test_lists_will_do() -> None:
    changed = StepOverrides(active_tools=["other"], system=["BRIEF"])  # type: ignore[arg-type]
    async with serving(LOOP, app={"hooks": [preparing({2: changed})]}) as it:
        await it.both(prepare_step="prepare")
        assert [tool.name for tool in it.model.requests[1].tools] == ["other"]
        assert it.prompts[1][0] == ("system", "BRIEF")


async def test_the_agents_own() -> None:
    hook = preparing({1: StepOverrides(tool_choice=ToolChoice("none"))})
    async with serving([[{"text": "x"}]], prepare_step=hook) as it:
        async with it.agent.stream("hi") as stream:
            kinds = [chunk.type async for chunk in stream]
        assert kinds[:2] == ["start", "step-start"]
        assert it.model.requests[0].tools == []
