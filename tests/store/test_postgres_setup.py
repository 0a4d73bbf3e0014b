"""How a PostgreSQL database is opened: URLs, versions, several processes at once, and what holds in every
transaction.
"""

import asyncio
import gzip
import os
import sys
from pathlib import Path

import psycopg
import pytest

from entracte_server.store.base import StoreUnavailable, Written, WrongDatabase
from entracte_server.store.opening import open_store, without_password
from entracte_server.store.postgres import PostgresStore, migrate, retrying
from entracte_server.testing.store_conformance.builders import (
    TENANT,
    a_decide,
    a_park,
    a_pending,
    a_step,
    a_write,
    chunks,
    created,
    waiting,
)
from tests.postgres import Postgres
from tests.store.golden.content import check, fill

ROOT = Path(__file__).parents[2]
GOLDEN = sorted(Path(__file__).parent.glob("golden/postgres-v*.sql.gz"))


class TestUrls:
    @pytest.mark.parametrize(
        "url", ["", "store.db", "mysql://x/y", "sqlite:///", "postgresql", "sqlite://relative"]
    )
    async def test_another_kind(self, url: str) -> None:
        with pytest.raises(ValueError, match=r"use sqlite:///PATH or postgresql://"):
            await open_store(url)

    async def test_a_url_that_is_none(self) -> None:
        with pytest.raises(ValueError, match="not a URL of a PostgreSQL database"):
            await open_store("postgresql://localhost/db?nonsense=1")
        with pytest.raises(ValueError, match="for PostgreSQL only"):
            await open_store("sqlite:///x.db", listen_url="postgresql://localhost/db")

    async def test_either_scheme(self, postgres_url: str) -> None:
        for url in (postgres_url, postgres_url.replace("postgresql://", "postgres://")):
            store = await open_store(url)
            assert isinstance(store, PostgresStore)
            await store.close()

    async def test_no_driver(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [name for name in sys.modules if name.startswith(("psycopg", "entracte_server.store.p"))]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "psycopg", None)
        with pytest.raises(ValueError, match=r"install entracte-server\[postgres\]"):
            await open_store("postgresql://localhost/db")

    @pytest.mark.parametrize(
        ("url", "shown"),
        [
            ("postgresql://me:s3cr%2Fet@host:5432/db", "postgresql://me:***@host:5432/db"),
            ("postgresql://host/db?user=me&password=s3cret&x=1", "postgresql://host/db?user=me&password=***&x=1"),
            ("postgresql://me@host/db", "postgresql://me@host/db"),
            ("postgresql://me:s3c:ret@a:1,b:2/db", "postgresql://me:***@a:1,b:2/db"),
            ("sqlite:///a:b@c.db", "sqlite:///a:b@c.db"),
        ],
    )  # fmt: skip
    def test_passwords_are_not_shown(self, url: str, shown: str) -> None:
        assert without_password(url) == shown

    async def test_nobody_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(retrying, "PATIENCE_SECONDS", 0.2)
        with pytest.raises(StoreUnavailable) as failed:
            await PostgresStore.open("postgresql://me:s3cret@127.0.0.1:1/db")
        assert "s3cret" not in str(failed.value)


