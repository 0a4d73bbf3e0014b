"""A store's database, looked at from outside: what is in it, how large it is, how much was read of it."""

import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Protocol

import psycopg

from entracte import Client
from entracte_server import App
from entracte_server.store.sqlite import SQLiteStore
from entracte_server.testing import serve
from tests.postgres import Postgres
from tests.store.test_postgres_plans import all_gone, rows_read
from tests.store.test_sqlite_threads import counted

Tables = dict[str, list[tuple[Any, ...]]]

OWN_AFFAIRS = frozenset({"processes", "duties", "meta", "schema_version", "sqlite_sequence"})
"""Tables in which servers keep what they know of themselves and of each other."""

Work = Callable[[Client], Awaitable[object]]


class Database(Protocol):
    """See the module. `store` is the setting of a server."""

    store: str

    def tables(self) -> Tables:
        """What is in all tables, but the servers' own affairs."""
        ...

    def size(self) -> int:
        """Bytes that it takes, when no server has it open."""
        ...

    async def read_by(self, app: App, work: Work) -> int:
        """How much of the database a server reads for `work`, in whatever the database counts in: at least
        one for each row."""
        ...


@asynccontextmanager
async def client_of(app: App, database: Database) -> AsyncIterator[Client]:
    """A client of a server that lasts as long as the context."""
    async with serve(app, store=database.store) as server, Client(server.address) as client:
        yield client


class SQLiteFile:
    """A `Database` in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.store = f"sqlite:///{path}"

    def tables(self) -> Tables:
        with closing(sqlite3.connect(self._path)) as connection:
            names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            return _sorted(
                (name, connection.execute(f"SELECT * FROM {name}").fetchall()) for (name,) in names
            )

    def size(self) -> int:
        return os.path.getsize(self._path)

    async def read_by(self, app: App, work: Work) -> int:
        """Counts the steps of SQLite's machine, and takes the least of three times, since a server does
        something by itself now and then."""
        async with serve(app, store=self.store) as server, Client(server.address) as client:
            assert isinstance(server.store, SQLiteStore)
            await work(client)  # the first one reads the schema
            steps = await counted(server.store)
            found = []
            for _ in range(3):
                steps[0] = 0
                await work(client)
                found.append(steps[0])
        assert min(found) > 0
        return min(found)


class PostgresDatabase:
    """A `Database` of a PostgreSQL server."""

    def __init__(self, postgres: Postgres, name: str) -> None:
        self._postgres = postgres
        self._name = name
        self.store = postgres.url(name)

    def tables(self) -> Tables:
        with psycopg.connect(self.store) as connection:
            names = connection.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'entracte'"
            ).fetchall()
            return _sorted(
                (name, connection.execute(f"SELECT * FROM entracte.{name}".encode()).fetchall())
                for (name,) in names
            )

    def size(self) -> int:
        """Without the rows that were replaced, which go some time later."""
        rows = self._postgres.execute("SELECT relid::regclass::text FROM pg_stat_user_tables", self._name)
        self._postgres.execute(f"VACUUM FULL {', '.join(name for (name,) in rows)}", self._name)
        total = "SELECT sum(pg_total_relation_size(relid))::bigint FROM pg_stat_user_tables"
        [(size,)] = self._postgres.execute(total, self._name)
        return int(size)

    async def read_by(self, app: App, work: Work) -> int:
        """Counts rows, those that the server reads when it starts and stops included.

        With the statistics that autovacuum makes about once a minute: how PostgreSQL reads tables that just
        grew would depend on when it came by. What is read without any is in test_postgres_plans.
        """
        await all_gone(self._postgres, self._name)
        self._postgres.execute("ANALYZE", self._name)
        self._postgres.execute("SELECT pg_stat_reset()", self._name)
        async with client_of(app, self) as client:
            await work(client)
        read = await rows_read(self._postgres, self._name)
        assert sum(searched for _, _, searched in read) > 0
        print("rows read:", sorted(read, key=lambda table: -table[1] - table[2])[:5])
        return sum(scanned + searched for _, scanned, searched in read)


def _sorted(tables: Iterable[tuple[str, list[tuple[Any, ...]]]]) -> Tables:
    return {name: sorted(rows, key=repr) for name, rows in tables if name not in OWN_AFFAIRS}
