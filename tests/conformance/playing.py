"""Plays a scenario: its steps, and what holds for every stream whatever a scenario says."""

import asyncio
import itertools
import json
from collections.abc import Mapping
from typing import Any

from tests.conformance.app import POLL
from tests.conformance.matching import at, differences, filled, fits, plain, refusal, spoiled
from tests.conformance.servers import Players, RealServer
from tests.conformance.testee import SECONDS, Command, Line, Testee, brief

STREAMS = ("stream", "runs.watch")
_numbers = itertools.count(1)


class Place:
    """The servers that the scenarios of one testee share, made when they are first used."""

    def __init__(self, folder: Any, players: Players) -> None:
        self._folder = folder
        self._real: dict[str, RealServer] = {}
        self.players = players

    async def server(self, name: str) -> RealServer:
        """A real server that runs."""
        server = self._real.get(name)
        if server is None:
            server = self._real[name] = RealServer(name, self._folder / name)
            await server.start()
        return server

    async def renew(self, name: str) -> None:
        """After a scenario that went wrong in the middle: the next one gets another server."""
        server = self._real.pop(name, None)
        if server is not None:
            await server.close()
            self._folder = self._folder.with_name(f"{self._folder.name}-")
            self._folder.mkdir(exist_ok=True)

    async def close(self) -> None:
        """End all of them."""
        for server in self._real.values():
            await server.close()


