"""PostgreSQL is restarted, crashes, loses its connections and runs out of them, under load: what its
replicas owe to people holds."""

import asyncio
import random
import signal
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from tests.chaos.databases import on_postgres
from tests.chaos.fleet import fleet
from tests.chaos.playing import Report, judge, under_load
from tests.chaos.stories import Story
from tests.chaos.test_kills import SEED
from tests.postgres import Postgres

REPLICAS = 2
FLEETS = 2

MAX_CONNECTIONS = 60

Fault = Callable[[Postgres, random.Random], Awaitable[None]]


async def restart(server: Postgres, rng: random.Random) -> None:
    """Everybody is disconnected, and the server comes back."""
    await asyncio.to_thread(server.restart)


async def crash(server: Postgres, rng: random.Random) -> None:
    """As after a loss of power, but for the caches of the disk."""
    await asyncio.to_thread(server.restart, signal.SIGQUIT)


async def away(server: Postgres, rng: random.Random) -> None:
    """Away for longer than the leases of its clients."""
    await asyncio.to_thread(server.stop)
    await asyncio.sleep(rng.uniform(1.5, 3.0))
    await asyncio.to_thread(server.start)


Connection = psycopg.Connection[tuple[object, ...]]

TERMINATE = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' "
    "AND pid <> pg_backend_pid() AND application_name <> 'stranger' AND random() < 0.5"
)


def _stranger(server: Postgres) -> Connection:
    """A connection of somebody who takes no part."""
    return psycopg.connect(f"{server.url('postgres')}&application_name=stranger", autocommit=True)


async def terminate(server: Postgres, rng: random.Random) -> None:
    """Connections are killed, about half of them, again and again."""
    connection = await asyncio.to_thread(_stranger, server)
    try:
        for _ in range(10):
            await asyncio.to_thread(connection.execute, TERMINATE)
            await asyncio.sleep(rng.uniform(0.0, 0.3))
    finally:
        connection.close()


async def exhaust(server: Postgres, rng: random.Random) -> None:
    """Strangers take all the connections that there are, also those that replicas lose meanwhile."""
    strangers = [_stranger(server)]

    def take_all() -> None:
        try:
            while True:
                strangers.append(_stranger(server))
        except psycopg.OperationalError:
            return

    try:
        for _ in range(5):
            await asyncio.to_thread(take_all)
            await asyncio.to_thread(strangers[0].execute, TERMINATE)
            await asyncio.sleep(rng.uniform(0.1, 0.4))
    finally:
        for connection in strangers:
            connection.close()


FAULTS: tuple[Fault, ...] = (terminate, restart, exhaust, crash, away, terminate)


@pytest.mark.timeout(180)
async def test_faults_of_the_database(references: dict[str, Story]) -> None:
    """Two fleets of two replicas on one server, and one fault after the other."""
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    total = Report()
    with Postgres(max_connections=str(MAX_CONNECTIONS)) as server:
        ready = asyncio.Barrier(FLEETS + 1)

        async def one(number: int, folder: Path, store: str) -> None:
            async with fleet(folder, store, REPLICAS) as group:
                async with under_load(group, f"f{number}", random.Random(f"{SEED} {number}")) as load:
                    for _ in FAULTS:
                        await ready.wait()  # before a fault
                        await ready.wait()  # after it
                        await load.gets_further()
                report = Report()
                await judge(load, report, references)
                total.add(report)

        async def faults() -> None:
            for fault in FAULTS:
                await ready.wait()
                await asyncio.sleep(rng.uniform(0.2, 0.6))
                try:
                    await fault(server, rng)
                except BaseException as error:
                    error.add_note(fault.__name__)
                    raise
                await ready.wait()

        with ExitStack() as stack:
            places = []
            for _ in range(FLEETS):
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                places.append((folder, stack.enter_context(on_postgres(server)(folder))))
            async with asyncio.TaskGroup() as group:
                for number, (folder, store) in enumerate(places):
                    group.create_task(one(number, folder, store))
                group.create_task(faults())
    print(total)
