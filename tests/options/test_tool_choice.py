"""What forces a tool call is satisfied by the first one, unless it is to hold for every step."""

from collections.abc import Sequence
from typing import Any

import pytest

from entracte import RequestInvalid
from entracte_server import Hook, StepInfo, StepOverrides, ToolChoice, tool
from entracte_server.models import ModelRequest, ScriptedModel
from entracte_server.testing import scripted
from tests.options.support import agent_of


@tool
async def look(place: str = "here") -> str:
    """Looks at a place."""
    return f"nothing {place}"


@tool
async def ring() -> str:
    """Rings."""
    return "ding"


@tool(requires_approval=True)
async def pay() -> str:
    """Pays."""
    return "paid"


def obedient(first: str = "look") -> ScriptedModel:
    """A model that does what it is told: it calls a tool where it must, and speaks where it may."""

    def play(request: ModelRequest) -> Sequence[Any]:
        choice = request.tool_choice
        if choice.mode in ("required", "tool"):
            return [{"tool": choice.tool_name or first}]
        return [{"text": "done"}]

    return scripted(play)


def choices(model: ScriptedModel) -> list[str]:
    return [f"{r.tool_choice.mode} {r.tool_choice.tool_name}".strip() for r in model.requests]


@pytest.mark.parametrize(
    ("choice", "first"), [("required", "required"), ({"tool": "ring"}, "tool ring")], ids=["required", "tool"]
)
async def test_one_call_is_enough(choice: Any, first: str) -> None:
    model = obedient()
    async with agent_of(model, tools=[look, ring]) as agent:
        result = await agent.generate("go", tool_choice=choice)
    assert (result.text, result.finish_reason, result.stop_cause) == ("done", "stop", "model-finished")
    assert choices(model) == [first, "auto"]
    assert [[tool.name for tool in request.tools] for request in model.requests] == [["look", "ring"]] * 2


@pytest.mark.parametrize(
    "choice",
    [{"mode": "required", "every_step": True}, {"tool": "look", "every_step": True}],
    ids=["required", "tool"],
)
async def test_every_step_if_asked(choice: Any) -> None:
    model = obedient()
    async with agent_of(model, tools=[look, ring]) as agent:
        result = await agent.generate("go", tool_choice=choice, max_steps=3)
    assert (result.text, result.finish_reason, result.stop_cause) == ("", "tool-calls", "max-steps")
    assert len(set(choices(model))) == 1
    assert len(model.requests) == 3


async def test_a_tool_is_forced_until_it_was_that_one() -> None:
    """A model that calls another tool first has not done what it was told."""
    model = scripted([[{"tool": "look"}], [{"tool": "ring"}], [{"text": "done"}]])
    async with agent_of(model, tools=[look, ring]) as agent:
        await agent.generate("go", tool_choice={"tool": "ring"})
    assert choices(model) == ["tool ring", "tool ring", "auto"]


async def test_a_model_that_does_not_obey_is_asked_once() -> None:
    model = scripted([[{"text": "no"}]])
    async with agent_of(model, tools=[look]) as agent:
        result = await agent.generate("go", tool_choice="required")
    assert (result.text, choices(model)) == ("no", ["required"])


async def test_the_call_counts_over_a_suspension() -> None:
    model = obedient("pay")
    async with agent_of(model, tools=[pay, look]) as agent:
        result = await agent.generate("go", tool_choice="required")
        assert result.finish_reason == "suspended"
        result = await agent.approve(result.pending_calls[0])
    assert (result.text, choices(model)) == ("done", ["required", "auto"])


async def test_what_the_caller_chooses_replaces_what_the_agent_chose() -> None:
    for asked, seen in ((None, ["required", "auto"]), ("auto", ["auto"]), ("none", ["none"])):
        model = obedient()
        async with agent_of(model, tools=[look], tool_choice=ToolChoice("required")) as agent:
            await agent.generate("go", tool_choice=asked)
        assert choices(model) == seen


async def test_what_is_forced_in_one_step_is_not_satisfied_by_another() -> None:
    async def prepare(info: StepInfo) -> StepOverrides | None:
        return StepOverrides(tool_choice=ToolChoice("required")) if info.number == 2 else None

    model = obedient()
    hook = Hook(kind="prepare_step", name="prepare", function=prepare)
    async with agent_of(model, tools=[look], prepare_step=hook) as agent:
        result = await agent.generate("go", tool_choice="required")
    assert (result.text, choices(model)) == ("done", ["required", "required", "auto"])


async def test_nothing_is_forced_where_there_is_nothing_to_call() -> None:
    """Providers refuse a request that forces a call and offers no tool, or another."""
    model = obedient()
    async with agent_of(model, tools=[look, ring], tool_choice=ToolChoice("tool", "look")) as agent:
        await agent.generate("go", active_tools=["ring"])
        await agent.generate("go", active_tools=[], tool_choice="required")
    assert choices(model) == ["auto", "auto"]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"tool_choice": {"tool": "look"}, "active_tools": ["ring"]}, "options.tool_choice.tool_name"),
        ({"tool_choice": {"mode": "auto", "every_step": True}}, "options.tool_choice.every_step"),
        ({"tool_choice": {"mode": "none", "every_step": True}}, "options.tool_choice.every_step"),
    ],
)
async def test_what_does_not_go_together(options: dict[str, Any], field: str) -> None:
    async with agent_of(obedient(), tools=[look, ring]) as agent:
        with pytest.raises(RequestInvalid) as caught:
            await agent.generate("go", **options)
    assert [violation.field for violation in caught.value.violations] == [field]
