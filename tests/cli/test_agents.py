"""`entracte agents`."""

import asyncio
import json
from pathlib import Path

from entracte import SyncClient
from entracte_server import Agent, App
from entracte_server.testing import scripted, serve
from tests.cli.support import entracte

HELPER = {"models": ["test/says"], "description": "Helps.\u001b[2J", "instructions": ["Be kind."]}


def app() -> App:
    """An agent, and a model that agents made of data can name."""
    return App(
        agents=[Agent(id="coded", model=scripted([[{"text": "coded"}]]), description="Is there.")],
        models=[scripted([[{"text": "made"}]], name="test/says")],
    )


async def test_an_agent_is_made_of_a_file_and_published(tmp_path: Path) -> None:
    file = tmp_path / "helper.json"
    file.write_text(json.dumps(HELPER))
    async with serve(app()) as server:
        address = server.address
        made = await entracte("agents", "create", "helper", str(file), address=address)
        first, following = made.stdout.splitlines()
        assert first.startswith("helper: version 1, ")
        assert first.endswith("is now: draft.")
        version_id = first.split()[3].rstrip(",")
        assert following == f"Next: entracte agents publish helper {version_id}"
        published = await entracte("agents", "publish", "helper", version_id, address=address)
        assert published.stdout.endswith("is now: published.\n")
        talked = await entracte("generate", "helper", "Hi", address=address)
        assert "made" in talked.stdout

        listed = (await entracte("agents", "list", address=address)).stdout.splitlines()
        assert [line.split()[:2] for line in listed[1:]] == [["coded", "code"], ["helper", "data"]]
        assert "\x1b" not in listed[2]
        shown = (await entracte("agents", "show", "helper", address=address)).stdout
        assert "test/says" in shown
        assert "(published) says:" in shown
        said = await entracte("agents", "show", "helper", "--definition", address=address)
        assert json.loads(said.stdout) == HELPER
        again = await entracte(
            "agents", "create", "helper", "-", "--publish", address=address, stdin=said.stdout
        )
        assert again.stdout.startswith("helper: version 2, ")
        rows = (await entracte("agents", "versions", "helper", address=address)).stdout.splitlines()
        assert ["in use" in row for row in rows[1:]] == [True, False]
        archived = await entracte("agents", "archive", "helper", version_id, address=address)
        assert archived.stdout.endswith("is now: archived.\n")
        listed_json = await entracte("agents", "list", "--json", address=address)
        assert [agent["origin"] for agent in json.loads(listed_json.stdout)] == ["code", "data"]

        file.write_text('{"modles": []}')
        wrong = await entracte("agents", "create", "helper", str(file), address=address)
        assert wrong.exit_code == 2
        assert "modles" in wrong.stderr
        refused = await entracte("agents", "create", "coded", "-", address=address, stdin=said.stdout)
        assert refused.exit_code == 1
        assert "written in Python" in refused.stderr
        both = await entracte("agents", "show", "helper", "--draft", "--version", "x", address=address)
        assert both.exit_code == 2
        nothing = await entracte("agents", "show", "coded", "--definition", address=address)
        assert nothing.exit_code == 2


async def test_blocking_code_sees_the_same() -> None:
    async with serve(app()) as server:

        def look() -> list[str]:
            with SyncClient(server.address) as client:
                version = client.agents.create_version("helper", HELPER)
                client.agents.publish("helper", version.version_id)
                assert client.agents.get("helper").agent.published_version_id == version.version_id
                assert [row.number for row in client.agents.versions("helper")] == [1]
                return [agent.agent_id for agent in client.agents.list()]

        assert await asyncio.to_thread(look) == ["coded", "helper"]
