"""Making, publishing, archiving and reading agents, through the SDK."""

import asyncio
from typing import Any

import pytest

import entracte
from entracte import AgentDefinition, AgentMemory, AgentRecall, AgentWorkingMemory, Client
from tests.catalog.support import ANN, EVE, KEYS, ROB, app, published, saying, served, serving

EVERYTHING = AgentDefinition(
    models=["test/telling", "test/paying"],
    name="Support",
    description="Helps.",
    instructions=["Be kind.", "Be brief."],
    tools=["pay", "look"],
    toolsets=["shop"],
    agents={"aide": "aide", "friend": "coded"},
    defaults={
        "max_steps": 3,
        "require_tool_approval": ["look", "shop__*"],
        "model_settings": {"temperature": 0.5},
        "tool_choice": {"tool": "look"},
        "stop_when": [{"total_tokens": 1000}, {"tool_called": "look"}],
        "prepare_step": "quiet",
        "pending_call_expiry": 3600,
        "structured_output": {"schema": {"type": "object"}, "model": "test/telling"},
        "provider_options": {"openai": {"user": "x"}},
    },
    memory=AgentMemory(
        last_messages=3, generate_title=True, title_model="test/telling", working_memory=AgentWorkingMemory()
    ),
)


async def test_an_agent_is_made_tried_published_and_archived(store: str) -> None:
    async with serving(store) as client:
        agents = client.agents
        draft = await agents.create_version("support", EVERYTHING)
        assert (draft.number, draft.status, draft.is_published, draft.creator) == (1, "draft", False, "local")
        details = await agents.get("support")
        assert details.version is not None
        assert details.version.version_id == draft.version_id
        assert details.version.definition == draft.definition
        assert draft.definition["defaults"]["model_settings"] == {"temperature": 0.5}
        assert details.models == ("test/telling", "test/paying")
        assert details.tools == ("pay", "look")
        assert details.toolsets == ("shop",)
        assert details.agents == ("aide", "coded")
        assert [version.number for version in details.versions] == [1]

        # What is read makes another version.
        second = await agents.create_version("support", draft.definition)
        assert second.definition == draft.definition
        assert second.number == 2
        row = await agents.publish("support", draft.version_id)
        assert (row.status, row.is_published, row.publisher) == ("published", True, "local")
        details = await agents.get("support")
        assert details.agent.published_version_id == draft.version_id
        assert details.agent.draft_version_id == second.version_id
        assert (details.agent.name, details.agent.description) == ("Support", "Helps.")
        chosen = await agents.get("support", version="draft")
        assert chosen.version is not None
        assert chosen.version.version_id == second.version_id

        listed = {agent.agent_id: agent async for agent in agents.list(page_size=1)}
        assert list(listed) == ["aide", "coded", "support"]
        assert (listed["coded"].origin, listed["support"].origin) == ("code", "data")
        assert listed["coded"].published_version_id == "7"
        assert (await agents.get("coded")).tools == ("look",)
        assert [v.number async for v in agents.versions("support", page_size=1)] == [2, 1]

        await agents.archive("support", draft.version_id)
        assert (await agents.get("support")).agent.published_version_id == ""
        with pytest.raises(entracte.AgentNotPublished):
            await client.agent("support").generate("hi")
        with pytest.raises(entracte.AgentVersionArchived):
            await client.agent("support").generate(
                "hi", versions={"support": {"version_id": draft.version_id}}
            )


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"models": []}, "definition.models", "at least one"),
    ({"models": ["gpt"]}, "definition.models[0]", "provider/model"),
    ({"models": ["test/telling", "nowhere/x"]}, "definition.models[1]", "no provider"),
    ({"tools": ["look", "hack"]}, "definition.tools[1]", "there are: ask, look, pay"),
    ({"tools": ["bill ing/refund"]}, "definition.tools[0]", "toolset/name"),
    ({"tools": ["look", "look"]}, "definition.tools[1]", "twice"),
    ({"toolsets": ["mall"]}, "definition.toolsets[0]", "there are: shop"),
    ({"agents": ["nobody"]}, "definition.agents[0].agent_id", "no agent"),
    ({"agents": ["bad"]}, "definition.agents[0].agent_id", "itself"),
    ({"agents": {"a b": "aide"}}, "definition.agents[0].name", "58"),
    ({"name": "x" * 257}, "definition.name", "256"),
    ({"description": "x" * 4001}, "definition.description", "4000"),
    ({"instructions": ["x" * 65537]}, "definition.instructions[0]", "65536"),
    ({"defaults": {"max_steps": 0}}, "definition.defaults.max_steps", "at least 1"),
    ({"defaults": {"run_id": "r"}}, "definition.defaults.run_id", "leave it out"),
    ({"defaults": {"versions": {"a": "draft"}}}, "definition.defaults.versions", "leave it out"),
    ({"defaults": {"tool_choice": {"tool": "pay"}}}, "definition.defaults.tool_choice.tool_name", "no tool"),
    ({"defaults": {"prepare_step": "loud"}}, "definition.defaults.prepare_step", "quiet"),
    (
        {"defaults": {"pending_call_expiry": {"after": 9, "default_answers": {"ask": "x"}}}},
        "definition.defaults.pending_call_expiry.default_answers",
        "its tools do",
    ),
    (
        {"defaults": {"require_tool_approval": {"expressions": {"*": "args."}}}},
        "definition.defaults.require_tool_approval.rules.expressions[0].expression",
        "",
    ),
    ({"defaults": {"structured_output": {"schema": {"type": "object"}, "model": "x"}}}, "definition", "x"),
    ({"memory": AgentMemory(last_messages=-1)}, "definition.memory.last_messages", "0"),
    ({"memory": AgentMemory(title_model="test/telling")}, "definition.memory.generate_title", "needed"),
    (
        {"memory": AgentMemory(semantic_recall=AgentRecall("nowhere/x"))},
        "definition.memory.semantic_recall.embedder",
        "no provider",
    ),
]


