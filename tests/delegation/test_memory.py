"""What sub-agents remember: each on a thread of its own beside that of the run it works for."""

from typing import Any

import pytest

from entracte import Memory as OnThread
from entracte import RequestInvalid, ThreadNotFound, ThreadParked
from entracte_server import App, DelegationVerdict, Hook, Memory, ToolContext, WorkingMemory, tool
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
    way,
)


def on(thread: str = "t", **more: Any) -> OnThread:
    return OnThread(thread=thread, resource="u", **more)


async def said(client: Any, thread: str) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Role, text and the state of each call of each message of a thread."""
    return [
        (m.role, m.text, [(c.tool_name, c.state) for c in m.tool_invocations])
        async for m in client.threads.messages(thread)
    ]


async def test_it_remembers_what_it_was_asked_before(store: str) -> None:
    """On a thread of its own, which tells of its tools and waits like any other; its tools still know for
    whom they work. What is read only is not written."""
    seen: list[tuple[str, str]] = []

    @tool
    async def look(ctx: ToolContext[Any]) -> str:
        """Looks."""
        seen.append((ctx.thread_id, ctx.resource_id))
        return "looked"

    helper = agent(
        "helper",
        [[call("look"), call("gated")], says("found 1"), says("found 2"), says("found 3"), says("found 4")],
        tools=[look, counting("gated", [], gated=True)],
    )
    script = [step for n in range(4) for step in ([delegate("helper", f"find {n}")], says(f"done {n}"))]
    root = agent("root", script, agents={"finder": helper})
    for step in script[::2]:
        step[0]["tool"] = "agent-finder"
    app = App(agents=[root])
    async with serving(app, store) as client:
        first = await client.agent("root").generate("one", memory=on())
        [child] = [r async for r in client.runs.list(include_children=True) if r.parent_run_id]
        own = child.thread_id
        assert (child.resource_id, own != "t") == ("sub-agent:finder:u", True)
        calls = [("look", "result"), ("gated", "pending")]
        assert await said(client, own) == [("user", "find 0", []), ("assistant", "", calls)]
        thread = await client.threads.get(own)
        assert (thread.title, thread.metadata) == ("helper", {"agent_id": "helper", "parent_thread_id": "t"})
        assert thread.active_run_id == first.run_id
        with pytest.raises(ThreadParked):
            await client.threads.delete(own)
        theirs = OnThread(thread=own, resource="sub-agent:finder:u")
        with pytest.raises(RequestInvalid, match="only those of sub-agents"):
            await client.agent("root").generate("mine", memory=theirs)
        with pytest.raises(RequestInvalid, match="only those of sub-agents"):
            await client.threads.create("sub-agent:finder:u")
    async with serving(app, store) as client:
        result = await client.agent("root").approve(first.pending_calls[0])
        assert (result.text, seen) == ("done 0", [("t", "u")])
        calls = [("look", "result"), ("gated", "result")]
        whole = [("user", "find 0", []), ("assistant", "", calls), ("assistant", "found 1", [])]
        assert await said(client, own) == whole
        inner = (await client.runs.get(child.run_id)).result
        assert inner is not None
        assert inner.text == "found 1"

        await client.agent("root").generate("two", memory=on())
        told = prompts(helper)[2]
        assert told[0] == ("user", "find 0")
        assert told[-5:] == [
            ("assistant", "found 1"),
            ("user", "one"),
            ("assistant", "done 0"),
            ("user", "two"),
            ("user", "find 1"),
        ]
        assert len(await said(client, own)) == 5
        runs = [r async for r in client.runs.list(include_children=True) if r.parent_run_id]
        assert {r.thread_id for r in runs} == {own}
        remembered = (await client.runs.get(runs[0].run_id)).result
        assert remembered is not None
        assert [m.text for m in remembered.remembered_messages if m.role == "user"] == ["find 0"]

        await client.agent("root").generate("three", memory=on(read_only=True))
        assert [text for role, text in prompts(helper)[3] if role == "assistant"][:3] == [
            "",
            "found 1",
            "found 2",
        ]
        assert len(await said(client, own)) == 5
        await client.agent("root").generate("four", memory=on("elsewhere"))
        assert prompts(helper)[4] == [("user", "four"), ("user", "find 3")]

        await client.threads.delete("t")
        for gone in ("t", own):
            with pytest.raises(ThreadNotFound):
                await client.threads.get(gone)
        threads = [t.thread_id async for t in client.threads.list()]
        assert len(threads) == 2
        assert "elsewhere" in threads


async def test_what_is_noted_below(store: str) -> None:
    """Each agent has its own notes, of a user or of a thread; two at once do not mix."""

    def noting(text: str) -> list[Any]:
        return [[call("updateWorkingMemory", memory=text)], says("noted")]

    left = agent("left", [*noting("left notes"), says("")], memory=Memory(working_memory=WorkingMemory()))
    right = agent(
        "right",
        [*noting("right notes"), says("")],
        memory=Memory(working_memory=WorkingMemory(scope="thread")),
    )
    both = [delegate("left"), delegate("right")]
    root = agent(
        "root",
        [
            [call("updateWorkingMemory", memory="root notes"), *both],
            says("end"),
            both,
            says("end"),
            both,
            says("end"),
        ],
        agents=[left, right],
        memory=Memory(working_memory=WorkingMemory()),
    )
    async with serving(App(agents=[root]), store) as client:
        await client.agent("root").generate("go", memory=on())
        runs = {r.agent_id: r async for r in client.runs.list(include_children=True)}
        notes = client.threads.working_memory
        assert (await notes(resource_id="u")).content == "root notes"
        assert (await notes(resource_id="sub-agent:left:u")).content == "left notes"
        assert (await notes(thread_id=runs["right"].thread_id)).content == "right notes"
        assert (await notes(resource_id="sub-agent:right:u")).version == 0
        await client.agent("root").generate("again", memory=on())
        for it in (left, right):
            [system] = [text for role, text in prompts(it)[2] if role == "system"]
            assert f"{it.id} notes" in system
            assert "root notes" not in system
        await client.agent("root").generate("again", memory=on(working_memory=False))
        assert model_of(left).requests[-1].tools == []


async def test_a_tree_that_is_cancelled(store: str) -> None:
    """What sub-agents had said stays on their threads, and no call of theirs waits there any more; at any
    depth, also where nobody had entered them again."""
    leaf = agent("leaf", [[{"text": "so far"}, call("gated")]], tools=[counting("gated", [], gated=True)])
    middle = agent("middle", [[delegate("leaf")]], agents=[leaf])
    root = agent("root", [[delegate("middle")]], agents=[middle])
    app = App(agents=[root])
    async with serving(app, store) as client:
        result = await client.agent("root").generate("go", memory=on())
        assert [way(c) for c in result.pending_calls] == ["middle/leaf"]
    async with serving(app, store) as client:
        await client.runs.cancel(result.run_id, wait=True)
        runs = {r.agent_id: r async for r in client.runs.list(include_children=True)}
        assert runs["leaf"].resource_id == "sub-agent:leaf:sub-agent:middle:u"
        assert await said(client, runs["leaf"].thread_id) == [
            ("user", "do it", []),
            ("assistant", "so far", [("gated", "cancelled")]),
        ]
        assert await said(client, runs["middle"].thread_id) == [
            ("user", "do it", []),
            ("assistant", "", [("agent-leaf", "cancelled")]),
        ]


async def test_what_the_thread_keeps_of_a_delegation(store: str) -> None:
    """People see which run it was; later runs are told the answer, and what a hook had to say of it."""

    async def complete(_: Any) -> DelegationVerdict:
        return DelegationVerdict(feedback="check it twice")

    verdict = Hook(kind="delegation_complete", name="verdict", function=complete)
    helper = agent("helper", [says("42")])
    root = agent(
        "root",
        [[delegate("helper")], says("it is 42"), says("still")],
        agents=[helper],
        on_delegation_complete=verdict,
    )
    async with serving(App(agents=[root]), store) as client:
        result = await client.agent("root").generate("go", memory=on())
        [_, asked, _] = [m async for m in client.threads.messages("t")]
        [kept] = asked.tool_invocations
        assert kept.result == results(result.tool_results)["agent-helper"]
        await client.agent("root").generate("and now?", memory=on())
        *_, before, now = model_of(root).requests
        assert [(m.role, m.text) for m in now.messages[:-2]] == [(m.role, m.text) for m in before.messages]
        [told] = [m for m in now.messages if m.role == "tool"]
        assert told.parts[0].output == '"42"'  # type: ignore[union-attr]
        assert ("user", "<delegation>\ncheck it twice\n</delegation>") in prompts(root)[-1]


async def test_two_of_one_agent_side_by_side(store: str) -> None:
    """They share its thread; whoever is told of that later is told of one after the other."""
    helper = agent("helper", [lambda request: script(request)], tools=[counting("gated", [], gated=True)])

    def script(request: Any) -> list[dict[str, Any]]:
        last = request.messages[-1]
        return says(f"done {request.messages[-3].text}") if last.role == "tool" else [call("gated")]

    both = [delegate("helper", "one"), delegate("helper", "two")]
    root = agent("root", [both, says("end"), [delegate("helper", "three")]], agents=[helper])
    async with serving(App(agents=[root]), store) as client:
        result = await client.agent("root").generate("go", memory=on())
        for pending in reversed(result.pending_calls):
            result = await client.agent("root").approve(pending)
        assert result.text == "end"
        await client.agent("root").generate("again", memory=on())
        told = [(role, text) for role, text in prompts(helper)[-1] if role != "tool" and text]
        assert sorted([told[:2], told[2:4]]) == [
            [("user", "one"), ("assistant", "done one")],
            [("user", "two"), ("assistant", "done two")],
        ]
        assert [text for _, text in told[4:]] == ["go", "end", "again", "three"]
