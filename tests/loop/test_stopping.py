"""Runs that end on conditions: as data, by name, from the caller and from the agent."""

from pathlib import Path
from typing import Any

import pytest

from entracte import RequestInvalid, StopWhen
from entracte_server import (
    Agent,
    App,
    Hook,
    Iteration,
    LlmScorer,
    McpToolset,
    Price,
    StopInfo,
    StructuredOutput,
    TaskCheck,
    hook,
)
from entracte_server import StopWhen as AgentStopWhen
from entracte_server.testing import scripted
from tests.loop.support import LOOP, call, serving


@hook("stop_when")
def second_echo(info: StopInfo) -> bool:
    """A plain function: it gets a thread of its own."""
    return sum(use.tool_name == "echo" for step in info.steps for use in step.tool_uses) >= 2


CONDITIONS: dict[str, tuple[dict[str, Any], int]] = {
    "steps": ({"step_count": 2}, 2),
    "tool": ({"tool_called": "other"}, 2),
    "text": ({"text_contains": "s3"}, 3),
    "predicate": ({"predicate": "second_echo"}, 3),
}


@pytest.mark.parametrize("case", CONDITIONS)
async def test_conditions(case: str) -> None:
    """Each ends the run after the step in which it holds, with the tools' results in it."""
    condition, steps = CONDITIONS[case]
    script = [call("s1 ", 1), call("s2 ", 2, "other"), call("s3 ", 3), [{"text": "end"}]]
    async with serving(script, app={"hooks": [second_echo]}) as it:
        result = await it.both(stop_when=condition)
        assert (result.finish_reason, result.stop_cause) == ("tool-calls", "stop-when")
        assert it.model.calls == len(result.steps) == len(result.tool_results) == steps
        assert (await it.client.runs.get(result.run_id)).state == "succeeded"


async def test_any_of_them_is_enough_and_max_steps_holds_too() -> None:
    async with serving() as it:
        conditions = [StopWhen(step_count=9), StopWhen(tool_called="echo")]
        assert (await it.both(stop_when=conditions)).stop_cause == "stop-when"
        limited = await it.both(stop_when={"step_count": 3}, max_steps=2)
        assert (limited.stop_cause, len(limited.steps)) == ("max-steps", 2)


async def test_a_model_that_ends_by_itself_is_not_stopped() -> None:
    async with serving([[{"text": "end"}]]) as it:
        result = await it.both(stop_when={"step_count": 1})
        assert (result.finish_reason, result.stop_cause) == ("stop", "model-finished")


async def test_tokens_and_cost() -> None:
    """Over the whole run; cost by the prices of the app, cached input cheaper."""
    usage = {"input": 100, "output": 10, "cached_input": 50}
    finish = {"finish": {"reason": "tool-calls", "usage": usage}}
    script = [[*call(f"s{i} ", i), finish] for i in range(1, 9)]
    prices = {"scripted/script": Price(input=2.0, output=10.0, cached_input=1.0)}
    async with serving(script, app={"prices": prices}) as it:
        assert len((await it.both(stop_when={"total_tokens": 220})).steps) == 2
        # A step costs 50 * 2 + 50 * 1 + 10 * 10 = 250 millionths.
        assert len((await it.both(stop_when={"cost_micros": 250})).steps) == 1
        assert len((await it.both(stop_when={"cost_micros": 251})).steps) == 2


async def test_what_judges_and_structures_costs_as_well() -> None:
    """By its own price, which has to be known before anything is asked."""
    judge = scripted([[{"text": '{"score": 0}'}]], name="scripted/judge")
    second = scripted([[{"text": "1"}]], name="scripted/second")
    thorough = LlmScorer(name="thorough", model=judge, criteria="It is thorough.")
    cheap = Price(input=1.0, output=1.0)  # a call has 15 tokens
    prices = {"scripted/script": cheap, "scripted/judge": Price(input=0.0, output=20.0)}
    checks: dict[str, Any] = {"is_task_complete": {"scorers": ["thorough"]}}
    structured: dict[str, Any] = {"structured_output": {"schema": {}, "model": "scripted/second"}}
    # So that callers can name it.
    structuring = Agent(id="b", model=second, structured_output=StructuredOutput({}, model=second))
    made = {"scorers": [thorough], "prices": prices, "more_agents": [structuring]}
    async with serving([[{"text": "a"}]], app=made) as it:
        # A step costs 15, and the judge 5 tokens of 20.
        for limit, steps in ((115, 1), (116, 2), (231, 3)):
            result = await it.both(stop_when={"cost_micros": limit}, max_steps=5, **checks)
            assert (len(result.steps), result.stop_cause) == (steps, "task-incomplete")
        with pytest.raises(RequestInvalid) as refusal:
            await it.agent.generate("hi", stop_when={"cost_micros": 1}, **structured)
        [violation] = refusal.value.violations
        assert violation.field == "options.stop_when[0].cost_micros"
        assert "what scripted/second costs is not known" in violation.description
    prices["scripted/second"] = Price(input=10.0, output=0.0)
    again = {"hooks": [Hook(kind="iteration_complete", name="go", function=lambda _: Iteration(go_on=True))]}
    async with serving([[{"text": "a"}]], app={**made, **again}) as it:
        # 15, and the second model's 10 tokens of 10.
        for limit, steps in ((115, 1), (116, 2)):
            options: dict[str, Any] = {
                "on_iteration_complete": "go",
                "stop_when": {"cost_micros": limit},
                **structured,
            }
            result = await it.both(**options)
            assert (len(result.steps), result.stop_cause) == (steps, "stop-when")


