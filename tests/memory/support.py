"""Conversations with an agent that is served anew as often as a test wants."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from entracte import Client, Memory
from entracte_server import Agent, App, Tool, ToolContext, ask_user, tool
from entracte_server.models.base import ModelRequest
from entracte_server.testing import ScriptedModel, scripted, serve
from tests.cases.support import paired
from tests.stores import default_store


@tool
async def echo(msg: str) -> str:
    """Say it again."""
    return f"echo {msg}"


@tool(requires_approval=True)
async def gated(msg: str, ctx: ToolContext) -> str:
    """Say it again, once somebody approves."""
    return f"gated {msg}"


TOOLS: tuple[Tool, ...] = (echo, gated, ask_user)


def on(thread: str = "t", resource: str = "u", **more: Any) -> Memory:
    """The options of a run on a thread."""
    return Memory(thread=thread, resource=resource, **more)


def call(name: str, number: int, **args: Any) -> list[dict[str, Any]]:
    """An answer of a call."""
    return [{"tool": name, "id": f"c{number}", "args": args or {"msg": str(number)}}]


class Talk:
    """A client, and the model its agent asks."""

    def __init__(self, client: Client, model: ScriptedModel, address: str) -> None:
        self.client = client
        self.address = address
        self.model = model
        self.agent = client.agent("a")

    @property
    def told(self) -> list[list[tuple[str, str]]]:
        """Role and text of each message of each model call."""
        return [[(m.role, m.text) for m in request.messages] for request in self.model.requests]

    async def stored(self, thread: str = "t") -> list[tuple[str, str]]:
        """Role and text of each message of a thread."""
        return [(m.role, m.text) async for m in self.client.threads.messages(thread)]


@asynccontextmanager
async def talking(
    script: Sequence[Any] | Callable[[ModelRequest], Any],
    *,
    store: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
    **agent: Any,
) -> AsyncIterator[Talk]:
    """Serve an agent that follows a script; every request of its model was valid."""
    model = scripted(script)
    app = App(agents=[Agent(id="a", model=model, tools=agent.pop("tools", TOOLS), **agent)])
    where: dict[str, Any] = default_store() if store is None else store
    async with serve(app, **where, **(settings or {})) as server, Client(server.address) as client:
        yield Talk(client, model, server.address)
    for request in model.requests:
        assert paired(request)
        turns = [message for message in request.messages if message.role != "system"]
        assert not turns or turns[0].role == "user"
