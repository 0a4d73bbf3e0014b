"""The driver's end of a testee: its process, and the commands that are carried out in it."""

import asyncio
import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

PROTOCOL = 1
SECONDS = 60.0
LINE_BYTES = 64 * 1024 * 1024
ENDINGS = ("ok", "error", "cancelled")

Line = Mapping[str, Any]


class Command:
    """A command that was sent: what it has written so far."""

    def __init__(self, sent: Line) -> None:
        self.sent = sent
        self.lines: list[Line] = []
        self.ending: Line | None = None
        self._news = asyncio.Event()

    @property
    def items(self) -> list[Any]:
        """The elements of a stream."""
        return [line["item"] for line in self.lines if "item" in line]

    @property
    def events(self) -> list[Any]:
        """What observers and client tools were called with."""
        return [line["event"] for line in self.lines if "event" in line]

    def take(self, line: Line) -> None:
        """Another line of it."""
        assert self.ending is None, f"a command wrote more after its end: {line}"
        if any(key in line for key in ENDINGS):
            self.ending = line
        else:
            assert "item" in line or "event" in line, f"a line without meaning: {line}"
            self.lines.append(line)
        self._news.set()

    def lose(self, why: str) -> None:
        """The testee has gone."""
        self.ending = self.ending or {"lost": why}
        self._news.set()

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Until something is so. Fails when the command ends before, or takes too long."""
        try:
            async with asyncio.timeout(SECONDS):
                while not condition():
                    assert self.ending is None, f"{what}: it ended before, with {brief(self.ending)}"
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"{what}: not in {SECONDS} s; so far {brief(self.lines)}") from None

    async def ended(self) -> Line:
        """The last line."""
        await self.until(lambda: self.ending is not None, f"the end of {brief(self.sent)}")
        assert self.ending is not None
        return self.ending


def brief(value: Any) -> str:
    """A value for a failure's text."""
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 3000 else f"{text[:2000]} ... {text[-1000:]}"


class Testee:
    """A testee's process."""

    __test__ = False

    def __init__(self, name: str, run: Sequence[str], folder: Path, log: Path) -> None:
        self.name = name
        self.ops: frozenset[str] = frozenset()
        self._run = run
        self._folder = folder
        self._log = log
        self._ids = itertools.count(1)
        self._commands: dict[str, Command] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def errors(self) -> str:
        """What it wrote to its standard error."""
        return self._log.read_text(errors="replace")[-4000:] if self._log.exists() else ""

    @property
    def is_running(self) -> bool:
        """Whether its process is there and speaks the protocol."""
        return self._reading is not None and not self._reading.done()

    async def start(self) -> None:
        """Start it, and hear what it can do."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._run,
                cwd=self._folder,
                env={**os.environ, "GRPC_VERBOSITY": "NONE"},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=LINE_BYTES,
            )
        self._reading = asyncio.create_task(self._read())
        hello = await (await self.send({"op": "hello"})).ended()
        assert "ok" in hello, f"the testee {self.name} says no hello: {brief(hello)}\n{self.errors}"
        assert hello["ok"]["protocol"] == PROTOCOL, f"the testee speaks protocol {hello['ok']['protocol']}"
        self.ops = frozenset(hello["ok"]["ops"])

    async def send(self, line: Line) -> Command:
        """Send a command; its `id` is made here."""
        assert self._process is not None
        assert self._process.stdin is not None
        id = str(next(self._ids))
        sent = {"id": id, **line}
        command = self._commands[id] = Command(sent)
        self._process.stdin.write(json.dumps(sent, ensure_ascii=False).encode() + b"\n")
        await self._process.stdin.drain()
        return command

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        why = "the testee closed its output"
        try:
            while line := await self._process.stdout.readline():
                found = json.loads(line)
                self._commands[found["id"]].take(found)
        except (ValueError, KeyError, TypeError, AssertionError) as error:
            why = f"the testee wrote what is no line of the protocol: {error!r}"
        for command in self._commands.values():
            command.lose(why)

    async def close(self) -> int:
        """Close its input, as the protocol has it. The exit code."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = await asyncio.wait_for(self._process.wait(), SECONDS)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
            code = -1
        if self._reading is not None:
            await self._reading
        return code
