"""What a call of a worker's tool comes to, as the caller and the worker see it."""

import asyncio
from typing import Any

import pytest

from entracte import CustomChunk, NotFound, ResumeDataInvalid, WorkContext, WorkerToolUnknown, worker_tool
from entracte_server import Agent, App, Toolset, remote_tool, tool
from entracte_server.testing import scripted
from tests.workers.support import app, calls, echo, pulling, reason_of, refusal_of, serving, working


async def test_a_result_an_error_and_what_a_tool_writes(store: str) -> None:
    """Asynchronous and synchronous tools; big integers and `null` as they are; what a tool writes comes
    before what it returns, in order."""

    @worker_tool("w/echo")
    async def plain(n: int) -> int:
        """Gives it back."""
        return n

    @worker_tool("w/fails")
    def failing(ctx: WorkContext) -> None:
        """Fails."""
        assert not ctx.cancelled
        raise ValueError("no such order")

    @worker_tool("w/writes", concurrency=1)
    def writing(n: int, ctx: WorkContext) -> None:
        """Writes."""
        for number in range(n):
            ctx.write({"at": number})
        ctx.write("done", name="progress", id="p")
        ctx.extend(60)

    script = [
        [
            {"tool": "w__echo", "args": {"n": 2**70}},
            {"tool": "w__fails", "args": {}},
            {"tool": "w__writes", "args": {"n": 300}},
        ],
        [{"text": "end"}],
    ]
    names = ("w/echo", "w/fails", "w/writes")
    async with serving(app(script, *names), store) as (_, client), working(client, plain, failing, writing):
        chunks = [c async for c in client.agent("a").stream("go", run_id="r")]
        outcomes: dict[str, Any] = {c.tool_name: c for c in chunks if c.type in ("tool-result", "tool-error")}
        assert outcomes["w__echo"].result == 2**70
        assert outcomes["w__fails"].message == "no such order"
        assert outcomes["w__writes"].result is None
        written = [c.output["at"] for c in chunks if c.type == "tool-output"]
        assert written == list(range(300))
        kinds = [c.type for c in chunks if getattr(c, "tool_name", "") == "w__writes"]
        assert kinds[-1] == "tool-result"
        assert [(c.name, c.data) for c in chunks if isinstance(c, CustomChunk)] == [("progress", "done")]
        assert [c.sequence for c in chunks] == list(range(1, len(chunks) + 1))


