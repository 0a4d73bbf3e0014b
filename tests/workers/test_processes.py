"""Workers and servers that are killed, restarted, stopped and replaced in the middle of calls."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from entracte import Client
from entracte.v1 import worker_service_pb2 as pb
from tests.cases.process import forked
from tests.workers.support import SECONDS, app, calls, pulling, serving
from tests.workers.world import CALLS, JOURNAL
from tests.workers.world import app as world


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What tools of workers that are processes noted."""
    path = tmp_path / "journal"
    monkeypatch.setenv(JOURNAL, str(path))
    return path


def lines(journal: Path) -> list[str]:
    return journal.read_text().splitlines() if journal.exists() else []


async def until(condition: Callable[[], bool]) -> None:
    """Until something holds."""
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come")


async def until_noted(journal: Path, count: int) -> None:
    """Until the journal has so many lines."""
    await until(lambda: len(lines(journal)) >= count)


def let_end(journal: Path) -> None:
    """Tools may end."""
    Path(f"{journal}.go").touch()


def start(address: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-m", "tests.workers.world", address])


@asynccontextmanager
async def process(address: str, journal: Path) -> AsyncIterator["subprocess.Popen[bytes]"]:
    """A worker in a process of its own, once it is registered."""
    child = start(address)
    try:
        await until(lambda: child.poll() is not None or Path(f"{journal}.ready-{child.pid}").exists())
        assert child.poll() is None
        yield child
    finally:
        child.kill()
        await asyncio.to_thread(child.wait, SECONDS)


async def test_a_killed_worker(journal: Path, store: str) -> None:
    """What an idempotent tool had is executed by another worker; of any other somebody is asked."""
    async with serving(world, store, tool_worker_grace=1.0) as (_, client):
        address = client._connection.address
        async with process(address, journal) as child:
            many = asyncio.create_task(client.agent("many").generate("go", run_id="many"))
            once = asyncio.create_task(client.agent("once").generate("go", run_id="once"))
            await until_noted(journal, 2)
            child.kill()
        begun = lines(journal)
        let_end(journal)
        async with process(address, journal):
            result = await many
            assert sorted(it.result for it in result.tool_results) == list(range(CALLS))
            asked = await once
            if "once" in begun:
                [call] = asked.pending_calls
                assert (call.kind, call.tool_name) == ("recovery", "w__once")
                asked = await client.agent("once").approve(call)  # run it again
            assert asked.text == "end"
        noted = lines(journal)
        for line in {f"note {n}" for n in range(CALLS)} | {"once"}:
            assert noted.count(line) == 1 + begun.count(line)


async def test_a_killed_server(tmp_path: Path, journal: Path) -> None:
    """The calls go on while the server is dead; another one hears what they came to. Nothing is executed
    twice, and nobody is asked."""
    store = tmp_path / "db"
    environment = {JOURNAL: str(journal)}
    async with forked("tests.workers.world:app", store, environment=environment) as server:
        address = server.address
        async with process(address, journal), Client(address) as client:
            begun = len(lines(journal))
            run = asyncio.create_task(client.agent("many").generate("go", run_id="r"))
            await until_noted(journal, begun + 2)
            server.send(signal.SIGKILL)
            await server.ended()
            let_end(journal)
            async with forked("tests.workers.world:app", store, environment=environment, address=address):
                result = await run
    assert result.text == "end"
    assert sorted(it.result for it in result.tool_results) == list(range(CALLS))
    noted = lines(journal)[begun:]
    assert sorted(noted) == sorted(f"note {n}" for n in range(CALLS))


async def test_a_worker_that_stops(journal: Path, store: str) -> None:
    """It lets what it has end, and takes nothing more; what waits is another's."""
    async with serving(world, store) as (_, client):
        address = client._connection.address
        async with process(address, journal) as child, process(address, journal):
            begun = len(lines(journal))
            run = asyncio.create_task(client.agent("many").generate("go"))
            await until_noted(journal, begun + 4)
            child.send_signal(signal.SIGTERM)
            let_end(journal)
            assert await asyncio.to_thread(child.wait, SECONDS) == 0
            result = await run
    assert sorted(it.result for it in result.tool_results) == list(range(CALLS))
    assert sorted(lines(journal)[begun:]) == sorted(f"note {n}" for n in range(CALLS))


async def test_servers_share_what_workers_do(store: str) -> None:
    """One has the run, another the worker; the first stops, and the answer goes to the one that has the run
    by then. What a tool writes comes through as well."""
    it = [app(calls("w__echo", {"n": 1}, {"n": 2})) for _ in range(2)]
    async with serving(it[1], store) as (_, there):
        async with serving(it[0], store, grace=30.0) as (_, here), pulling(there) as puller:
            run = asyncio.create_task(here.agent("a").generate("go", run_id="r"))
            items = [await puller.item(), await puller.item()]
            await puller.complete(items[0])
            async with pulling(here, session="idle"):
                pass
        async with pulling(there) as puller:  # the same session: it has what it had
            again = await puller.item()
            assert (again.work_id, again.token) == (items[1].work_id, items[1].token)
            output = pb.WorkOutput(number=1)
            output.value.text = '"half"'
            await puller.extend(again, output=[output])
            await puller.extend(again, output=[output])
            await puller.complete(again)
            run.cancel()
            chunks = [c async for c in there.runs.watch("r", until_finished=True)]
    shown = [c.type for c in chunks if c.type in ("tool-result", "tool-output", "tool-call-suspended")]
    assert shown == ["tool-result", "tool-output", "tool-result"]
    assert chunks[-1].type == "finish"
    assert [c.sequence for c in chunks] == list(range(1, len(chunks) + 1))