class TestVersions:
    async def test_several_processes_at_once(self, postgres: Postgres) -> None:
        """Real ones, on a database that has nothing."""
        database = postgres.create_database()
        processes = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-m", "entracte_server.app.cli", "migrate",
                cwd=ROOT,
                env={**os.environ, "ENTRACTE_STORE": postgres.url(database)},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            for _ in range(4)
        ]  # fmt: skip
        stores = asyncio.gather(*(PostgresStore.open(postgres.url(database)) for _ in range(4)))
        for process in processes:
            said, _ = await process.communicate()
            assert (process.returncode, b"is up to date" in said) == (0, True), said
        for store in await stores:
            await store.close()
        applied = postgres.execute("SELECT version FROM entracte.schema_version ORDER BY version", database)
        assert applied == [(version,) for version, _, _ in migrate.migrations()]
        postgres.drop_database(database)

    async def test_a_failing_migration_leaves_nothing(
        self, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        database = postgres.create_database()
        known = migrate.migrations()
        broken = (9000, "9000_broken.sql", "CREATE TABLE entracte.fine (x bigint);\nSELECT nonsense;\n")
        monkeypatch.setattr(migrate, "migrations", lambda: [*known, broken])
        with pytest.raises(StoreUnavailable, match="nonsense"):
            await PostgresStore.open(postgres.url(database))
        assert postgres.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'entracte'", database) == []
        monkeypatch.undo()
        await (await PostgresStore.open(postgres.url(database))).close()
        postgres.drop_database(database)

    async def test_a_newer_database(
        self, postgres: Postgres, postgres_url: str, postgres_database: str
    ) -> None:
        await (await PostgresStore.open(postgres_url)).close()
        postgres.execute("INSERT INTO entracte.schema_version VALUES (9000, 'x', 0)", postgres_database)
        try:
            with pytest.raises(WrongDatabase, match="version 9000, this program knows versions up to"):
                await PostgresStore.open(postgres_url)
        finally:
            postgres.execute("DELETE FROM entracte.schema_version WHERE version = 9000", postgres_database)

    async def test_another_programs_schema(self, postgres: Postgres) -> None:
        database = postgres.create_database()
        postgres.execute("CREATE SCHEMA entracte", database)
        postgres.execute("CREATE TABLE entracte.runs (mine text)", database)
        with pytest.raises(WrongDatabase, match="another program"):
            await PostgresStore.open(postgres.url(database))
        assert postgres.execute("SELECT * FROM entracte.runs", database) == []
        postgres.drop_database(database)

    async def test_an_encoding_that_cannot_hold_any_text(self, postgres: Postgres) -> None:
        postgres.execute(
            "CREATE DATABASE narrow ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        )
        with pytest.raises(WrongDatabase, match="SQL_ASCII, UTF8 is needed"):
            await PostgresStore.open(postgres.url("narrow"))
        postgres.drop_database("narrow")


class TestGolden:
    """Databases that older versions wrote."""

    @pytest.mark.parametrize("packed", GOLDEN, ids=lambda path: path.name)
    async def test_an_older_database(self, postgres: Postgres, packed: Path) -> None:
        database = postgres.create_database()
        postgres.execute(gzip.decompress(await asyncio.to_thread(packed.read_bytes)).decode(), database)
        store = await PostgresStore.open(postgres.url(database))
        await check(store)
        await store.close()
        ((version,),) = postgres.execute("SELECT max(version) FROM entracte.schema_version", database)
        assert version == migrate.migrations()[-1][0]
        postgres.drop_database(database)

    async def test_this_version(self, postgres_url: str) -> None:
        store = await PostgresStore.open(postgres_url)
        await fill(store)
        await check(store)
        await store.close()

    def test_there_is_one_of_every_version(self) -> None:
        assert [path.name for path in GOLDEN] == [
            f"postgres-v{version}.sql.gz" for version, _, _ in migrate.migrations()
        ]


_WITNESS = """
CREATE SCHEMA witness;
CREATE TABLE witness.saw (name text, value text);
CREATE FUNCTION witness.look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO witness.saw SELECT name, current_setting(name) FROM unnest(ARRAY['synchronous_commit',
        'statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', 'transaction_isolation'])
        AS name;
    RETURN NEW;
END $$;
CREATE TRIGGER witness AFTER INSERT OR UPDATE ON entracte.runs FOR EACH ROW EXECUTE FUNCTION witness.look();
"""


async def test_what_holds_in_every_transaction(
    postgres: Postgres, postgres_url: str, postgres_database: str
) -> None:
    """Commits are durable and waits are bounded, whatever the database's own settings are; looked at from
    within the transactions that write."""
    store = await PostgresStore.open(postgres_url)
    postgres.execute(f'ALTER DATABASE "{postgres_database}" SET synchronous_commit = off')
    postgres.execute(f'ALTER DATABASE "{postgres_database}" SET statement_timeout = 0')
    postgres.execute(_WITNESS, postgres_database)
    try:
        with psycopg.connect(postgres_url) as connection:
            assert connection.execute("SHOW synchronous_commit").fetchone() == ("off",)
        run, call, pending = await waiting(store)
        decided = await store.decide(a_decide(pending, call))
        again = a_pending(run, call, round=2)
        write = a_write(decided.run, chunks=chunks(5, 5), steps=(a_step(2),), opened=(again,), park=a_park(6))
        assert await store.write(write) == Written(parked=True)
        other = await created(store)
        await store.write(a_write(other, chunks=chunks(1, 1)))
        with pytest.raises(ValueError, match="do not follow"):
            await store.write(a_write(other, chunks=chunks(5, 5)))
        await store.take_over(TENANT, other.run_id, fence=1, owner="process-2")
        seen = set(postgres.execute("SELECT DISTINCT name, value FROM witness.saw", postgres_database))
        assert seen == {
            ("synchronous_commit", "on"),
            ("statement_timeout", "5s"),
            ("lock_timeout", "2s"),
            ("idle_in_transaction_session_timeout", "10s"),
            ("transaction_isolation", "read committed"),
        }
    finally:
        postgres.execute("DROP SCHEMA witness CASCADE", postgres_database)
        postgres.execute(f'ALTER DATABASE "{postgres_database}" RESET ALL')
        await store.close()


async def test_the_server_syncs(postgres: Postgres) -> None:
    """The tests themselves run on a server that keeps its promises."""
    for name in ("fsync", "full_page_writes"):
        assert postgres.execute(f"SHOW {name}") == [("on",)]


async def test_a_server_that_does_not_sync_is_told_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Postgres(fsync="off") as server:
        await (await PostgresStore.open(server.url(server.create_database()))).close()
    assert "fsync off" in caplog.text


async def test_texts_that_people_read_in_the_database(
    postgres: Postgres, postgres_url: str, postgres_database: str
) -> None:
    """Plain text is stored as it is; NUL, which PostgreSQL has not, in its own way, and so is what looks
    like it."""
    store = await PostgresStore.open(postgres_url)
    ids = ["plain \u00e4\U0001f648", "a\0b", "a\x010b", "a\x01b", "\x01", "\x010", "\0\x01\0"]
    for run_id in ids:
        await created(store, run_id=run_id)
    stored = [
        row[0] for row in postgres.execute("SELECT run_id FROM entracte.runs ORDER BY seq", postgres_database)
    ]
    assert stored[0] == ids[0]
    assert len(set(stored)) == len(ids)
    for run_id in ids:
        assert (await store.get_run(TENANT, run_id)).run_id == run_id
    await store.close()
