"""The tools of our own scenarios, written as authors write them: a function and its signature."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import pydantic

from entracte_server import Tool, ToolContext, ask_user, tool
from tests.scenarios.tools import Log


class Confirm(pydantic.BaseModel):
    """The answer that `wipe` wants; no JSON Schema says all of it."""

    ok: bool
    path: str = ""

    @pydantic.field_validator("path")
    @classmethod
    def _absolute(cls, path: str) -> str:
        if path and not path.startswith("/"):
            raise ValueError("must begin with a slash")
        return path


def shop(log: Log) -> Mapping[str, Tool]:
    """One of each kind."""

    @tool
    async def weather(city: str, days: int = 1) -> dict[str, Any]:
        """The weather."""
        log.enter("weather", city, days)
        return {"city": city, "days": days}

    @tool
    async def wait(ms: int) -> int:
        """Takes its time."""
        log.enter("wait", ms)
        await asyncio.sleep(ms / 1000)
        return ms

    @tool
    def block(ms: int) -> int:
        """Takes its time and its thread."""
        log.enter("block", ms)
        time.sleep(ms / 1000)
        return ms

    @tool(requires_approval=lambda args: args.cents > 100)
    async def pay(account: str, cents: int) -> dict[str, Any]:
        """Pays; more than a hundred only after approval."""
        log.enter("pay", account, cents)
        return {"paid": cents}

    @tool
    async def fail(why: str) -> None:
        """Fails."""
        log.enter("fail", why)
        raise ValueError(f"it failed: {why}")

    @tool
    async def nothing() -> None:
        """Returns nothing."""
        log.enter("nothing")

    @tool
    async def big() -> dict[str, Any]:
        """Returns a large number."""
        return {"n": 2**70, "text": "ä\u2028"}

    @tool(resume_schema=Confirm)
    async def wipe(path: str, ctx: ToolContext[Confirm]) -> dict[str, Any]:
        """Asks twice before it wipes."""
        if not ctx.resumed:
            log.enter("wipe", path)
            ctx.state["asked"] = 1
            ctx.state["key"] = ctx.idempotency_key
            ctx.suspend({"question": f"Wipe {path}?"})
        log.enter("wipe", path, ctx.resume_data.ok, ctx.state["asked"])
        assert ctx.state["key"] == ctx.idempotency_key
        if ctx.resume_data.ok and ctx.state["asked"] == 1:
            ctx.state["asked"] = 2
            ctx.suspend({"question": "Really?", "before": ctx.suspend_payload})
        return {"wiped": ctx.resume_data.ok}

    @tool
    async def choose(ctx: ToolContext[Any]) -> Any:
        """Asks for one of two numbers."""
        if not ctx.resumed:
            ctx.suspend("which?", resume_schema={"enum": [0, 1]})
        return ctx.resume_data

    @tool
    async def report(ctx: ToolContext[Any]) -> Any:
        """Reports while it runs."""
        ctx.write({"done": 1})
        ctx.write({"percent": 50}, name="progress", id="p1")
        ctx.write("almost")
        return dict(ctx.request_context)

    @tool
    async def hang() -> None:
        """Runs until it is cancelled."""
        log.enter("hang")
        try:
            await asyncio.sleep(60)
        finally:
            log.enter("hang ended")

    @tool(idempotent=True)
    async def again(ms: int) -> str:
        """May be run again."""
        log.enter("again", ms)
        await asyncio.sleep(ms / 1000 if log.count(log[-1]) == 1 else 0)
        return "done"

    made = (weather, wait, block, pay, fail, nothing, big, wipe, choose, report, hang, again, ask_user)
    return {one.name: one for one in made}
