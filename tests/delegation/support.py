"""Servers whose agents delegate, and readers of what their runs show."""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from entracte import Client
from entracte_server import Agent, App, Tool, tool
from entracte_server.testing import ScriptedModel, TestServer, scripted, serve

ROOT_TEXT = "You speak for the company."


def delegate(to: str, prompt: str = "do it") -> dict[str, Any]:
    """The call that delegates."""
    return {"tool": f"agent-{to}", "args": {"prompt": prompt}}


def call(name: str, **args: Any) -> dict[str, Any]:
    """Another call."""
    return {"tool": name, "args": args}


def says(text: str) -> list[dict[str, Any]]:
    """An answer without calls."""
    return [{"text": text}]


def counting(name: str, entered: list[str], *, gated: bool = False) -> Tool:
    """A tool that notes that it was entered."""

    @tool(name=name, requires_approval=gated)
    async def body() -> str:
        """Does something."""
        entered.append(name)
        return f"{name} done"

    return body


def agent(name: str, script: Sequence[Any], **options: Any) -> Agent:
    """An agent that follows a script."""
    return Agent(id=name, model=scripted(script), description=f"Knows all about {name}.", **options)


def model_of(it: Agent) -> ScriptedModel:
    """The model of such an agent."""
    [model] = it.models
    assert isinstance(model, ScriptedModel)
    return model


def prompts(it: Agent) -> list[list[tuple[str, str]]]:
    """Role and text of each message of each model call."""
    return [[(m.role, m.text) for m in request.messages] for request in model_of(it).requests]


@asynccontextmanager
async def serving(app: App, store: str, **settings: Any) -> AsyncIterator[Client]:
    """A server and its client."""
    async with served(app, store, **settings) as (_, client):
        yield client


@asynccontextmanager
async def served(app: App, store: str, **settings: Any) -> AsyncIterator[tuple[TestServer, Client]]:
    """As `serving`, with the server."""
    settings.setdefault("log_level", "error")
    async with serve(app, store=store, **settings) as server, Client(server.address) as client:
        yield server, client


def way(chunk: Any) -> str:
    """The agents on the way to whoever made a chunk."""
    return "/".join(element.agent_id for element in chunk.agent_path)


def shown(chunks: Iterable[Any]) -> list[str]:
    """What chunks are, each with where it comes from, pieces of answers left out."""
    pieces = ("-delta", "text-", "tool-call-input", "step-")
    return [f"{way(c)}:{c.type}" for c in chunks if not any(piece in c.type for piece in pieces)]


def results(chunks: Iterable[Any]) -> dict[str, Any]:
    """What tools returned, by their names."""
    return {c.tool_name: c.result for c in chunks if c.type == "tool-result"}
