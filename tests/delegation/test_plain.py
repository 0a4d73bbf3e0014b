"""Delegating to sub-agents that need nobody."""

import asyncio
from typing import Any

import pytest

from entracte import RunNotFound, RunOfSubAgent
from entracte_server import Agent, App, Processor, tool
from entracte_server.processors import ToolOutput
from tests.delegation.support import (
    ROOT_TEXT,
    agent,
    call,
    counting,
    delegate,
    model_of,
    prompts,
    results,
    says,
    serving,
    shown,
    way,
)

COUNTED = {"finish": {"usage": {"input": 10, "output": 5}}}
"""The end of an answer that was counted."""


async def test_a_task_is_delegated(store: str) -> None:
    entered: list[str] = []
    helper = agent(
        "helper",
        [[{"text": "look "}, call("look_up"), COUNTED], [*says("it is 42"), COUNTED]],
        instructions="You look things up.",
        tools=[counting("look_up", entered)],
    )
    root = agent(
        "root",
        [[delegate("helper", "find the answer"), COUNTED], [*says("42 it is"), COUNTED]],
        instructions=ROOT_TEXT,
        agents=[helper],
    )
    async with serving(App(agents=[root]), store) as client:
        stream = client.agent("root").stream("What is the answer?")
        chunks = [chunk async for chunk in stream]
        result = await stream.result()

        assert [c.sequence for c in chunks] == list(range(1, len(chunks) + 1))
        assert {c.run_id for c in chunks} == {stream.run_id}
        assert shown(chunks) == [
            ":start",
            ":tool-call",
            "helper:start",
            "helper:tool-call",
            "helper:tool-result",
            "helper:finish",
            ":tool-result",
            ":finish",
        ]
        [delegation] = [c for c in chunks if c.type == "tool-call" and not c.agent_path]
        assert {c.agent_path[0].tool_call_id for c in chunks if c.agent_path} == {delegation.tool_call_id}

        # What the models were told.
        assert model_of(root).requests[0].tools[0].name == "agent-helper"
        assert model_of(root).requests[0].tools[0].description == "Knows all about helper."
        assert prompts(helper)[0] == [
            ("system", "You look things up."),
            ("user", "What is the answer?"),
            ("user", "find the answer"),
        ]
        [told] = model_of(root).requests[1].messages[-1].parts
        assert (told.output, told.kind) == ('"look it is 42"', "json")  # type: ignore[union-attr]
        assert entered == ["look_up"]

        # What it came to: a fold looks at the root only, usage at everything.
        assert (result.text, stream.text) == ("42 it is", "42 it is")
        assert result.usage.total_tokens == 60
        assert stream.fold.usage == result.usage
        assert (await client.runs.get(stream.run_id)).result == result
        child_id = results(chunks)["agent-helper"]["run_id"]
        assert results(chunks)["agent-helper"] == {"text": "look it is 42", "run_id": child_id}
        assert [step.text for step in result.steps] == ["", "42 it is"]

        # The sub-agent's run by itself.
        child = await client.runs.get(child_id)
        assert (child.state, child.root_run_id, child.parent_run_id) == (
            "succeeded",
            stream.run_id,
            stream.run_id,
        )
        assert child.result is not None
        assert (child.result.text, child.result.usage.total_tokens) == ("look it is 42", 30)
        assert [c.tool_name for c in child.result.tool_results] == ["look_up"]
        assert child.usage == child.result.usage
        assert child.last_sequence == chunks[-1].sequence
        part = [c async for c in client.runs.watch(child_id)]
        assert part == [c for c in chunks if c.agent_path]
        assert [c async for c in client.runs.watch(child_id, after=part[2].sequence)] == part[3:]
        assert [r.run_id async for r in client.runs.list()] == [stream.run_id]
        assert [r.run_id async for r in client.runs.list(include_children=True)] == [child_id, stream.run_id]

        # It goes with its root, and not without.
        for refused in (client.runs.cancel(child_id), client.runs.delete(child_id)):
            with pytest.raises(RunOfSubAgent) as refusal:
                await refused
            assert refusal.value.metadata == {"run_id": child_id, "root_run_id": stream.run_id}
        await client.runs.delete(stream.run_id)
        with pytest.raises(RunNotFound):
            await client.runs.get(child_id)


