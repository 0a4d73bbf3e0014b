"""What a run is told of older messages that have to do with what it is asked."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from entracte import Client, EntracteError, GenerateResult, SemanticRecall
from entracte_server import Agent, App, EmbeddingError, Memory, MiniLM
from entracte_server import SemanticRecall as Recall
from entracte_server.models.embedding import Vector
from entracte_server.testing import scripted, serve
from tests.memory.support import Talk, call, on, talking
from tests.memory.test_history import where
from tests.stores import default_store

pytestmark = pytest.mark.usefixtures("each_store")

TOPICS = ("cat", "dog", "boat", "tree", "tax")


class Topics:
    """An embedder that knows a few words; `given` are the texts it was given."""

    name = "topics"

    def __init__(self, fails: BaseException | None = None) -> None:
        self.given: list[str] = []
        self.fails = fails

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        self.given += texts
        if self.fails is not None:
            raise self.fails
        found = [re.findall(r"\w+", text.lower()) for text in texts]
        return [[*(float(words.count(topic)) for topic in TOPICS), 0.01] for words in found]


class Silent(Topics):
    """One that never answers; `asked` is set when it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError


class Short(Topics):
    """One that forgets a text."""

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        return (await super().embed(texts))[1:]


def memory(embedder: Any, **more: Any) -> Memory:
    """An agent's memory, of two recent messages and one found message without its neighbours."""
    values = {"top_k": 1, "message_range": 0, **more}
    return Memory(last_messages=2, semantic_recall=Recall(embedder, **values))


async def say(talk: Talk, *texts: str, **options: Any) -> GenerateResult:
    """Say some things one after the other: the result of the last."""
    for text in texts:
        result = await talk.agent.generate(text, memory=on(**options))
        assert result.warnings == ()
    return result


def told(talk: Talk) -> list[str]:
    """What the last model call was told: what is recalled in brackets."""
    found: list[str] = []
    for message in talk.model.requests[-1].messages:
        if message.text.startswith("<recalled-messages>"):
            found.append("[other" if "another conversation" in message.text else "[")
        elif message.text == "</recalled-messages>":
            found.append("]")
        elif message.role == "user":
            found.append(message.text)
    return found


async def test_older_messages_are_found_and_told_before_the_recent_ones(tmp_path: Path) -> None:
    embedder = Topics()
    script = [[{"text": "ok"}]] * 4 + [call("gated", 1), [{"text": "done"}]]
    async with talking(script, store=where(tmp_path), memory=memory(embedder)) as talk:
        await say(talk, "my cat is red", "a tree", "a boat", "tax")
        parked = await say(talk, "what colour has the cat?")
        assert told(talk) == ["[", "my cat is red", "]", "tax", "what colour has the cat?"]
        assert [m.text for m in parked.remembered_messages] == ["my cat is red", "ok", "tax", "ok"]
        # Each text is embedded once, when it is first searched.
        asked = ["my cat is red", "a tree", "a boat", "tax"]
        answered = ["ok"] * 4
        assert sorted(embedder.given) == sorted([*asked, "what colour has the cat?", *asked, *answered])
    # What was found stays what it is, wherever the run goes on.
    broken = Topics(EmbeddingError("none"))
    async with talking([[{"text": "done"}]], store=where(tmp_path), memory=memory(broken)) as talk:
        ended = await talk.agent.approve(parked.pending_calls[0])
        assert told(talk) == ["[", "my cat is red", "]", "tax", "what colour has the cat?"]
        assert ended.remembered_messages == parked.remembered_messages
        assert (broken.given, ended.warnings) == ([], ())


async def test_neighbours_come_along_and_exchanges_are_whole() -> None:
    script = [step for number in range(6) for step in (call("echo", number), [{"text": "ok"}])]
    async with talking([*script, [{"text": "end"}]], memory=memory(Topics(), message_range=1)) as talk:
        await say(talk, "cat", "dog", "boat", "tree", "tax", "tax")
        await say(talk, "dog?")
        # What came just before the hit belongs to the exchange about the cat.
        assert told(talk) == ["[", "cat", "dog", "]", "tax", "dog?"]
        for options, expected in (
            (SemanticRecall(message_range=0), ["[", "dog", "]"]),
            (SemanticRecall(message_range=4), ["[", "cat", "dog", "boat", "]"]),
            (SemanticRecall(top_k=0), []),
        ):
            await say(talk, "dog?", semantic_recall=options, read_only=True)
            assert told(talk)[:-2] == expected
        # Where nothing recent is told, all of the thread is searched.
        await say(talk, "tax", last_messages=0, read_only=True)
        assert told(talk)[-3:] == ["tax", "]", "tax"]
        # Two hits, told in the order in which they were said.
        recall = SemanticRecall(top_k=2, message_range=0)
        await say(talk, "boat boat cat", semantic_recall=recall, read_only=True)
        assert told(talk)[:-2] == ["[", "cat", "boat", "]"]


