"""What outlives its process: parked runs, decisions, calls that were cut off by a crash."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from entracte.v1 import chunk_pb2
from entracte_server import Agent, App, Tool, ToolContext, tool
from entracte_server.testing import scripted
from tests.cases.process import ServerProcess, executed, forked
from tests.cases.support import (
    Caller,
    already_decided,
    announced,
    as_json,
    chunks_of,
    finish_of,
    gap_free,
    kind_of,
    kinds,
    payloads,
    read_refusal,
    reason_name,
    refused,
    serving,
    value_of,
)
from tests.invariants.world import DEATH, JOURNAL, OUTSIDE, plan

WORLD = "tests.invariants.world:app"
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION
RECOVERY = chunk_pb2.PENDING_CALL_KIND_RECOVERY


class Place:
    """A database and a journal for a server and its successors."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "db"
        self.journal = folder / "journal"
        self.environment = {JOURNAL: str(self.journal)}

    def entries(self, event: str = "enter") -> list[dict[str, Any]]:
        if not self.journal.exists():
            return []
        lines = map(json.loads, self.journal.read_text().splitlines())
        return [entry for entry in lines if entry["event"] == event]

    async def entered(self, count: int) -> None:
        """Until tools were entered so often."""
        for _ in range(2000):
            if len(self.entries()) >= count:
                return
            await asyncio.sleep(0.005)
        raise AssertionError(f"entered {self.entries()}")

    @asynccontextmanager
    async def server(
        self, start: Any = forked, **environment: str
    ) -> AsyncIterator[tuple[ServerProcess, Caller]]:
        """A server on this place and a caller of it."""
        together = {**self.environment, **environment}
        async with (
            start(WORLD, self.store, environment=together) as server,
            Caller(server.address, agent="world") as caller,
        ):
            yield server, caller


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def call(tool: str, id: str, **args: Any) -> dict[str, Any]:
    return {"tool": tool, "id": id, "args": args}


@pytest.mark.parametrize("start", [executed, forked], ids=["executed", "forked"])
async def test_parked_runs_outlive_a_killed_server(place: Place, start: Any) -> None:
    """SR-09: a run with four kinds of waiting calls is killed with its server; a new one answers each
    from the rows alone."""
    steps = plan(
        [
            call("gated", "a", v=1),
            call("asks", "s", v=2),
            call("ask_user", "q", question="Q?"),
            call("outside", "o", v=4),
            call("gated", "d", v=5),
        ]
    )
    async with place.server(start) as (server, caller):
        chunks = await caller.stream(steps, client_tools=[OUTSIDE])
        run_id = chunks[0].run_id
        await server.kill()
    async with place.server() as (server, caller):
        waiting = {c.tool_call_id: c for c in await caller.pending(run_id)}
        assert set(waiting) == {"a", "s", "q", "o", "d"}
        await caller.approve(waiting["a"])
        await caller.resume(waiting["s"], False)
        await caller.resume(waiting["q"], "yes")
        await caller.submit(waiting["o"], {"n": 9007199254740993})
        done = await caller.decline(waiting["d"], "no")
        assert done.result.text == "the end"
        again = await caller.watch(run_id)
        assert gap_free(again)
        assert again[: len(chunks)] == chunks
    assert [(e["call"], e["resumed"], e["data"]) for e in place.entries()] == [
        ("s", False, None),
        ("a", False, None),
        ("s", True, False),
    ]
    asked = place.entries("asked")
    assert [e["step"] for e in asked] == [0, 1]
    told = asked[1]["turns"][-1]["results"]
    assert [i for i, _ in told] == ["a", "s", "q", "o", "d"]
    assert [json.loads(o) for i, o in told if i == "o"] == [{"n": 9007199254740993}]


def two_agents(*, with_agent: bool = True, tools: list[Tool]) -> Any:
    model = scripted([[call("gated", "c1"), call("asks", "c2")], [{"text": "end"}]], position="transcript")
    agents = [Agent(id="other", model=model)]
    if with_agent:
        agents.append(Agent(id="agent", model=model, tools=tools))
    return App(agents=agents)


@tool(requires_approval=True)
async def gated() -> str:
    return "done"


@tool
async def asks(ctx: ToolContext) -> str:
    if not ctx.resumed:
        ctx.suspend()
    return "done"


