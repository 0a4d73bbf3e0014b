"""Races: two things happen to one run, and one of them is held at a named point while the other passes.

Every pair of events meets in every order that matters: what is held has not been committed yet
(`before`), or is committed but its process has not acted on it (`after`). The events: the run parks or
ends, people decide, somebody cancels, a call expires, another process takes the run over because its
owner died, and its owner is told to stop.
"""

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import grpc.aio
from google.protobuf.duration_pb2 import Duration

from entracte.v1 import chunk_pb2, options_pb2, run_pb2
from tests.cases.support import kind_of, read_refusal
from tests.chaos.fleet import Fleet
from tests.chaos.following import Reader, passes, read_away
from tests.chaos.traps import Action, Trap, When
from tests.chaos.verdict import APPROVE, DECLINE, check_effects, check_story, read
from tests.chaos.world import OUTSIDE
from tests.invariants.world import plan

Event = Literal[
    "park",  # its last tool has ended, and the rest waits for people
    "end",
    "approve",  # of call a, at one process
    "decline",  # of call a, at another
    "submit",  # of call c, at that other one
    "cancel",  # at one process
    "cancel too",  # at another
    "approve here",  # of call a, at the owner
    "cancel here",
    "expire",
    "take over",
    "drain",
]
State = Literal["busy", "parked", "ending"]

POINTS: dict[Event, str] = {
    "park": "park",
    "end": "end",
    "approve": "decide",
    "decline": "decide",
    "submit": "decide",
    "cancel": "cancel",
    "cancel too": "cancel",
    "approve here": "decide",
    "cancel here": "cancel",
    "expire": "expire",
    "take over": "take_over",
    "drain": "release",
}
"""Where each is held."""

REQUESTS = frozenset({"approve", "decline", "submit", "cancel", "cancel too", "approve here", "cancel here"})

EXPIRES_AFTER = 5.0
"""Seconds; in less, all scenes are set, also where the machine does something else for a moment."""

SECONDS = 25.0
"""How long anything may take to come true."""


@dataclass(frozen=True)
class Race:
    """One order of two events. `busy`: a tool of the run executes meanwhile; `parked`: nothing does;
    `ending`: it executes its last tool, and waits for nothing."""

    state: State
    held: Event
    when: When
    passing: Event

    def __str__(self) -> str:
        return f"{self.state}: {self.held} is held {self.when}, {self.passing} passes"


def _both(state: State, one: Event, other: Event) -> Iterator[Race]:
    """Each of the two held before and after, while the other passes."""
    for held, passing in ((one, other), (other, one)):
        for when in ("before", "after"):
            yield Race(state, held, when, passing)


def between_people() -> list[Race]:
    """Nobody dies and nobody stops."""
    parking: tuple[Event, ...] = ("approve", "decline", "submit", "cancel", "expire")
    pairs: tuple[tuple[Event, Event], ...] = (
        ("approve", "decline"),
        ("approve", "submit"),
        ("approve", "cancel"),
        ("approve", "expire"),
        ("cancel", "cancel too"),
        ("cancel", "expire"),
    )
    states: tuple[State, ...] = ("busy", "parked")
    races = [*_both("ending", "end", "cancel")]
    for event in parking:
        races += _both("busy", "park", event)
    for state, (one, other) in itertools.product(states, pairs):
        races += _both(state, one, other)
    return races


BY_OTHERS: tuple[Event, ...] = ("approve", "submit", "cancel", "expire")


def with_take_over() -> list[Race]:
    """The owner is killed, and others take its runs over."""
    races = [*_both("ending", "take over", "cancel"), Race("busy", "take over", "before", "take over")]
    for event in BY_OTHERS:
        races += _both("busy", "take over", event)
    return races


