"""Plays a run from suspension to suspension, each of them answered in a server that never saw it before."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from entracte import Client, GenerateResult, PendingCall
from entracte_server.testing import serve
from tests.cases.process import forked
from tests.matrix import served
from tests.matrix.course import INPUT, Course, World, app_of, merged
from tests.matrix.row import Row, Seen
from tests.matrix.served import comes_to, troubled
from tests.matrix.tool_rows import FROM_CLIENT

MAX_SUSPENSIONS = 12


def most_suspensions(course: Course) -> int:
    """What a run has at most: `MAX_SUSPENSIONS`, or as many as it has calls, a sub-agent's few among them."""
    calls = sum("tool" in part for parts in course.steps.values() for part in parts)
    return max(MAX_SUSPENSIONS, calls + 4)


def course_of(rows: Sequence[Row], trouble: str = "") -> Course:
    """The course of a run with these options."""
    course = Course()
    troubled(course, trouble)
    for row in rows:
        row.course(course)
    return course


def options_of(rows: Sequence[Row], course: Course) -> dict[str, Any]:
    """The keywords of `generate`."""
    return merged([row.sets(course) for row in rows])


async def answer(client: Client, call: PendingCall) -> GenerateResult:
    """Give a call its answer."""
    agent = client.agent("a")
    if call.kind == "client-tool":
        return await agent.submit_tool_result(call, FROM_CLIENT)
    return await agent.approve(call)


async def answer_and_leave(client: Client, call: PendingCall, seen: Seen) -> GenerateResult:
    """Give a call its answer, and leave the run alone when its model was asked for the last time."""

    async def follow() -> None:
        async for _ in client.agent("a").approve_stream(call):
            pass

    following = asyncio.ensure_future(follow())
    while len(seen.requests()) < len(seen.course.steps):
        await asyncio.wait([following], timeout=0.02)
        assert not following.done()
    following.cancel()
    await asyncio.wait([following])
    return await settled(client, call.run_id)


async def settled(client: Client, run_id: str) -> GenerateResult:
    """The result of a run that somebody else brings to an end or to its next suspension."""
    for _ in range(3000):
        run = await client.runs.get(run_id)
        if run.state not in ("queued", "running"):
            assert run.result is not None
            return run.result
        await asyncio.sleep(0.02)
    raise AssertionError(f"{run_id} goes on and on")


async def play(rows: Sequence[Row], store: Any) -> Seen:
    """Play a run with the options of these rows on a store that outlives its servers."""
    course = course_of(rows)
    options = options_of(rows, course)
    seen = Seen(course, World(course))
    settings: dict[str, Any] = {}
    for row in rows:
        settings |= row.settings
    leave = any(row.ending == "cancelled" for row in rows)
    while not seen.results or seen.result.finish_reason == "suspended":
        assert seen.world.server < most_suspensions(course)
        seen.world.server = len(seen.results)
        async with (
            serve(app_of(rows, seen.world), store=store, **settings) as server,
            Client(server.address, timeout=30) as client,
        ):
            take(seen, await go_on(client, seen, options, leave=leave))
            await look_back(client, seen, options)
    return seen


async def play_killed(rows: Sequence[Row], folder: Path, trouble: str) -> Seen:
    """As `play`, in servers that are processes, each killed once its run is suspended; the first that comes
    to the `trouble`, there."""
    course = course_of(rows, trouble)
    options = options_of(rows, course)
    seen = Seen(course, World(course, folder / "log"))
    environment = {
        served.ROWS: ",".join(row.name for row in rows),
        served.TROUBLE: trouble,
        served.LOG: str(folder / "log"),
    }
    killed = not trouble
    is_cut_off = False
    number = 0
    while not seen.results or is_cut_off or seen.result.finish_reason == "suspended":
        assert number < most_suspensions(course)
        here = {**environment, served.SERVER: str(number)}
        seen.world.server = number
        async with (
            forked("tests.matrix.served:app", folder / "db", environment=here) as server,
            Client(server.address, timeout=30) as client,
        ):
            if is_cut_off:
                going_on = asyncio.ensure_future(settled(client, seen.result.run_id))
            else:
                going_on = asyncio.ensure_future(go_on(client, seen, options))
            is_cut_off = False
            if seen.results and not killed:
                place = asyncio.ensure_future(comes_to(client, seen.result.run_id, seen.world, trouble))
                await asyncio.wait([going_on, place], timeout=60, return_when=asyncio.FIRST_COMPLETED)
                killed = is_cut_off = not going_on.done()
                if is_cut_off:
                    place.result()
                place.cancel()
                await asyncio.wait([place])
            if is_cut_off:
                await server.kill()
                going_on.cancel()
                await asyncio.wait([going_on])
            else:
                take(seen, await going_on)
                await look_back(client, seen, options)
        number += 1
    return seen


async def go_on(
    client: Client, seen: Seen, options: dict[str, Any], *, leave: bool = False
) -> GenerateResult:
    """Start the run, or answer the first of its calls that wait."""
    if not seen.results:
        return await client.agent("a").generate(INPUT, **options)
    # `c3` last, so that all rows may rely on it.
    call = min(seen.result.pending_calls, key=lambda call: call.tool_call_id == "c3")
    seen.answered[call.tool_call_id] = seen.world.server
    if leave and call.tool_call_id == "c3":
        return await answer_and_leave(client, call, seen)
    return await answer(client, call)


def take(seen: Seen, result: GenerateResult) -> None:
    """Note down what a server gave."""
    seen.results.append(result)
    seen.pending |= {call.tool_call_id: call for call in result.pending_calls}


async def look_back(client: Client, seen: Seen, options: dict[str, Any]) -> None:
    """What is there of a run that has ended, if it has."""
    if seen.result.finish_reason == "suspended":
        return
    run_id = seen.result.run_id
    seen.chunks = [chunk async for chunk in client.runs.watch(run_id)]
    if "memory" in options:
        seen.said = [message async for message in client.threads.messages(options["memory"].thread)]
    if "scorers" in options:
        seen.follow_ups = await client.runs.follow_ups(run_id, timeout=20)
    assert (await client.runs.get(run_id)).result == seen.result


def check(rows: Sequence[Row], seen: Seen) -> None:
    """That the run was suspended and resumed as every run of the matrix is, and that the options held."""
    assert seen.answered["c1"] == 1
    assert seen.answered["c3"] >= 2
    assert [chunk.sequence for chunk in seen.chunks] == list(range(1, len(seen.chunks) + 1))
    entered = [call_id for call_id, _ in seen.world.of("entered")]
    twice = ["t1"] if entered.count("t1") == 2 else []  # where the process was killed
    assert sorted(entered) == sorted([*set(entered), *twice])
    assert seen.outcome("c1") == "gated c1"
    if all(row.ending == "answer" for row in rows):
        assert (seen.result.finish_reason, seen.result.stop_cause) == ("stop", "model-finished")
        assert len(seen.requests()) == len(seen.course.steps)
    for row in rows:
        row.check(seen)
