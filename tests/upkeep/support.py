"""Agents whose calls wait, and readers of what became of them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from entracte import Client, ClientTool, Decision, PendingCall, Run
from entracte_server import Agent, App, Tool, tool
from entracte_server.testing import TestServer, scripted, serve

Part = dict[str, Any]

SOON = 0.15
"""Seconds after which calls expire here."""

CITY = ClientTool("pick_city", "Picks a city.", {"type": "object"})
PAY = {"tool": "pay", "id": "c-pay", "args": {"cents": 7}}
ASK = {"tool": "ask_user", "id": "c-ask", "args": {"question": "Which?"}}
CHOOSE = {
    "tool": "ask_user",
    "id": "c-choose",
    "args": {"question": "Which?", "options": [{"label": "a"}, {"label": "b"}]},
}
PICK = {"tool": "pick_city", "id": "c-pick", "args": {}}


@tool(requires_approval=True)
async def pay(cents: int) -> None:
    """Is never entered here."""
    raise AssertionError("a tool was entered that nobody approved")


def calling(*parts: Part, then: str = "done") -> Any:
    """A model that makes these calls once and then says something, in any number of runs at once."""

    def play(request: Any) -> Sequence[Part]:
        if any(message.role == "tool" for message in request.messages):
            return [{"text": then}]
        return parts

    return scripted(play)


def app_of(model: Any, *tools: Tool, **settings: Any) -> App:
    """One agent, `agent`."""
    return App(agents=[Agent(id="agent", model=model, tools=tools, **settings)])


@asynccontextmanager
async def serving(app: App, **settings: Any) -> AsyncIterator[tuple[TestServer, Client]]:
    """A server of `app`, and a client of it."""
    async with serve(app, **settings) as server, Client(server.address) as client:
        yield server, client


def told(model: Any) -> dict[str, tuple[str, str]]:
    """Kind and text of each result that the model was told last, by tool name."""
    return {
        part.tool_name: (part.kind, part.output)
        for message in model.requests[-1].messages
        if message.role == "tool"
        for part in message.parts
    }


async def until(condition: Callable[[], Awaitable[Any]], what: str, seconds: float = 40.0) -> Any:
    """Wait for something that will happen, and what it gives; `what` names it when it does not."""
    end = asyncio.get_running_loop().time() + seconds
    while not (found := await condition()):
        if asyncio.get_running_loop().time() > end:
            pytest.fail(f"it never happened: {what}")
        await asyncio.sleep(0.01)
    return found


async def ended(client: Client, run_id: str) -> Run:
    """The run once it has ended."""

    async def look() -> Run | None:
        run = await client.runs.get(run_id)
        return run if run.state in ("succeeded", "failed", "cancelled") else None

    run: Run = await until(look, f"run {run_id} ends")
    return run


async def parked(client: Client, **options: Any) -> dict[str, PendingCall]:
    """A run that is parked: its pending calls by tool name."""
    result = await client.agent("agent").generate("go", **options)
    assert result.finish_reason == "suspended", result
    return {call.tool_name: call for call in result.pending_calls}


async def decisions(client: Client, run_id: str) -> dict[str, Decision]:
    """The last decision on each tool's call."""
    found = [decision async for decision in client.inbox.decisions(run_id=run_id)]
    return {decision.tool_name: decision for decision in reversed(found)}