async def test_without_its_agent_a_run_stays_parked(tmp_path: Path) -> None:
    """SR-09: a server that has not registered the agent refuses every decision and leaves the run as it
    is; one that has it goes on."""
    store = tmp_path / "db"
    async with serving(two_agents(tools=[gated, asks]), store=store) as caller:
        started = await caller.generate()
        one, two = started.result.pending_calls
        run_id = started.run.run_id
    async with serving(two_agents(with_agent=False, tools=[]), store=store) as caller:
        attempts: list[Any] = [
            lambda: caller.approve(one),
            lambda: caller.decline(one),
            lambda: caller.resume(two, None),
            lambda: caller.decline(two),
        ]
        for attempt in attempts:
            with refused(PRECONDITION, "AGENT_UNAVAILABLE") as refusal:
                await attempt()
            assert refusal.metadata == {"run_id": run_id, "agent_id": "agent"}
            assert await caller.state(run_id) == "SUSPENDED"
        assert len(await caller.pending(run_id)) == 2
        assert not await caller.decisions(run_id)
    async with serving(two_agents(tools=[gated, asks]), store=store) as caller:
        await caller.approve(one)
        assert (await caller.resume(two, None)).result.text == "end"


async def test_without_its_agent_a_run_can_be_cancelled(tmp_path: Path) -> None:
    """SR-09, SR-16: cancelling needs no agent: the run ends and its calls are settled."""
    store = tmp_path / "db"
    async with serving(two_agents(tools=[gated, asks]), store=store) as caller:
        started = await caller.generate()
    async with serving(two_agents(with_agent=False, tools=[]), store=store) as caller:
        await caller.cancel(started.run.run_id)
        assert await caller.state(started.run.run_id) == "CANCELLED"
        assert not await caller.pending()
        with already_decided():
            await caller.approve(started.result.pending_calls[0])


async def test_without_its_tool_a_call_stays_pending(tmp_path: Path) -> None:
    """SR-09: a call whose tool is gone cannot be approved or answered, and the run stays parked."""
    store = tmp_path / "db"
    async with serving(two_agents(tools=[gated, asks]), store=store) as caller:
        started = await caller.generate()
        one, two = started.result.pending_calls
    async with serving(two_agents(tools=[]), store=store) as caller:
        for attempt, name in ((caller.approve(one), "gated"), (caller.resume(two, 1), "asks")):
            with refused(PRECONDITION, "TOOL_UNAVAILABLE") as refusal:
                await attempt
            assert refusal.metadata["tool_name"] == name
        assert await caller.state(started.run.run_id) == "SUSPENDED"
        assert len(await caller.pending()) == 2


async def crash_in(place: Place, tool: str, *siblings: dict[str, Any]) -> str:
    """A run whose tool is being executed, and whose sibling calls have ended, when its server is
    killed."""
    steps = plan([call(tool, "c1", v=1, ms=60_000), *siblings])
    async with place.server() as (server, caller):
        run_id = (await anext(aiter(chunks_of(caller.open_stream(steps))))).run_id
        watching = caller.open_watch(run_id, until_finished=True)
        ended = 0
        async for chunk in chunks_of(watching):
            ended += kind_of(chunk) == "tool_result"
            for waiting in announced([chunk]):
                await caller.approve(waiting, wait=False)
            if kind_of(chunk) == "tool_call_resolved" or (siblings and ended == len(siblings)):
                break
            if not siblings and not tool.startswith("gated") and kind_of(chunk) == "tool_call":
                break
        await place.entered(1 + len(siblings))
        await server.kill()
        watching.cancel()
    return run_id


async def read_to_its_end(rpc: Any) -> None:
    async for _ in rpc:
        pass


async def rest(caller: Caller, run_id: str) -> list[Any]:
    return await caller.watch(run_id)


async def test_a_crash_in_a_tool_asks_what_happened(place: Place) -> None:
    """SR-31: after a crash in a tool nothing is run again by itself: the call waits, and a person says
    what it came to."""
    run_id = await crash_in(place, "slow", call("plain", "c2", v=2))
    async with place.server() as (_server, caller):
        chunks = await rest(caller, run_id)
        assert reason_name(finish_of(chunks).reason) == "suspended"
        (waiting,) = await caller.pending(run_id)
        assert (waiting.tool_call_id, waiting.kind) == ("c1", RECOVERY)
        assert value_of(waiting.args) == {"v": 1, "ms": 60_000}
        with refused(PRECONDITION, "VERB_MISMATCH") as refusal:
            await caller.resume(waiting, 1)
        assert refusal.metadata["verbs"] == "submit,approve,decline"
        done = await caller.submit(waiting, {"slow": 1})
        assert done.result.text == "the end"
    assert [e["call"] for e in place.entries()].count("c1") == 1
    assert place.entries("asked")[-1]["turns"][-1]["results"] == [
        ["c1", '{"slow": 1}'],
        ["c2", '{"plain":2}'],
    ]


