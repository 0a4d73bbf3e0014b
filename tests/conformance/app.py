"""The app that the conformance scenarios talk to. What a run does stands in what it is asked: a JSON array
of model answers in the notation of scripted models, to which the following is added.

* `{"gate": "NAME"}` in an answer: the model says nothing more until the gate is open. A gate is a file in
  the folder that `CONFORMANCE_GATES` names; one that is come to has a file `NAME.reached`.
* What is no JSON array is said back.

The tools do what their arguments say. `CONFORMANCE_LACKS` names an agent or a tool that is not there.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from entracte_server import Agent, App, Memory, Tool, ToolContext, WorkingMemory, ask_user, scorer
from entracte_server.domain.chunks import Source
from entracte_server.domain.messages import TextPart
from entracte_server.models.base import ModelEvent, ModelRequest
from entracte_server.testing import ScriptedModel

GATES = "CONFORMANCE_GATES"
LACKS = "CONFORMANCE_LACKS"
POLL = 0.005
_GATE = "gate:"

ANYTHING: dict[str, Any] = {"type": "object"}
AMOUNT: dict[str, Any] = {
    "type": "object",
    "properties": {"amount": {"type": "integer"}},
    "required": ["amount"],
}


async def gate(name: str) -> None:
    """Until somebody opens the gate."""
    folder = Path(os.environ[GATES])
    (folder / f"{name}.reached").touch()
    while not (folder / name).exists():  # noqa: ASYNC110 - a file, for another process
        await asyncio.sleep(POLL)


def _script_of(request: ModelRequest) -> tuple[list[list[dict[str, Any]]], int]:
    """The answers that were asked for, and the number of the one that is due."""
    asked = max(index for index, message in enumerate(request.messages) if message.role == "user")
    text = "".join(part.text for part in request.messages[asked].parts if isinstance(part, TextPart))
    try:
        script = json.loads(text)
    except ValueError:
        script = None
    if not isinstance(script, list):
        script = [[{"text": text}]]
    return script, sum(message.role == "assistant" for message in request.messages[asked:])


def _answer(request: ModelRequest) -> list[dict[str, Any]]:
    script, number = _script_of(request)
    return [
        {"source": _GATE + part["gate"]} if "gate" in part else part
        for part in script[min(number, len(script) - 1)]
    ]


class Played(ScriptedModel):
    """Plays what it is asked to play."""

    def __init__(self) -> None:
        super().__init__([_answer], name="scripted/played", position="transcript")

    async def stream(self, request: ModelRequest) -> AsyncIterator[list[ModelEvent]]:
        async for batch in super().stream(request):
            if batch and isinstance(batch[0], Source) and batch[0].url.startswith(_GATE):
                await gate(batch[0].url.removeprefix(_GATE))
            else:
                yield batch


async def echo(args: dict[str, Any], ctx: ToolContext) -> Any:
    """Its arguments."""
    return args


async def returns(args: dict[str, Any], ctx: ToolContext) -> Any:
    """What it is given as `value`."""
    return args["value"]


async def large(args: dict[str, Any], ctx: ToolContext) -> Any:
    """A text of the length `size`."""
    return "x" * int(args["size"])


async def fails(args: dict[str, Any], ctx: ToolContext) -> Any:
    """Raises."""
    raise ValueError(args["message"])


async def asks(args: dict[str, Any], ctx: ToolContext) -> Any:
    """Asks `payload` as often as `rounds` says. Returns the answers; with `lengths`, how long they are."""
    answers = ctx.state.setdefault("answers", [])
    if ctx.resumed:
        answers.append(ctx.resume_data)
    if len(answers) < args.get("rounds", 1):
        ctx.suspend(
            args.get("payload"),
            resume_schema=args.get("schema"),
            expires_after=args.get("expires_after"),
        )
    if args.get("lengths"):
        return [len(answer) for answer in answers]
    return {"answers": answers}


async def writes(args: dict[str, Any], ctx: ToolContext) -> Any:
    """Reports `items` while it runs, under a `name` where it is given one."""
    for item in args["items"]:
        ctx.write(item, name=args.get("name"))
    return "written"


async def waits(args: dict[str, Any], ctx: ToolContext) -> Any:
    """Waits at a gate. How often it was entered is counted in a file."""
    journal = Path(os.environ[GATES]) / f"{args['gate']}.entered"
    with journal.open("a") as file:
        file.write(f"{ctx.idempotency_key}\n")
    await gate(args["gate"])
    entries = journal.read_text().splitlines()
    return {"entered": len(entries), "keys": len(set(entries))}


TOOLS = [
    Tool(name="echo", description="Echoes.", execute=echo, input_schema=ANYTHING),
    Tool(name="returns", execute=returns, input_schema=ANYTHING),
    Tool(name="large", execute=large, input_schema=ANYTHING),
    Tool(name="fails", execute=fails, input_schema=ANYTHING),
    Tool(name="pays", description="Pays.", execute=echo, input_schema=AMOUNT, requires_approval=True),
    Tool(name="signs", execute=waits, input_schema=ANYTHING, requires_approval=True),
    Tool(name="asks", execute=asks, input_schema=ANYTHING, idempotent=True),
    Tool(name="writes", execute=writes, input_schema=ANYTHING),
    Tool(name="waits", execute=waits, input_schema=ANYTHING, idempotent=True),
    Tool(name="happens", execute=waits, input_schema=ANYTHING),
    Tool(name="moves", execute=asks, input_schema=ANYTHING, idempotent=True),
    ask_user,
]


@scorer(name="fine")
def fine(given: Any) -> float:
    """Finds everything fine."""
    return 1.0


def make() -> App:
    """The app, without what is to be lacking."""
    lacks = os.environ.get(LACKS, "")
    tools = [tool for tool in TOOLS if tool.name != lacks]
    notes = Memory(working_memory=WorkingMemory("# Notes"))
    child = Agent(id="child", description="Helps.", model=Played(), tools=tools)
    agents = [
        Agent(id="play", model=Played(), tools=tools, max_steps=20),
        Agent(id="notes", model=Played(), tools=tools, memory=notes),
        Agent(id="leaves", model=Played(), tools=tools),
        Agent(id="parent", model=Played(), tools=tools, agents=[child]),
    ]
    return App(agents=[agent for agent in agents if agent.id != lacks], scorers=[fine])


def __getattr__(name: str) -> App:
    # Made when it is asked for: by then the environment is that of the server.
    if name != "app":
        raise AttributeError(name)
    return make()
