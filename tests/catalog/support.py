"""Servers that offer tools and models to agents made of data."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from entracte import AgentDefinition, AgentVersion, Client
from entracte_server import Agent, App, Tool, ToolContext, Toolset, hook, tool
from entracte_server.testing import TestServer, scripted, serve

KEYS: list[dict[str, Any]] = [
    {"key": "key-of-ann-0123", "principal": "ann", "tenant": "north", "roles": ["run", "decide", "author"]},
    {"key": "key-of-rob-0123", "principal": "rob", "tenant": "north"},
    {"key": "key-of-eve-0123", "principal": "eve", "tenant": "south", "roles": ["run", "author"]},
]
ANN, ROB, EVE = (str(key["key"]) for key in KEYS)


def paying(request: Any) -> list[dict[str, Any]]:
    """Calls the tool `pay` once, and then says what its instructions are."""
    if any(message.role == "tool" for message in request.messages):
        return telling(request)
    return [{"tool": "pay", "id": "c-pay", "args": {"amount": 7}}]


def wondering(request: Any) -> list[dict[str, Any]]:
    """Calls the tool `ask` once and repeats the answer; reads a message as the answer `yes`."""
    if any("matches" in message.text for message in request.messages if message.role == "system"):
        return [{"text": '{"matches":[{"call":"q1","data":"yes"}]}'}]
    said = [message for message in request.messages if message.role == "tool"]
    return [{"text": f"heard {said[-1].parts[0].output}"}] if said else [{"tool": "ask", "args": {}}]


def looking(request: Any) -> list[dict[str, Any]]:
    """Calls the tool `look`, over and over."""
    return [{"tool": "look", "args": {"at": "it"}}]


def telling(request: Any) -> list[dict[str, Any]]:
    """Says what its instructions are."""
    system = [message.text for message in request.messages if message.role == "system"]
    return [{"text": "/".join(system) or "nothing"}]


def asking(request: Any) -> list[dict[str, Any]]:
    """Delegates to `helper` once, and then repeats what it said."""
    said = [message for message in request.messages if message.role == "tool"]
    if said:
        return [{"text": f"heard {said[-1].parts[0].output}"}]
    return [{"tool": "agent-helper", "id": "c-help", "args": {"prompt": "help"}}]


@tool(requires_approval=True)
async def pay(amount: int) -> int:
    """Pays."""
    return amount


@tool
async def look(at: str) -> str:
    """Looks."""
    return f"saw {at}"


@tool(resume_schema={"type": "string"})
async def ask(ctx: ToolContext[Any]) -> Any:
    """Asks somebody."""
    if not ctx.resumed:
        ctx.suspend({"question": "well?"})
    return ctx.resume_data


@hook("prepare_step", name="quiet")
def quiet(info: Any) -> None:
    """Changes nothing."""


def app(tools: tuple[Tool, ...] = (pay, look, ask), **options: Any) -> App:
    """An app with agents of its own, and with what agents made of data can name."""
    options.setdefault("toolsets", [Toolset("shop", tools=[look])])
    return App(
        agents=[
            Agent(id="coded", model=scripted(lambda request: [{"text": "coded"}]), version="7", tools=[look]),
            Agent(id="aide", model=scripted(lambda request: [{"text": "aide"}]), description="Aids."),
        ],
        tools=tools,
        hooks=[quiet],
        models=[
            scripted(paying, name="test/paying"),
            scripted(telling, name="test/telling"),
            scripted(asking, name="test/asking"),
            scripted(looking, name="test/looking"),
            scripted(wondering, name="test/wondering"),
        ],
        **options,
    )


@asynccontextmanager
async def served(store: str, it: App | None = None, **settings: Any) -> AsyncIterator[TestServer]:
    """A server on a store, which it may share with others."""
    settings.setdefault("log_level", "error")
    async with serve(it or app(), store=store, **settings) as server:
        yield server


@asynccontextmanager
async def serving(store: str, it: App | None = None, **settings: Any) -> AsyncIterator[Client]:
    """A server and its client."""
    async with served(store, it, **settings) as server, Client(server.address) as client:
        yield client


def saying(*instructions: str, **changes: Any) -> AgentDefinition:
    """An agent that says what its instructions are."""
    return AgentDefinition(**{"models": ["test/telling"], "instructions": instructions, **changes})


async def published(client: Client, agent_id: str, definition: Any) -> AgentVersion:
    """A new version, which is published."""
    version = await client.agents.create_version(agent_id, definition)
    return await client.agents.publish(agent_id, version.version_id)