async def test_side_by_side_and_what_fails(store: str) -> None:
    """Two run at the same time; the third fails, and the parent's model is told why."""
    both = asyncio.Barrier(2)

    @tool
    async def meet() -> str:
        """Waits for the other."""
        async with asyncio.timeout(20):
            await both.wait()
        return "met"

    left, right = (
        agent(name, [[call("meet")], says(f"{name} met")], tools=[meet]) for name in ("left", "right")
    )
    broken = agent("broken", [[{"throw": "the provider is down", "retryable": False}]])
    mute = agent("mute", [[call("meet_nobody")]], max_steps=1)
    root = agent(
        "root",
        [[delegate("left"), delegate("right"), delegate("broken"), delegate("mute")], says("done")],
        agents=[left, right, broken, mute],
    )
    async with serving(App(agents=[root]), store) as client:
        chunks = [chunk async for chunk in client.agent("root").stream("go")]
        assert {name: it["text"] for name, it in results(c for c in chunks if not c.agent_path).items()} == {
            "agent-left": "left met",
            "agent-right": "right met",
        }
        errors = {c.tool_name: c for c in chunks if c.type == "tool-error" and not c.agent_path}
        assert set(errors) == {"agent-broken", "agent-mute"}
        assert "the provider is down" in errors["agent-broken"].message
        assert "as many steps as it may" in errors["agent-mute"].message
        assert {error.code for error in errors.values()} == {"delegation"}
        told = [part.output for part in model_of(root).requests[1].messages[-1].parts]  # type: ignore[union-attr]
        assert told[2] == errors["agent-broken"].message
        states = {r.agent_id: r.state async for r in client.runs.list(include_children=True)}
        assert states == {
            "root": "succeeded",
            "left": "succeeded",
            "right": "succeeded",
            "broken": "failed",
            "mute": "succeeded",
        }


async def test_how_deep_it_goes(store: str) -> None:
    """Five delegations, and no sixth."""
    deepest = agent("a6", [says("too deep")])
    below = deepest
    for number in range(5, 0, -1):
        below = agent(f"a{number}", [[delegate(below.id)], says(f"a{number} done")], agents=[below])
    root = agent("root", [[delegate("a1")], says("done")], agents=[below])
    async with serving(App(agents=[root]), store) as client:
        chunks = [chunk async for chunk in client.agent("root").stream("go")]
        assert max(len(c.agent_path) for c in chunks) == 5
        [error] = [c for c in chunks if c.type == "tool-error"]
        assert (way(error), error.code) == ("a1/a2/a3/a4/a5", "delegation")
        assert "at most 5" in error.message
        assert model_of(deepest).calls == 0
        assert chunks[-1].type == "finish"
        assert chunks[-1].reason == "stop"


async def test_a_run_that_is_stopped_stops_what_it_delegated(store: str) -> None:
    """A processor that vetoes what a tool returned does not wait for a sub-agent beside it to finish."""
    begun = asyncio.Event()

    @tool
    async def quick() -> str:
        """Returns once the sub-agent is at it."""
        await asyncio.wait_for(begun.wait(), 20)
        return "quick"

    class Veto(Processor):
        name = "veto"
        can_veto = True

        async def process_tool_result(self, result: ToolOutput) -> None:
            self.abort("not that")

    def at_it(_: Any) -> list[Any]:
        begun.set()
        return [{"text": "so far"}, {"delay": 60_000}]

    leaf = agent("leaf", [at_it])
    middle = agent("middle", [[delegate("leaf")]], agents=[leaf])
    root = agent(
        "root",
        [[delegate("middle"), call("quick")], says("never")],
        agents=[middle],
        tools=[quick],
        output_processors=[Veto()],
    )
    async with serving(App(agents=[root]), store) as client:
        async with asyncio.timeout(30):
            result = await client.agent("root").generate("go")
        assert (result.finish_reason, result.text) == ("tripwire", "")
        states = {r.agent_id: r.state async for r in client.runs.list(include_children=True)}
        assert states == {"root": "succeeded", "middle": "cancelled", "leaf": "cancelled"}