def with_drain() -> list[Race]:
    """The owner is told to stop."""
    here: tuple[Event, ...] = ("approve here", "cancel here")
    states: tuple[State, ...] = ("busy", "parked")
    whens: tuple[When, ...] = ("before", "after")
    races = [*_both("ending", "drain", "cancel"), Race("busy", "drain", "after", "take over")]
    for event in BY_OTHERS:
        races += _both("busy", "drain", event)
    races += [Race("busy", "park", when, "drain") for when in whens]
    races += [
        Race(state, held, when, "drain") for state, held, when in itertools.product(states, here, whens)
    ]
    return races


TERMINAL = frozenset({run_pb2.RUN_STATE_SUCCEEDED, run_pb2.RUN_STATE_FAILED, run_pb2.RUN_STATE_CANCELLED})


def _call(tool: str, call_id: str) -> dict[str, Any]:
    return {"tool": tool, "id": call_id, "args": {"v": 1}}


class Scene:
    """One race on a run of its own. Its owner is the last of the fleet; people are at the two others."""

    def __init__(self, fleet: Fleet, race: Race, run_id: str) -> None:
        self.fleet = fleet
        self.race = race
        self.run_id = run_id
        self.readers: list[Reader] = []
        self.outcomes: dict[Event, str] = {}
        """What each request came to: `made`, or the reason it was refused."""
        self.cancels_due = False
        self._body = Trap("body", "before", run_id)
        self._trap = Trap(POINTS[race.held], race.when, run_id)
        self._owner_pid = fleet.members[-1].pid
        self._tasks: list[asyncio.Task[Any]] = []
        self._calls: dict[str, str] = {}

    @property
    def is_held_before(self) -> bool:
        """Whether what is held comes to its trap before anything befalls the owner."""
        return self.race.held in REQUESTS | {"expire", "park"}

    # ---- the stages of a scene ----

    async def prepare(self) -> None:
        """Bring the run to the state in which the race begins."""
        calls: list[dict[str, Any]] = []
        if self.race.state != "ending":
            calls += [_call("gated", "a"), _call("outside", "c")]
        if self.race.state != "parked":
            calls.append(_call("again", "b"))
            self.fleet.trapper.set(self._body, Action("hold"))
        options: dict[str, Any] = {"run_id": self.run_id, "client_tools": [OUTSIDE]}
        if "expire" in (self.race.held, self.race.passing):
            after = Duration()
            after.FromTimedelta(timedelta(seconds=EXPIRES_AFTER))
            options["pending_call_expiry"] = options_pb2.PendingCallExpiry(after=after)
        rpc = self.fleet.only(-1).open_stream(plan(calls, name=self.run_id), timeout=120.0, **options)
        self._tasks.append(asyncio.create_task(read_away(rpc)))
        for number in range(2):
            reader = Reader(self.run_id)
            self.readers.append(reader)
            self._tasks.append(asyncio.create_task(self._follow(reader, number)))
        if self.race.state != "parked":
            assert await self.fleet.trapper.caught(self._body, SECONDS), "the tool is not entered"
        if self.race.state != "ending":
            await self._until(lambda: self._announced(2))
        if self.race.state == "parked":
            await self._until(lambda: self._is("SUSPENDED"))
        self.fleet.trapper.set(self._trap, Action("hold"))

    async def hold(self) -> None:
        """Let the event that is held come to its trap."""
        self._begin(self.race.held)
        assert await self.fleet.trapper.caught(self._trap, SECONDS), f"nobody came to {self._trap.name}"

    async def let_pass(self) -> None:
        """Let the other event happen, from its beginning to its end."""
        event = self.race.passing
        self._begin(event)
        if event in REQUESTS:
            await self._until(lambda: event in self.outcomes)
        elif event == "expire":
            await self._until(self._expired)
        elif event == "end":
            await self._until(lambda: self._is("SUCCEEDED", "CANCELLED"))
        elif event == "take over":
            await self._until(self._taken_over)
        elif event == "park":
            await self._until(lambda: self._is("SUSPENDED", "SUCCEEDED", "CANCELLED"))
        elif self.race.held == "park" or self.race.state == "parked":
            await asyncio.sleep(0.3)  # the owner was told, and cannot do anything about it
        else:  # the owner hands the run over, and another process takes it
            await self._until(lambda: self._is("SUSPENDED", "SUCCEEDED", "CANCELLED"))

    async def finish(self) -> None:
        """Let go what was held, and bring the run to its end."""
        self.fleet.trapper.clear(self._trap)
        if self.race.held in REQUESTS:
            await self._until(lambda: self.race.held in self.outcomes)
        if self.race.state == "busy" and {self.race.held, self.race.passing} <= REQUESTS | {"expire"}:
            # Its owner takes it up at once, while its tool goes on.
            await self._until(self._taken_up)
        self.fleet.trapper.clear(self._body)
        await self._until(self._answer_what_waits)
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*self._tasks)

    async def close(self) -> None:
        """End what is still under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ---- events ----

    def _begin(self, event: Event) -> None:
        if event in ("park", "end", "drain"):
            self.fleet.trapper.clear(self._body)
        if event in REQUESTS and event not in self.outcomes:
            self._tasks.append(asyncio.create_task(self._request(event)))

    async def _request(self, event: Event) -> None:
        member = {"decline": 1, "submit": 1, "cancel too": 1, "approve here": -1, "cancel here": -1}.get(
            event, 0
        )
        caller = self.fleet.only(member)
        try:
            if event.startswith("cancel"):
                response = await caller.cancel(self.run_id, event, wait=False)
                self.cancels_due |= response.run.state not in TERMINAL
            elif event == "decline":
                await caller.decline(self._calls["a"], "no", wait=False)
            elif event == "submit":
                await caller.submit(self._calls["c"], {"outside": 0}, wait=False)
            else:
                await caller.approve(self._calls["a"], wait=False)
            self.outcomes[event] = "made"
        except grpc.aio.AioRpcError as error:
            reason = read_refusal(error).reason
            if not reason and not passes(error):
                raise
            # Without a reason its process was gone before it said anything.
            self.outcomes[event] = reason or "gone"

    # ---- what is to be seen ----

    async def _until(self, condition: Callable[[], Awaitable[bool] | bool]) -> None:
        end = time.monotonic() + SECONDS
        while True:
            holds = condition()
            if holds is True or (holds is not False and await holds):
                return
            assert time.monotonic() < end, "it did not come true in time"
            await asyncio.sleep(0.02)

    async def _is(self, *states: str) -> bool:
        return await self.fleet.only(0).state(self.run_id) in states

    async def _announced(self, count: int) -> bool:
        waiting = await self.fleet.only(0).pending(self.run_id)
        self._calls.update((call.tool_call_id, call.pending_call_id) for call in waiting)
        return len(waiting) == count

    async def _expired(self) -> bool:
        decisions = await self.fleet.only(0).decisions(self.run_id)
        return any(decision.principal == "system" for decision in decisions) or len(decisions) > 1

    async def _taken_over(self) -> bool:
        entered = any(trace["pid"] != self._owner_pid for trace in self.fleet.traces(self.run_id))
        return entered or await self._is("SUSPENDED", "SUCCEEDED", "CANCELLED")

    async def _taken_up(self) -> bool:
        """Whether the run's stream shows what was decided, or that it was cancelled."""
        if self.cancels_due:
            return await self._is("CANCELLED")
        shown = {
            chunk.tool_call_resolved.tool_call_id
            for chunk in map(chunk_pb2.Chunk.FromString, self.readers[0].chunks)
            if kind_of(chunk) == "tool_call_resolved"
        }
        decided = {"c" if event == "submit" else "a" for event, how in self.outcomes.items() if how == "made"}
        return decided <= shown

    async def _answer_what_waits(self) -> bool:
        """Decide what waits; says whether the run has ended."""
        caller = self.fleet.only(0)
        if await self._is("SUCCEEDED", "CANCELLED", "FAILED"):
            return True
        for call in await caller.pending(self.run_id):
            try:
                if call.kind == chunk_pb2.PENDING_CALL_KIND_APPROVAL:
                    await caller.approve(call, wait=False)
                else:
                    await caller.submit(call, {"by hand": 0}, wait=False)
            except grpc.aio.AioRpcError as error:
                allowed = ("PENDING_CALL_ALREADY_DECIDED", "PENDING_CALL_EXPIRED", "RUN_FINISHED")
                if read_refusal(error).reason not in allowed and not passes(error):
                    raise
        return False

    async def _follow(self, reader: Reader, number: int) -> None:
        await self._until(self._exists)
        await reader.read(self.fleet, random.Random(self.run_id), at=number)

    async def _exists(self) -> bool:
        try:
            await self.fleet.only(0).get_run(self.run_id)
            return True
        except grpc.aio.AioRpcError as error:
            if read_refusal(error).reason != "RUN_NOT_FOUND":
                raise
            return False

    # ---- the verdict ----

    async def judge(self) -> None:
        """Whatever the order was: one of those who decided won, and all that was promised came true."""
        race = self.race
        asked_to_cancel = any(event.startswith("cancel") for event in self.outcomes)
        ended = await read(self.fleet, self.run_id, self.readers, cancelled=asked_to_cancel)
        check_story(ended, interruptions=1)
        traces = self.fleet.traces(self.run_id)
        check_effects(ended, traces, interruptions=2)
        for event, outcome in self.outcomes.items():
            assert outcome == "made" or outcome in LOST, (event, outcome)
        deciders = [event for event in self.outcomes if event in ("approve", "approve here", "decline")]
        winners = [event for event in deciders if self.outcomes[event] == "made"]
        assert len(winners) <= 1, self.outcomes
        if len(deciders) == 2:
            assert winners, self.outcomes
        for event in winners:
            decision = ended.pending[self._calls["a"]].decision
            wanted = DECLINE if event == "decline" else APPROVE
            assert decision.verb == wanted, decision
        # The last words of a run that ends may cross with a word to cancel it.
        may_cross = race.state == "ending" or "expire" in (race.held, race.passing)
        if self.cancels_due and not may_cross:
            assert ended.cancelled
        if winners and winners != ["decline"] and not ended.cancelled:
            assert any(trace["event"] == "enter" and trace["call"] == "a" for trace in traces)


