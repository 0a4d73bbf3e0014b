"""The file: how it is made, locked, brought up to date, and refused."""

import asyncio
import gzip
import os
import sqlite3
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from entracte_server.store.base import StoreError, StoreUnavailable
from entracte_server.store.sqlite import SQLiteStore, WrongDatabase, files, migrate
from entracte_server.testing.store_conformance.builders import created
from tests.store.golden.content import check, fill

GOLDEN = sorted(
    (Path(__file__).parent / "golden").glob("v*.db.gz"), key=lambda path: int(path.name[1:].partition(".")[0])
)


def versions(path: Path) -> list[int]:
    raw = sqlite3.connect(path)
    try:
        return [row[0] for row in raw.execute("SELECT version FROM schema_version ORDER BY version")]
    finally:
        raw.close()


class TestOpening:
    async def test_folders_and_file_are_made(self, tmp_path: Path) -> None:
        path = tmp_path / "some" / "where" / "store.db"
        store = await SQLiteStore.open(str(path))
        await created(store)
        for name in ("store.db", "store.db-wal", "store.db-shm", "store.db.lock"):
            assert stat.S_IMODE((path.parent / name).stat().st_mode) == 0o600, name
        await store.close()
        # Everything is back in the one file.
        assert sorted(os.listdir(path.parent)) == ["store.db", "store.db.lock"]

    async def test_it_is_durable(self, tmp_path: Path) -> None:
        path = tmp_path / "store.db"
        store = await SQLiteStore.open(path)
        writer = store._writer._database
        modes = [
            await writer.call(lambda raw, name=name: raw.execute(f"PRAGMA {name}").fetchone()[0])  # type: ignore[misc]
            for name in ("synchronous", "journal_mode")
        ]
        assert modes == [2, "wal"]
        run = await created(store)
        await store.close()
        again = await SQLiteStore.open(path, read_connections=1)
        assert await again.get_run(run.tenant, run.run_id) == run
        await again.close()

    async def test_what_is_no_database(self, tmp_path: Path) -> None:
        text = tmp_path / "text.db"
        text.write_text("This is no database, however long it goes on. " * 100)
        with pytest.raises(StoreUnavailable, match="not a database"):
            await SQLiteStore.open(text)
        with pytest.raises(StoreUnavailable, match="directory"):
            await SQLiteStore.open(tmp_path)
        with pytest.raises(StoreUnavailable, match="cannot open"):
            await SQLiteStore.open(text / "store.db")
        assert text.read_text().startswith("This is no database")

    async def test_somebody_elses_database(self, tmp_path: Path) -> None:
        path = tmp_path / "other.db"
        raw = sqlite3.connect(path)
        raw.execute("CREATE TABLE theirs (x)")
        raw.close()
        with pytest.raises(WrongDatabase, match="another program"):
            await SQLiteStore.open(path)
        # It is not held after that.
        with pytest.raises(WrongDatabase, match="another program"):
            await SQLiteStore.open(path)

    async def test_a_process_that_forgets_to_close_still_ends(self, tmp_path: Path) -> None:
        code = (
            "import asyncio, sys\n"
            "from entracte_server.store.sqlite import SQLiteStore\n"
            "async def main():\n"
            "    global store\n"
            "    store = await SQLiteStore.open(sys.argv[1])\n"
            "asyncio.run(main())\n"
        )
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "store.db")
        )
        assert await asyncio.wait_for(child.wait(), 30) == 0