class Playing:
    """One scenario with one testee."""

    def __init__(self, scenario: Mapping[str, Any], testee: Testee, place: Place) -> None:
        self._scenario = scenario
        self._testee = testee
        self._place = place
        self._known: dict[str, Any] = {
            **scenario.get("case", {}),
            "run": f"{testee.name}-{next(_numbers)}",
        }
        self._begun: dict[str, Command] = {}
        self._real: RealServer | None = None
        self._played = ""

    async def _play(self) -> None:
        doing = "its clients"
        try:
            await self._open()
            for number, step in enumerate(self._scenario["steps"]):
                doing = f"step {number} {brief(step)}"
                await self._step(step)
        except (AssertionError, OSError) as error:
            output = self._real.output[-3000:] if self._real is not None else ""
            raise AssertionError(
                f"{doing}\n{error}\n"
                f"-- the testee's standard error:\n{self._testee.errors}\n-- the server's:\n{output}"
            ) from error
        finally:
            await self._close()

    async def play(self) -> None:
        """Play it. Raises AssertionError where the testee did not do what is right."""
        try:
            await self._play()
        except BaseException:
            if isinstance(self._scenario["server"], str):
                await self._place.renew(self._scenario["server"])
            raise

    async def _open(self) -> None:
        server = self._scenario["server"]
        if isinstance(server, str):
            self._real = await self._place.server(server)
            address = self._real.address
            self._known["roots"] = self._real.roots
        else:
            address = self._played = await self._place.players.play(filled(server["plays"], self._known))
        for name, options in self._scenario.get("clients", {"a": {}}).items():
            await self._connect(name, address, filled(options, self._known))

    async def _connect(self, name: str, address: str, options: Mapping[str, Any]) -> None:
        line = {"op": "connect", "client": self._client(name), "address": address, **options}
        ending = await (await self._send(line)).ended()
        assert "ok" in ending, f"connect: {brief(ending)}"

    def _client(self, name: str) -> str:
        return f"{name} of {self._known['run']}"

    async def _close(self) -> None:
        """Leave nothing behind. What a scenario began and did not end is cancelled."""
        if not self._testee.is_running:
            return
        for command in self._begun.values():
            if command.ending is None:
                await self._send({"op": "cancel", "target": command.sent["id"]})
        for command in self._begun.values():
            await command.ended()
        for name in self._scenario.get("clients", {"a": {}}):
            await (await self._send({"op": "close", "client": self._client(name)})).ended()
        if self._played:
            await self._place.players.close_one(self._played)

    async def _send(self, line: Line) -> Command:
        assert line["op"] in self._testee.ops, f"the testee {self._testee.name} does not know {line['op']}"
        return await self._testee.send(line)

    async def _step(self, step: Mapping[str, Any]) -> None:
        step = filled(step, self._known)
        if "until" in step:
            await self._repeat(step)
        elif "do" in step:
            command = await self._send(self._command(step["do"]))
            if "begin" in step:
                self._begun[step["begin"]] = command
            else:
                await self._judge(command, step)
        elif "end" in step:
            await self._judge(self._begun[step["end"]], step)
        elif "wait" in step:
            await self._wait(self._begun[step["wait"]], step)
        elif "same" in step:
            first, *others = [plain(value) for value in step["same"]]
            for other in others:
                assert first == other, f"these were to be the same: {brief(first)} and {brief(other)}"
        elif "asked" in step:
            asked = await self._place.players.close_one(self._played)
            self._played = ""
            self._fit(step["asked"], asked, "what the server was asked")
            self._save(step, asked)
        else:
            await self._to_server(step)

    async def _repeat(self, step: Mapping[str, Any]) -> None:
        """Do something again and again until it comes to what is asked for."""
        ending: Line = {}
        try:
            async with asyncio.timeout(SECONDS):
                while not fits(step["until"], ending.get("ok")):
                    await asyncio.sleep(POLL)
                    ending = await (await self._send(self._command(step["do"]))).ended()
        except TimeoutError:
            raise AssertionError(f"it never came to that; the last time {brief(ending)}") from None

    def _command(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """A command as it is sent: with its defaults, and scripts as texts."""
        line = {"agent": "play", **given, "client": self._client(given.get("client", "a"))}
        if not isinstance(line.get("input", ""), str):
            line["input"] = json.dumps(line["input"], ensure_ascii=False)
        if line["op"] in ("cancel", "pull"):
            line = {**given, "target": self._begun[given["target"]].sent["id"]}
        return line

    async def _to_server(self, step: Mapping[str, Any]) -> None:
        server = self._real
        assert server is not None, "only real servers have gates and can be killed"
        if "open" in step:
            server.open(step["open"])
        elif "reached" in step:
            await server.reached(step["reached"])
        else:
            if step["server"] in ("kill", "restart"):
                await server.kill()
            elif step["server"] == "drain":
                await server.drain()
            if step["server"] in ("start", "restart"):
                await server.start(**step.get("environment", {}))

    async def _wait(self, command: Command, step: Mapping[str, Any]) -> None:
        if "count" in step:
            await command.until(lambda: len(command.items) >= step["count"], f"{step['count']} elements")
            return
        kind = "item" if "item" in step else "event"

        def match() -> Any:
            lines = [line[kind] for line in command.lines if kind in line]
            return next((found for found in lines if fits(step[kind], found)), None)

        await command.until(lambda: match() is not None, f"an {kind} like {brief(step[kind])}")
        self._save(step, match())

    async def _judge(self, command: Command, step: Mapping[str, Any]) -> None:
        ending = await command.ended()
        kind = next((key for key in ("ok", "error", "cancelled") if key in step), "ok")
        assert kind in ending, f"{kind} was expected, not {brief(ending)}"
        pattern = step.get(kind, {})
        if kind == "error" and isinstance(pattern, str):
            pattern = refusal(pattern)
        self._fit(pattern, ending[kind], kind)
        for name, found in (("items", command.items), ("events", command.events)):
            if name in step:
                self._fit(step[name], found, name)
        for line in (*command.lines, ending):
            for difference in spoiled(line):
                raise AssertionError(f"a native value lost something: {difference}")
        if command.sent["op"] in STREAMS or command.sent.get("stream"):
            check_stream(command, gaps=step.get("gaps", False))
        self._save(step, {**ending, "items": command.items, "events": command.events})

    def _fit(self, pattern: Any, found: Any, what: str) -> None:
        wrong = "\n".join(differences(pattern, found, what))
        assert not wrong, f"{wrong}\nin {brief(found)}"

    def _save(self, step: Mapping[str, Any], found: Any) -> None:
        self._known.update((name, at(found, path)) for name, path in step.get("save", {}).items())


def check_stream(command: Command, *, gaps: bool) -> None:
    """What holds for every stream of chunks: it has no gap (but for chunks that are to be skipped) and
    nothing twice, and what the SDK folded is what the chunks say."""
    chunks = command.items
    sequences = [chunk["sequence"] for chunk in chunks]
    if chunks and not gaps:
        first = command.sent.get("after", 0) + 1 if command.sent["op"] in STREAMS else sequences[0]
        assert sequences == list(range(first, first + len(sequences))), f"the chunks have gaps: {sequences}"
    assert sequences == sorted(set(sequences)), f"chunks came twice or in disorder: {sequences}"
    ending = command.ending or {}
    if "ok" not in ending:
        return
    done = ending["ok"]
    if chunks:
        assert done["position"] >= sequences[-1], "the position is before the last chunk"
        text = folded(chunks)
        assert (done.get("text") or "") == text, f"the text {brief(done.get('text'))} is not {brief(text)}"
    from_start = command.sent["op"] == "stream" or command.sent.get("after", 1) == 0
    if done.get("result") is not None and from_start and chunks:
        assert done["result"]["text"] == done["text"], "result and stream have different texts"


def folded(chunks: list[Any]) -> str:
    """The text that chunks add up to: of the last attempt of each step of the run's own agent."""
    attempts: dict[int, int] = {}
    texts: dict[int, list[str]] = {}
    for chunk in chunks:
        step, attempt = chunk.get("step") or 0, chunk.get("attempt") or 0
        if chunk.get("agent_path") or not step or chunk["type"] in ("error", "abort", "finish"):
            continue
        if attempt > attempts.get(step, -1):
            attempts[step], texts[step] = attempt, []
        if chunk["type"] == "text-delta" and attempt == attempts[step]:
            texts[step].append(chunk["text"])
    return "".join(piece for step in texts for piece in texts[step])