LOST = frozenset(
    {
        "PENDING_CALL_ALREADY_DECIDED",
        "PENDING_CALL_EXPIRED",
        "RUN_FINISHED",
        "SERVER_DRAINING",
        "gone",  # with its process, before it said anything
    }
)
"""How a request may lose a race."""


async def run_races(
    fleet: Fleet, races: Sequence[Race], *, then: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Run races side by side, each on a run of its own. `then` is what befalls the owner of all of them,
    once those that are held by somebody else have come to their traps. Raises what went wrong in any."""
    scenes = [Scene(fleet, race, f"race-{number}") for number, race in enumerate(races)]
    try:
        await _each(scenes, Scene.prepare)
        early = [scene for scene in scenes if then is not None and scene.is_held_before]
        await _each(early, Scene.hold)
        if then is not None:
            await then()
        late = [scene for scene in scenes if scene not in early]

        async def rest(scene: Scene) -> None:
            if scene in late:
                await scene.hold()
            await scene.let_pass()
            await scene.finish()

        await _each(scenes, rest)
        await _each(scenes, Scene.judge)
    finally:
        for scene in scenes:
            await scene.close()


async def _each(scenes: Sequence[Scene], work: Callable[[Scene], Awaitable[None]]) -> None:
    """Do it in all scenes at once. Raises all that went wrong, each with the name of its race."""

    async def one(scene: Scene) -> BaseException | None:
        try:
            await work(scene)
        except Exception as error:
            error.add_note(f"{scene.run_id}: {scene.race}: {scene.outcomes}")
            return error
        return None

    errors = [error for error in await asyncio.gather(*map(one, scenes)) if error is not None]
    if errors:
        raise BaseExceptionGroup(f"{len(errors)} of {len(scenes)} races", errors)
