"""Sub-agents that wait for people: what is shown, who decides, and that nothing is done twice."""

import itertools
from contextlib import AsyncExitStack
from typing import Any

import pytest

from entracte import AgentUnavailable, Client, GenerateResult
from entracte_server import Agent, App, ask_user
from tests.delegation.support import (
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

LEVELS = ("root", "middle", "leaf")


class Levels:
    """Three agents, each with a plain tool and a gated one, all called at once."""

    def __init__(self) -> None:
        self.entered: list[str] = []
        self.leaf = self._agent("leaf")
        self.middle = self._agent("middle", self.leaf)
        self.root = self._agent("root", self.middle)
        self.app = App(agents=[self.root])

    def _agent(self, name: str, *below: Agent) -> Agent:
        tools = [
            counting(f"plain_{name}", self.entered),
            counting(f"gated_{name}", self.entered, gated=True),
        ]
        first = [call(tool.name) for tool in tools] + [delegate(it.id) for it in below]
        return agent(name, [first, says(f"{name} done")], tools=tools, agents=below)

    def check(self, result: GenerateResult) -> None:
        """Each tool ran once, and each model was asked what it should be asked, and no more."""
        assert result.text == "root done"
        assert sorted(self.entered) == sorted(
            f"{kind}_{name}" for kind in ("plain", "gated") for name in LEVELS
        )
        for it in (self.root, self.middle, self.leaf):
            assert model_of(it).calls == 2
            told = {
                part.tool_name: part.output  # type: ignore[union-attr]
                for part in model_of(it).requests[1].messages[-1].parts
            }
            assert told[f"plain_{it.id}"] == f'"plain_{it.id} done"'
            assert told[f"gated_{it.id}"] == f'"gated_{it.id} done"'
        assert prompts(self.leaf)[0] == [("user", "go"), ("user", "do it"), ("user", "do it")]


@pytest.mark.parametrize(
    "order", list(itertools.permutations(range(3))), ids=lambda order: "".join(map(str, order))
)
async def test_three_levels_in_every_order(store: str, order: tuple[int, ...]) -> None:
    """All that waits is shown at once, by the run, its stream and the inbox alike; between two decisions
    the server is another one."""
    levels = Levels()
    async with serving(levels.app, store) as client:
        stream = client.agent("root").stream("go")
        chunks = [c async for c in stream]
        result = await stream.result()
        calls = result.pending_calls
        names = [f"gated_{name}" for name in LEVELS]
        paths = ["", "middle", "middle/leaf"]
        assert [c.tool_name for c in calls] == names
        finishes = [c for c in chunks if c.type == "finish"]
        assert [(way(c), c.reason, [o.tool_name for o in c.open_calls]) for c in finishes] == [
            ("middle/leaf", "suspended", names[2:]),
            ("middle", "suspended", names[1:]),
            ("", "suspended", names),
        ]
        inbox = [c async for c in client.inbox.list(run_id=stream.run_id)]
        announced = {c.pending_call_id: c for c in chunks if c.type == "tool-call-approval"}
        for call_, open_call, path in zip(calls, finishes[-1].open_calls, paths, strict=True):
            assert (call_.run_id, way(call_), call_.args) == (stream.run_id, path, {})
            assert (way(open_call), open_call.pending_call_id) == (path, call_.pending_call_id)
            shown_as = announced[call_.pending_call_id]
            assert (way(shown_as), shown_as.tool_name, shown_as.args) == (path, call_.tool_name, {})
            assert call_ in inbox
        assert [c.agent_id for c in calls] == list(LEVELS)
        assert sorted(levels.entered) == [f"plain_{name}" for name in sorted(LEVELS)]
    left = list(range(3))
    async with AsyncExitStack() as stack:
        replicas: list[Client] = []
        if store.startswith("postgresql"):  # two at the same time, which take turns
            for _ in range(2):
                replicas.append(await stack.enter_async_context(serving(levels.app, store)))
        for turn, position in enumerate(order):
            async with AsyncExitStack() as own:
                client = (
                    replicas[turn % 2]
                    if replicas
                    else await own.enter_async_context(serving(levels.app, store))
                )
                result = await client.agent("root").approve(calls[position])
                left.remove(position)
                assert [c.pending_call_id for c in result.pending_calls] == [
                    calls[p].pending_call_id for p in left
                ]
                assert result == (await client.runs.get(result.run_id)).result
                if not left:
                    states = {r.agent_id: r.state async for r in client.runs.list(include_children=True)}
                    assert set(states.values()) == {"succeeded"}
    levels.check(result)


async def test_all_at_once(store: str) -> None:
    """Decided one after the other without waiting for the run, by names through the root."""
    levels = Levels()
    async with serving(levels.app, store) as client:
        result = await client.agent("root").generate("go")
        run_id = result.run_id
        for pending in reversed(result.pending_calls):
            await (
                client.agent("root").approve_stream(run_id=run_id, tool_call_id=pending.tool_call_id).commit()
            )
        chunks = [c async for c in client.runs.watch(run_id, until_finished=True)]
        assert [c.sequence for c in chunks] == list(range(1, len(chunks) + 1))
        final = (await client.runs.get(run_id)).result
        assert final is not None
        levels.check(final)
        verbs = [d.verb async for d in client.inbox.decisions(run_id=run_id)]
        assert verbs == ["approve"] * 3


async def test_questions_and_states_below(store: str) -> None:
    """A question inside is answered there; the sub-agent asks again, is declined, and goes on each time from
    where it stood. Its record and its parent's stay apart."""
    entered: list[str] = []
    question = call("ask_user", question="Which colour?", options=[{"label": "red"}, {"label": "blue"}])
    helper = agent(
        "helper",
        [[call("work"), question], [question], says("blue it is")],
        tools=[ask_user, counting("work", entered)],
    )
    root = agent("root", [[delegate("helper")], says("end")], agents=[helper])
    app = App(agents=[root])
    async with serving(app, store) as client:
        first = await client.agent("root").generate("go")
        [asked] = first.pending_calls
        assert (asked.kind, asked.tool_name, way(asked)) == ("suspension", "ask_user", "helper")
        assert asked.suspend_payload["question"] == "Which colour?"
        assert first.suspend_payload is not None
        assert first.suspend_payload.tool_name == "ask_user"
        [child] = [r async for r in client.runs.list(include_children=True) if r.parent_run_id]
        waiting = await client.runs.get(child.run_id)
        assert waiting.state == "suspended"
        assert [c.pending_call_id for c in waiting.pending_calls] == [asked.pending_call_id]
        part = [c async for c in client.runs.watch(child.run_id)]
        assert (part[-1].type, way(part[-1])) == ("finish", "helper")
    async with serving(app, store) as client:
        second = await client.agent("root").resume(asked, "blue")
        [again] = second.pending_calls
        assert again.pending_call_id != asked.pending_call_id
    async with serving(app, store) as client:
        stream = client.agent("root").decline_stream(again, reason="no more questions")
        chunks = [c async for c in stream]
        assert shown(chunks) == [
            "helper:tool-call-resolved",
            "helper:tool-output-denied",
            "helper:finish",
            ":tool-result",
            ":finish",
        ]
        result = await stream.result()
        assert (result.text, entered) == ("end", ["work"])
        assert (model_of(helper).calls, model_of(root).calls) == (3, 2)
        inner = (await client.runs.get(child.run_id)).result
        assert inner is not None
        assert results(inner.tool_results) == {
            "work": "work done",
            "ask_user": results(inner.tool_results)["ask_user"],
        }
        assert results(result.tool_results) == {
            "agent-helper": {"text": "blue it is", "run_id": child.run_id}
        }


async def test_the_policy_of_the_run_holds_below(store: str) -> None:
    """A caller's policy covers what sub-agents call, the delegation itself too where it says so."""
    entered: list[str] = []
    helper = agent("helper", [[call("work")], says("worked")], tools=[counting("work", entered)])
    root = agent("root", [[delegate("helper")], says("end")], agents=[helper])
    app = App(agents=[root])
    async with serving(app, store) as client:
        result = await client.agent("root").generate("go", require_tool_approval=True)
        [delegation] = result.pending_calls
        assert (delegation.tool_name, delegation.args) == ("agent-helper", {"prompt": "do it"})
        assert [r.agent_id async for r in client.runs.list(include_children=True)] == ["root"]
    async with serving(app, store) as client:
        result = await client.agent("root").approve(delegation, edited_args={"prompt": "do it well"})
        [inner] = result.pending_calls
        assert (inner.tool_name, way(inner), entered) == ("work", "helper", [])
        assert prompts(helper)[0][-1] == ("user", "do it well")
        result = await client.agent("root").approve(inner)
        assert (result.text, entered) == ("end", ["work"])


async def test_cancelling_what_waits_below(store: str) -> None:
    levels = Levels()
    async with serving(levels.app, store) as client:
        result = await client.agent("root").generate("go")
    async with serving(levels.app, store) as client:
        await client.runs.cancel(result.run_id, wait=True)
        runs = {r.agent_id: r.state async for r in client.runs.list(include_children=True)}
        assert runs == dict.fromkeys(LEVELS, "cancelled")
        assert [c async for c in client.inbox.list()] == []
        assert sorted(levels.entered) == [f"plain_{name}" for name in sorted(LEVELS)]


async def test_expiry_below(store: str) -> None:
    """The caller's expiry holds for what sub-agents ask, and the sub-agent's model is told."""
    entered: list[str] = []
    helper = agent(
        "helper",
        [[call("gated")], says("nobody came")],
        tools=[counting("gated", entered, gated=True)],
    )
    root = agent("root", [[delegate("helper")], says("end")], agents=[helper])
    async with serving(App(agents=[root]), store) as client:
        parked = await client.agent("root").generate("go", pending_call_expiry=0.05)
        chunks: list[Any] = [
            c async for c in client.runs.watch(parked.run_id, until_finished=True, timeout=30)
        ]
        assert results(c for c in chunks if not c.agent_path)["agent-helper"]["text"] == "nobody came"
        assert entered == []


async def test_a_process_without_one_of_the_agents(store: str) -> None:
    """It decides nothing of a tree that it cannot go on with, even if it has the agent that waits."""
    entered: list[str] = []
    one, two = (
        agent(
            name,
            [[call(f"gated_{name}")], says(f"{name} done")],
            tools=[counting(f"gated_{name}", entered, gated=True)],
        )
        for name in ("one", "two")
    )
    script = [[delegate("one"), delegate("two")], says("end")]
    whole = App(agents=[agent("root", script, agents=[one, two])])
    part = App(agents=[agent("root", script[1:], agents=[one])])
    async with serving(whole, store) as client:
        parked = await client.agent("root").generate("go")
    first, second = parked.pending_calls
    async with serving(part, store) as client:
        with pytest.raises(AgentUnavailable, match="agent two"):
            await client.agent("root").approve(first)
        assert (await client.runs.get(parked.run_id)).state == "suspended"
    async with serving(whole, store) as client:
        result = await client.agent("root").approve(first)
        assert [c.tool_name for c in result.pending_calls] == ["gated_two"]
    async with serving(part, store) as client:
        with pytest.raises(AgentUnavailable, match="agent 'two'"):
            await client.agent("root").decline(second)
    async with serving(whole, store) as client:
        assert (await client.agent("root").approve(second)).text == "end"
    assert entered == ["gated_one", "gated_two"]
