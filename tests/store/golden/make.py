"""Makes the golden database of the current version, once, when a version is released.

From the repository's root: python -m tests.store.golden.make
"""

import asyncio
import gzip
import tempfile
from pathlib import Path

from entracte_server.store.sqlite import SQLiteStore
from entracte_server.store.sqlite.migrate import migrations
from tests.store.golden.content import fill

HERE = Path(__file__).parent


async def main() -> None:
    version = migrations()[-1][0]
    target = HERE / f"v{version}.db.gz"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "golden.db"
        store = await SQLiteStore.open(path)
        await fill(store)
        await store.close()
        data = await asyncio.to_thread(path.read_bytes)
    await asyncio.to_thread(target.write_bytes, gzip.compress(data, mtime=0))
    print(target, target.stat().st_size, "bytes")


if __name__ == "__main__":
    asyncio.run(main())
