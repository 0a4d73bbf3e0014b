"""A server in this process, on a free port of the loopback interface."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from entracte_server.agents.agent import App
from entracte_server.app.running import running
from entracte_server.app.settings import Settings
from entracte_server.domain.data import Data
from entracte_server.engine.engine import Engine
from entracte_server.store.base import Store


class TestServer(Data, frozen=True):
    """A server that runs. `address` is `host:port`."""

    __test__ = False

    address: str
    engine: Engine
    store: Store


@asynccontextmanager
async def serve(
    app: App, *, store: str | Path | None = None, grace: float = 0.0, **settings: Any
) -> AsyncIterator[TestServer]:
    """Serve `app` while the context lasts. `store` is a database file (default: a temporary one), or a
    URL as for the setting `store`; `settings` are fields of `entracte_server.app.settings.Settings`."""
    with tempfile.TemporaryDirectory() as folder:
        path = store if store is not None else Path(folder) / "entracte.db"
        url = path if isinstance(path, str) and "://" in path else f"sqlite:///{path}"
        settings.setdefault("address", "127.0.0.1:0")
        values = Settings(store=url, grace=grace, **settings)
        async with running(app, values) as it:
            yield TestServer(f"127.0.0.1:{it.server.port}", it.engine, it.store)
