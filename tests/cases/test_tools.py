"""What tools do and return, however odd, is theirs: the server and the other runs go on."""

import asyncio
import contextvars
import datetime as dt
import decimal
import enum
import json
import logging
import sqlite3
import threading
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pydantic
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from entracte.v1 import json_pb2
from entracte_server import Agent, App, ToolContext, tool
from entracte_server.testing import scripted
from tests.cases.support import (
    announced,
    app_of,
    as_json,
    chunks_of,
    payloads,
    refused,
    serving,
    told_results,
    value_of,
)


async def test_a_blocking_tool_blocks_nobody() -> None:
    """TO-01: while a synchronous tool blocks its thread, health, another stream and a cancellation are
    answered; the cancelled run ends at once and what the tool returns later is dropped."""
    blocking, release = threading.Event(), threading.Event()

    @tool
    def block(ctx: ToolContext) -> str:
        blocking.set()
        release.wait(30)
        return "late"

    model = scripted(
        lambda request: (
            [{"tool": "block", "id": "c1"}] if "block" in str(request.messages) else [{"text": "quick"}]
        )
    )
    async with serving(app_of(model, [block])) as caller:
        rpc = caller.open_stream("block")
        reader = aiter(chunks_of(rpc))
        run_id = (await anext(reader)).run_id
        try:
            assert await asyncio.to_thread(blocking.wait, 5)
            health = health_pb2_grpc.HealthStub(caller.channel)
            answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=5)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
            assert (await caller.generate("go")).result.text == "quick"
            async with asyncio.timeout(5):
                await caller.cancel(run_id)
                async for _ in reader:
                    pass
        finally:
            release.set()
        before = await caller.watch(run_id)
        await asyncio.sleep(0.05)
        assert await caller.watch(run_id) == before
        assert not payloads(before, "tool_result")
        assert await caller.state(run_id) == "CANCELLED"


async def test_blocking_tools_have_a_limit_of_their_own() -> None:
    """TO-01: more blocking tools than threads wait for a thread, and asynchronous ones do not."""
    running: Counter[str] = Counter()
    most: list[int] = []
    lock = threading.Lock()

    @tool
    def block() -> int:
        with lock:
            running["now"] += 1
            most.append(running["now"])
        time.sleep(0.02)
        with lock:
            running["now"] -= 1
        return 1

    calls = [{"tool": "block", "id": f"c{i}"} for i in range(8)]
    model = scripted([calls, [{"text": "end"}]])
    async with serving(app_of(model, [block]), sync_tool_threads=2) as caller:
        assert (await caller.generate()).result.text == "end"
    assert max(most) <= 2
    assert len(most) == 8


async def test_tools_run_at_most_once() -> None:
    """TO-03: a tool that counts and then runs out of time, or fails, is not tried again; it is handed a
    key that stays its own."""
    keys: list[str] = []

    @tool(timeout=0.1)
    async def slow(ctx: ToolContext) -> None:
        keys.append(ctx.idempotency_key)
        await asyncio.sleep(60)

    @tool
    async def fails(ctx: ToolContext) -> None:
        keys.append(ctx.idempotency_key)
        raise ConnectionError("try again")

    calls = [{"tool": "slow", "id": "c1"}, {"tool": "fails", "id": "c2"}, {"tool": "fails", "id": "c3"}]
    model = scripted([calls, [{"text": "end"}]])
    async with serving(app_of(model, [slow, fails])) as caller:
        chunks = await caller.stream()
    errors = {e.tool_call_id: e.code for e in payloads(chunks, "tool_error")}
    assert errors == {"c1": "timeout", "c2": "exception", "c3": "exception"}
    assert len(keys) == len(set(keys)) == 3
    assert all(keys)