async def test_the_agents_own_and_the_callers() -> None:
    """A caller's conditions take the place of the agent's."""
    async with serving(stop_when=AgentStopWhen(step_count=1)) as it:
        assert len((await it.both()).steps) == 1
        assert len((await it.both(stop_when={"step_count": 2})).steps) == 2


async def test_held_over_suspension_and_restart(tmp_path: Path) -> None:
    script = [call("s1 ", 1, "gated"), call("s2 ", 2), call("s3 ", 3), [{"text": "end"}]]
    app = {"hooks": [second_echo]}
    async with serving(script, store=tmp_path / "db", app=app) as it:
        parked = await it.agent.generate("hi", stop_when=[{"predicate": "second_echo"}, {"step_count": 9}])
        assert parked.finish_reason == "suspended"
    async with serving(script[1:], store=tmp_path / "db", app=app) as it:
        result = await it.agent.approve(parked.pending_calls[0])
        assert (result.stop_cause, len(result.steps)) == ("stop-when", 3)


async def test_a_predicate_that_fails_ends_the_run() -> None:
    def broken(info: StopInfo) -> bool:
        raise RuntimeError("no idea")

    def wrong(info: StopInfo) -> Any:
        return "yes"

    hooks = [Hook(kind="stop_when", name=f.__name__, function=f) for f in (broken, wrong)]
    careless = Hook(kind="stop_when", name="careless", function=broken, on_error="continue")
    async with serving(app={"hooks": [*hooks, careless]}) as it:
        for name in ("broken", "wrong"):
            result = await it.both(stop_when={"predicate": name})
            assert result.finish_reason == "error"
            assert result.error is not None
            assert result.error.kind == "hook"
            assert name in result.error.message
            assert len(result.steps) == 1
        assert (await it.both(stop_when={"predicate": "careless"})).stop_cause == "model-finished"


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "step_count": ({"step_count": 0}, "must be at least 1"),
    "total_tokens": ({"total_tokens": -1}, "must be at least 1"),
    "cost_micros": ({"cost_micros": 5}, "what scripted/script costs is not known"),
    "tool_called": ({"tool_called": "nobody"}, "the agent has no tool 'nobody'"),
    "text_contains": ({"text_contains": ""}, "needs 1 to 4096 characters"),
    "predicate": ({"predicate": "nobody"}, "there is no stop_when hook 'nobody'; there are: second_echo"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_what_is_refused(case: str) -> None:
    condition, words = WRONG[case]
    async with serving(app={"hooks": [second_echo]}) as it:
        with pytest.raises(RequestInvalid) as refusal:
            await it.agent.generate("hi", stop_when=[{"step_count": 1}, condition])
        [violation] = refusal.value.violations
        assert violation.field == f"options.stop_when[1].{case}"
        assert words in violation.description
        assert it.model.calls == 0


def test_what_an_app_refuses() -> None:
    """What an agent names must be there."""
    model = scripted(LOOP)
    for wrong, words in {
        "cost": (AgentStopWhen(cost_micros=1), "give the app a price"),
        "tool": (AgentStopWhen(tool_called="nobody"), "no tool 'nobody'"),
        "hook": (AgentStopWhen(predicate="nobody"), "no stop_when hook 'nobody'"),
    }.values():
        with pytest.raises(ValueError, match=words):
            App(agents=[Agent(id="a", model=model, stop_when=wrong)])
    judge = LlmScorer(name="j", model="openai/judge", criteria="x")
    cases: Any = (
        ({"is_task_complete": TaskCheck(scorers=[judge])}, "openai/judge"),
        ({"structured_output": StructuredOutput({}, model="openai/second")}, "openai/second"),
    )
    for more, unpriced in cases:
        limited = Agent(id="a", model=model, stop_when=AgentStopWhen(cost_micros=1), **more)
        with pytest.raises(ValueError, match=f"what {unpriced} costs"):
            App(agents=[limited], prices={"scripted/script": Price(1, 1)})
    # What an MCP server has is not known yet.
    outside = Agent(id="a", model=model, toolsets=["m"], stop_when=AgentStopWhen(tool_called="m__read"))
    assert App(agents=[outside], toolsets=[McpToolset("m", command=["mcp-server"])]).agents
    for price in (float("nan"), -1.0, float("inf")):
        for field in ("input", "output", "cached_input"):
            with pytest.raises(ValueError, match="a price is a number"):
                Price(**{"input": 1.0, "output": 1.0, field: price})
    with pytest.raises(ValueError, match="exactly one"):
        Agent(id="a", model=model, stop_when=AgentStopWhen())
    with pytest.raises(ValueError, match="at least 1"):
        Agent(id="a", model=model, stop_when=AgentStopWhen(step_count=0))
    with pytest.raises(ValueError, match="two hooks are called 'x'"):
        App(
            agents=[Agent(id="a", model=model)],
            hooks=[Hook(kind="stop_when", name="x", function=f) for f in (bool, int)],
        )