class TestGone:
    """Files that somebody takes away from a running process."""

    @pytest.fixture(autouse=True)
    def _looks_every_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(files, "CHECK_SECONDS", 0.0)

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[SQLiteStore]:
        (tmp_path / "data").mkdir()
        opened = await SQLiteStore.open(tmp_path / "data" / "store.db")
        await opened.enter("here", 600)
        yield opened
        await opened.close()

    @pytest.mark.parametrize("what", ["removed", "replaced", "log removed", "folder removed"])
    async def test_the_database(
        self, store: SQLiteStore, tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Nothing is acknowledged that nobody will ever read."""
        path = tmp_path / "data" / "store.db"
        run = await created(store)
        if what == "removed":
            path.unlink()
        elif what == "replaced":
            other = tmp_path / "other.db"
            other.write_bytes(path.read_bytes())
            other.rename(path)
        elif what == "log removed":
            path.with_name("store.db-wal").unlink()
        else:
            path.parent.rename(tmp_path / "elsewhere")
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="was removed or replaced"):
                await created(store)
        with pytest.raises(StoreUnavailable, match="was removed or replaced"):
            await store.renew("here", 600)
        with pytest.raises(StoreUnavailable, match="was removed or replaced"):
            await store.get_run(run.tenant, run.run_id)
        assert [r.message for r in caplog.records if r.levelname == "CRITICAL"] == [
            f"{path}{'-wal' if what == 'log removed' else ''} was removed or replaced while it was in use: "
            "nothing is read or written until this process is restarted"
        ]

    async def test_a_database_that_comes_back(self, store: SQLiteStore, tmp_path: Path) -> None:
        run = await created(store)
        (tmp_path / "data").rename(tmp_path / "elsewhere")
        with pytest.raises(StoreUnavailable):
            await created(store)
        (tmp_path / "elsewhere").rename(tmp_path / "data")
        await created(store)
        assert await store.get_run(run.tenant, run.run_id) == run

    async def test_the_lock_file(self, store: SQLiteStore, tmp_path: Path) -> None:
        """Two processes that know different lock files would not wait for each other."""
        lock = tmp_path / "data" / "store.db.lock"
        lock.unlink()
        await created(store)
        other = await SQLiteStore.open(tmp_path / "data" / "store.db")
        lock.unlink()
        await created(other)
        await created(store)
        with other._files.locked():
            write = asyncio.ensure_future(created(store))
            await asyncio.sleep(0.05)
            assert not write.done()
        await write
        await other.close()


class TestMigrating:
    async def test_each_migration_is_applied_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "store.db"
        store = await SQLiteStore.open(path)
        run = await created(store)
        await store.close()
        known = migrate.migrations()
        assert versions(path) == [version for version, _, _ in known]
        following = known[-1][0] + 1
        more = (
            "-- A comment; with a semicolon.\n"
            "ALTER TABLE runs ADD COLUMN later TEXT NOT NULL DEFAULT 'a;b';\n"
            "CREATE TRIGGER counted AFTER INSERT ON runs BEGIN\n"
            "    DELETE FROM meta WHERE name = 'none';\n"
            "END;\n"
        )
        newer = [*known, (following, f"{following:04}_later.sql", more)]
        monkeypatch.setattr(migrate, "migrations", lambda: newer)
        for _ in range(2):
            store = await SQLiteStore.open(path)
            assert await store.get_run(run.tenant, run.run_id) == run
            await created(store)
            await store.close()
        assert versions(path) == [version for version, _, _ in newer]

    async def test_a_failing_migration_changes_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "store.db"
        await (await SQLiteStore.open(path)).close()
        known = migrate.migrations()
        bad = "CREATE TABLE half (x);\nCREATE TABLE half (x);\n"
        with monkeypatch.context() as patch:
            patch.setattr(migrate, "migrations", lambda: [*known, (99, "0099_bad.sql", bad)])
            with pytest.raises(StoreError, match="half"):
                await SQLiteStore.open(path)
        assert versions(path) == [version for version, _, _ in known]
        await (await SQLiteStore.open(path)).close()

    async def test_a_newer_database_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "store.db"
        await (await SQLiteStore.open(path)).close()
        raw = sqlite3.connect(path)
        raw.execute("INSERT INTO schema_version VALUES (9000, '9000_future.sql', 0)")
        raw.commit()
        raw.close()
        with pytest.raises(WrongDatabase, match="version 9000, this program knows versions up to"):
            await SQLiteStore.open(path)

    def test_migrations_are_numbered_without_gaps(self) -> None:
        known = migrate.migrations()
        assert [version for version, _, _ in known] == list(range(1, len(known) + 1))
        for _, name, text in known:
            assert migrate.statements(text), name

    def test_half_a_statement(self) -> None:
        with pytest.raises(ValueError, match="within a statement"):
            migrate.statements("CREATE TABLE x (y);\nCREATE TABLE")
        assert migrate.statements("-- nothing\n") == []


class TestGolden:
    """Databases that older versions wrote."""

    @pytest.mark.parametrize("packed", GOLDEN, ids=lambda path: path.name)
    async def test_an_older_database(self, tmp_path: Path, packed: Path) -> None:
        path = tmp_path / "store.db"
        path.write_bytes(gzip.decompress(await asyncio.to_thread(packed.read_bytes)))
        store = await SQLiteStore.open(path)
        await check(store)
        await store.close()
        assert versions(path)[-1] == migrate.migrations()[-1][0]

    async def test_this_version(self, tmp_path: Path) -> None:
        store = await SQLiteStore.open(tmp_path / "store.db")
        await fill(store)
        await check(store)
        await store.close()

    def test_there_is_one_of_every_version(self) -> None:
        assert [path.name for path in GOLDEN] == [
            f"v{version}.db.gz" for version, _, _ in migrate.migrations()
        ]
