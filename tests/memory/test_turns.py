"""One run at a time has a thread: the others are refused, wait, or take its place."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from entracte import Client, EntracteError, GenerateResult, ThreadBusy, ThreadParked, ThreadQueueFull
from entracte_server import Agent, App
from entracte_server.testing import scripted, serve
from tests.cases.support import paired
from tests.memory.support import call, on, talking
from tests.memory.test_history import where

pytestmark = pytest.mark.usefixtures("each_store")

FOREVER = 600_000


async def test_a_second_message_is_refused() -> None:
    async with talking([[{"text": "a"}, {"delay": FOREVER}]]) as talk:
        stream = talk.agent.stream("first", memory=on())
        async for chunk in stream:
            if chunk.type == "text-delta":
                break
        with pytest.raises(ThreadBusy) as refused:
            await talk.agent.generate("second", memory=on())
        assert refused.value.metadata["run_id"] == stream.run_id
        await talk.client.runs.cancel(stream.run_id)


async def test_a_message_for_a_parked_thread_is_refused_and_names_the_calls() -> None:
    async with talking([call("gated", 1)]) as talk:
        suspended = await talk.agent.generate("first", memory=on())
        with pytest.raises(ThreadParked) as refused:
            await talk.agent.generate("second", memory=on(on_busy_thread="queue"))
        assert refused.value.metadata["run_id"] == suspended.run_id
        assert refused.value.metadata["pending_call_ids"] == suspended.pending_calls[0].pending_call_id


async def test_a_message_takes_the_place_of_a_parked_run() -> None:
    async with talking([call("gated", 1), [{"text": "instead"}]]) as talk:
        suspended = await talk.agent.generate("first", memory=on())
        result = await talk.agent.generate("second", memory=on(on_parked_thread="cancel"))
        assert result.text == "instead"
        assert (await talk.client.runs.get(suspended.run_id)).state == "cancelled"
        assert [m.role for m in result.remembered_messages] == ["user", "assistant", "tool"]
        with pytest.raises(EntracteError):
            await talk.agent.approve(suspended.pending_calls[0])


async def test_a_message_waits_for_a_parked_run() -> None:
    async with talking([call("gated", 1), [{"text": "one"}], [{"text": "two"}]]) as talk:
        suspended = await talk.agent.generate("first", memory=on())
        waiting = asyncio.ensure_future(
            talk.agent.generate("second", memory=on(on_parked_thread="queue"), run_id="waits")
        )
        await state_of(talk.client, "waits", "queued")
        assert (await talk.client.threads.get("t")).queued_runs == 1
        await talk.agent.approve(suspended.pending_calls[0])
        result = await waiting
        assert [m.text for m in result.remembered_messages if m.role != "tool"] == ["first", "", "one"]


async def state_of(client: Client, run_id: str, state: str) -> None:
    """Until a run is in a state."""
    async with asyncio.timeout(20):
        while True:
            try:
                if (await client.runs.get(run_id)).state == state:
                    return
            except EntracteError:
                pass
            await asyncio.sleep(0.02)


async def test_who_waits_for_too_long_fails() -> None:
    async with talking([call("gated", 1)]) as talk:
        await talk.agent.generate("first", memory=on())
        result = await talk.agent.generate("second", memory=on(on_parked_thread="queue", queue_timeout=0.05))
        assert (result.finish_reason, result.stop_cause) == ("error", "timeout")
        assert result.error is not None
        assert result.error.kind == "queue_timeout"
        assert await talk.stored() == [("user", "first"), ("assistant", "")]


async def test_a_full_queue_takes_no_more() -> None:
    async with talking([call("gated", 1)], settings={"thread_queue": 1}) as talk:
        await talk.agent.generate("first", memory=on())
        memory = on(on_parked_thread="queue")
        waiting = asyncio.ensure_future(talk.agent.generate("second", memory=memory, run_id="waits"))
        await state_of(talk.client, "waits", "queued")
        with pytest.raises(ThreadQueueFull):
            await talk.agent.generate("third", memory=memory)
        await talk.client.runs.cancel("waits", wait=True)
        assert (await waiting).finish_reason == "aborted"
        assert (await talk.client.threads.get("t")).queued_runs == 0


async def test_ten_messages_at_once_over_two_processes(tmp_path: Path) -> None:
    """Each is in the history whole, one after the other, whoever executes it."""
    store = where(tmp_path)
    model = scripted(lambda request: [{"text": f"to {request.messages[-1].text}"}])
    app = App(agents=[Agent(id="a", model=model)])
    async with (
        serve(app, **store) as one,
        serve(app, **store) as two,
        Client(one.address) as first,
        Client(two.address) as second,
    ):
        memory = on(on_busy_thread="queue", last_messages=50)
        results: list[GenerateResult] = await asyncio.gather(
            *(
                (first, second)[number % 2].agent("a").generate(str(number), memory=memory)
                for number in range(10)
            )
        )
        stored = [(m.role, m.text) async for m in first.threads.messages("t")]
    assert [result.text for result in results] == [f"to {number}" for number in range(10)]
    questions = [text for role, text in stored if role == "user"]
    assert sorted(questions) == sorted(map(str, range(10)))
    assert stored == [pair for text in questions for pair in (("user", text), ("assistant", f"to {text}"))]
    told = sorted(len(request.messages) for request in model.requests)
    assert told == [1 + 2 * number for number in range(10)]
    assert all(map(paired, model.requests))


async def test_refused_or_accepted_over_two_processes(tmp_path: Path) -> None:
    """Without a queue every message is either in the history or refused."""
    store = where(tmp_path)
    model = scripted(lambda request: [{"text": f"to {request.messages[-1].text}"}])
    app = App(agents=[Agent(id="a", model=model)])
    async with (
        serve(app, **store) as one,
        serve(app, **store) as two,
        Client(one.address) as first,
        Client(two.address) as second,
    ):
        results = await asyncio.gather(
            *(
                (first, second)[number % 2].agent("a").generate(str(number), memory=on())
                for number in range(10)
            ),
            return_exceptions=True,
        )
        stored = [(m.role, m.text) async for m in first.threads.messages("t")]
    accepted = {str(n) for n, result in enumerate(results) if isinstance(result, GenerateResult)}
    assert accepted
    assert all(isinstance(result, (GenerateResult, ThreadBusy)) for result in results)
    questions = [text for role, text in stored if role == "user"]
    assert set(questions) == accepted
    assert len(questions) == len(accepted)


async def test_who_waits_is_started_when_the_process_that_took_him_is_gone(tmp_path: Path) -> None:
    store = where(tmp_path)
    script: list[Any] = [call("gated", 1), [{"text": "one"}], [{"text": "two"}]]
    async with talking(script, store=store) as talk:
        suspended = await talk.agent.generate("first", memory=on())
        waiting = asyncio.ensure_future(
            talk.agent.generate("second", memory=on(on_parked_thread="queue"), run_id="waits")
        )
        await state_of(talk.client, "waits", "queued")
        waiting.cancel()
        await asyncio.wait([waiting])
    async with talking(script[1:], store=store) as talk:
        await talk.agent.approve(suspended.pending_calls[0])
        await state_of(talk.client, "waits", "succeeded")
        assert [text for role, text in await talk.stored() if role == "assistant"] == ["", "one", "two"]


async def test_deleting_a_parked_run_frees_its_thread() -> None:
    async with talking([call("gated", 1), [{"text": "two"}]]) as talk:
        suspended = await talk.agent.generate("first", memory=on())
        waiting = asyncio.ensure_future(
            talk.agent.generate("second", memory=on(on_parked_thread="queue"), run_id="waits")
        )
        await state_of(talk.client, "waits", "queued")
        await talk.client.runs.delete(suspended.run_id, force=True)
        assert (await waiting).text == "two"