async def test_a_database_that_hiccups_does_not_run_a_tool_again(tmp_path: Path) -> None:
    """TO-03: the database cannot be written right after a tool returned: its result is stored later, and
    the tool ran once."""
    store, count, holding = tmp_path / "db", [0], threading.Event()

    def hold() -> None:
        other = sqlite3.connect(store, isolation_level=None, timeout=10)
        try:
            other.execute("BEGIN IMMEDIATE")
            holding.set()
            time.sleep(0.4)
            other.execute("ROLLBACK")
        finally:
            other.close()

    @tool
    async def once() -> int:
        count[0] += 1
        threading.Thread(target=hold).start()
        await asyncio.to_thread(holding.wait, 5)
        return count[0]

    model = scripted([[{"tool": "once", "id": "c1"}], [{"text": "end"}]])
    async with serving(app_of(model, [once]), store=store) as caller:
        done = await caller.generate()
    assert done.result.text == "end"
    assert told_results(model.requests[1]) == [("c1", "1")]
    assert count == [1]


async def test_the_key_of_a_call_stays_the_same() -> None:
    """TO-03: over suspensions the key is the call's; another call has another."""
    keys: list[str] = []

    @tool
    async def ask(ctx: ToolContext) -> str:
        keys.append(ctx.idempotency_key)
        if not ctx.resumed:
            ctx.suspend()
        return "done"

    model = scripted([[{"tool": "ask", "id": "c1"}], [{"tool": "ask", "id": "c2"}], [{"text": "end"}]])
    async with serving(app_of(model, [ask])) as caller:
        result = (await caller.generate()).result
        for _ in range(2):
            result = (await caller.resume(result.pending_calls[0], None)).result
    assert keys[0] == keys[1] != keys[2] == keys[3]


class Level(enum.Enum):
    HIGH = "high"


@dataclass
class Point:
    x: int
    when: dt.date


class Item(pydantic.BaseModel):
    name: str
    price: decimal.Decimal


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


class Stubborn(dict[str, int]):
    """Raises when it is looked into."""

    def items(self) -> Any:
        raise KeyError("not today")


DAY = dt.date(2026, 1, 2)
CONVERTED: dict[str, tuple[Any, Any]] = {
    "nothing": (None, None),
    "date": (DAY, "2026-01-02"),
    "set": ({3, 1, 2}, [1, 2, 3]),
    "tuple": ((1, "a"), [1, "a"]),
    "enum": (Level.HIGH, "high"),
    "uuid": (uuid.UUID(int=1), str(uuid.UUID(int=1))),
    "decimal": (decimal.Decimal("1.10"), "1.10"),
    "dataclass": (Point(1, DAY), {"x": 1, "when": "2026-01-02"}),
    "model": (Item(name="tea", price=decimal.Decimal("2.50")), {"name": "tea", "price": "2.50"}),
    "big": (9007199254740993, 9007199254740993),
    "bigger": (2**64 + 1, 2**64 + 1),
    "float": (1.0, 1.0),
    "halves": ("a\ud83cb", "a�b"),
    "nul": ("a\x00b", "a\x00b"),
    "deep": (json.loads("[" * 100 + "]" * 100), json.loads("[" * 100 + "]" * 100)),
}
REFUSED: dict[str, Any] = {
    "bytes": b"abc",
    "nan": float("nan"),
    "infinity": {"a": [float("-inf")]},
    "object": object(),
    "function": len,
    "circle": CIRCLE,
    "huge": "x" * (4 * 1024 * 1024 + 1),
    "five megabytes": ["y" * 1024] * 5 * 1024,
    "too deep": json.loads("[" * 400 + "]" * 400),
    "very deep": json.loads("[" * 900 + "]" * 900),
    "one key twice": {1: "a", "1": "b"},
    "stubborn": Stubborn(a=1),
}


@tool
async def give(what: str) -> Any:
    return CONVERTED[what][0] if what in CONVERTED else REFUSED[what]


@tool
async def ask(about: str, ctx: ToolContext) -> Any:
    if not ctx.resumed:
        ctx.suspend({"about": about})
    return ctx.resume_data