async def test_what_is_wrong_is_named(store: str) -> None:
    async with serving(store) as client:
        for changes, field, words in BAD:
            with pytest.raises(entracte.InvalidArgument) as refused:
                await client.agents.create_version("bad", saying(**changes))
            violation = refused.value.violations[0]
            assert (violation.field, words in violation.description) == (field, True), violation
        for agent_id in ("", "a b", "x" * 59):
            with pytest.raises(entracte.RequestInvalid):
                await client.agents.create_version(agent_id, saying())
        for agent_id in ("coded", "aide"):
            with pytest.raises(entracte.AgentDefinedInCode):
                await client.agents.create_version(agent_id, saying())
        with pytest.raises(entracte.InvalidArgument, match="larger"):
            await client.agents.create_version("bad", saying(*("x" * 60_000 for _ in range(5))))
        with pytest.raises(entracte.AgentNotFound):
            await client.agents.get("bad")
        with pytest.raises(entracte.AgentNotFound):
            await client.agents.versions_page("bad")
        with pytest.raises(entracte.AgentNotFound):
            await client.agents.publish("bad", "v")
        version = await client.agents.create_version("good", saying())
        for attempt in (client.agents.publish, client.agents.archive):
            with pytest.raises(entracte.AgentVersionNotFound):
                await attempt("good", "v")
        with pytest.raises(entracte.AgentVersionNotFound):
            await client.agents.get("good", version="published")
        with pytest.raises(entracte.RequestInvalid):
            await client.agents.get("coded", version="published")
        with pytest.raises(entracte.PageTokenInvalid):
            await client.agents.list_page("nonsense")
        with pytest.raises(ValueError, match="no definition"):
            await client.agents.create_version("good", {"modles": []})
        assert version.definition == {"models": ["test/telling"]}


async def test_agents_that_delegate_in_a_circle_are_refused(store: str) -> None:
    async with serving(store) as client:
        await published(client, "one", saying())
        await published(client, "two", saying(agents=["one"]))
        with pytest.raises(entracte.RequestInvalid, match="one > two > one"):
            await client.agents.create_version("one", saying(agents=["two"]))


