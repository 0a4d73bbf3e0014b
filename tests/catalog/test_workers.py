"""Agents made of data have tools of workers, named `toolset/name`."""

import pytest

import entracte
from entracte import worker_tool
from entracte_server import Agent, App
from entracte_server.testing import scripted
from tests.catalog.support import published, saying, serving
from tests.workers.support import calls, working


@worker_tool("w/double")
async def double(n: int) -> int:
    """Doubles."""
    return 2 * n


async def test_a_tool_of_workers_is_named(store: str) -> None:
    models = [scripted(calls("w__double", {"n": 4}), name="test/doubling", position="transcript")]
    it = App(agents=[Agent(id="coded", model=scripted([[{"text": "coded"}]]))], models=models)
    definition = saying(models=["test/doubling"], tools=["w/double"])
    async with serving(store, it) as client:
        with pytest.raises(entracte.WorkerToolUnknown):
            await client.agents.create_version("doubler", definition)
        async with working(client, double):
            await published(client, "doubler", definition)
            chunks = [chunk async for chunk in client.agent("doubler").stream("go")]
        assert [chunk.result for chunk in chunks if chunk.type == "tool-result"] == [8]
