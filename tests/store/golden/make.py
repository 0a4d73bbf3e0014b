"""Makes the golden databases of the current versions, once, when a version is released: a file of SQLite,
and the SQL that makes one of PostgreSQL. One that is there already stays.

From the repository's root: python -m tests.store.golden.make
"""

import asyncio
import gzip
import tempfile
from pathlib import Path

from entracte_server.store.postgres import PostgresStore
from entracte_server.store.postgres import migrate as postgres_migrate
from entracte_server.store.sqlite import SQLiteStore
from entracte_server.store.sqlite import migrate as sqlite_migrate
from tests.postgres import Postgres
from tests.store.golden.content import fill

HERE = Path(__file__).parent


async def of_sqlite() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "golden.db"
        store = await SQLiteStore.open(path)
        await fill(store)
        await store.close()
        return await asyncio.to_thread(path.read_bytes)


async def of_postgres() -> bytes:
    with Postgres() as server:
        database = server.create_database()
        store = await PostgresStore.open(server.url(database))
        await fill(store)
        await store.close()
        return server.dump(database).encode()


async def main() -> None:
    for make, name, version in (
        (of_sqlite, "v{}.db.gz", sqlite_migrate.migrations()[-1][0]),
        (of_postgres, "postgres-v{}.sql.gz", postgres_migrate.migrations()[-1][0]),
    ):
        target = HERE / name.format(version)
        if not target.exists():
            target.write_bytes(gzip.compress(await make(), mtime=0))
            print(target, target.stat().st_size, "bytes")


if __name__ == "__main__":
    asyncio.run(main())
