"""What is still to be done about a run when its process is killed is done by another."""

from pathlib import Path

import pytest

from entracte import Client, FollowUp, Memory
from tests.cases.process import forked
from tests.recovery import titled
from tests.recovery.scored import JOURNAL, LATER
from tests.rpc.support import until

SCORED = "tests.recovery.scored:app"
TITLED = "tests.recovery.titled:app"


def let_go(journal: Path) -> None:
    """Scorers may end from now on."""
    journal.with_name(f"{journal.name}.go").touch()


async def score_of(client: Client, run_id: str) -> FollowUp:
    [found] = await client.runs.follow_ups(run_id, timeout=40)
    return found


async def test_killed_between_the_end_and_the_job(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    environment = {JOURNAL: str(journal)}
    async with forked(SCORED, tmp_path / "db", environment={**environment, LATER: "1"}) as server:
        async with Client(server.address) as client:
            result = await client.agent("talk").generate("hello")
            [waiting] = await client.runs.follow_ups(result.run_id, wait=False)
            assert (waiting.state, waiting.attempts) == ("waiting", 0)
        await server.kill()
    let_go(journal)
    async with (
        forked(SCORED, tmp_path / "db", environment=environment) as server,
        Client(server.address) as client,
    ):
        found = await score_of(client, result.run_id)
        assert (found.state, found.score, found.attempts) == ("succeeded", 0.5, 1)
        assert (await client.runs.get(result.run_id)).result == result
    assert journal.read_text().split() == [result.run_id]


async def test_killed_while_it_is_done(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    environment = {JOURNAL: str(journal)}
    async with forked(SCORED, tmp_path / "db", environment=environment) as server:
        async with Client(server.address) as client:
            result = await client.agent("talk").generate("hello")
            await until(journal.exists, "the scorer begins")
        await server.kill()
    let_go(journal)
    async with forked(SCORED, tmp_path / "db", environment=environment) as server:
        async with Client(server.address) as client:
            found = await score_of(client, result.run_id)
            assert (found.state, found.score, found.attempts) == ("succeeded", 0.5, 2)
        assert "Traceback" not in server.output
    assert journal.read_text().split() == [result.run_id] * 2


@pytest.mark.usefixtures("each_store")
async def test_killed_while_a_title_is_made(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    environment = {titled.JOURNAL: str(journal)}
    async with forked(TITLED, tmp_path / "db", environment=environment) as server:
        async with Client(server.address) as client:
            result = await client.agent("talk").generate("hello", memory=Memory("t", "u"))
            await until(journal.exists, "the model is asked for a title")
        await server.kill()
    let_go(journal)
    async with (
        forked(TITLED, tmp_path / "db", environment=environment) as server,
        Client(server.address) as client,
    ):
        found = await score_of(client, result.run_id)
        assert (found.state, found.title, found.attempts) == ("succeeded", "Greetings", 2)
        assert (await client.threads.get("t")).title == "Greetings"
    assert journal.read_text().split() == ["asked"] * 2
