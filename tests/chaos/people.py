"""The people around a run: who starts it, who follows it, who decides what it asks, who cancels it.

They use the SDK, give their requests ids, and do not give up because a server does.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from entracte import (
    AgentClient,
    Client,
    ClientTool,
    Decision,
    PendingCallAlreadyDecided,
    RunNotFound,
    RunStream,
    ServerUnreachable,
    ToolCallApprovalChunk,
    ToolCallSuspendedChunk,
)
from tests.chaos.following import Reader, Servers
from tests.chaos.plans import (
    DECLINED,
    EDITED,
    FAILED_OUTSIDE,
    Announcement,
    Plan,
    answer_to,
    done_by_hand,
)

OUTSIDE = ClientTool(
    name="outside",
    description="Runs at the client.",
    input_schema={"type": "object", "properties": {"v": {"type": "integer"}}},
)

PATIENCE = 90.0
"""Seconds in which a run must come to its end, whatever happens to its servers."""


@dataclass(frozen=True)
class Act:
    """A decision to be made."""

    verb: str
    begin: Callable[[AgentClient, str], RunStream]


@dataclass(frozen=True)
class Made:
    """A decision that somebody was told is made, and as it was told."""

    call: Announcement
    verb: str
    request_id: str
    decision: Decision


class Life:
    """One run with its people. `progress` counts what a takeover cannot undo: answers and parkings.

    `at` are the members that two clients prefer: one starts the run and cancels it, the other follows it
    and decides. `readers_at` is the one where readers read. By default any will do.
    """

    def __init__(
        self,
        fleet: Servers,
        plan: Plan,
        run_id: str,
        seed: str = "",
        *,
        at: tuple[int, int] | None = None,
        readers_at: int | None = None,
    ) -> None:
        self.fleet = fleet
        self.plan = plan
        self.run_id = run_id
        self.progress = 0
        self.done = False
        self.is_started = False
        """Whether somebody else sends the request that starts it."""
        self.made: list[Made] = []
        self.readers: list[Reader] = []
        self._random = random.Random(f"{seed} {run_id}")
        self._at = at
        self._readers_at = readers_at
        self._clients: list[Client] = []
        self.streamed = self._random.random() < 0.5

    def __str__(self) -> str:
        return f"{self.run_id} ({self.plan.name})"

    async def live(self) -> None:
        """From the start to the end. Raises whatever goes wrong."""
        rng = self._random
        count = self.fleet.size
        at = self._at or (rng.randrange(count), rng.randrange(count))
        self._clients = [self.fleet.client(number) for number in at]
        try:
            async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
                for client in self._clients:
                    await _reach(client)
                if not self.is_started:
                    group.create_task(self._start())
                await self._exists()
                for _ in range(rng.choice((1, 1, 2))):
                    reader = Reader(self.run_id)
                    self.readers.append(reader)
                    group.create_task(reader.read(self.fleet, rng, at=self._readers_at))
                group.create_task(self._decide_all())
        finally:
            self.done = True
            for client in self._clients:
                await client.aclose()

    def start(self) -> dict[str, Any]:
        """The arguments of the request that starts it."""
        return {
            "messages": self.plan.message(self.run_id),
            "run_id": self.run_id,
            "request_id": f"start-{self.run_id}",
            "client_tools": [OUTSIDE],
            "pending_call_expiry": self.plan.expires,
        }

    async def _start(self) -> None:
        agent = self._clients[0].agent("world")
        if self.streamed:
            async for chunk in agent.stream(**self.start()):
                assert chunk.run_id == self.run_id
        else:
            result = await agent.generate(**self.start())
            assert result.run_id == self.run_id

    async def _exists(self) -> None:
        """Until the run is there."""
        while True:
            try:
                await self._clients[1].runs.get(self.run_id, omit_result=True)
                return
            except RunNotFound:
                await asyncio.sleep(0.01)

    # ---- deciding ----

    async def _decide_all(self) -> None:
        """Follow the run, and decide whatever it asks: at once, or when it waits for nothing else."""
        rng = self._random
        eager = rng.random() < 0.5
        todo: list[Announcement] = []
        cancelled = False
        async with asyncio.TaskGroup() as group:
            async for chunk in self._clients[1].runs.watch(self.run_id, until_finished=True):
                if isinstance(chunk, ToolCallApprovalChunk | ToolCallSuspendedChunk):
                    todo.append(chunk)
                rests = chunk.type == "finish" and chunk.reason == "suspended"
                self.progress += rests or chunk.type == "step-finish"
                if self.plan.cancel:
                    running = self.plan.cancel == "running" and chunk.type == "tool-call"
                    if not cancelled and (rests or running):
                        cancelled = True
                        group.create_task(self._cancel())
                elif (eager or rests) and not self.plan.expires:
                    rng.shuffle(todo)
                    for call in todo:
                        group.create_task(self._decide(call))
                    todo = []

    async def _cancel(self) -> None:
        await asyncio.sleep(self._random.uniform(0.0, 0.05))
        run = await self._clients[0].runs.cancel(
            self.run_id, reason="enough", request_id=f"cancel-{self.run_id}", wait=True
        )
        assert run.state == "cancelled", run.state

    async def _decide(self, call: Announcement) -> None:
        """One decision, sometimes by two people at once who are of the same opinion."""
        rng = self._random
        await asyncio.sleep(rng.uniform(0.0, 0.02))
        act = self._act_on(call)
        people = 1 if rng.random() < 0.7 else 2
        made = await asyncio.gather(*(self._attempt(call, act, who) for who in range(people)))
        assert sum(made) == 1, f"{sum(made)} decisions were made on {call.pending_call_id}"

    async def _attempt(self, call: Announcement, act: Act, who: int) -> bool:
        """Whether this one decided."""
        request_id = f"{call.pending_call_id}-{who}"
        stream = act.begin(self._clients[1 - who].agent("world"), request_id)
        try:
            decision = await stream.commit()
        except PendingCallAlreadyDecided:
            return False
        self.made.append(Made(call, act.verb, request_id, decision))
        if self._random.random() < 0.3:
            await stream.result()
        return True

    def _act_on(self, call: Announcement) -> Act:
        """What people think of a call."""
        if isinstance(call, ToolCallApprovalChunk):
            return _approval(call)
        if call.kind == "recovery":
            return self._recovery(call)
        if call.kind == "client-tool":
            if call.args["v"] == FAILED_OUTSIDE:
                return _failed(call, "it failed outside")
            return _submit(call, {"outside": call.args["v"]})
        answer = answer_to(call)
        return Act("resume", lambda agent, id: agent.resume_stream(call, answer, request_id=id))

    def _recovery(self, call: ToolCallSuspendedChunk) -> Act:
        """What had become of a call whose process died: they look what it did to the world."""
        entries = [
            trace["event"]
            for trace in self.fleet.traces(self.run_id)
            if trace.get("call") == call.tool_call_id
        ]
        half_done = entries[-1:] == ["enter"]
        # Whether a tool that asks had asked cannot be told from outside.
        unknown = not entries or call.tool_name == "asks"
        if unknown or (half_done and self._random.random() < 0.5):
            return Act("approve", lambda agent, id: agent.approve_stream(call, request_id=id))
        if call.tool_name == "fails":
            return _failed(call, f"no {call.args['v']}")
        return _submit(call, done_by_hand(call))


async def _reach(client: Client) -> None:
    """Until a client has had an answer: from then on it waits for servers that are away."""
    while True:
        try:
            await client.runs.list_page(page_size=1)
            return
        except ServerUnreachable:
            await asyncio.sleep(0.02)


def _approval(call: ToolCallApprovalChunk) -> Act:
    v = call.args["v"]
    if v == DECLINED:
        return Act("decline", lambda agent, id: agent.decline_stream(call, reason="no", request_id=id))
    edited = {**call.args, "v": v * 10} if v == EDITED else None
    return Act("approve", lambda agent, id: agent.approve_stream(call, edited_args=edited, request_id=id))


def _submit(call: Announcement, value: Any) -> Act:
    return Act("submit", lambda agent, id: agent.submit_tool_result_stream(call, value, request_id=id))


def _failed(call: Announcement, error: str) -> Act:
    return Act("submit", lambda agent, id: agent.submit_tool_result_stream(call, error=error, request_id=id))
