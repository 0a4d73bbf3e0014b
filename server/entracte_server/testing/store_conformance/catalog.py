"""Agents made of data: versions that never change, which is published, and runs that use them."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from entracte_server.domain.agents import DEFINITION_FORMAT, AgentDefinition, AgentVersionRow, SubAgent
from entracte_server.domain.options import ModelSettings, RunOptions
from entracte_server.store.base import NotFound, PublishedChanged, RequestKey, RequestReused, Store
from entracte_server.store.catalog import ArchiveAgentVersion, CreateAgentVersion, PublishAgentVersion
from entracte_server.testing.store_conformance.builders import (
    NOW,
    TENANT,
    a_request,
    created,
    unique,
    waiting,
)
from entracte_server.testing.store_conformance.suite import OpenStore, StoreSuite

DEFINITION = AgentDefinition(
    models=("openai/gpt-5-mini",),
    instructions=("Grüße 🙈\0",),
    tools=("refund",),
    agents=(SubAgent("helper", "help"),),
    defaults=RunOptions(max_steps=3, model_settings=ModelSettings(temperature=0.5)),
)


def a_version(agent_id: str, **changes: Any) -> AgentVersionRow:
    """A version that is not stored yet."""
    version = AgentVersionRow(
        tenant=TENANT,
        agent_id=agent_id,
        version_id=unique("version"),
        name="Helper",
        description="Helps.",
        creator="alice",
        create_time=NOW,
        definition=DEFINITION,
        source=b"\x00source\xff",
    )
    return replace(version, **changes)


async def made(store: Store, agent_id: str, **changes: Any) -> AgentVersionRow:
    """A version in the store, without what it says."""
    row, earlier = await store.create_agent_version(CreateAgentVersion(a_version(agent_id, **changes)))
    assert earlier is None
    return row


def publishing(version: AgentVersionRow, **changes: Any) -> PublishAgentVersion:
    """An operation that publishes a version."""
    op = PublishAgentVersion(version.tenant, version.agent_id, version.version_id, "bob", NOW + 5)
    return replace(op, **changes)


def archiving(version: AgentVersionRow, **changes: Any) -> ArchiveAgentVersion:
    """An operation that archives a version."""
    op = ArchiveAgentVersion(version.tenant, version.agent_id, version.version_id, NOW + 7)
    return replace(op, **changes)


async def numbers(store: Store, agent_id: str, before: int = 0, limit: int = 100) -> list[int]:
    """The numbers of an agent's versions."""
    rows = await store.list_agent_versions(TENANT, agent_id, before=before, limit=limit)
    return [row.number for row in rows]


