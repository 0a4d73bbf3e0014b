"""A server with one agent, and a client of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from entracte import Client
from entracte_server import Agent, App
from entracte_server.testing import serve
from tests.stores import default_store


@asynccontextmanager
async def agent_of(model: Any, *, settings: dict[str, Any] | None = None, **more: Any) -> AsyncIterator[Any]:
    """The handle of an agent with this model; `more` is what else it is made with."""
    app = App(agents=[Agent(id="one", model=model, **more)])
    async with (
        serve(app, **{**default_store(), **(settings or {})}) as server,
        Client(server.address, timeout=30) as client,
    ):
        yield client.agent("one")
