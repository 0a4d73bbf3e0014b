"""An app whose runs follow a plan and whose tools keep a journal of every time they are entered.

What a run does stands in its first message (see `plan`), so that the model needs no memory and a
restarted server goes on with the same plan. The journal is a file where `WORLD_JOURNAL` names one,
so that it survives a killed server, and a list otherwise.
"""

import asyncio
import json
import os
import signal
import threading
from typing import Annotated, Any

import pydantic

from entracte.v1 import json_pb2, options_pb2
from entracte_server import Agent, App, ToolContext, ask_user, tool
from entracte_server.domain.messages import TextPart, ToolCallPart, ToolResultPart
from entracte_server.models.base import ModelRequest
from entracte_server.testing import scripted

JOURNAL = "WORLD_JOURNAL"
DEATH = "WORLD_DEATH"
"""Names a file; while it exists, the next look at the arguments of `gated_deadly` kills the process."""

entries: list[dict[str, Any]] = []
"""The journal of this process, where there is no file."""

_lock = threading.Lock()


def plan(*steps: list[dict[str, Any]], name: str = "") -> str:
    """A message that has the model play `steps`, then say `end`. `name` marks the run."""
    return json.dumps({"name": name, "steps": steps})


def note(**entry: Any) -> None:
    """Write into the journal."""
    path = os.environ.get(JOURNAL)
    if path is None:
        with _lock:
            entries.append(entry)
        return
    line = json.dumps(entry).encode() + b"\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


def _answer(request: ModelRequest) -> list[dict[str, Any]]:
    first = next(message for message in request.messages if message.role == "user")
    (text,) = (part.text for part in first.parts if isinstance(part, TextPart))
    script = json.loads(text)
    step = sum(message.role == "assistant" for message in request.messages)
    note(
        event="asked",
        name=script["name"],
        step=step,
        turns=[
            {
                "role": message.role,
                "calls": [
                    [p.tool_call_id, p.tool_name, json.loads(p.args)]
                    for p in message.parts
                    if isinstance(p, ToolCallPart)
                ],
                "results": [
                    [p.tool_call_id, p.output] for p in message.parts if isinstance(p, ToolResultPart)
                ],
            }
            for message in request.messages
        ],
    )
    steps: list[list[dict[str, Any]]] = script["steps"]
    return steps[step] if step < len(steps) else [{"text": "the end"}]


def _enter(ctx: ToolContext[Any], tool_name: str, **args: Any) -> None:
    note(
        event="enter",
        name=ctx.request_context.get("name", ""),
        run=ctx.run_id,
        call=ctx.tool_call_id,
        tool=tool_name,
        key=ctx.idempotency_key,
        resumed=ctx.resumed,
        data=ctx.resume_data,
        args=args,
    )


def _leave(ctx: ToolContext[Any]) -> None:
    note(event="leave", run=ctx.run_id, call=ctx.tool_call_id)


@tool
async def plain(v: int, ctx: ToolContext) -> dict[str, int]:
    """Needs nobody."""
    _enter(ctx, "plain", v=v)
    return {"plain": v}


@tool
def threaded(v: int, ctx: ToolContext) -> dict[str, int]:
    """Needs nobody and runs in a thread."""
    _enter(ctx, "threaded", v=v)
    return {"threaded": v}


@tool
async def fails(v: int, ctx: ToolContext) -> None:
    """Needs nobody and raises."""
    _enter(ctx, "fails", v=v)
    raise ValueError(f"no {v}")


@tool(requires_approval=True)
async def gated(v: int, ctx: ToolContext) -> dict[str, int]:
    """Needs approval."""
    _enter(ctx, "gated", v=v)
    return {"gated": v}


@tool(requires_approval=True)
async def gated_slow(v: int, ms: int, ctx: ToolContext) -> dict[str, int]:
    """Needs approval and takes its time."""
    _enter(ctx, "gated_slow", v=v, ms=ms)
    await asyncio.sleep(ms / 1000)
    _leave(ctx)
    return {"gated_slow": v}


@tool
async def asks(v: int, ctx: ToolContext, rounds: int = 1) -> dict[str, Any]:
    """Asks as often as it is told, and keeps the answers."""
    _enter(ctx, "asks", v=v, rounds=rounds)
    answers = ctx.state.setdefault("answers", [])
    if ctx.resumed:
        answers.append(ctx.resume_data)
    if len(answers) < rounds:
        ctx.suspend({"asks": v, "round": len(answers) + 1})
    return {"asks": v, "answers": answers}


@tool(requires_approval=True)
async def gated_asks(v: int, ctx: ToolContext) -> dict[str, Any]:
    """Needs approval, then asks."""
    _enter(ctx, "gated_asks", v=v)
    if not ctx.resumed:
        ctx.suspend({"asks": v})
    return {"gated_asks": v, "answer": ctx.resume_data}


def _perhaps_die(value: int) -> int:
    flag = os.environ.get(DEATH, "")
    if os.path.exists(flag):
        os.unlink(flag)
        os.kill(os.getpid(), signal.SIGKILL)
    return value


@tool(requires_approval=True)
async def gated_deadly(v: Annotated[int, pydantic.AfterValidator(_perhaps_die)], ctx: ToolContext) -> int:
    """Needs approval; see `DEATH`."""
    _enter(ctx, "gated_deadly", v=v)
    return v


@tool
async def slow(v: int, ms: int, ctx: ToolContext) -> dict[str, int]:
    """Takes its time; a crash in it leaves a question."""
    _enter(ctx, "slow", v=v, ms=ms)
    await asyncio.sleep(ms / 1000)
    _leave(ctx)
    return {"slow": v}


@tool(idempotent=True)
async def slow_safe(v: int, ms: int, ctx: ToolContext) -> dict[str, int]:
    """Takes its time and may be run again."""
    _enter(ctx, "slow_safe", v=v, ms=ms)
    await asyncio.sleep(ms / 1000)
    _leave(ctx)
    return {"slow_safe": v}


TOOLS = (plain, threaded, fails, gated, gated_slow, gated_deadly, asks, gated_asks, slow, slow_safe, ask_user)

OUTSIDE = options_pb2.ClientTool(
    name="outside",
    description="Runs at the client.",
    input_schema=json_pb2.Json(text='{"type":"object","properties":{"v":{"type":"integer"}}}'),
)
"""A client tool for these runs."""


def make_app() -> App:
    """The agent `world`."""
    return App(agents=[Agent(id="world", model=scripted(_answer), tools=TOOLS, max_steps=20)])


app = make_app()
