"""The example with sub-agents, as it is served without a key."""

from pathlib import Path

import pytest

from entracte import Client
from entracte_server.testing import serve


async def test_the_example_with_sub_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENTRACTE_EXAMPLE_MODEL", raising=False)
    from examples.purchasing import app

    async with serve(app, store=str(tmp_path / "db")) as server, Client(server.address) as client:
        agent = client.agent("assistant")
        asked = await agent.generate("What does a lamp cost?")
        assert asked.text == "A lamp costs 89.00."
        parked = await agent.generate("Buy two teapots")
        [call] = parked.pending_calls
        assert (call.tool_name, call.args) == ("order", {"item": "teapot", "count": 2})
        assert [element.agent_id for element in call.agent_path] == ["buyer"]
        result = await agent.approve(call)
        assert result.text == "A teapot costs 24.00. Ordered: 2 teapot."
        [call] = (await agent.generate("Buy a kettle")).pending_calls
        result = await agent.decline(call, reason="too dear")
        assert result.text == "A kettle costs 129.00. Nothing was ordered: it was not approved."
