"""Runs of agents made of data: which versions they use, over parkings, restarts and replicas."""

import asyncio
from typing import Any

import pytest

import entracte
from entracte import AgentMemory, Client, GenerateResult, Memory
from entracte_server import Agent, App
from entracte_server.testing import scripted
from tests.catalog.support import app, look, published, saying, served, serving

PAYING: dict[str, Any] = {"models": ["test/paying"], "tools": ["pay"]}
ASKING: dict[str, Any] = {"models": ["test/asking"]}


async def approved(client: Client, result: GenerateResult) -> GenerateResult:
    """What a run comes to when the call that waits is approved."""
    [pending] = result.pending_calls
    return await client.agent(pending.agent_id).approve(pending)


async def test_a_run_keeps_the_version_it_began_with(store: str) -> None:
    """While it is parked another version is published, its own is archived, and the server is another."""
    async with serving(store) as client:
        old = await published(client, "cashier", saying("old", **PAYING))
        agent = client.agent("cashier")
        parked = [await agent.generate("pay") for _ in range(3)]
        assert {result.finish_reason for result in parked} == {"suspended"}
        assert (await client.runs.get(parked[0].run_id)).agent_version_id == old.version_id
        new = await published(client, "cashier", saying("new", **{**PAYING, "tools": ["pay", "look"]}))
        assert (await approved(client, parked[0])).text == "old"
        fresh = await agent.generate("pay")
        assert (await client.runs.get(fresh.run_id)).agent_version_id == new.version_id
        assert (await approved(client, fresh)).text == "new"
        chosen = await agent.generate("pay", versions={"cashier": {"version_id": old.version_id}})
        assert (await approved(client, chosen)).text == "old"
        await client.agents.archive("cashier", old.version_id)
        assert (await approved(client, parked[1])).text == "old"
    async with serving(store) as client:
        assert (await approved(client, parked[2])).text == "old"


async def test_a_tool_s_own_approval_is_a_floor(store: str) -> None:
    """No agent lowers it; what an agent asks for is added to it."""
    async with serving(store) as client:
        defaults: Any = {"require_tool_approval": False}
        await published(client, "cashier", saying(**PAYING, defaults=defaults))
        assert (await client.agent("cashier").generate("pay")).finish_reason == "suspended"
        stricter: Any = {"require_tool_approval": ["look"], "max_steps": 2, "pending_call_expiry": 3600}
        await published(client, "looker", saying(models=["test/looking"], tools=["look"], defaults=stricter))
        result = await client.agent("looker").generate("look")
        [pending] = result.pending_calls
        assert (pending.tool_name, pending.kind) == ("look", "approval")
        assert pending.expire_time is not None
        result = await approved(client, result)
        assert result.finish_reason == "suspended"
        assert (await approved(client, result)).stop_cause == "max-steps"


async def test_a_tree_uses_the_versions_that_were_chosen(store: str) -> None:
    async with serving(store) as client:
        one = await published(client, "helper", saying("one"))
        draft = await client.agents.create_version("helper", saying("draft"))
        await published(client, "boss", saying(**ASKING, agents=["helper"]))
        boss = client.agent("boss")
        assert "one" in (await boss.generate("hi")).text
        assert "draft" in (await boss.generate("hi", versions={"helper": "draft"})).text
        by_id: Any = {"helper": {"version_id": draft.version_id}, "boss": "published"}
        result = await boss.generate("hi", versions=by_id)
        assert "draft" in result.text
        runs = {r.agent_id: r async for r in client.runs.list(include_children=True, page_size=2)}
        assert runs["helper"].agent_version_id in (one.version_id, draft.version_id)
        # A sub-agent that is written in Python is one like any other.
        await published(client, "boss", saying(**ASKING, agents={"helper": "aide"}))
        assert "aide" in (await boss.generate("hi")).text
        for versions, words in (
            ({"helper": "draft"}, "has no part"),
            ({"aide": "published"}, "written in Python"),
            ({"nobody": "published"}, "has no part"),
        ):
            with pytest.raises(entracte.RequestInvalid, match=words) as refused:
                await boss.generate("hi", versions=versions)  # type: ignore[arg-type]
            assert refused.value.violations[0].field == f"options.versions.{next(iter(versions))}"
        with pytest.raises(entracte.RequestInvalid, match="written in Python"):
            await client.agent("coded").generate("hi", versions={"coded": "published"})
        with pytest.raises(entracte.AgentNotPublished) as unpublished:
            await boss.generate("hi", versions={"boss": "draft"})
        assert unpublished.value.metadata["status"] == "draft"
        with pytest.raises(entracte.AgentVersionNotFound):
            await boss.generate("hi", versions={"boss": {"version_id": one.version_id}})


async def test_a_sub_agent_that_waits_keeps_its_version(store: str) -> None:
    async with serving(store) as client:
        await published(client, "helper", saying("old", **PAYING))
        await published(client, "boss", saying(**ASKING, agents=["helper"]))
        parked = [await client.agent("boss").generate("hi") for _ in range(2)]
        assert [call.agent_id for result in parked for call in result.pending_calls] == ["helper"] * 2
        await published(client, "helper", saying("new", **PAYING))
        await published(client, "boss", saying("none below"))
        assert "old" in (await approved(client, parked[0])).text
    async with serving(store) as client:
        assert "old" in (await approved(client, parked[1])).text