async def test_cancelling_goes_down(store: str) -> None:
    entered, ended = asyncio.Event(), asyncio.Event()

    @tool
    async def endless() -> None:
        """Never ends."""
        entered.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    leaf = agent("leaf", [[{"text": "so far"}, call("endless")]], tools=[endless])
    middle = agent("middle", [[delegate("leaf")]], agents=[leaf])
    root = agent("root", [[delegate("middle")]], agents=[middle])
    async with serving(App(agents=[root]), store) as client:
        stream = client.agent("root").stream("go")
        reading = asyncio.create_task(stream.result())
        await asyncio.wait_for(entered.wait(), 20)
        await client.runs.cancel(stream.run_id, reason="enough", wait=True)
        result = await asyncio.wait_for(reading, 20)
        assert ended.is_set()
        assert (result.finish_reason, result.stop_cause) == ("aborted", "cancelled")
        tail = [c async for c in client.runs.watch(stream.run_id)]
        assert shown(tail)[-6:] == [
            "middle/leaf:abort",
            "middle/leaf:finish",
            "middle:abort",
            "middle:finish",
            ":abort",
            ":finish",
        ]
        runs = {r.agent_id: r async for r in client.runs.list(include_children=True)}
        assert {name: run.state for name, run in runs.items()} == dict.fromkeys(
            ("root", "middle", "leaf"), "cancelled"
        )
        kept = (await client.runs.get(runs["leaf"].run_id)).result
        assert kept is not None
        assert kept.text == "so far"


@pytest.mark.parametrize("limit", [{"total_tokens": 40}, {"cost_micros": 40}])
async def test_limits_of_tokens_and_cost_count_all_of_it(store: str, limit: dict[str, Any]) -> None:
    """A sub-agent that would go on for ever stops when its parent's budget is used up."""
    helper = agent("helper", [[call("work"), COUNTED]], tools=[counting("work", [])], max_steps=50)
    root = agent("root", [[delegate("helper"), COUNTED], says("not asked")], agents=[helper])
    price = {"scripted/script": _price(1.0)}
    async with serving(App(agents=[root], prices=price), store) as client:
        result = await client.agent("root").generate("go", stop_when=limit)
        assert (result.stop_cause, model_of(root).calls) == ("stop-when", 1)
        assert model_of(helper).calls == 2
        assert result.usage.total_tokens == 45


def _price(micros: float) -> Any:
    from entracte_server import Price

    return Price(input=micros, output=micros)


async def test_going_on_after_a_server_stopped(store: str) -> None:
    """What a sub-agent did before is not done again; the answer that was cut is asked for again."""
    entered: list[str] = []
    slow = [{"text": "begun "}, {"delay": 60_000}]
    helper = agent("helper", [[call("work")], slow, says("done")], tools=[counting("work", entered)])
    root = agent("root", [[delegate("helper")], says("end")], agents=[helper])
    app = App(agents=[root])
    async with serving(app, store) as client:
        stream = client.agent("root").stream("go")
        async for chunk in stream:
            if chunk.type == "text-delta":
                break
    async with serving(app, store) as client:
        chunks = [c async for c in client.runs.watch(stream.run_id)]
        assert entered == ["work"]
        assert (model_of(helper).calls, model_of(root).calls) == (3, 2)
        assert results(chunks)["agent-helper"]["text"] == "done"
        cut = [c.attempt for c in chunks if c.type == "text-delta" and c.agent_path]
        assert cut == [1, 2]
        assert chunks[-1].type == "finish"
        assert chunks[-1].reason == "stop"


def test_agents_that_cannot_be() -> None:
    one, other = agent("one", [says("")]), agent("one", [says("")])
    with pytest.raises(ValueError, match="two sub-agents are called 'one'"):
        agent("root", [says("")], agents=[one, other])
    with pytest.raises(ValueError, match="cannot be called as the tool 'agent-no good'"):
        agent("root", [says("")], agents={"no good": one})
    with pytest.raises(ValueError, match="its tool 'agent-one' is called as the one for a sub-agent"):
        agent("root", [says("")], agents=[one], tools=[counting("agent-one", [])])
    with pytest.raises(ValueError, match="two agents are called 'one'"):
        App(agents=[agent("root", [says("")], agents=[one]), other])
    shared = App(agents=[agent("root", [says("")], agents=[one]), one])
    assert set(shared.agents) == {"root", "one"}
    assert isinstance(one, Agent)
