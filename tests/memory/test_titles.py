"""Titles: given after the reply, by a follow-up job, to threads that have none."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from entracte import Client, FollowUp, RequestInvalid
from entracte_server import Agent, App, Memory
from entracte_server.engine import follow_ups
from entracte_server.models.base import ModelEvent, ModelRequest
from entracte_server.store.base import StoreUnavailable
from entracte_server.testing import ScriptedModel, scripted, serve
from entracte_server.testing.server import TestServer
from tests.memory.support import TOOLS, call, on, talking
from tests.memory.test_history import where
from tests.rpc.support import until

pytestmark = pytest.mark.usefixtures("each_store")

TITLED = Memory(generate_title=True)
OK = [{"text": "ok"}]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails is tried again soon."""
    monkeypatch.setattr(follow_ups, "DELAYS", (0.02, 0.02))
    monkeypatch.setattr(follow_ups, "LOOK_SECONDS", 0.05)


async def title_job(client: Client, run_id: str) -> FollowUp:
    """What came of it."""
    [found] = await client.runs.follow_ups(run_id, timeout=20)
    assert (found.kind, found.name, found.scorer) == ("title", "title", "")
    return found


async def title(client: Client, thread: str = "t") -> str:
    return (await client.threads.get(thread)).title


async def test_a_thread_is_given_a_title_after_the_reply() -> None:
    answers = [[{"text": "Lisbon is sunny."}], [{"text": '\n"Weather in\x07 Lisbon"\n\nI chose it.'}], OK]
    async with talking(answers, memory=TITLED) as talk:
        result = await talk.agent.generate("how is Lisbon?", memory=on())
        assert result.text == "Lisbon is sunny."
        found = await title_job(talk.client, result.run_id)
        assert (found.state, found.title, found.score) == ("succeeded", "Weather in Lisbon", None)
        assert (found.attempts, found.usage.total_tokens) == (1, 15)
        assert await title(talk.client) == "Weather in Lisbon"
        assert (await talk.client.runs.get(result.run_id)).follow_ups == (found,)
        # What it cost is not the run's, and nothing of it is on the thread.
        assert (await talk.client.runs.get(result.run_id)).usage.total_tokens == 15
        assert await talk.stored() == [("user", "how is Lisbon?"), ("assistant", "Lisbon is sunny.")]
        again = await talk.agent.generate("and Porto?", memory=on())
        assert await talk.client.runs.follow_ups(again.run_id, timeout=20) == ()
    asked = talk.model.requests[1]
    assert [message.role for message in asked.messages] == ["system", "user"]
    assert "how is Lisbon?" in asked.messages[1].text
    assert "Lisbon is sunny." in asked.messages[1].text
    assert not asked.tools
    assert len(talk.model.requests) == 3


async def test_the_caller_asks_for_it_or_not() -> None:
    async with talking([OK]) as talk:
        result = await talk.agent.generate("hi", memory=on("asked", generate_title=True))
        assert (await title_job(talk.client, result.run_id)).title == "ok"
        for number, memory in enumerate((on("plain"), on("off", generate_title=False))):
            result = await talk.agent.generate(f"hi {number}", memory=memory)
            assert await talk.client.runs.follow_ups(result.run_id, timeout=20) == ()
    async with talking([OK], memory=TITLED) as talk:
        for memory in (
            on("off", generate_title=False),
            on("reads", read_only=True),
            on("unsaved", save_messages=False),
        ):
            result = await talk.agent.generate("hi", memory=memory)
            assert await talk.client.runs.follow_ups(result.run_id, timeout=20) == ()
        await talk.client.threads.create("u", thread_id="named", title="My own")
        result = await talk.agent.generate("hi", memory=on("named"))
        assert await talk.client.runs.follow_ups(result.run_id, timeout=20) == ()
        assert await title(talk.client, "named") == "My own"
        for wrong in ("read_only", "save_messages"):
            options: dict[str, Any] = {wrong: wrong == "read_only"}
            memory = on(generate_title=True, **options)
            with pytest.raises(RequestInvalid, match="generate_title"):
                await talk.agent.generate("hi", memory=memory)


async def test_only_results_are_named(tmp_path: Path) -> None:
    model = scripted([call("gated", 1), [{"throw": "broken"}]])
    app = App(agents=[Agent(id="a", model=model, tools=TOOLS, memory=TITLED)])
    async with serve(app, **where(tmp_path)) as server, Client(server.address) as client:
        suspended = await client.agent("a").generate("hi", memory=on())
        assert await server.store.follow_ups("local", [suspended.run_id]) == []
        failed = await client.agent("a").approve(suspended.pending_calls[0])
        assert failed.finish_reason == "error"
        assert await server.store.follow_ups("local", [failed.run_id]) == []
        assert await title(client) == ""