def giving(what: str) -> Any:
    """A tool that returns something beside one that suspends, so that it has to be stored."""
    calls = [
        {"tool": "give", "id": "g", "args": {"what": what}},
        {"tool": "ask", "id": "a", "args": {"about": "x"}},
    ]
    return scripted([calls, [{"text": "end"}]], position="transcript")


@pytest.mark.parametrize("what", CONVERTED)
async def test_results_that_have_a_json_form(what: str, tmp_path: Path) -> None:
    """TO-04: what is not JSON by itself and has an obvious form is converted, the same in the stream,
    the store and the next request, over a restart."""
    model = giving(what)
    app, store = app_of(model, [give, ask]), tmp_path / "db"
    async with serving(app, store=store) as caller:
        chunks = await caller.stream()
        (result,) = payloads(chunks, "tool_result")
        assert value_of(result.result) == CONVERTED[what][1]
    async with serving(app, store=store) as caller:
        done = await caller.resume(announced(chunks)[0], 1)
        assert done.result.text == "end"
    told = dict(told_results(model.requests[-1]))["g"]
    assert told == result.result.text
    assert type(json.loads(told)) is type(CONVERTED[what][1])


@pytest.mark.parametrize("what", REFUSED)
async def test_results_that_are_not_json(what: str, tmp_path: Path) -> None:
    """TO-04: what has no form in JSON, or is too large or too deep, is an error the model is told; the
    run parks, is stored and goes on all the same."""
    model = giving(what)
    app, store = app_of(model, [give, ask]), tmp_path / "db"
    async with serving(app, store=store) as caller:
        chunks = await caller.stream()
        (error,) = payloads(chunks, "tool_error")
        assert error.code == "invalid-result"
        assert "give" in error.message
        assert len(error.message) < 5000
    async with serving(app, store=store) as caller:
        done = await caller.resume(announced(chunks)[0], 1)
        assert done.result.text == "end"
    assert dict(told_results(model.requests[-1]))["g"] == error.message


@pytest.mark.parametrize("where", ["payload", "state", "write"])
@pytest.mark.parametrize("what", REFUSED)
async def test_what_cannot_be_stored_is_refused_in_the_tool(what: str, where: str, tmp_path: Path) -> None:
    """TO-04: the same for what a tool suspends with, keeps or writes: it is the tool's own error, and
    never a run that parks and cannot go on."""

    @tool
    async def odd(ctx: ToolContext) -> str:
        value = REFUSED[what]
        if where == "write":
            ctx.write(value)
        elif not ctx.resumed:
            if where == "state":
                ctx.state["odd"] = value
            ctx.suspend(value if where == "payload" else None)
        return "done"

    model = scripted([[{"tool": "odd", "id": "c1"}], [{"text": "end"}]], position="transcript")
    async with serving(app_of(model, [odd]), store=tmp_path / "db") as caller:
        chunks = await caller.stream()
        assert not announced(chunks)
        assert [e.tool_call_id for e in payloads(chunks, "tool_error")] == ["c1"]
        assert not payloads(chunks, "tool_output")
        assert (await caller.get_run(chunks[0].run_id)).result.text == "end"


async def test_a_question_without_a_proper_schema_is_refused_in_the_tool() -> None:
    """TO-04: a schema for the answer that is none is the tool's error, not a call nobody can answer."""

    @tool
    async def odd(ctx: ToolContext) -> str:
        if not ctx.resumed:
            ctx.suspend("?", resume_schema={"type": "no such type"})
        return "done"

    async with serving(app_of(scripted([[{"tool": "odd", "id": "c1"}], [{"text": "end"}]]), [odd])) as caller:
        chunks = await caller.stream()
        assert not announced(chunks)
        assert "no such type" in payloads(chunks, "tool_error")[0].message


