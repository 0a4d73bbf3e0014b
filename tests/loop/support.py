"""A server with one agent, and what its runs come to."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from entracte import Client, GenerateResult
from entracte_server import Agent, App, Tool, tool
from entracte_server.testing import ScriptedModel, scripted, serve


@tool
async def echo(msg: str) -> str:
    """Say it again."""
    return f"echo {msg}"


@tool
async def other() -> str:
    """Something else."""
    return "other"


@tool(requires_approval=True)
async def gated(msg: str) -> str:
    """Say it again, once somebody approves."""
    return f"gated {msg}"


def call(text: str, number: int, name: str = "echo", **args: Any) -> list[dict[str, Any]]:
    """An answer of some text and one call."""
    return [
        {"text": text},
        {"tool": name, "id": f"c{number}", "args": args or ({} if name == "other" else {"msg": str(number)})},
    ]


LOOP: Sequence[Any] = [call("s1 ", 1), call("s2 ", 2), call("s3 ", 3), [{"text": "end"}]]


class Served:
    """A client, the model its agent asks, and the store's file."""

    def __init__(self, client: Client, model: ScriptedModel) -> None:
        self.client = client
        self.model = model
        self.agent = client.agent("a")

    @property
    def prompts(self) -> list[list[tuple[str, str]]]:
        """Role and text of each message of each model call."""
        return [[(m.role, m.text) for m in request.messages] for request in self.model.requests]

    async def both(self, text: str = "hi", **options: Any) -> GenerateResult:
        """The result of a run, which is the same for `generate`, a stream and `get`."""
        result = await self.agent.generate(text, **options)
        again = (await self.client.runs.get(result.run_id)).result
        assert again == result
        return result


@asynccontextmanager
async def serving(
    script: Sequence[Any] = LOOP,
    *,
    store: Path | None = None,
    tools: Sequence[Tool] = (echo, other, gated),
    app: dict[str, Any] | None = None,
    **agent: Any,
) -> AsyncIterator[Served]:
    """Serve an agent that follows a script."""
    model = scripted(script)
    app = dict(app or {})
    others = app.pop("more_agents", ())
    made = App(agents=[Agent(id="a", model=model, tools=tools, **agent), *others], **app)
    async with serve(made, store=store) as server, Client(server.address) as client:
        yield Served(client, model)


def types(chunks: Sequence[Any]) -> list[str]:
    """Their types."""
    return [chunk.type for chunk in chunks]