async def test_a_model_of_its_own_makes_it() -> None:
    namer = scripted([[{"text": "Short"}]], name="scripted/namer")
    memory = Memory(generate_title=True, title_model=namer, title_instructions="Name it shortly.")
    async with talking([OK], memory=memory) as talk:
        result = await talk.agent.generate("hi", memory=on())
        assert (await title_job(talk.client, result.run_id)).title == "Short"
    [request] = namer.requests
    assert request.messages[0].text == "Name it shortly."
    assert len(talk.model.requests) == 1


async def test_what_fails_is_tried_again_and_given_up() -> None:
    namer = scripted([[{"throw": "not now"}], [{"text": " \n"}], [{"text": "At last"}]], name="scripted/n")
    async with talking([OK], memory=Memory(generate_title=True, title_model=namer)) as talk:
        result = await talk.agent.generate("hi", memory=on())
        found = await title_job(talk.client, result.run_id)
        assert (found.state, found.title, found.attempts) == ("succeeded", "At last", 3)
        assert found.error == ""
    namer = scripted([[{"throw": "never"}]], name="scripted/n")
    async with talking([OK], memory=Memory(generate_title=True, title_model=namer)) as talk:
        result = await talk.agent.generate("hi", memory=on("s"))
        found = await title_job(talk.client, result.run_id)
        assert (found.state, found.title, found.attempts) == ("failed", None, 3)
        assert "never" in found.error
        assert await title(talk.client, "s") == ""
        # The next reply is another chance.
        result = await talk.agent.generate("hi", memory=on("s"))
        assert (await title_job(talk.client, result.run_id)).state == "failed"


class Waiting(ScriptedModel):
    """Answers when it is let."""

    def __init__(self) -> None:
        super().__init__([[{"text": "Made late"}]], name="scripted/waiting")
        self.go_on = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[list[ModelEvent]]:
        """See `Model`."""
        self.requests.append(request)
        await self.go_on.wait()
        async for batch in super().stream(request):
            yield batch


@asynccontextmanager
async def waiting(
    **store: Any,
) -> AsyncIterator[tuple[TestServer, Client, Waiting, str]]:
    """A run on the thread `t` whose title is being made."""
    namer = Waiting()
    memory = Memory(generate_title=True, title_model=namer)
    app = App(agents=[Agent(id="a", model=scripted([OK]), memory=memory)])
    async with serve(app, **store) as server, Client(server.address) as client:
        result = await client.agent("a").generate("secret of u", memory=on())
        await until(lambda: bool(namer.requests), "the model is asked for a title")
        yield server, client, namer, result.run_id


async def test_a_title_that_came_first_stays(tmp_path: Path) -> None:
    async with waiting(**where(tmp_path)) as (_, client, namer, run_id):
        await client.threads.update("t", title="My own")
        namer.go_on.set()
        found = await title_job(client, run_id)
        assert (found.state, found.title) == ("skipped", None)
        assert await title(client) == "My own"


async def test_another_thread_of_the_name_gets_no_title_of_the_old_one(tmp_path: Path) -> None:
    async with waiting(**where(tmp_path)) as (server, client, namer, _):
        await client.threads.delete("t")
        await client.threads.create("somebody", thread_id="t")
        namer.go_on.set()
        await until(lambda: not server.engine._follow_ups._tasks, "the job ends")
        assert await title(client) == ""


async def test_a_title_that_was_given_is_not_given_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt that gave it could not write down that it had."""
    monkeypatch.setattr(follow_ups, "MARGIN", 0.1 - 60.0)
    async with waiting(**where(tmp_path)) as (server, client, namer, run_id):
        settle = server.store.settle_follow_up
        failed: list[Any] = []

        async def fails_once(row: Any) -> bool:
            if not failed:
                failed.append(row)
                raise StoreUnavailable("gone for a moment")
            return await settle(row)

        monkeypatch.setattr(server.store, "settle_follow_up", fails_once)
        namer.go_on.set()
        found = await title_job(client, run_id)
        assert (found.state, found.title, found.attempts) == ("succeeded", "Made late", 2)
        assert len(failed) == 1
        assert len(namer.requests) == 2  # counted when it began and when it answered


async def test_a_callback_is_told() -> None:
    titles: list[str] = []
    async with talking([OK, [{"text": "Greeting"}], OK], memory=TITLED) as talk:
        await talk.agent.generate("hi", memory=on(), on_title_generated=titles.append)
        assert titles == ["Greeting"]
        stream = talk.agent.stream("hi", memory=on(), on_title_generated=titles.append)
        assert [chunk.type async for chunk in stream][-1] == "finish"
    assert titles == ["Greeting"]


async def test_two_models_of_one_name_are_refused() -> None:
    agents = [
        Agent(id=id, model=scripted([OK]), memory=Memory(title_model=scripted([OK], name="scripted/same")))
        for id in "ab"
    ]
    with pytest.raises(ValueError, match="two title models are called 'scripted/same'"):
        async with serve(App(agents=agents)):
            pass