async def test_no_internals_leave_the_server(caplog: pytest.LogCaptureFixture) -> None:
    """GR-07: what an author's code raises outside a tool is INTERNAL with an id to look for in the log;
    what a tool raises is its message for the model, without a stack; both can be silenced."""
    secret = "secret path /etc/x"

    def instructions(context: Any) -> str:
        raise ValueError(secret)

    @tool
    async def fails() -> None:
        raise ValueError(secret)

    model = scripted([[{"tool": "fails", "id": "c1"}], [{"text": "end"}]], position="transcript")
    app = App(
        agents=[
            Agent(id="broken", model=model, instructions=instructions),
            Agent(id="agent", model=model, tools=[fails]),
        ]
    )
    async with serving(app) as caller:
        caller.agent = "broken"
        with refused(grpc.StatusCode.INTERNAL, "INTERNAL") as refusal:
            await caller.generate()
        assert "secret" not in refusal.text
        assert "ValueError" not in refusal.text
        assert refusal.metadata["request_id"] in refusal.text
        caller.agent = "agent"
        (error,) = payloads(await caller.stream(), "tool_error")
        assert (error.message, error.code) == (secret, "exception")
        assert "Traceback" not in error.message
    async with serving(app, tool_errors="generic") as caller:
        chunks = await caller.stream()
        assert "secret" not in str(chunks)
        assert len(payloads(chunks, "tool_error")) == 1
        result = (await caller.get_run(chunks[0].run_id)).result
        assert "secret" not in str(result)
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR and r.name.startswith("asyncio")]


NUL = "a\x00b"


async def test_a_nul_character_is_a_character() -> None:
    """PS-06: NUL in a message, in arguments, a result, an answer and a reason is kept as it is; only ids
    may not have it. (One treatment on both databases: with the second.)"""
    got: list[Any] = []

    @tool
    async def echo(text: str, ctx: ToolContext) -> str:
        got.append(text)
        if not ctx.resumed:
            ctx.suspend(text)
        got.append(ctx.resume_data)
        return text

    calls = [{"tool": "echo", "id": f"c{i}", "args": {"text": NUL}} for i in (1, 2)]
    model = scripted([[{"text": NUL}, *calls], [{"text": NUL}]])
    async with serving(app_of(model, [echo])) as caller:
        started = await caller.generate(NUL)
        one, two = started.result.pending_calls
        assert value_of(one.suspend_payload) == value_of(one.args)["text"] == NUL
        await caller.resume(one, NUL)
        done = await caller.decline(two, NUL, reason_json=as_json(NUL), comment=NUL)
        assert got == [NUL, NUL, NUL, NUL]
        assert done.result.text == NUL + NUL
        assert done.decision.reason == done.decision.comment == NUL
        told = dict(told_results(model.requests[1]))
        assert json.loads(told["c1"]) == NUL
        assert json.loads(told["c2"]) == {"status": "declined", "reason": NUL, "data": NUL}
        assert model.requests[0].messages[-1].parts[0].text == NUL  # type: ignore[union-attr]
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_INVALID"):
            await caller.generate(request_id=NUL)
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_INVALID"):
            await caller.get_run(NUL)


EXACT = '{"i":9007199254740993,"u":18446744073709551615,"n":-9223372036854775809,"one":1,"f":1.0,"z":0}'


async def test_numbers_stay_what_they_are() -> None:
    """PS-07: integers of any size and the difference of 1 and 1.0 survive in arguments, payload, answer,
    result, request context and history; keys keep their order."""
    seen: list[str] = []

    async def run(args: Any, ctx: ToolContext) -> Any:
        seen.append(json.dumps(args, separators=(",", ":")))
        seen.append(json.dumps(dict(ctx.request_context), separators=(",", ":")))
        if not ctx.resumed:
            ctx.suspend(args)
        seen.append(json.dumps(ctx.resume_data, separators=(",", ":")))
        return args

    from entracte_server import Tool

    probe = Tool(name="probe", execute=run, input_schema={"type": "object"})
    model = scripted([[{"tool": "probe", "id": "c1", "rawArgs": EXACT}], [{"text": "end"}]])
    exact = json_pb2.Json(text=EXACT)
    async with serving(app_of(model, [probe])) as caller:
        waiting = (await caller.generate(request_context=exact)).result.pending_calls[0]
        assert waiting.suspend_payload.text == waiting.args.text == EXACT
        done = await caller.resume(waiting, exact)
        assert set(seen) == {EXACT}
        assert len(seen) == 5
        assert done.result.tool_results[0].tool_result.result.text == EXACT
        assert told_results(model.requests[1]) == [("c1", EXACT)]
        assert done.decision.data.text == EXACT
        assert (await caller.get_run(waiting.run_id)).run.request_context.text == EXACT


