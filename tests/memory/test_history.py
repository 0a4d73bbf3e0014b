"""What a run is told of its thread, and what it adds to it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from entracte import GenerateResult, ThreadOfOtherResource
from entracte_server import Agent, Memory
from entracte_server.testing import scripted
from tests.memory.support import call, on, talking
from tests.stores import default_store

pytestmark = pytest.mark.usefixtures("each_store")


def where(tmp_path: Path) -> dict[str, Any]:
    """One store for several servers."""
    return default_store() or {"store": f"sqlite:///{tmp_path / 'db'}"}


async def test_the_next_run_is_told_what_was_said() -> None:
    async with talking([[{"text": "one"}], [{"text": "two"}]], instructions="OWN") as talk:
        first = await talk.agent.generate("first", memory=on(), system="LATE")
        second = await talk.agent.generate(
            "second", memory=on(), context=[{"role": "user", "content": "ctx"}]
        )
        assert talk.told == [
            [("system", "OWN"), ("system", "LATE"), ("user", "first")],
            [
                ("system", "OWN"),
                ("user", "first"),
                ("assistant", "one"),
                ("user", "ctx"),
                ("user", "second"),
            ],
        ]
        assert [m.text for m in first.remembered_messages] == []
        assert [(m.role, m.text) for m in second.remembered_messages] == [
            ("user", "first"),
            ("assistant", "one"),
        ]
        assert [(m.role, m.text) for m in second.messages] == [("user", "second"), ("assistant", "two")]
        assert (await talk.client.runs.get(second.run_id)).result == second
        # Neither context nor system messages are part of the conversation.
        assert await talk.stored() == [
            ("user", "first"),
            ("assistant", "one"),
            ("user", "second"),
            ("assistant", "two"),
        ]


async def test_a_thread_and_a_run_without_one_do_not_mix() -> None:
    async with talking([[{"text": "ok"}]]) as talk:
        await talk.agent.generate("on t", memory=on("t"))
        await talk.agent.generate("on s", memory=on("s"))
        await talk.agent.generate("on none")
        assert [told[0] for told in talk.told] == [("user", "on t"), ("user", "on s"), ("user", "on none")]
        assert await talk.stored("t") == [("user", "on t"), ("assistant", "ok")]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 12])
async def test_the_window_is_cut_between_exchanges(count: int) -> None:
    turn = [call("echo", 1), call("echo", 2), [{"text": "done"}]]
    async with talking([*turn, *turn, [{"text": "end"}]]) as talk:
        await talk.agent.generate("first", memory=on())
        await talk.agent.generate("second", memory=on())
        result = await talk.agent.generate("third", memory=on(last_messages=count))
        users = [text for role, text in talk.told[-1] if role == "user"]
    # Four messages are stored of each turn.
    expected = {0: [], 1: ["second"], 2: ["second"], 3: ["second"], 4: ["second"]}.get(
        count, ["first", "second"]
    )
    assert users == [*expected, "third"]
    calls = [part for m in result.remembered_messages for part in m.parts if part.type == "tool-call"]
    assert len(calls) == 2 * len(expected)


async def test_old_exchanges_are_left_out_over_the_budget() -> None:
    long = "x" * 4000
    async with talking([[{"text": long}], [{"text": "short"}], [{"text": "end"}]]) as talk:
        await talk.agent.generate("first", memory=on())
        await talk.agent.generate("second", memory=on())
        await talk.agent.generate("third", memory=on(max_history_tokens=900))
        assert [text for role, text in talk.told[-1] if role == "user"] == ["second", "third"]


async def test_the_agent_says_how_much_where_the_caller_does_not() -> None:
    async with talking([[{"text": "ok"}]], memory=Memory(last_messages=2)) as talk:
        for number in range(3):
            await talk.agent.generate(str(number), memory=on())
        await talk.agent.generate("last", memory=on(last_messages=4))
        users = [[text for role, text in told if role == "user"] for told in talk.told]
        assert users == [["0"], ["0", "1"], ["1", "2"], ["1", "2", "last"]]


async def test_what_waits_is_on_the_thread_before_it_is_announced(tmp_path: Path) -> None:
    store = where(tmp_path)
    script = [[{"text": "asking "}, *call("gated", 1)], [{"text": "done"}]]
    async with talking(script, store=store) as talk:
        suspended = await talk.agent.generate("please", memory=on())
        assert suspended.finish_reason == "suspended"
        assert await talk.stored() == [("user", "please"), ("assistant", "asking ")]
        messages = [message async for message in talk.client.threads.messages("t")]
        [part] = [part for part in messages[1].parts if part.type == "tool-invocation"]
        assert (part.tool_call_id, part.state, part.args) == ("c1", "pending", {"msg": "1"})
        thread = await talk.client.threads.get("t")
        assert (thread.active_run_id, thread.active_run_state) == (suspended.run_id, "suspended")
    async with talking(script[1:], store=store) as talk:
        # The run's own messages are not trimmed, whatever the window.
        result = await talk.agent.approve(suspended.pending_calls[0])
        assert result.text == "asking done"
        assert [role for role, _ in talk.told[0]] == ["user", "assistant", "tool"]
        messages = [message async for message in talk.client.threads.messages("t")]
        assert [(m.role, m.position) for m in messages] == [("user", 1), ("assistant", 2), ("assistant", 3)]
        [part] = [part for part in messages[1].parts if part.type == "tool-invocation"]
        assert (part.state, part.result) == ("result", "gated 1")
        thread = await talk.client.threads.get("t")
        assert (thread.active_run_id, thread.message_count) == ("", 3)


async def test_what_is_remembered_holds_over_suspensions(tmp_path: Path) -> None:
    store = where(tmp_path)
    script = [[{"text": "one"}], call("gated", 1), [{"text": "end"}]]
    async with talking(script, store=store) as talk:
        await talk.agent.generate("first", memory=on())
        suspended = await talk.agent.generate("second", memory=on(last_messages=1))
    async with talking(script[2:], store=store) as talk:
        result = await talk.agent.approve(suspended.pending_calls[0])
        assert [m.text for m in result.remembered_messages] == ["first", "one"]
        assert [text for role, text in talk.told[0] if role == "user"] == ["first", "second"]


async def test_a_run_that_only_reads_writes_nothing() -> None:
    async with talking([[{"text": "one"}]]) as talk:
        result = await talk.agent.generate("hi", memory=on("new", read_only=True))
        assert result.text == "one"
        assert [thread async for thread in talk.client.threads.list()] == []
        await talk.agent.generate("hi", memory=on())
        result = await talk.agent.generate("again", memory=on(read_only=True))
        assert [m.text for m in result.remembered_messages] == ["hi", "one"]
        assert await talk.stored() == [("user", "hi"), ("assistant", "one")]


async def test_to_remember_and_to_save_are_two_things() -> None:
    async with talking([[{"text": "ok"}]]) as talk:
        await talk.agent.generate("kept", memory=on(last_messages=0))
        await talk.agent.generate("not kept", memory=on(save_messages=False))
        assert await talk.stored() == [("user", "kept"), ("assistant", "ok")]
        assert talk.told[1] == [("user", "kept"), ("assistant", "ok"), ("user", "not kept")]


async def test_what_was_cut_off_is_kept_and_not_told() -> None:
    async with talking([[{"text": "half "}, {"delay": 600_000}], [{"text": "whole"}]]) as talk:
        stream = talk.agent.stream("first", memory=on())
        async for chunk in stream:
            if chunk.type == "text-delta":
                break
        await talk.client.runs.cancel(stream.run_id, wait=True)
        messages = [message async for message in talk.client.threads.messages("t")]
        assert [(m.role, m.text, m.aborted) for m in messages] == [
            ("user", "first", False),
            ("assistant", "half ", True),
        ]
        await talk.agent.generate("second", memory=on())
        assert talk.told[-1] == [("user", "first"), ("user", "second")]


async def test_a_cancelled_call_has_a_result() -> None:
    async with talking([call("gated", 1), [{"text": "on"}]]) as talk:
        suspended = await talk.agent.generate("first", memory=on())
        await talk.client.runs.cancel(suspended.run_id, wait=True)
        result = await talk.agent.generate("second", memory=on())
        assert [m.role for m in result.remembered_messages] == ["user", "assistant", "tool"]


async def test_a_call_that_waits_is_told_where_that_is_asked_for() -> None:
    async with talking([call("gated", 1), [{"text": "on"}], [{"text": "on"}]]) as talk:
        await talk.agent.generate("first", memory=on())
        left_out = await talk.agent.generate("second", memory=on(read_only=True))
        told = await talk.agent.generate(
            "second", memory=on(read_only=True, filter_incomplete_tool_calls=False)
        )
        assert [m.role for m in left_out.remembered_messages] == ["user"]
        assert [m.role for m in told.remembered_messages] == ["user", "assistant", "tool"]


async def test_a_failed_run_leaves_the_question_and_why() -> None:
    async with talking([[{"error": "broken"}], [{"text": "fine"}]]) as talk:
        failed = await talk.agent.generate("first", memory=on())
        assert failed.error is not None
        messages = [message async for message in talk.client.threads.messages("t")]
        assert [m.role for m in messages] == ["user", "assistant"]
        assert [part.type for part in messages[1].parts] == ["error"]
        await talk.agent.generate("second", memory=on())
        assert talk.told[-1] == [("user", "first"), ("user", "second")]


@pytest.mark.parametrize("each", [True, False])
async def test_each_step_is_saved_where_that_is_asked_for(each: bool) -> None:
    async with talking([[{"text": "s1 "}, *call("echo", 1)], [{"text": "s2 "}, {"delay": 600_000}]]) as talk:
        stream = talk.agent.stream("hi", memory=on(), save_per_step=each)
        async for chunk in stream:
            if chunk.type == "text-delta" and chunk.text == "s2 ":
                break
        stored = await talk.stored()
        await talk.client.runs.cancel(stream.run_id, wait=True)
    assert stored == [("user", "hi"), ("assistant", "s1 ")][: 2 if each else 1]


async def test_a_thread_is_one_resources() -> None:
    async with talking([[{"text": "ok"}]]) as talk:
        await talk.agent.generate("mine", memory=on("t", "u"))
        with pytest.raises(ThreadOfOtherResource):
            await talk.agent.generate("yours", memory=on("t", "v"))
        assert len(talk.told) == 1


async def test_nothing_that_was_said_is_written_over() -> None:
    """Clients number their messages as they like: what another run said by an id stays, and what says the
    same by the same id is that."""

    def said(text: str, id: str) -> dict[str, Any]:
        return {"role": "user", "content": text, "id": id}

    async with talking([[{"text": "ok"}]]) as talk:
        await talk.agent.generate([said("one", "1"), said("two", "1")], memory=on())
        await talk.agent.generate([said("three", "1"), said("four", "2")], memory=on())
        whole = [said("three", "9"), said("four", "2"), said("five", "3")]
        await talk.agent.generate(whole, memory=on(), input_processors=[])
        texts = [text for role, text in await talk.stored() if role == "user"]
        assert texts == ["one", "two", "three", "four", "three", "five"]
        ids = [message.id async for message in talk.client.threads.messages("t")]
        assert len(set(ids)) == len(ids)
        assert {"1", "2", "9", "3"} < set(ids)
        assert [text for role, text in talk.told[1] if role == "user"] == ["one", "two", "three", "four"]


async def test_a_client_may_send_the_whole_conversation_each_time() -> None:
    """By the ids of its messages it is kept and told once."""
    script: list[Any] = [call("echo", 1), [{"text": "one"}], [{"text": "two"}], [{"text": "three"}]]
    async with talking(script) as talk:
        sent: list[Any] = [{"role": "user", "content": "first", "id": "m1"}]
        for number in (2, 3, 4):
            result = await talk.agent.generate(sent, memory=on())
            sent = [*result.messages, {"role": "user", "content": f"m{number}", "id": f"m{number}"}]
        texts = [("user", "first"), ("assistant", ""), ("assistant", "one")]
        texts += [("user", "m2"), ("assistant", "two"), ("user", "m3"), ("assistant", "three")]
        assert await talk.stored() == texts
        told = [(role, text) for role, text in talk.told[-1] if role != "tool"]
        assert told == texts[:-1]
        # What was said once more, and nothing else, is asked once more.
        await talk.agent.generate([{"role": "user", "content": "m3", "id": "m3"}], memory=on())
        assert talk.told[-1][-1] == ("user", "m3")


async def test_what_models_are_not_told_takes_nothing_of_the_budget() -> None:
    cited = [{"source": f"https://x.example/{number}", "title": "x"} for number in range(9)]
    async with talking([[{"text": "ok"}, *cited]]) as talk:
        for word in ("one", "two", "three"):
            await talk.agent.generate(word, memory=on(max_history_tokens=900))
        assert [text for role, text in talk.told[2] if role == "user"] == ["one", "two", "three"]


async def test_what_a_sub_agent_said_is_told_later_as_it_was_told_then() -> None:
    helper = Agent(id="helper", model=scripted([[{"text": "it is 42"}]]), description="Helps.")
    script: list[Any] = [
        [{"tool": "agent-helper", "id": "c1", "args": {"prompt": "look"}}],
        [{"text": "42"}],
    ]
    async with talking(script, agents=[helper]) as talk:
        await talk.agent.generate("what is it?", memory=on())
        await talk.agent.generate("and now?", memory=on())
        then, later = (
            [part for message in request.messages if message.role == "tool" for part in message.parts]
            for request in talk.model.requests[1:]
        )
        assert then == later
        assert "run_id" not in str(later)


async def test_what_was_said_on_a_thread_of_the_name_that_is_another_s_is_not_told(tmp_path: Path) -> None:
    """A run that only reads holds on to nothing: its thread may be deleted, and made anew for another."""
    script: list[Any] = [[{"text": "one"}], call("gated", 1), [{"text": "ok"}], [{"text": "done"}]]
    async with talking(script, store=where(tmp_path)) as talk:
        await talk.agent.generate("of u", memory=on())
        parked = await talk.agent.generate("read", memory=on(read_only=True))
        assert [m.text for m in parked.remembered_messages] == ["of u", "one"]
        await talk.client.threads.delete("t")
        await talk.agent.generate("secret of v", memory=on(resource="v"))
        result = await talk.agent.approve(parked.pending_calls[0])
        assert result.text == "done"
        assert result.remembered_messages == ()
        assert "secret of v" not in str(talk.told[-1])


async def test_a_deleted_thread_gets_nothing_more() -> None:
    async with talking([call("gated", 1), [{"text": "on"}]]) as talk:
        suspended = await talk.agent.generate("first", memory=on())
        await talk.client.threads.delete("t", force=True)

        async def ended() -> GenerateResult:
            while True:
                run = await talk.client.runs.get(suspended.run_id)
                if run.state == "cancelled":
                    assert run.result is not None
                    return run.result
                await asyncio.sleep(0.02)

        async with asyncio.timeout(20):
            await ended()
        result = await talk.agent.generate("second", memory=on())
        assert not result.remembered_messages
        assert await talk.stored() == [("user", "second"), ("assistant", "on")]
