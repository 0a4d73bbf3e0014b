"""What is stored: durable under load, as large as what is new, gone when deleted, in order."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import grpc
import pytest

from entracte_server import ToolContext, tool
from entracte_server.testing import scripted
from tests.cases.support import (
    announced,
    app_of,
    gap_free,
    payloads,
    refused,
    serving,
    told_results,
    user,
    value_of,
)

entered: list[str] = []


@pytest.fixture(autouse=True)
def _nobody_entered() -> None:
    entered.clear()


@tool(requires_approval=True)
async def gated(v: int = 0) -> int:
    return v


@tool
async def ask(about: str, ctx: ToolContext) -> Any:
    if not ctx.resumed:
        ctx.suspend(about)
    entered.append(ctx.run_id)
    return ctx.resume_data


async def test_many_runs_park_and_go_on_at_once(tmp_path: Path) -> None:
    """PS-02: fifty runs suspend and resume at the same time while another program locks the file again
    and again: no error reaches a client."""
    calls = [
        {"tool": "ask", "id": "a", "args": {"about": "x"}},
        {"tool": "gated", "id": "g", "args": {"v": 1}},
    ]
    model = scripted([calls, calls, [{"text": "end"}]], position="transcript")
    store = tmp_path / "db"
    stop = asyncio.Event()

    def lock_once() -> None:
        other = sqlite3.connect(store, isolation_level=None, timeout=30)
        try:
            other.execute("BEGIN IMMEDIATE")
            other.execute("SELECT count(*) FROM runs").fetchone()
            other.execute("ROLLBACK")
        finally:
            other.close()

    async def lock_again_and_again() -> None:
        while not stop.is_set():
            await asyncio.to_thread(lock_once)
            await asyncio.sleep(0.01)

    async with serving(app_of(model, [ask, gated]), store=store) as caller:

        async def one() -> None:
            result = (await caller.generate()).result
            while result.pending_calls:
                a, g = sorted(result.pending_calls, key=lambda c: c.tool_name)
                await asyncio.gather(caller.resume(a, 1), caller.approve(g))
                result = (await caller.get_run(a.run_id)).result
            assert result.text == "end"

        locking = asyncio.create_task(lock_again_and_again())
        await asyncio.gather(*(one() for _ in range(50)))
        stop.set()
        await locking


def sizes(store: Path) -> dict[str, int]:
    """Bytes of each kind of row."""
    reader = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    try:
        tables = {"steps": "data", "tool_calls": "data", "chunks": "data", "run_specs": "data"}
        return {
            name: reader.execute(f"SELECT coalesce(sum(length({column})), 0) FROM {name}").fetchone()[0]
            for name, column in tables.items()
        }
    finally:
        reader.close()


async def test_rows_grow_with_what_is_new(tmp_path: Path) -> None:
    """PS-03: thirty tool steps on a conversation of a hundred messages with fifty tools: what is stored
    is the input once and each step's own content; neither the history nor the tools again."""
    padding = "x" * 1000

    def numbered(i: int) -> Any:
        @tool(name=f"tool_{i}", description="d" * 500)
        async def body(v: int) -> str:
            return padding

        return body

    tools = [numbered(i) for i in range(49)]
    steps = [[{"tool": f"tool_{i}", "id": f"c{i}", "args": {"v": i}}] for i in range(30)]
    last = [{"tool": "gated", "id": "g"}]
    model = scripted([*steps, last], position="transcript")
    history = [user(padding) for _ in range(100)]
    store = tmp_path / "db"
    async with serving(app_of(model, [*tools, gated]), store=store) as caller:
        result = (await caller.generate(history, max_steps=40)).result
        assert [c.tool_name for c in result.pending_calls] == ["gated"]
    stored = sizes(store)
    input_size = 100 * len(padding)
    content = 30 * len(padding)
    assert stored["run_specs"] < 1.5 * input_size
    assert stored["tool_calls"] < 1.5 * content
    assert stored["steps"] < 31 * 1000
    assert stored["chunks"] < 31 * (len(padding) + 2000)


async def test_steps_cost_the_same_late_and_early(tmp_path: Path) -> None:
    """PS-03: the bytes stored per step do not grow with the number of steps."""
    costs = []
    for count in (10, 40):
        steps = [[{"tool": "plain", "id": f"c{i}", "args": {"v": i}}] for i in range(count)]

        @tool
        async def plain(v: int) -> str:
            return "y" * 300

        store = tmp_path / f"db-{count}"
        model = scripted([*steps, [{"text": "end"}]], position="transcript")
        async with serving(app_of(model, [plain]), store=store) as caller:
            assert (await caller.generate(max_steps=100)).result.text == "end"
        costs.append(sum(sizes(store).values()) / count)
    assert costs[1] < 1.3 * costs[0]