async def test_typed_numbers_stay_what_they_are() -> None:
    """PS-07: the same through a signature, where arguments are validated and shown again."""
    seen: list[Any] = []

    @tool(requires_approval=True)
    async def probe(i: int, f: float, anything: Any, d: decimal.Decimal) -> list[Any]:
        seen.extend([i, f, anything, str(d)])
        return [i, f, anything]

    big = 9007199254740993
    args = f'{{"i":{2**64 + 1},"f":1.0,"anything":{{"n":{big}}},"d":"0.10000000000000000001"}}'
    model = scripted([[{"tool": "probe", "id": "c1", "rawArgs": args}], [{"text": "end"}]])
    async with serving(app_of(model, [probe])) as caller:
        waiting = (await caller.generate()).result.pending_calls[0]
        assert json.loads(waiting.args.text) == json.loads(args)
        await caller.approve(waiting)
        assert seen == [2**64 + 1, 1.0, {"n": big}, "0.10000000000000000001"]
        assert json.loads(told_results(model.requests[1])[0][1]) == [2**64 + 1, 1.0, {"n": big}]


_word: contextvars.ContextVar[str] = contextvars.ContextVar("word", default="none")


async def test_runs_do_not_share_their_context() -> None:
    """ME-04: a hundred runs at once with options and context of their own: each tool, synchronous or
    not, sees its own."""

    @tool
    async def mine(ctx: ToolContext) -> Any:
        before = _word.get()
        _word.set(ctx.request_context["word"])
        await asyncio.sleep(0)
        return [before, _word.get(), ctx.request_context["word"], ctx.run_id]

    @tool
    def threaded(ctx: ToolContext) -> Any:
        before = _word.get()
        _word.set(ctx.request_context["word"])
        return [before, _word.get(), ctx.request_context["word"], ctx.run_id]

    def instructions(context: Any) -> str:
        return f"You are {context['word']}."

    calls = [{"tool": "mine", "id": "c1"}, {"tool": "threaded", "id": "c2"}]
    model = scripted(
        lambda request: calls if len(request.messages) < 3 else [{"text": str(request.settings.temperature)}]
    )
    async with serving(app_of(model, [mine, threaded], instructions=instructions)) as caller:

        async def one(i: int) -> None:
            from entracte.v1 import options_pb2

            done = await caller.generate(
                run_id=f"run-{i}",
                request_context=as_json({"word": f"w{i}"}),
                model_settings=options_pb2.ModelSettings(temperature=i / 64),
            )
            for result in done.result.tool_results:
                told = value_of(result.tool_result.result)
                assert told == ["none", f"w{i}", f"w{i}", f"run-{i}"]
            assert len(done.result.tool_results) == 2
            assert done.result.text == str(i / 64)

        await asyncio.gather(*(one(i) for i in range(100)))
    systems = {m.parts[0].text for r in model.requests for m in r.messages if m.role == "system"}  # type: ignore[union-attr]
    assert systems == {f"You are w{i}." for i in range(100)}


@pytest.fixture(autouse=True)
async def _threads_end() -> AsyncIterator[None]:
    yield
    for thread in threading.enumerate():
        if thread.name == "entracte-tool":
            await asyncio.to_thread(thread.join, 5)