async def test_every_replica_uses_what_was_published(store: str) -> None:
    """As soon as the RPC has returned, from whichever process."""
    async with serving(store) as here, serving(store) as there:
        for number in range(4):
            await published((here, there)[number % 2], "support", saying(str(number)))
            results = await asyncio.gather(*(c.agent("support").generate("hi") for c in (here, there)))
            assert [result.text for result in results] == [str(number)] * 2


async def test_a_run_waits_for_a_process_that_has_what_its_version_needs(store: str) -> None:
    async with serving(store) as client:
        await published(client, "cashier", saying("paid", **PAYING))
        parked = [await client.agent("cashier").generate("pay") for _ in range(2)]
    bare = app(tools=(look,))
    async with serving(store, bare) as client:
        [pending] = parked[0].pending_calls
        with pytest.raises(entracte.AgentUnavailable, match="'pay'") as refused:
            await client.agent("cashier").approve(pending)
        assert refused.value.metadata["agent_id"] == "cashier"
        assert (await client.runs.get(parked[0].run_id)).state == "suspended"
        # Cancelling needs nothing of it.
        cancelled = await client.runs.cancel(parked[1].run_id)
        async with asyncio.timeout(20):
            while (await client.runs.get(cancelled.run_id)).state != "cancelled":  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    async with serving(store) as client:
        assert (await approved(client, parked[0])).text == "paid"


async def test_an_orphan_is_left_to_a_process_that_can_go_on_with_it(store: str) -> None:
    """The process that executed it is gone; of those that are left one has its model."""
    slow = scripted([[{"delay": 3_600_000}]], name="test/telling")
    quick = scripted(lambda request: [{"text": "taken over"}], name="test/telling")
    agents = [Agent(id="coded", model=scripted([[{"text": "coded"}]]))]
    without = App(agents=agents, models=[scripted([[{"text": "x"}]], name="test/other")])
    async with served(store, without) as other, Client(other.address) as watching:
        async with serving(store, App(agents=agents, models=[slow])) as client:
            await published(client, "support", saying())
            run_id = ""
            async for chunk in client.agent("support").stream("hi"):
                run_id = chunk.run_id
                if chunk.type == "step-start":
                    break
        async with served(store, App(agents=agents, models=[quick])):
            async with asyncio.timeout(30):
                result = await watching.runs.watch(run_id).result()
        assert result.text == "taken over"


async def test_a_repeated_request_is_answered_whatever_was_published_since(store: str) -> None:
    async with serving(store) as client:
        old = await published(client, "support", saying("old", tools=["look"]))
        asked: Any = {"request_id": "q", "active_tools": ["look"]}
        result = await client.agent("support").generate("hi", **asked)
        new = await published(client, "support", saying("new"))
        assert (await client.agent("support").generate("hi", **asked)).run_id == result.run_id
        await client.agents.archive("support", new.version_id)
        assert (await client.agent("support").generate("hi", **asked)).run_id == result.run_id
        with pytest.raises(entracte.AgentNotPublished):
            await client.agent("support").generate("hi")
        # What is published again is used again.
        await client.agents.publish("support", old.version_id, if_published="")
        assert (await client.agent("support").generate("hi")).text == "old"


async def test_memory_titles_and_answers_by_message(store: str) -> None:
    memory = AgentMemory(last_messages=1, generate_title=True, title_instructions="Title")
    async with serving(store) as client:
        await published(client, "support", saying("old", memory=memory))
        of_ada = Memory(thread="t", resource="ada")
        result = await client.agent("support").generate("hi", memory=of_ada)
        async with asyncio.timeout(20):
            while not (title := (await client.threads.get("t")).title):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert title == "Title"
        assert (await client.runs.follow_ups(result.run_id))[0].state == "succeeded"
        request = await client.agent("support").generate("hi", memory=of_ada, include_request_body=True)
        assert request.request.body["messages"][0]["parts"] == [{"type": "text", "text": "old"}]


async def test_a_message_answers_a_run_whatever_is_published(store: str) -> None:
    async with serving(store) as client:
        version = await published(client, "support", saying(models=["test/wondering"], tools=["ask"]))
        of_ada: Any = {"memory": Memory(thread="t", resource="ada"), "auto_resume_suspended_tools": True}
        parked = await client.agent("support").generate("hi", **of_ada)
        assert parked.finish_reason == "suspended"
        await client.agents.archive("support", version.version_id)
        answered = await client.agent("support").generate("well, yes", **of_ada)
        assert (answered.run_id, answered.text) == (parked.run_id, 'heard "yes"')


async def test_an_expired_call_of_an_agent_made_of_data_is_settled(store: str) -> None:
    async with serving(store) as client:
        await published(client, "cashier", saying("late", **PAYING, defaults={"pending_call_expiry": 0.001}))
        result = await client.agent("cashier").generate("pay")
        async with asyncio.timeout(20):
            result = await client.runs.watch(result.run_id, until_finished=True).result()
        assert result.text == "late"
