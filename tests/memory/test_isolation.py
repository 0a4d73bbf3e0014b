"""Ten users of two tenants, whose threads have the same names: nobody hears of anybody else."""

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from entracte import Client, ThreadOfOtherResource
from entracte_server import Agent, App, Memory, WorkingMemory
from entracte_server.models.base import ModelRequest
from entracte_server.testing import scripted, serve
from tests.memory.support import on
from tests.stores import default_store

pytestmark = pytest.mark.usefixtures("each_store")

KEYS = [{"key": f"key-of-{tenant}-0123", "principal": "p", "tenant": tenant} for tenant in ("north", "south")]
RESOURCES = [f"user-{number}" for number in range(5)]
"""Of each tenant."""

THREADS = ["t", "s", "main"]

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from((0, 1)),
        st.sampled_from(RESOURCES),
        st.sampled_from(THREADS),
        st.sampled_from(("whole", "own")),
    ),
    min_size=8,
    max_size=16,
)


def answers(request: ModelRequest) -> list[dict[str, Any]]:
    """Notes what is said down, adding to what was noted, and answers with it; a title is what was asked."""
    said = request.messages[-1]
    if not request.tools:
        return [{"text": said.text}]
    if said.role == "tool":
        return [{"text": "noted"}]
    noted = request.messages[0].text.partition("<working_memory>\n")[2].partition("\n</working_memory>")[0]
    return [{"tool": "updateWorkingMemory", "args": {"memory": f"{noted} {said.text}".strip()}}]


def agent(scope: Any) -> Agent:
    memory = Memory(working_memory=WorkingMemory(scope=scope), generate_title=True, last_messages=50)
    return Agent(id=scope, model=scripted([answers]), memory=memory)


def secrets() -> Iterator[str]:
    number = 0
    while True:
        number += 1
        yield f"<{number}>"


async def play(actions: list[tuple[int, str, str, str]]) -> None:
    """Everybody says something only they may hear of again. Then all that is kept is looked at."""
    agents = {"whole": agent("resource"), "own": agent("thread")}
    said: dict[tuple[int, str], list[str]] = {}
    noted: dict[tuple[Any, ...], list[str]] = {}
    owner: dict[tuple[int, str], str] = {}
    first: dict[tuple[int, str], str] = {}
    new = secrets()
    # The examples of a test may share a database.
    example = uuid.uuid4().hex[:8]
    users = [f"{resource}-{example}" for resource in RESOURCES]
    actions = [
        (tenant, f"{user}-{example}", f"{name}-{example}", which) for tenant, user, name, which in actions
    ]
    app = App(agents=list(agents.values()))
    where: dict[str, Any] = default_store()
    async with (
        serve(app, api_keys=KEYS, **where) as server,
        Client(server.address, api_key=KEYS[0]["key"]) as north,
        Client(server.address, api_key=KEYS[1]["key"]) as south,
    ):
        clients = (north, south)
        for tenant, resource, thread, which in actions:
            client, secret, key = clients[tenant], next(new), (tenant, thread)
            chosen = agents[which]
            run = client.agent(chosen.id).generate(
                secret, memory=on(thread, resource), on_title_generated=len
            )
            if owner.setdefault(key, resource) != resource:
                with pytest.raises(ThreadOfOtherResource):
                    await run
                continue
            result = await run
            assert [m.text for m in result.remembered_messages if m.role == "user"] == said.get(key, [])
            said.setdefault(key, []).append(secret)
            first.setdefault(key, secret)
            noted.setdefault(
                (tenant, resource) if which == "whole" else (tenant, resource, thread), []
            ).append(secret)
        for tenant, client in enumerate(clients):
            for resource in users:
                found = await client.threads.working_memory(resource_id=resource)
                assert found.content.split() == noted.get((tenant, resource), [])
                assert found.version == len(noted.get((tenant, resource), []))
                mine = {t for (n, t), whose in owner.items() if (n, whose) == (tenant, resource)}
                listed = [item async for item in client.threads.list(resource_id=resource)]
                assert {item.thread_id for item in listed} == mine
                for item in listed:
                    assert first[tenant, item.thread_id] in item.title
                    kept = await client.threads.working_memory(thread_id=item.thread_id)
                    assert kept.content.split() == noted.get((tenant, resource, item.thread_id), [])
                    texts = [m.text async for m in client.threads.messages(item.thread_id, roles=["user"])]
                    assert texts == said[tenant, item.thread_id]


@settings(
    max_examples=5,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(ACTIONS)
def test_nobody_hears_of_anybody_else(actions: list[tuple[int, str, str, str]]) -> None:
    asyncio.run(play(actions))
