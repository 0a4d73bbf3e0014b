"""A server for the tests of the SDKs in other languages: `python -m tests.sdk_server [ADDRESS [STORE]]`.

Without an address it takes a free port. It prints its address, and serves until its standard input ends, so
that it ends with whoever started it. Settings come from `ENTRACTE_*` variables as usual.

The agent `play` says what it is asked to say: a message is a JSON array of answers in the notation of
scripted models, and anything else is said back. The agent `support` is that of `examples/support.py`.
"""

import asyncio
import json
import os
import sys
from typing import Any

from entracte_server import Agent, App, ToolContext, ask_user, tool
from entracte_server.domain.messages import TextPart
from entracte_server.models.base import ModelRequest
from entracte_server.testing import ScriptedModel, serve

Parts = list[dict[str, Any]]


def answer(request: ModelRequest) -> Parts:
    """What the message that was asked last wants to hear now."""
    asked = max(index for index, message in enumerate(request.messages) if message.role == "user")
    text = "".join(part.text for part in request.messages[asked].parts if isinstance(part, TextPart))
    try:
        script = json.loads(text)
    except ValueError:
        script = None
    if not isinstance(script, list):
        script = [[{"text": text}]]
    number = sum(message.role == "assistant" for message in request.messages[asked:])
    steps: list[Parts] = script
    return steps[min(number, len(steps) - 1)]


@tool(requires_approval=True)
async def refund(order_id: str, cents: int) -> dict[str, Any]:
    """Pays an order back."""
    return {"order_id": order_id, "cents": cents}


@tool
async def echo(value: Any) -> Any:
    """Gives back what it is given."""
    return value


@tool
async def ask(ctx: ToolContext) -> Any:
    """Asks, and gives back the answer, whatever it is."""
    if not ctx.resumed:
        ctx.suspend({"question": "What is it?"})
    return ctx.resume_data


@tool
async def report(lines: list[str], ctx: ToolContext) -> None:
    """Says the lines while it runs."""
    for line in lines:
        ctx.write(line, name="line")


def app() -> App:
    """The two agents."""
    os.environ.pop("OPENAI_API_KEY", None)  # no test talks to a provider
    from examples.support import support

    model = ScriptedModel([answer], name="scripted/play", position="transcript")
    play = Agent(id="play", model=model, tools=[refund, echo, ask, report, ask_user], max_steps=20)
    return App(agents=[play, support])


async def main(address: str = "127.0.0.1:0", store: str | None = None) -> None:
    """Serve until standard input ends."""
    async with serve(app(), store=store, address=address) as server:
        print(server.address, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