async def test_what_is_recalled_takes_what_is_left_of_the_budget() -> None:
    long = "cat " + "x" * 4000
    async with talking([[{"text": "ok"}]], memory=memory(Topics(), top_k=2)) as talk:
        await say(talk, long, "cat dog", "tax")
        for budget, expected in (
            (10_000, ["[", long, "cat dog", "]", "tax", "cat?"]),
            (500, ["[", "cat dog", "]", "tax", "cat?"]),
            (20, ["tax", "cat?"]),
        ):
            await say(talk, "cat?", max_history_tokens=budget, read_only=True)
            assert told(talk) == expected


async def test_a_run_that_only_reads_stores_no_vectors() -> None:
    embedder = Topics()
    async with talking([[{"text": "ok"}]], memory=memory(embedder)) as talk:
        await say(talk, "cat", "tree", "tax", semantic_recall=SemanticRecall(top_k=0))
        assert embedder.given == []
        for _ in range(2):
            await say(talk, "cat?", read_only=True)
            assert told(talk) == ["[", "cat", "]", "tax", "cat?"]
        assert embedder.given.count("cat") == 2


async def test_vectors_of_another_embedder_are_not_compared(tmp_path: Path) -> None:
    class Other(Topics):
        name = "other"

        async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
            return [vector[::-1] for vector in await super().embed(texts)]

    async with talking([[{"text": "ok"}]], store=where(tmp_path), memory=memory(Topics())) as talk:
        await say(talk, "cat", "tree", "boat", "tax")
    other = Other()
    async with talking([[{"text": "ok"}]], store=where(tmp_path), memory=memory(other)) as talk:
        await say(talk, "cat?")
        assert told(talk) == ["[", "cat", "]", "tax", "cat?"]
        assert "tree" in other.given


@pytest.mark.parametrize(
    ("embedder", "why"),
    [
        (Topics(EmbeddingError("no more of them")), "no more of them"),
        (Topics(ValueError("hidden")), "The embedder failed."),
        (Topics(SystemExit()), "The embedder failed."),
        (Short(), "0 vectors for 1 texts"),
        (Silent(), "It took longer than 0.05 seconds."),
    ],
)
async def test_a_run_goes_on_without_recall_and_says_so(embedder: Any, why: str) -> None:
    settings = {"recall_timeout": 0.05 if isinstance(embedder, Silent) else 10.0}
    script = [call("echo", 1), [{"text": "ok"}]]
    async with talking(script, settings=settings, memory=memory(embedder)) as talk:
        result = await talk.agent.generate("cat", memory=on())
        assert (result.text, len(result.warnings)) == ("ok", 1)
        assert result.warnings[0].startswith("Older messages were not searched: ")
        assert why in result.warnings[0]
        assert "hidden" not in result.warnings[0]
        chunks = [chunk async for chunk in talk.client.runs.watch(result.run_id)]
        warnings = [list(chunk.warnings) for chunk in chunks if chunk.type == "step-finish"]
        assert warnings == [list(result.warnings), []]


async def test_a_search_is_cut_when_the_server_stops_and_made_again(tmp_path: Path) -> None:
    embedder = Silent()
    settings = {"recall_timeout": 600.0, "grace": 600.0}
    async with talking(
        [[{"text": "no"}]], store=where(tmp_path), settings=settings, memory=memory(embedder)
    ) as talk:
        running = asyncio.ensure_future(talk.agent.generate("cat", memory=on(), run_id="r"))
        await asyncio.wait_for(embedder.asked.wait(), 20)
        running.cancel()
    async with talking([[{"text": "ok"}]], store=where(tmp_path), memory=memory(Topics())) as talk:
        async for _ in talk.client.runs.watch("r", until_finished=True):
            pass
        view = await talk.client.runs.get("r")
        assert view.result is not None
        assert (view.result.text, view.result.warnings) == ("ok", ())


async def test_a_cancelled_run_does_not_wait_for_its_search() -> None:
    embedder = Silent()
    long = {"recall_timeout": 600.0}
    async with talking([[{"text": "no"}]], settings=long, memory=memory(embedder)) as talk:
        running = asyncio.ensure_future(talk.agent.generate("cat", memory=on(), run_id="r"))
        await asyncio.wait_for(embedder.asked.wait(), 20)
        await talk.client.runs.cancel("r")
        result = await asyncio.wait_for(running, 20)
        assert result.finish_reason == "aborted"


