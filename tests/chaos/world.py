"""An app whose runs follow a plan, whose answers tell all that came before, and whose tools leave a
trace of every time they are entered and left.

What a run does stands in its first message (see `plan` of `tests.invariants.world`), so that any
process plays it in the same way. The traces are lines in the files of the folder that `CHAOS_EFFECTS`
names, a file for each run.
"""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

from entracte.v1 import json_pb2, options_pb2
from entracte_server import Agent, App, ToolContext, ask_user, tool
from entracte_server.domain.messages import TextPart, ToolResultPart
from entracte_server.models.base import ModelRequest
from entracte_server.testing import scripted
from tests.chaos.traps import traps

EFFECTS = "CHAOS_EFFECTS"


def trace(run: str, **entry: Any) -> None:
    """Write a line to a run's file, whole and durable."""
    folder = os.environ.get(EFFECTS)
    if folder is None:
        return
    line = json.dumps({**entry, "pid": os.getpid(), "time": time.monotonic()}).encode() + b"\n"
    descriptor = os.open(os.path.join(folder, run), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def traces_of(folder: Path, run: str) -> list[dict[str, Any]]:
    """What the tools and the model of a run wrote, oldest first."""
    try:
        return [json.loads(line) for line in (folder / run).read_text().splitlines()]
    except FileNotFoundError:
        return []


def _traced(event: str, ctx: ToolContext[Any], tool_name: str) -> None:
    trace(
        ctx.run_id,
        event=event,
        call=ctx.tool_call_id,
        tool=tool_name,
        key=ctx.idempotency_key,
        resumed=ctx.resumed,
    )


async def _body(ctx: ToolContext[Any], tool_name: str, ms: int) -> None:
    """What a tool does to the world."""
    await traps.at(["body"], "before", ctx.run_id)
    _traced("enter", ctx, tool_name)
    await asyncio.sleep(ms / 2000)
    await traps.at(["body"], "during", ctx.run_id)
    await asyncio.sleep(ms / 2000)
    _traced("leave", ctx, tool_name)
    await traps.at(["body"], "after", ctx.run_id)


@tool
async def once(v: int, ctx: ToolContext, ms: int = 0) -> dict[str, int]:
    """Must not happen twice."""
    await _body(ctx, "once", ms)
    return {"once": v}


@tool(idempotent=True)
async def again(v: int, ctx: ToolContext, ms: int = 0) -> dict[str, int]:
    """May happen twice."""
    await _body(ctx, "again", ms)
    return {"again": v}


@tool
def threaded(v: int, ctx: ToolContext, ms: int = 0) -> dict[str, int]:
    """Must not happen twice, and runs in a thread."""
    traps.at_now(["body"], "before", ctx.run_id)
    _traced("enter", ctx, "threaded")
    time.sleep(ms / 1000)
    traps.at_now(["body"], "during", ctx.run_id)
    _traced("leave", ctx, "threaded")
    traps.at_now(["body"], "after", ctx.run_id)
    return {"threaded": v}


@tool(requires_approval=True)
async def gated(v: int, ctx: ToolContext, ms: int = 0) -> dict[str, int]:
    """Must be approved, and must not happen twice."""
    await _body(ctx, "gated", ms)
    return {"gated": v}


@tool(requires_approval=True, idempotent=True)
async def gated_again(v: int, ctx: ToolContext, ms: int = 0) -> dict[str, int]:
    """Must be approved, and may happen twice."""
    await _body(ctx, "gated_again", ms)
    return {"gated_again": v}


async def _ask(ctx: ToolContext[Any], tool_name: str, v: int, rounds: int) -> dict[str, Any]:
    await _body(ctx, tool_name, 0)
    answers = ctx.state.setdefault("answers", [])
    if ctx.resumed:
        answers.append(ctx.resume_data)
    if len(answers) < rounds:
        ctx.suspend({"asks": v, "round": len(answers) + 1})
    return {tool_name: v, "answers": answers}


@tool
async def asks(v: int, ctx: ToolContext, rounds: int = 1) -> dict[str, Any]:
    """Asks as often as it is told; each entry must not happen twice."""
    return await _ask(ctx, "asks", v, rounds)


@tool(idempotent=True)
async def asks_again(v: int, ctx: ToolContext, rounds: int = 1) -> dict[str, Any]:
    """Asks as often as it is told; each entry may happen twice."""
    return await _ask(ctx, "asks_again", v, rounds)


@tool(idempotent=True)
async def reports(v: int, ctx: ToolContext, lines: int = 3) -> dict[str, int]:
    """Reports while it runs."""
    await traps.at(["body"], "before", ctx.run_id)
    _traced("enter", ctx, "reports")
    for number in range(lines):
        ctx.write({"line": number})
        await asyncio.sleep(0.002)
    _traced("leave", ctx, "reports")
    return {"reports": v}


@tool
async def fails(v: int, ctx: ToolContext) -> None:
    """Raises; must not happen twice."""
    await _body(ctx, "fails", 0)
    raise ValueError(f"no {v}")


TOOLS = (once, again, threaded, gated, gated_again, asks, asks_again, reports, fails, ask_user)

OUTSIDE = options_pb2.ClientTool(
    name="outside",
    description="Runs at the client.",
    input_schema=json_pb2.Json(text='{"type":"object","properties":{"v":{"type":"integer"}}}'),
)
"""A client tool for these runs."""

IDEMPOTENT = frozenset(tool.name for tool in TOOLS if tool.idempotent)


def _value(output: str) -> Any:
    """What a tool's output says, however it is spaced."""
    try:
        return json.loads(output)
    except ValueError:
        return output


def _answer(request: ModelRequest) -> list[dict[str, Any]]:
    first = next(message for message in request.messages if message.role == "user")
    (text,) = (part.text for part in first.parts if isinstance(part, TextPart))
    script = json.loads(text)
    number = sum(message.role == "assistant" for message in request.messages)
    trace(script["name"], event="asked", step=number + 1)
    traps.at_now(["model"], "before", "")
    steps: list[list[dict[str, Any]]] = script["steps"]
    if number < len(steps):
        return steps[number]
    told = [
        [part.tool_call_id, _value(part.output)]
        for message in request.messages
        for part in message.parts
        if isinstance(part, ToolResultPart)
    ]
    return [{"text": f"That was all: {json.dumps(told)}"}]


def make_app() -> App:
    """The agent `world`."""
    return App(agents=[Agent(id="world", model=scripted(_answer), tools=TOOLS, max_steps=20)])


app = make_app()