async def test_a_crashed_call_can_be_run_again_or_dropped(place: Place) -> None:
    """SR-31: approving a call of kind recovery runs it once more, with the key it had; declining it
    does not enter it."""
    run_id = await crash_in(place, "slow")
    async with place.server() as (_server, caller):
        await rest(caller, run_id)
        (waiting,) = await caller.pending(run_id)
        done = await caller.approve(waiting, edited_args=as_json({"v": 3, "ms": 1}))
        assert done.result.text == "the end"
    entries = place.entries()
    assert [e["args"] for e in entries] == [{"v": 1, "ms": 60_000}, {"v": 3, "ms": 1}]
    assert len({e["key"] for e in entries}) == 1
    assert entries[0]["key"]


async def test_a_crashed_call_can_be_declined(place: Place) -> None:
    """SR-31: declining a call of kind recovery settles it without entering the tool."""
    run_id = await crash_in(place, "slow")
    async with place.server() as (_server, caller):
        await rest(caller, run_id)
        done = await caller.decline((await caller.pending(run_id))[0], "leave it")
        assert done.result.text == "the end"
    assert len(place.entries()) == 1


async def test_an_idempotent_tool_is_run_again_with_its_key(place: Place) -> None:
    """SR-31: a tool that may be run again is, by itself, with the same key."""
    run_id = await crash_in(place, "slow_safe")
    async with place.server() as (_server, caller):
        await place.entered(2)
        assert not await caller.pending(run_id)
        assert await caller.state(run_id) == "RUNNING"
        await caller.cancel(run_id)
    entries = place.entries()
    assert [(e["call"], e["args"]) for e in entries] == [("c1", {"v": 1, "ms": 60_000})] * 2
    assert entries[0]["key"] == entries[1]["key"]


async def test_a_decision_before_a_crash_stays_made_and_shown(place: Place) -> None:
    """SR-31: a crash in an approved tool: the approval stands in the audit and in the stream, nobody is
    asked to approve again, and what the run asks instead is what happened."""
    run_id = await crash_in(place, "gated_slow")
    async with place.server() as (_server, caller):
        await rest(caller, run_id)
        (decision,) = await caller.decisions(run_id)
        (waiting,) = await caller.pending(run_id)
        assert waiting.kind == RECOVERY
        await caller.submit(waiting, {"gated_slow": 1})
        chunks = await caller.watch(run_id)
        assert gap_free(chunks)
        settling = [k for k in kinds(chunks) if k in SETTLING]
        assert settling == [
            "tool_call_approval",
            "tool_call_resolved",
            "tool_call_suspended",
            "tool_call_resolved",
            "tool_result",
        ]
        resolved = payloads(chunks, "tool_call_resolved")
        assert resolved[0].decision_id == decision.decision_id
    assert len(place.entries()) == 1


async def test_a_crash_right_after_a_decision_loses_nothing_of_it(place: Place) -> None:
    """SR-31: the server dies after an approval was committed and before the tool was entered: the new
    one shows who decided, and asks what happened."""
    flag = place.store.with_name("die")
    async with place.server(**{DEATH: str(flag)}) as (server, caller):
        waiting = (await caller.generate(plan([call("gated_deadly", "c1", v=1)]))).result.pending_calls[0]
        flag.touch()
        with pytest.raises(grpc.aio.AioRpcError):
            await caller.approve(waiting, request_id="r1")
        assert await server.ended() == -signal.SIGKILL
    async with place.server() as (server, caller):
        chunks = await rest(caller, waiting.run_id)
        (decision,) = await caller.decisions(waiting.run_id)
        resolved = payloads(chunks, "tool_call_resolved")
        assert [r.decision_id for r in resolved] == [decision.decision_id]
        again = await caller.approve(waiting, request_id="r1", wait=False)
        assert again.replayed
        assert again.decision == decision
        (asked,) = await caller.pending(waiting.run_id)
        assert asked.kind == RECOVERY
        done = await caller.approve(asked)
        assert done.result.text == "the end"
    assert len(place.entries()) == 1


SETTLING = (
    "tool_call_approval",
    "tool_call_suspended",
    "tool_call_resolved",
    "tool_result",
    "tool_error",
    "tool_output_denied",
)