async def test_it_asks_and_is_approved(store: str) -> None:
    """A tool's own approval is asked for, with edited arguments; it suspends, keeps its state and is executed
    again with the answer and the same idempotency key, by a worker that never saw it."""
    seen: list[Any] = []

    @worker_tool(
        "w/ask",
        requires_approval=True,
        resume_schema={"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]},
    )
    async def asking(n: int, ctx: WorkContext) -> Any:
        """Asks."""
        seen.append((n, ctx.resumed, ctx.state.get("times"), ctx.idempotency_key))
        if not ctx.resumed:
            ctx.state["times"] = 1
            ctx.suspend({"really": n})
        return {"ok": ctx.resume_data["ok"], "asked": ctx.suspend_payload}

    async with serving(app(calls("w__ask", {"n": 1}), "w/ask"), store) as (_, client):
        agent = client.agent("a")
        async with working(client, asking):
            result = await agent.generate("go")
            assert [c.kind for c in result.pending_calls] == ["approval"]
            result = await agent.approve(result.pending_calls[0], edited_args={"n": 2})
            [call] = result.pending_calls
            assert (call.kind, call.suspend_payload) == ("suspension", {"really": 2})
        with pytest.raises(ResumeDataInvalid):
            await agent.resume(call, {"ok": "yes"})
        async with working(client, asking):
            result = await agent.resume(call, {"ok": False})
        assert result.text == "end"
        assert result.tool_results[0].result == {"ok": False, "asked": {"really": 2}}
        assert [it[:3] for it in seen] == [(2, False, None), (2, True, 1)]
        assert seen[0][3] == seen[1][3] != ""


async def test_no_worker(store: str) -> None:
    """A tool that was never registered: the run is refused. One without a worker: the call fails, after a
    while, and the model goes on."""
    it = app(calls("w__echo", {"n": 1}))
    async with serving(it, store, tool_worker_grace=1, tool_worker_wait=0.2) as (_, client):
        with pytest.raises(WorkerToolUnknown, match="w/echo"):
            await client.agent("a").generate("go", run_id="r")
        with pytest.raises(NotFound):
            await client.runs.get("r")
        async with pulling(client, credit=0):
            pass
        chunks = [c async for c in client.agent("a").stream("go", timeout=60)]
    [failed] = [c for c in chunks if c.type == "tool-error"]
    assert failed.code == "unavailable"


async def test_what_is_registered(store: str) -> None:
    """A definition never changes under its version; a toolset of the server's is not shadowed; runs keep the
    version they start with, and have the one that was registered last."""

    @tool
    def one() -> None:
        """Nothing."""

    model = scripted(calls("w__echo", {"n": 1}), position="transcript")
    it = App(
        agents=[Agent(id="a", model=model, tools=[remote_tool("w/echo")])],
        toolsets=[Toolset("own", tools=[one])],
    )
    async with serving(it, store) as (_, client), pulling(client, echo()) as puller:
        for changed in (
            echo(description="another"),
            echo(requires_approval=True),
            echo(idempotent=True),
        ):
            assert await refusal_of(client, changed) == "WORKER_TOOL_EXISTS"
        taken = echo()
        taken.name = "own/one"
        assert await refusal_of(client, taken) == "WORKER_TOOL_EXISTS"
        newer = echo(description="newer")
        newer.version = "2"
        run = asyncio.create_task(client.agent("a").generate("go"))
        item = await puller.item()
        async with pulling(client, newer, session="newer") as other:
            assert item.tool.version == "1"
            await puller.complete(item)
            assert (await run).text == "end"
            run = asyncio.create_task(client.agent("a").generate("go"))
            item = await other.item()
            assert item.tool.version == "2"
            await other.complete(item)
            await run
    with pytest.raises(ValueError, match="own"):
        App(
            agents=[Agent(id="a", model=model, tools=[remote_tool("own/x")])],
            toolsets=[Toolset("own", tools=[one])],
        )
    with pytest.raises(ValueError, match="toolset/name"):
        remote_tool("plain")


async def test_tokens_fence(store: str) -> None:
    """The same answer again is a repetition, also once the run has it; another is refused; so are strangers,
    and a token from before the work was given out anew."""
    it = app(calls("w__echo", {"n": 1}))
    async with serving(it, store) as (_, client), pulling(client, echo(idempotent=True)) as puller:
        run = asyncio.create_task(client.agent("a").generate("go"))
        first = await puller.item()
        assert first.delivery == 1
        assert await puller.abandon(first) is False
        item = await puller.item()
        assert (item.work_id, item.delivery) == (first.work_id, 2)
        assert item.token != first.token
        assert await reason_of(puller.complete(first)) == "WORK_REASSIGNED"
        stranger = type(item)()
        stranger.CopyFrom(item)
        stranger.work_id += "x"
        assert await reason_of(puller.complete(stranger)) == "WORK_NOT_FOUND"
        assert await puller.complete(item) is False
        assert await puller.complete(item) is True
        assert (await run).tool_results[0].result == {"n": 1}
        assert await puller.complete(item) is True
        assert await reason_of(puller.complete(item, error="no")) == "WORK_COMPLETED"
        assert await reason_of(puller.extend(item)) == "WORK_COMPLETED"


async def test_cancelling_reaches_the_worker(store: str) -> None:
    """So does the end of a call's time; a late answer is refused."""
    timed = echo()
    timed.name = "w/timed"
    timed.timeout.seconds = 1
    script = [[{"tool": "w__timed", "args": {}}, {"tool": "w__echo", "args": {}}], [{"text": "end"}]]
    it = app(script, "w/echo", "w/timed")
    async with serving(it, store) as (_, client), pulling(client, echo(), timed) as puller:
        run = asyncio.create_task(client.agent("a").generate("go", run_id="r"))
        items = {item.tool.name: item for item in (await puller.item(), await puller.item())}
        event = await puller.event()
        assert event.cancelled.work_id == items["w/timed"].work_id
        await client.runs.cancel("r")
        event = await puller.event()
        assert event.cancelled.work_id == items["w/echo"].work_id
        assert event.cancelled.token == items["w/echo"].token
        await run
        chunks = [c async for c in client.runs.watch("r")]
        codes = {c.tool_name: c.code for c in chunks if c.type == "tool-error"}
        assert codes["w__timed"] == "timeout"
        for item in items.values():
            assert await reason_of(puller.complete(item)) == "WORK_CANCELLED"
