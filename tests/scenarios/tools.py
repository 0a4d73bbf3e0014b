"""The tools of the recorded scenarios, written for this server.

They take their arguments as data, as the scenarios' own do, and log each entry: name, arguments, and
the answer where there is one.
"""

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from entracte_server import Tool, ToolContext, Toolset, ask_user
from tests.scenarios.lines import compact

Context = ToolContext[Any]
Body = Callable[[dict[str, Any], Context], Awaitable[Any]]
Make = Callable[["Log"], Mapping[str, Tool]]
"""Makes the tools of an agent, by the names the model uses."""


class Log(list[str]):
    """Which tools were entered with what, in order."""

    def enter(self, name: str, *values: Any) -> None:
        """Note an entry."""
        self.append(compact([name, *values]))


def schema(closed: bool = False, **properties: str) -> dict[str, Any]:
    """The schema of an object with these required properties, by their JSON type."""
    made: dict[str, Any] = {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in properties.items()},
        "required": list(properties),
    }
    return {**made, "additionalProperties": False} if closed else made


def _tool(name: str, body: Body, arguments: Mapping[str, Any], **more: Any) -> Tool:
    async def execute(args: dict[str, Any], ctx: Context) -> Any:
        return await body(args, ctx)

    return Tool(name=name, description=name, input_schema=dict(arguments), execute=execute, **more)


def given(ctx: Context) -> list[Any]:
    """The answer, as an entry of the log has it."""
    return [ctx.resume_data] if ctx.resumed else []


def echoing(log: Log, name: str = "echo", **more: Any) -> Tool:
    """Says what it was told."""

    async def body(args: dict[str, Any], ctx: Context) -> Any:
        log.enter(name, args["msg"])
        return {"said": args["msg"]}

    return _tool(name, body, schema(msg="string"), **more)


def failing(name: str, failure: Exception) -> Tool:
    """Always fails."""

    async def body(args: dict[str, Any], ctx: Context) -> Any:
        raise failure

    return _tool(name, body, schema())


def confirming(log: Log, *, with_user: bool = False) -> Tool:
    """Asks whether to go on; also logs who the request context says is there."""

    async def body(args: dict[str, Any], ctx: Context) -> Any:
        user = [ctx.request_context["user"]] if with_user else []
        log.enter("confirm", args["op"], *given(ctx), *user)
        if not ctx.resumed:
            ctx.suspend({"question": f"really {args['op']}?"})
        return {"done": ctx.resume_data["ok"]}

    return _tool(
        "confirm",
        body,
        schema(op="string"),
        suspend_schema=schema(question="string"),
        resume_schema=schema(closed=True, ok="boolean"),
    )


def asking_freely(log: Log) -> Tool:
    """Suspends without any schema, again and again until the answer is something."""

    async def body(args: dict[str, Any], ctx: Context) -> Any:
        log.enter("nosch", args["op"], *given(ctx))
        if not ctx.resumed or ctx.resume_data in (None, False, 0, ""):
            ctx.suspend({"q": args["op"]})
            raise AssertionError("nothing behind a suspension runs")
        return {"rd": ctx.resume_data}

    return _tool("nosch", body, schema(op="string"))


def returning(name: str, make: Callable[[], Any]) -> Tool:
    """Returns a value that is made anew each time."""

    async def body(args: dict[str, Any], ctx: Context) -> Any:
        return make()

    return _tool(name, body, schema())


# ---- the sets, by the scenarios that use them ----


def basic(log: Log) -> Mapping[str, Tool]:
    """One that works and one that does not."""
    return {"echo": echoing(log), "boom": failing("boom", RuntimeError("kaboom"))}


def none(log: Log) -> Mapping[str, Tool]:
    """No tools."""
    return {}


def suspending(log: Log) -> Mapping[str, Tool]:
    """Those that ask, in all ways."""

    async def bad_payload(args: dict[str, Any], ctx: Context) -> Any:
        if not ctx.resumed:
            ctx.suspend({"nope": 1})
        return {"ok": True}

    async def again(args: dict[str, Any], ctx: Context) -> Any:
        if not ctx.resumed:
            ctx.suspend({"n": 1})
        if ctx.resume_data["a"] == "more":
            ctx.suspend({"n": 2})
        return {"a": ctx.resume_data["a"]}

    return {
        "echo": echoing(log),
        "confirm": confirming(log),
        "nosch": asking_freely(log),
        "badsusp": _tool(
            "badsusp",
            bad_payload,
            schema(),
            suspend_schema=schema(question="string"),
            resume_schema=schema(closed=True, ok="boolean"),
        ),
        "again": _tool(
            "again",
            again,
            schema(),
            suspend_schema=schema(n="number"),
            resume_schema=schema(closed=True, a="string"),
        ),
        "ask": ask_user,
    }


def only_free(log: Log) -> Mapping[str, Tool]:
    """A tool that suspends without a schema, and one that does not suspend."""
    return {"nosch": asking_freely(log), "echo": echoing(log)}