async def test_a_model_call_that_was_cut_is_another_attempt(place: Place) -> None:
    """SR-31: a crash in the middle of an answer: what was shown of it stays readable and is void, the
    answer is asked for again as the next attempt, and finished steps are not."""
    steps = plan(
        [call("plain", "c1", v=1)],
        [{"text": "half an answer "}, {"delay": 1500}, {"text": "and the rest"}],
    )
    async with place.server() as (server, caller):
        seen = []
        rpc = caller.open_stream(steps)
        async for chunk in chunks_of(rpc):
            seen.append(chunk)
            if kind_of(chunk) == "text_end":
                break
        await server.kill()
        rpc.cancel()
    run_id = seen[0].run_id
    async with place.server() as (server, caller):
        chunks = await rest(caller, run_id)
        assert chunks[: len(seen)] == seen
        assert gap_free(chunks)
        starts = [(c.step, c.attempt) for c in chunks if kind_of(c) == "step_start"]
        assert starts == [(1, 1), (2, 1), (2, 2)]
        result = (await caller.get_run(run_id)).result
        assert result.text == "half an answer and the rest"
    assert len(place.entries()) == 1
    assert [e["step"] for e in place.entries("asked")] == [0, 1, 1]


async def test_a_second_server_leaves_what_the_first_executes_alone(place: Place) -> None:
    """SR-30: a second server on the same database does not touch the run that a living one executes; it
    shows it, and what it is told of it reaches the first."""
    steps = plan([call("slow", "c1", v=1, ms=60_000)])
    async with place.server() as (_first, caller):
        run_id = (await anext(aiter(chunks_of(caller.open_stream(steps))))).run_id
        await place.entered(1)
        async with place.server() as (_second, other):
            assert await other.state(run_id) == "RUNNING"
            watch = other.open_watch(run_id)
            assert (await anext(aiter(chunks_of(watch)))).sequence == 1
            await other.cancel(run_id)
            assert reason_name(finish_of([c async for c in chunks_of(watch)]).reason) == "aborted"
        assert await caller.state(run_id) == "CANCELLED"
    assert len(place.entries()) == 1


async def test_sigterm_ends_all_in_good_order(place: Place) -> None:
    """CT-07: SIGTERM with a stream in text, a tool in progress, a parked run and a quiet watcher: the
    readers are told to come again, what ran is found by the next process, the exit code is 0 and
    nothing is traced."""
    text = plan([{"text": "a "}, {"delay": 60_000}, {"text": "b"}])
    busy = plan([call("slow", "c1", v=1, ms=60_000)])
    quick = plan([call("slow", "c2", v=1, ms=1_0)], [{"delay": 100}, {"text": "x"}])
    parked = plan([call("gated", "c3", v=1)])
    async with place.server(executed, ENTRACTE_GRACE="0.3") as (server, caller):
        waiting = (await caller.generate(parked)).run.run_id
        streams = [caller.open_stream(steps) for steps in (text, busy, quick)]
        readers = [aiter(chunks_of(rpc)) for rpc in streams]
        runs = [(await anext(reader)).run_id for reader in readers]
        watcher = caller.open_watch(waiting, until_finished=True)
        await anext(aiter(chunks_of(watcher)))
        await place.entered(2)
        server.send(signal.SIGTERM)
        for rpc in (*streams[:2], watcher):
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                async for _ in rpc:
                    pass
            refusal = read_refusal(raised.value)
            assert refusal.code == grpc.StatusCode.UNAVAILABLE, refusal.text
            assert refusal.reason == "SERVER_DRAINING"
        assert await server.ended() == 0
        assert "Traceback" not in server.output
        assert "Task was destroyed" not in server.output
    async with place.server() as (server, caller):
        assert await caller.state(waiting) == "SUSPENDED"
        await rest(caller, runs[2])
        assert await caller.state(runs[2]) == "SUCCEEDED"
        assert len([entry for entry in place.entries() if entry["call"] == "c2"]) == 1
        await rest(caller, runs[1])
        (cut,) = await caller.pending(runs[1])
        assert cut.kind == RECOVERY
        assert await caller.state(runs[0]) == "RUNNING"
        await caller.cancel(runs[0])


async def test_new_calls_are_refused_while_stopping(place: Place) -> None:
    """CT-07: a server that is stopping starts nothing and decides nothing, and says so."""
    busy, parked = plan([call("slow", "c1", v=1, ms=1_000)]), plan([call("gated", "c3", v=1)])
    async with place.server(ENTRACTE_GRACE="5") as (server, caller):
        waiting = (await caller.generate(parked)).result.pending_calls[0]
        rpc = caller.open_stream(busy)
        await anext(aiter(chunks_of(rpc)))
        await place.entered(1)
        server.send(signal.SIGTERM)
        await server.says("Stopping")
        for attempt in (caller.generate(parked), caller.approve(waiting), caller.cancel(waiting.run_id)):
            with refused(grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING"):
                await attempt
        assert await server.ended() == 0
        rpc.cancel()
    async with place.server() as (server, caller):
        assert len(await caller.pending()) == 1
        assert await caller.state(waiting.run_id) == "SUSPENDED"