async def test_ended_runs_leave_nothing_waiting(tmp_path: Path) -> None:
    """PS-04: on every way to end nothing is listed as suspended or waiting; what is deleted is gone,
    every row of it. What goes by its age: see `test_upkeep`."""
    gate = {"tool": "gated", "id": "g"}
    scripts: dict[str, list[list[dict[str, Any]]]] = {
        "ends": [[{"text": "end"}]],
        "fails": [[{"error": "no"}]],
        "approved": [[gate], [{"text": "end"}]],
        "declined": [[gate], [{"text": "end"}]],
        "cancelled": [[gate]],
    }

    def play(request: Any) -> Any:
        steps = scripts[request.messages[0].parts[0].text]
        done = sum(m.role == "assistant" for m in request.messages)
        return steps[min(done, len(steps) - 1)]

    store = tmp_path / "db"
    async with serving(app_of(scripted(play), [gated]), store=store) as caller:

        async def one(how: str, number: int) -> None:
            started = await caller.generate(how, request_id=f"{how}-{number}")
            waiting = started.result.pending_calls
            if how == "approved":
                await caller.approve(waiting[0])
            elif how == "declined":
                await caller.decline(waiting[0])
            elif how == "cancelled":
                await caller.cancel(started.run.run_id)

        await asyncio.gather(*(one(how, n) for how in scripts for n in range(40)))
        assert not (await caller.list_runs(states=[1, 2, 3])).runs
        assert not await caller.pending()
        ended = [4] * 3 + [5, 6]
        counts = [len((await caller.list_runs(states=[s], page_size=1000)).runs) for s in (4, 5, 6)]
        assert counts == [120, 40, 40]
        assert sum(counts) == 40 * len(ended)
        runs = (await caller.list_runs(page_size=1000)).runs
        assert len(runs) == 200
        parked = await caller.generate("cancelled")
        with refused(grpc.StatusCode.FAILED_PRECONDITION, "RUN_NOT_FINISHED"):
            await caller.delete(parked.run.run_id)
        await caller.delete(parked.run.run_id, force=True)
        await asyncio.gather(*(caller.delete(run.run_id) for run in runs))
        assert not (await caller.list_runs()).runs
        with refused(grpc.StatusCode.NOT_FOUND, "RUN_NOT_FOUND"):
            await caller.watch(runs[0].run_id)
        with refused(grpc.StatusCode.NOT_FOUND, "PENDING_CALL_NOT_FOUND"):
            await caller.approve(parked.result.pending_calls[0])
    reader = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    try:
        for table in ("runs", "run_specs", "steps", "tool_calls", "chunks", "pending_calls", "decisions"):
            assert reader.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
    finally:
        reader.close()


async def test_order_does_not_hang_on_the_clock() -> None:
    """PS-08: runs and calls made within one millisecond are listed in the order they were made, page by
    page. (Messages of a thread: with threads.)"""
    calls = [{"tool": "gated", "id": f"c{i:03}", "args": {"v": i}} for i in range(100)]
    async with serving(app_of(scripted([calls], position="transcript"), [gated])) as caller:
        chunks = await caller.stream()
        made = [a.tool_call_id for a in announced(chunks)]
        assert made == [f"c{i:03}" for i in range(100)]
        assert len({(c.emit_time.seconds, c.emit_time.nanos) for c in chunks}) < len(chunks)
        assert [c.tool_call_id for c in await caller.pending()] == made
        started = [(await caller.generate()).run.run_id for _ in range(10)]
        listed: list[str] = []
        token = ""
        while True:
            page = await caller.list_runs(page_size=3, page_token=token)
            listed += [run.run_id for run in page.runs]
            token = page.next_page_token
            if not token:
                break
        assert listed == [*reversed(started), chunks[0].run_id]
        waiting = await caller.pending(started[0])
        for call in reversed(waiting[:20]):
            await caller.decline(call, wait=False)
        decided = [d.tool_call_id for d in await caller.decisions(started[0])]
        assert decided == [c.tool_call_id for c in reversed(waiting[:20])]


async def test_equal_requests_are_two_runs() -> None:
    """SR-32: two equal requests at once, without a request id, are two runs with state of their own."""
    model = scripted(
        [[{"tool": "ask", "id": "c1", "args": {"about": "x"}}], [{"text": "end"}]], position="transcript"
    )
    async with serving(app_of(model, [ask])) as caller:
        one, two = await asyncio.gather(caller.generate("same"), caller.generate("same"))
        assert one.run.run_id != two.run.run_id
        await caller.resume(one.result.pending_calls[0], "for one")
        assert await caller.state(two.run.run_id) == "SUSPENDED"
        done = await caller.resume(two.result.pending_calls[0], "for two")
        assert value_of(done.result.tool_results[0].tool_result.result) == "for two"
        assert entered == [one.run.run_id, two.run.run_id]
        for run, words in ((one, "for one"), (two, "for two")):
            chunks = await caller.watch(run.run.run_id)
            assert gap_free(chunks)
            assert [value_of(r.result) for r in payloads(chunks, "tool_result")] == [words]
        assert sorted(told_results(r)[0][1] for r in model.requests if told_results(r)) == [
            '"for one"',
            '"for two"',
        ]