async def test_nobody_is_told_what_others_said() -> None:
    """Users of two tenants, with the same threads: each searches in all of their own."""
    keys = [
        {"key": f"key-of-{tenant}", "tenant": tenant, "principal": "p", "roles": ["run", "decide"]}
        for tenant in ("one", "two")
    ]
    model = scripted([[{"text": "ok"}]])
    mind = memory(Topics(), top_k=100, message_range=20)
    app = App(agents=[Agent(id="a", model=model, memory=mind)])
    users = [(tenant, user) for tenant in ("one", "two") for user in ("ada", "bob", "eve")]
    where: dict[str, Any] = {"api_keys": keys, **default_store()}
    async with serve(app, **where) as server:
        clients = {t: Client(server.address, api_key=f"key-of-{t}") for t in ("one", "two")}
        try:
            for tenant, user in users:
                for thread in ("s", "t"):
                    await (
                        clients[tenant]
                        .agent("a")
                        .generate(
                            f"cat of {user} in {tenant} on {thread}", memory=on(f"{thread}-{user}", user)
                        )
                    )
            for tenant, user in users:
                for thread in (f"t-{user}", f"new-{user}"):
                    await (
                        clients[tenant]
                        .agent("a")
                        .generate(
                            "cat?", memory=on(thread, user, semantic_recall=SemanticRecall(scope="resource"))
                        )
                    )
                    said = {m.text for m in model.requests[-1].messages if m.text.startswith("cat of")}
                    assert said == {f"cat of {user} in {tenant} on {it}" for it in ("s", "t")}
                await clients[tenant].agent("a").generate("cat?", memory=on(f"s-{user}", user))
                said = {m.text for m in model.requests[-1].messages if m.text.startswith("cat of")}
                assert said == {f"cat of {user} in {tenant} on s"}
        finally:
            for client in clients.values():
                await client.aclose()


async def test_what_was_said_on_a_thread_that_has_another_owner_now_is_not_told(tmp_path: Path) -> None:
    everywhere = memory(Topics(), scope="resource")
    script = [[{"text": "ok"}], call("gated", 1), [{"text": "ok"}], [{"text": "done"}]]
    async with talking(script, store=where(tmp_path), memory=everywhere) as talk:
        await talk.agent.generate("cat of u", memory=on("old"))
        parked = await talk.agent.generate("cat?", memory=on("new"))
        assert told(talk) == ["[other", "cat of u", "]", "cat?"]
        await talk.client.threads.delete("old")
        await talk.agent.generate("cat of v", memory=on("old", "v"))
        await talk.agent.approve(parked.pending_calls[0])
        assert told(talk) == ["cat?"]


async def test_the_packaged_embedder_finds_what_is_said_in_other_words() -> None:
    async with talking([[{"text": "ok"}]], memory=memory(MiniLM())) as talk:
        await say(talk, "I get very ill from shrimps", "my sister plays the drums", "we moved to Leeds")
        await say(talk, "Is there any seafood that I am allergic to?")
        assert told(talk)[:3] == ["[", "I get very ill from shrimps", "]"]


async def test_an_agent_without_an_embedder_cannot_recall() -> None:
    async with talking([[{"text": "ok"}]]) as talk:
        with pytest.raises(EntracteError, match="has no embedder") as refused:
            await talk.agent.generate("cat", memory=on(semantic_recall=SemanticRecall()))
        assert [v.field for v in refused.value.violations] == ["options.memory.semantic_recall"]
        await talk.agent.generate("cat", memory=on(semantic_recall=SemanticRecall(top_k=0)))


@pytest.mark.parametrize(
    ("values", "field"),
    [({"top_k": 101}, "top_k"), ({"top_k": -1}, "top_k"), ({"message_range": 21}, "message_range")],
)
async def test_numbers_that_make_no_sense_are_refused(values: dict[str, Any], field: str) -> None:
    async with talking([[{"text": "ok"}]], memory=memory(Topics())) as talk:
        with pytest.raises(EntracteError) as refused:
            await talk.agent.generate("cat", memory=on(semantic_recall=SemanticRecall(**values)))
        assert [v.field for v in refused.value.violations] == [f"options.memory.semantic_recall.{field}"]
    with pytest.raises(ValueError, match=field):
        Recall(Topics(), **({"top_k": 4} | values))