def asking_once(log: Log) -> Mapping[str, Tool]:
    """One that asks something, without any schema."""

    async def body(args: dict[str, Any], ctx: Context) -> Any:
        if not ctx.resumed:
            ctx.suspend({"q": 1})
        return {"ok": 1}

    return {"s": _tool("s", body, schema())}


def gated(*names: str) -> Make:
    """Tools of which some demand approval."""

    def valued(log: Log, name: str, key: str, **more: Any) -> Tool:
        async def body(args: dict[str, Any], ctx: Context) -> Any:
            log.enter(name, args["v"])
            return {key: args["v"]}

        return _tool(name, body, schema(v="string"), **more)

    def broken(args: Any) -> bool:
        raise RuntimeError("policy broke")

    def make(log: Log) -> Mapping[str, Tool]:
        async def ask_after_approval(args: dict[str, Any], ctx: Context) -> Any:
            log.enter("appsusp", args["v"], *given(ctx))
            if not ctx.resumed:
                ctx.suspend({"q": args["v"]})
            return {"r": ctx.resume_data}

        async def typed(args: dict[str, Any], ctx: Context) -> Any:
            log.enter("typed", args["n"])
            return {"n": args["n"]}

        tools = {
            "a": valued(log, "a", "a"),
            "b": valued(log, "b", "b"),
            "need": valued(log, "need", "n", requires_approval=True),
            "fn": valued(log, "fn", "f", requires_approval=lambda args: args["v"] == "danger"),
            "fnthrow": valued(log, "fnthrow", "f", requires_approval=broken),
            "appsusp": _tool(
                "appsusp",
                ask_after_approval,
                schema(v="string"),
                requires_approval=True,
                suspend_schema=schema(q="string"),
                resume_schema=schema(closed=True, ans="string"),
            ),
            "typed": _tool("typed", typed, schema(n="number")),
        }
        return {name: tools[name] for name in names}

    return make


def looping(log: Log) -> Mapping[str, Tool]:
    """Those of the scenarios about the loop: slow ones, one to cancel, one that writes."""

    async def slow(args: dict[str, Any], ctx: Context) -> Any:
        await asyncio.sleep(args["n"] / 1000)
        log.enter("slow", args["n"])
        return {"n": args["n"]}

    async def abortable(args: dict[str, Any], ctx: Context) -> Any:
        log.enter("abortable start", True)
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            log.enter("abortable aborted")
            raise
        return {"done": 1}

    async def writer(args: dict[str, Any], ctx: Context) -> Any:
        ctx.write({"p": 1})
        ctx.write({"pct": 50}, name="progress")
        return {"ok": 1}

    async def client(args: dict[str, Any], ctx: Context) -> Any:
        raise AssertionError("never called")

    async def context(args: dict[str, Any], ctx: Context) -> Any:
        return {"keys": sorted(name for name in dir(ctx) if not name.startswith("_"))}

    return {
        "echo": echoing(log),
        "slow": _tool("slow", slow, schema(n="number")),
        "abortable": _tool("abortable", abortable, schema()),
        "client": _tool("client", client, schema(q="string")),
        "writer": _tool("writer", writer, schema()),
        "ctx": _tool("ctx", context, schema()),
    }


def in_a_toolset(log: Log) -> Sequence[Toolset]:
    """A toolset with a tool that is called as one of the agent's is."""

    async def echo(args: dict[str, Any], ctx: Context) -> Any:
        return {"from": "toolset-echo"}

    return [Toolset("set1", tools=[_tool("echo", echo, schema(msg="string"))])]


def remembered(log: Log) -> Mapping[str, Tool]:
    """Those of the scenarios over restarts."""
    return {"echo": echoing(log), "confirm": confirming(log), "ask_user": ask_user}


def with_user(log: Log) -> Mapping[str, Tool]:
    """The same, where the request context has a user."""
    return {"echo": echoing(log), "confirm": confirming(log, with_user=True), "ask_user": ask_user}


def strange(log: Log) -> Mapping[str, Tool]:
    """Those that return or raise strange things."""

    def circle() -> Any:
        made: dict[str, Any] = {"a": 1, "d": dt.datetime(1970, 1, 1, tzinfo=dt.UTC), "m": {1: 2}}
        made["self"] = made
        return made

    typed = TypeError("typed")
    typed.__cause__ = RuntimeError("inner")
    return {
        "echo": echoing(log),
        "nosch": asking_freely(log),
        "nul": returning("nul", lambda: None),
        "circ": returning("circ", circle),
        "big": returning("big", lambda: {"n": 10}),
        "thstr": failing("thstr", RuntimeError("just a string")),
        "therr": failing("therr", typed),
    }


def throwing_when_resumed(log: Log) -> Mapping[str, Tool]:
    """A tool that fails once it has its answer."""

    async def body(args: dict[str, Any], ctx: Context) -> Any:
        if not ctx.resumed:
            ctx.suspend({"q": 1})
        raise RuntimeError("after resume")

    return {"sx": _tool("sx", body, schema())}


def more(log: Log) -> Mapping[str, Tool]:
    """Two that echo, and one that says it needs no approval."""
    return {
        "echo": echoing(log),
        "echo2": echoing(log, "echo2"),
        "both": echoing(log, "both", requires_approval=False),
    }