class CatalogSuite(StoreSuite):
    """`create_agent_version`, `publish_agent_version`, `archive_agent_version` and what reads them."""

    async def test_a_version_is_read_as_it_was_made(self, store: Store) -> None:
        new = a_version("support")
        row, _ = await store.create_agent_version(CreateAgentVersion(new))
        assert row == replace(new, number=1, definition=None, source=b"")
        read = await store.get_agent_version(TENANT, "support", new.version_id)
        assert read == replace(new, number=1)
        agent = await store.get_agent(TENANT, "support")
        assert (agent.name, agent.description) == ("Helper", "Helps.")
        assert (agent.published, agent.draft) == ("", new.version_id)
        assert (agent.create_time, agent.update_time) == (NOW, NOW)

    async def test_there_is_nothing_of_others(self, store: Store) -> None:
        version = await made(store, "support")
        for tenant, agent_id, version_id in (
            ("other", "support", version.version_id),
            (TENANT, "another", version.version_id),
            (TENANT, "support", "unknown"),
        ):
            theirs = replace(version, tenant=tenant, agent_id=agent_id, version_id=version_id)
            with pytest.raises(NotFound):
                await store.get_agent_version(tenant, agent_id, version_id)
            with pytest.raises(NotFound):
                await store.publish_agent_version(publishing(theirs))
            with pytest.raises(NotFound):
                await store.archive_agent_version(archiving(theirs))
        with pytest.raises(NotFound):
            await store.get_agent("other", "support")
        assert await store.list_agents("other", after="", limit=9) == []
        assert await store.list_agent_versions("other", "support", before=0, limit=9) == []
        await store.create_agent_version(CreateAgentVersion(a_version("support", tenant="other")))
        assert await numbers(store, "support") == [1]
        assert (await store.get_agent(TENANT, "support")).draft == version.version_id

    async def test_publishing_and_archiving(self, store: Store) -> None:
        one, two = await made(store, "support", name="One"), await made(store, "support", name="Two")
        assert (one.number, two.number) == (1, 2)
        assert (await store.get_agent(TENANT, "support")).name == "Two"
        row, _ = await store.publish_agent_version(publishing(one))
        assert (row.status, row.publisher, row.publish_time, row.is_published) == (
            "published",
            "bob",
            NOW + 5,
            True,
        )
        agent = await store.get_agent(TENANT, "support")
        assert (agent.name, agent.published, agent.draft) == ("One", one.version_id, two.version_id)
        three = await made(store, "support", name="Three")
        assert (await store.get_agent(TENANT, "support")).name == "One"
        await store.publish_agent_version(publishing(two, if_published=one.version_id))
        with pytest.raises(PublishedChanged) as changed:
            await store.publish_agent_version(publishing(three, if_published=one.version_id))
        assert changed.value.published == two.version_id
        first = await store.get_agent_version(TENANT, "support", one.version_id)
        assert (first.status, first.is_published) == ("published", False)
        row, _ = await store.archive_agent_version(archiving(two))
        assert (row.status, row.is_published, row.publish_time) == ("archived", False, NOW + 5)
        agent = await store.get_agent(TENANT, "support")
        assert (agent.name, agent.published, agent.draft) == ("Three", "", three.version_id)
        assert agent.update_time == NOW + 7
        await store.archive_agent_version(archiving(three))
        assert (await store.get_agent(TENANT, "support")).draft == ""
        row, _ = await store.publish_agent_version(publishing(three, if_published=""))
        assert (row.status, row.is_published) == ("published", True)

    async def test_requests_are_recognised(self, store: Store) -> None:
        key = a_request(method="CreateAgentVersion")
        op = CreateAgentVersion(a_version("support"), key)
        row, _ = await store.create_agent_version(op)
        again = replace(op, version=a_version("support"))
        same, earlier = await store.create_agent_version(again)
        assert same == row
        assert earlier is not None
        assert earlier.run_id == row.version_id
        assert await numbers(store, "support") == [1]
        with pytest.raises(RequestReused):
            await store.create_agent_version(replace(again, request=replace(key, body_hash=b"other")))

        def keyed(method: str) -> RequestKey:
            return a_request(method=method)

        publish = publishing(row, request=keyed("PublishAgentVersion"))
        archive = archiving(row, request=keyed("ArchiveAgentVersion"))
        assert (await store.publish_agent_version(publish))[1] is None
        assert (await store.archive_agent_version(archive))[1] is None
        now, earlier = await store.publish_agent_version(publish)  # and nothing is published by it
        assert earlier is not None
        assert (now.status, now.is_published) == ("archived", False)
        assert (await store.archive_agent_version(archive))[1] is not None

    async def test_lists_go_on_where_they_ended(self, store: Store) -> None:
        for agent_id in ("b", "a", "C", "a-1"):
            await made(store, agent_id)
        for _ in range(4):
            await made(store, "a")
        every = await store.list_agents(TENANT, after="", limit=9)
        assert [row.agent_id for row in every] == ["C", "a", "a-1", "b"]
        page = await store.list_agents(TENANT, after="C", limit=2)
        assert page == every[1:3]
        assert every[1] == await store.get_agent(TENANT, "a")
        assert await numbers(store, "a") == [5, 4, 3, 2, 1]
        assert await numbers(store, "a", before=4, limit=2) == [3, 2]
        (newest,) = await store.list_agent_versions(TENANT, "a", before=0, limit=1)
        assert (newest.definition, newest.source) == (None, b"")

    async def test_what_a_newer_version_says_is_left_out(self, store: Store) -> None:
        version = await made(store, "support", format=DEFINITION_FORMAT + 1)
        read = await store.get_agent_version(TENANT, "support", version.version_id)
        assert (read.definition, read.source) == (None, b"\x00source\xff")

    async def test_of_those_at_it_at_a_time_one_is_last(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(2)]
        rows = await asyncio.gather(*(made(stores[i % 2], "support") for i in range(8)))
        assert sorted(row.number for row in rows) == list(range(1, 9))
        outcomes = await asyncio.gather(
            *(
                stores[i % 2].publish_agent_version(publishing(row, if_published=""))
                for i, row in enumerate(rows)
            ),
            return_exceptions=True,
        )
        [won] = [outcome[0] for outcome in outcomes if isinstance(outcome, tuple)]
        assert all(isinstance(outcome, (tuple, PublishedChanged)) for outcome in outcomes)
        for store in stores:
            assert (await store.get_agent(TENANT, "support")).published == won.version_id
        await asyncio.gather(
            *(stores[i % 2].publish_agent_version(publishing(row)) for i, row in enumerate(rows))
        )
        published = (await stores[0].get_agent(TENANT, "support")).published
        listed = await stores[1].list_agent_versions(TENANT, "support", before=0, limit=9)
        assert [row.version_id for row in listed if row.is_published] == [published]

    async def test_their_runs_are_anybody_s(self, store: Store) -> None:
        """Any process may have what they need, so all of them are shown their runs and calls."""
        await made(store, "by-data")
        mine = await created(store, agent_id="by-data")
        await created(store, agent_id="unknown")
        await created(store, agent_id="by-data", tenant="other")
        _, _, pending = await waiting(store, agent_id="by-data", expire_time=NOW + 1)
        await waiting(store, agent_id="unknown", expire_time=NOW + 1)
        orphans = await store.orphans(frozenset({"support"}), limit=9)
        assert [row.run_id for row in orphans] == [mine.run_id]
        expired = await store.expired(NOW + 9, agents=frozenset(), limit=9)
        assert [row.pending_call_id for row in expired] == [pending.pending_call_id]
