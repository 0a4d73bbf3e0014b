"""Conversations that outlive their runs: never cut in the wrong place, never mixed up, never stuck."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from entracte import Client, GenerateResult, ThreadBusy
from entracte_server import Agent, App
from entracte_server.testing import scripted, serve
from tests.cases.support import paired, told_calls
from tests.memory.support import call, on, talking
from tests.memory.test_history import where

pytestmark = pytest.mark.usefixtures("each_store")

QUESTION = {"question": "Which colour?", "options": [{"label": "red"}, {"label": "blue"}]}


async def test_a_run_s_own_question_is_no_old_history() -> None:
    """SR-12: the next request holds the question and its answer, whatever the window."""
    asking = [{"tool": "ask_user", "id": "c9", "args": QUESTION}]
    async with talking([[{"text": "one"}], asking, [{"text": "end"}]]) as talk:
        await talk.agent.generate("first", memory=on())
        suspended = await talk.agent.generate("second", memory=on(last_messages=2))
        result = await talk.agent.resume(suspended.pending_calls[0], "blue")
        assert result.text == "end"
        assert [name for name, _ in told_calls(talk.model.requests[-1])] == ["c9"]
        assert [role for role, _ in talk.told[-1]] == ["user", "assistant", "user", "assistant", "tool"]


async def test_what_waits_is_stored_before_it_is_announced() -> None:
    """SR-19: another client reads the question, the text and the open call while the run waits."""
    async with talking([[{"text": "asking "}, *call("gated", 1)]]) as talk, Client(talk.address) as other:
        async for chunk in talk.agent.stream("please", memory=on()):
            if chunk.type == "finish":
                messages = [message async for message in other.threads.messages("t")]
                assert [(m.role, m.text) for m in messages] == [("user", "please"), ("assistant", "asking ")]
                assert [p.state for p in messages[1].parts if p.type == "tool-invocation"] == ["pending"]


async def test_every_window_is_valid() -> None:
    """ME-01: a thread of tool turns, told through every window: a call comes with its result."""
    turn = [call("echo", 1), call("echo", 2), [{"text": "done"}]]
    async with talking([*turn, *turn, *turn, [{"text": "end"}]]) as talk:
        for number in range(3):
            await talk.agent.generate(str(number), memory=on())
        for count in range(1, 13):
            await talk.agent.generate("look", memory=on(last_messages=count, read_only=True))
            assert talk.told[-1][0][0] == "user"


@pytest.mark.parametrize("seed", range(3))
async def test_every_path_is_valid(seed: int) -> None:
    """ME-02: turns with tools, questions, refusals and cancellations, told through windows of any size by
    generate, stream and resume."""
    rng = random.Random(seed)
    kinds = {"text": [{"text": "ok"}], "echo": call("echo", 1), "gated": call("gated", 2)}
    script = [kinds[rng.choice(list(kinds))] for _ in range(40)]
    async with talking(script, max_steps=30) as talk:
        for number in range(8):
            memory = on(last_messages=rng.randint(0, 9))
            if rng.random() < 0.5:
                result = await talk.agent.generate(str(number), memory=memory)
            else:
                result = await talk.agent.stream(str(number), memory=memory).result()
            while result.finish_reason == "suspended":
                waiting = result.pending_calls[0]
                match rng.choice(("approve", "decline", "cancel")):
                    case "approve":
                        result = await talk.agent.approve(waiting)
                    case "decline":
                        result = await talk.agent.decline(waiting, reason="no")
                    case _:
                        await talk.client.runs.cancel(result.run_id, wait=True)
                        break
    assert len(talk.model.requests) >= 8


async def test_ten_messages_at_once(tmp_path: Path) -> None:
    """ME-03: over two servers, with and without a queue: a valid history with every accepted message."""
    store = where(tmp_path)
    model = scripted(lambda request: [{"text": f"to {request.messages[-1].text}"}])
    app = App(agents=[Agent(id="a", model=model)])
    async with (
        serve(app, **store) as one,
        serve(app, **store) as two,
        Client(one.address) as first,
        Client(two.address) as second,
    ):

        async def say(number: int, memory: Any) -> GenerateResult | None:
            try:
                return await (first, second)[number % 2].agent("a").generate(str(number), memory=memory)
            except ThreadBusy:
                return None

        for thread, busy in (("queued", "queue"), ("refused", "refuse")):
            memory = on(thread, on_busy_thread=busy, last_messages=50)
            results = await asyncio.gather(*(say(number, memory) for number in range(10)))
            accepted = [str(number) for number, result in enumerate(results) if result is not None]
            stored = [(m.role, m.text) async for m in first.threads.messages(thread)]
            asked = [text for role, text in stored if role == "user"]
            assert sorted(asked) == accepted
            assert stored == [
                pair for text in asked for pair in (("user", text), ("assistant", f"to {text}"))
            ]
            assert accepted if busy == "refuse" else len(accepted) == 10
    assert all(map(paired, model.requests))
