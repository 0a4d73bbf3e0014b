"""What a run of the matrix does, and the server it does it on.

Every run calls a tool that waits for approval, then one that does not, then again one that waits, and
then answers. Options add to that course; see `tests.matrix.rows`.
"""

import asyncio
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from entracte_server import Agent, App, Tool, ToolContext, tool
from entracte_server.domain.data import Data
from entracte_server.models.base import ModelRequest
from entracte_server.testing import scripted

INPUT = "hi"
MODEL = "scripted/matrix"
ANSWER = '{"n": 1}'
FOREVER = 600_000
"""Milliseconds that no test waits."""


class Course:
    """The answers of the model, by what they are there for, in the order in which they are given."""

    def __init__(self) -> None:
        self.tools = {"gated", "plain"}
        self._void: set[str] = set()
        self.steps: dict[str, list[dict[str, Any]]] = {
            "first": [{"text": "s1 "}, self._call("gated", "c1")],
            "plain": [{"text": "s2 "}, self._call("plain", "c2")],
            "second": [{"text": "s3 "}, self._call("gated", "c3")],
            "end": [{"text": ANSWER}],
        }

    def call(self, step: str, name: str, call_id: str) -> None:
        """The model calls one more tool in a step."""
        self.steps[step].append(self._call(name, call_id))

    def insert(self, before: str, name: str, *parts: dict[str, Any], counts: bool = True) -> None:
        """The model is asked once more before a step; that is a step itself if it `counts`."""
        if not counts:
            self._void.add(name)
        together: dict[str, list[dict[str, Any]]] = {}
        for key, value in self.steps.items():
            if key == before:
                together[name] = list(parts)
            together[key] = value
        self.steps = together

    def number(self, step: str) -> int:
        """Which step of the run it is, from 1."""
        return [key for key in self.steps if key not in self._void].index(step) + 1

    def _call(self, name: str, call_id: str) -> dict[str, Any]:
        self.tools.add(name)
        return {"tool": name, "id": call_id, "args": {"id": call_id}}


class Note(Data, frozen=True):
    """Something that happened: in which server, counted from 0, what kind of thing, and what it was."""

    server: int
    kind: str
    value: Any


class World:
    """What servers note down, the model's requests among it: in a file where they are processes of their
    own, in a list otherwise. `server` is the one that is running."""

    def __init__(self, course: Course, log: Path | None = None, server: int = 0) -> None:
        self.course = course
        self.server = server
        self._log = log
        self._notes: list[Note] = []

    @property
    def notes(self) -> list[Note]:
        """All of them, from all servers."""
        if self._log is None:
            return self._notes
        found = []
        if self._log.exists():
            with self._log.open("rb") as file:
                while file.peek(1):
                    found.append(pickle.load(file))
        return found

    def of(self, kind: str, *, since: int = 0) -> list[Any]:
        """What of this kind was noted from the server `since` on."""
        return [note.value for note in self.notes if note.kind == kind and note.server >= since]

    def note(self, kind: str, value: Any) -> None:
        """Note something down."""
        note = Note(self.server, kind, value)
        if self._log is None:
            self._notes.append(note)
        else:
            with self._log.open("ab") as file:
                file.write(pickle.dumps(note))

    def answer(self, request: ModelRequest) -> Sequence[dict[str, Any]]:
        """The next answer of the model, whichever server asks for it."""
        steps = list(self.course.steps.values())
        number = len(self.of("request"))
        self.note("request", request)
        return steps[min(number, len(steps) - 1)]


class Part(Protocol):
    """Something that adds to the app of a run."""

    def agent(self, world: World) -> Mapping[str, Any]:
        """Keywords of the agent."""
        ...

    def app(self, world: World) -> Mapping[str, Any]:
        """Keywords of the app."""
        ...


def merged(groups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Keywords put together: lists and dicts of one name become one."""
    together: dict[str, Any] = {}
    for group in groups:
        for name, value in group.items():
            if name not in together:
                together[name] = value
            elif isinstance(value, list):
                together[name] = [*together[name], *value]
            elif isinstance(value, dict):
                together[name] = {**together[name], **value}
            else:
                raise ValueError(f"{name} is given twice")
    return together


def app_of(parts: Sequence[Part], world: World) -> App:
    """A new server's app, whose model goes on where the one before it stopped."""
    own = {"tools": tools_of(world), "instructions": "OWN", "max_steps": 20}
    given = merged([part.agent(world) for part in parts])
    agent = Agent(id="a", model=scripted(world.answer, name=MODEL), **{**own, **given})
    return App(agents=[agent], **merged([part.app(world) for part in parts]))


def tools_of(world: World) -> list[Tool]:
    """The agent's own tools. Each notes down every time it is entered."""

    def enter(name: str, ctx: ToolContext[Any]) -> None:
        world.note("entered", (ctx.tool_call_id, dict(ctx.request_context)))

    @tool(requires_approval=True)
    async def gated(id: str, ctx: ToolContext) -> str:
        """Needs approval."""
        enter("gated", ctx)
        return f"gated {id}"

    @tool
    async def plain(id: str, ctx: ToolContext) -> str:
        """Needs nobody."""
        enter("plain", ctx)
        return f"plain {id}"

    @tool
    async def extra(id: str, ctx: ToolContext) -> str:
        """What only some options have called."""
        enter("extra", ctx)
        return f"extra {id}"

    @tool(idempotent=True)
    async def stuck(id: str, ctx: ToolContext) -> str:
        """Does not come back the first time."""
        first = not any(call_id == id for call_id, _ in world.of("entered"))
        enter("stuck", ctx)
        if first:
            await asyncio.sleep(FOREVER)
        return f"stuck {id}"

    running: set[str] = set()

    @tool
    async def busy(id: str, ctx: ToolContext) -> str:
        """Notes down how many of it run."""
        enter("busy", ctx)
        running.add(id)
        try:
            world.note("busy", len(running))
            await asyncio.sleep(0.02)
        finally:
            running.discard(id)
        return f"busy {id}"

    return [gated, plain, extra, stuck, busy]