async def test_requests_may_be_repeated(store: str) -> None:
    async with serving(store) as client:
        agents = client.agents
        one = await agents.create_version("support", saying("a"), request_id="q1")
        assert await agents.create_version("support", saying("a"), request_id="q1") == one
        with pytest.raises(entracte.RequestIdReused):
            await agents.create_version("support", saying("b"), request_id="q1")
        await agents.publish("support", one.version_id, request_id="q2")
        two = await published(client, "support", saying("b"))
        again = await agents.publish("support", one.version_id, request_id="q2")
        assert not again.is_published
        assert (await agents.get("support")).agent.published_version_id == two.version_id


async def test_of_those_who_replace_a_version_one_wins(store: str) -> None:
    async with serving(store) as here, serving(store) as there:
        first = await published(here, "support", saying("first"))
        drafts = [await here.agents.create_version("support", saying(str(n))) for n in range(6)]
        outcomes = await asyncio.gather(
            *(
                (here, there)[n % 2].agents.publish(
                    "support", draft.version_id, if_published=first.version_id
                )
                for n, draft in enumerate(drafts)
            ),
            return_exceptions=True,
        )
        [won] = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
        lost = [outcome for outcome in outcomes if outcome is not won]
        assert {type(outcome) for outcome in lost} == {entracte.PublishedVersionChanged}
        for client in (here, there):
            assert (await client.agents.get("support")).agent.published_version_id == won.version_id
            result = await client.agent("support").generate("hi")
            assert result.text == str(won.number - 2)


async def test_authors_make_agents_for_their_tenant(store: str) -> None:
    async with served(store, api_keys=KEYS) as server:
        address = server.address
        async with (
            Client(address, api_key=ANN) as ann,
            Client(address, api_key=ROB) as rob,
            Client(address, api_key=EVE) as eve,
        ):
            draft = await ann.agents.create_version("support", saying("a"))
            attempts: list[Any] = [
                lambda: rob.agents.create_version("support", saying()),
                lambda: rob.agents.publish("support", draft.version_id),
                lambda: rob.agents.archive("support", draft.version_id),
                lambda: rob.agent("support").generate("hi", versions={"support": "draft"}),
                lambda: rob.agent("support").generate(
                    "hi", versions={"support": {"version_id": draft.version_id}}
                ),
            ]
            for attempt in attempts:
                with pytest.raises(entracte.RoleRequired) as refused:
                    await attempt()
                assert refused.value.metadata["role"] == "author"
            assert (await ann.agent("support").generate("hi", versions={"support": "draft"})).text == "a"
            await ann.agents.publish("support", draft.version_id)
            assert (await rob.agent("support").generate("hi")).text == "a"
            assert [agent.agent_id async for agent in eve.agents.list()] == ["aide", "coded"]
            theirs: list[Any] = [
                lambda: eve.agents.get("support"),
                lambda: eve.agents.versions_page("support"),
                lambda: eve.agents.publish("support", draft.version_id),
                lambda: eve.agents.archive("support", draft.version_id),
                lambda: eve.agent("support").generate("hi"),
            ]
            for attempt in theirs:
                with pytest.raises(entracte.AgentNotFound):
                    await attempt()
            await published(eve, "support", saying("eve's"))
            assert (await eve.agent("support").generate("hi")).text == "eve's"
            assert (await ann.agent("support").generate("hi")).text == "a"


async def test_a_version_is_checked_again_when_it_is_published(store: str) -> None:
    async with served(store) as server, Client(server.address) as client:
        draft = await client.agents.create_version("support", saying(tools=["look"]))
        async with served(store, app(tools=())) as other, Client(other.address) as there:
            with pytest.raises(entracte.AgentVersionUnusable, match="'look'"):
                await there.agents.publish("support", draft.version_id)
            await client.agents.publish("support", draft.version_id)
            with pytest.raises(entracte.AgentVersionUnusable, match="'look'"):
                await there.agent("support").generate("hi")
            assert (await client.agent("support").generate("hi")).text == "nothing"
