"""A long thread: the next turn costs what it costs on a short one, and deleting it leaves nothing."""

import asyncio
import contextlib
import itertools
from pathlib import Path
from typing import Any

import pytest

from entracte import Client, NotFound
from entracte_server import Agent, App, Memory, ScorerInput, SemanticRecall, scorer
from entracte_server.engine.runlog import now_ms
from entracte_server.models.base import ModelRequest
from entracte_server.store.base import Retention
from entracte_server.testing import scripted, serve
from tests.memory.databases import Database, PostgresDatabase, SQLiteFile, Tables, client_of
from tests.memory.support import TOOLS, call, on
from tests.memory.test_recall import Topics

pytestmark = pytest.mark.usefixtures("each_store")

BATCH = 100
"""Messages that one run adds where a thread is to become long fast."""

MANY = 10
"""Such runs: a thousand messages."""


@pytest.fixture
def database(request: pytest.FixtureRequest, each_store: None, tmp_path: Path) -> Database:
    """The database of the test."""
    if request.node.callspec.params["each_store"] == "sqlite":
        return SQLiteFile(tmp_path / "entracte.db")
    return PostgresDatabase(request.getfixturevalue("postgres"), request.getfixturevalue("postgres_database"))


@scorer
async def fine(given: ScorerInput) -> float:
    """All is well."""
    return 1.0


async def say_much(client: Client, batches: int, thread: str = "t") -> None:
    """Make a thread longer, by a hundred messages each time."""
    said = [
        {"role": "assistant" if number % 2 else "user", "content": f"Message {number}. " * 5}
        for number in range(BATCH - 1)
    ]
    for _ in range(batches):
        await client.agent("a").generate(said, memory=on(thread, last_messages=0))


async def test_a_turn_costs_the_same_however_long_the_thread_is(database: Database) -> None:
    model = scripted(lambda request: [{"text": "Yes."}])
    app = App(agents=[Agent(id="a", model=model)])

    async def turn(client: Client) -> None:
        result = await client.agent("a").generate("And now?", memory=on())
        # Whole exchanges: ten messages, the oldest of which is a user's.
        assert len(result.remembered_messages) == 10
        assert len(model.requests[-1].messages) == 11
        await client.threads.get("t")
        page = await client.threads.messages_page("t", newest_first=True, page_size=2)
        assert [message.text for message in page.items] == ["Yes.", "And now?"]

    async with client_of(app, database) as client:
        await say_much(client, 1)
    short = await database.read_by(app, turn)
    async with client_of(app, database) as client:
        await say_much(client, MANY)
        assert (await client.threads.get("t")).message_count > MANY * BATCH
    long = await database.read_by(app, turn)
    assert long < short + MANY * BATCH // 4


async def test_storage_grows_with_what_is_said(database: Database) -> None:
    """However much each run remembers of it."""
    turns, words = 25, "word " * 200
    told: list[int] = []
    sizes: list[int] = []
    model = scripted(lambda request: [{"text": f"Answer. {words}"}])
    app = App(agents=[Agent(id="a", model=model)])
    for _ in range(3):
        async with client_of(app, database) as client:
            for number in range(turns):
                question = f"Question {number}. {words}"
                await client.agent("a").generate(question, memory=on(last_messages=1000))
        told.append(len(model.requests[-1].messages))
        sizes.append(database.size())
    assert told == [turns * 2 * times - 1 for times in (1, 2, 3)]
    grown = [later - earlier for earlier, later in itertools.pairwise(sizes)]
    assert max(grown) < 1.4 * min(grown)
    # A text is on the thread, in its run, and in the log of its run.
    assert max(grown) / (2 * turns) < 5 * len(words)


async def test_deleting_leaves_nothing(database: Database) -> None:
    def script(request: ModelRequest) -> Any:
        said = request.messages[-1]
        if said.role == "tool":
            return [{"text": "done"}]
        return call("gated", 1) if said.text == "ask" else [{"text": "pre "}, *call("echo", 2)]

    model = scripted(script)
    mind = Memory(semantic_recall=SemanticRecall(Topics()))
    app = App(agents=[Agent(id="a", model=model, tools=TOOLS, scorers=[fine], memory=mind)])
    async with serve(app, store=database.store) as server, Client(server.address) as client:
        agent, store = client.agent("a"), server.store

        async def turns(thread: str) -> None:
            """All that a thread may have: runs that ended, a decision, and a run that waits."""
            asked = await agent.generate("ask", memory=on(thread))
            await agent.approve(asked.pending_calls[0])
            ended = await agent.generate("again", memory=on(thread))
            await client.runs.follow_ups(ended.run_id)
            await say_much(client, 2, thread)
            await agent.generate("ask", memory=on(thread))

        await turns("stays")
        await settled(client, "stays", 5)
        before = database.tables()
        await turns("t")
        waiting = asyncio.ensure_future(
            agent.generate("wait", memory=on(on_parked_thread="queue"), timeout=20)
        )
        async with asyncio.timeout(20):
            while (await client.threads.get("t")).queued_runs == 0:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        there = database.tables()
        assert {name for name in there if len(there[name]) > len(before[name])} >= {
            "runs", "run_specs", "steps", "tool_calls", "pending_calls", "decisions", "follow_ups",
            "chunks", "requests", "threads", "messages", "thread_turns", "vectors",
        }  # fmt: skip
        await client.threads.delete("t", force=True)
        await asyncio.wait([waiting], timeout=20)
        assert waiting.done()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(20):
                while left(database, before) - {"requests"}:
                    await store.sweep_threads(limit=50)
                    await asyncio.sleep(0.02)
        assert left(database, before) <= {"requests"}
        with pytest.raises(NotFound):
            await client.threads.get("t")
        # Requests are recognised for as long as the settings say, so that none is carried out again.
        while await store.trim(Retention(requests=now_ms() + 1000), limit=100):
            pass
        requests = database.tables()["requests"]
        assert len(requests) == 1  # it is kept for as long as the decision that it made
        assert len([thread async for thread in client.threads.list()]) == 1


async def settled(client: Client, thread: str, runs: int) -> None:
    """Until the follow-ups of a thread's runs are over."""
    found = [run async for run in client.runs.list(thread_id=thread)]
    assert len(found) == runs
    for run in found:
        if run.state != "suspended":
            await client.runs.follow_ups(run.run_id)


def left(database: Database, before: Tables) -> set[str]:
    """The tables that are not as they were."""
    return {name for name, rows in database.tables().items() if rows != before[name]}
