"""Faults of the server, its database and its tools: callers are told what they can act on and nothing
else.
"""

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pydantic
import pytest

from entracte.v1 import agent_service_pb2 as agents
from entracte.v1 import catalog_service_pb2 as catalog
from entracte.v1 import inbox_service_pb2 as inbox
from entracte.v1 import run_pb2
from entracte.v1 import run_service_pb2 as runs
from entracte.v1 import thread_service_pb2 as threads
from entracte.v1 import working_memory_pb2 as notes
from entracte_server import Agent, ToolContext, tool
from entracte_server.store.base import LeaseLost, Refused
from entracte_server.store.sqlite import connection
from entracte_server.testing import scripted
from tests.rpc.support import (
    METHODS,
    Peer,
    definition,
    generate,
    js,
    kinds,
    once,
    ref,
    rest_of,
    saying,
    serving,
    stream,
    until,
)

Logs = list[MutableMapping[str, Any]]

SECRET = "the password is swordfish, in /etc/secret.key"


def failures(logs: Logs) -> list[MutableMapping[str, Any]]:
    """What was logged of RPCs that failed unforeseen."""
    return [entry for entry in logs if entry["event"] == "rpc_failed"]


# ---- code that fails ----


async def test_what_an_authors_code_raises_stays_in_the_log(logs: Logs) -> None:
    """Instructions that raise: INTERNAL with a request id and no word more. The log has the text
    under this id; nothing was started, and the server serves on."""

    def instructions(context: Any) -> str:
        raise ValueError(SECRET)

    broken = Agent(id="broken", model=saying({"text": "x"}), instructions=instructions)
    async with serving(broken) as (_, peer):
        for method, request in (
            ("Generate", generate("broken", run_id="g")),
            ("Stream", stream("broken", run_id="s")),
        ):
            peer.metadata = (("x-request-id", f"id-of-{method}"),)
            refusal = await peer.refuse(method, request)
            assert (refusal.code, refusal.reason) == ("INTERNAL", "INTERNAL")
            assert refusal.metadata == {"request_id": f"id-of-{method}"}
            assert f"id-of-{method}" in refusal.text
            assert "swordfish" not in refusal.shown
            missing = runs.GetRunRequest(run_id=request.options.run_id)
            assert (await peer.refuse("GetRun", missing)).reason == "RUN_NOT_FOUND"
        logged = failures(logs)
        assert [entry["request_id"] for entry in logged] == ["id-of-Generate", "id-of-Stream"]
        assert all(entry["exc_info"] for entry in logged)
        assert (await peer.one("Generate", generate())).result.text == "good day"


def _some(method: str) -> Any:
    call = ref("01JZZZZZZZZZZZZZZZZZZZZZZZ")
    requests: dict[str, Any] = {
        "Generate": generate(),
        "Stream": stream(),
        "Resume": agents.ResumeRequest(call=call, resume_data=js("1")),
        "Approve": agents.ApproveRequest(call=call),
        "Decline": agents.DeclineRequest(call=call),
        "SubmitToolResult": agents.SubmitToolResultRequest(call=call, result=js("1")),
        "GetRun": runs.GetRunRequest(run_id="r"),
        "ListRuns": runs.ListRunsRequest(),
        "WatchRun": runs.WatchRunRequest(run_id="r"),
        "CancelRun": runs.CancelRunRequest(run_id="r"),
        "DeleteRun": runs.DeleteRunRequest(run_id="r"),
        "ListPendingCalls": inbox.ListPendingCallsRequest(),
        "GetPendingCall": inbox.GetPendingCallRequest(pending_call_id="p"),
        "WatchPendingCalls": inbox.WatchPendingCallsRequest(),
        "ClaimPendingCall": inbox.ClaimPendingCallRequest(pending_call_id="p"),
        "ReleasePendingCall": inbox.ReleasePendingCallRequest(pending_call_id="p"),
        "ListDecisions": inbox.ListDecisionsRequest(),
        "CreateThread": threads.CreateThreadRequest(resource_id="ada"),
        "GetThread": threads.GetThreadRequest(thread_id="t"),
        "ListThreads": threads.ListThreadsRequest(),
        "UpdateThread": threads.UpdateThreadRequest(thread_id="t", title="x"),
        "DeleteThread": threads.DeleteThreadRequest(thread_id="t"),
        "ListThreadMessages": threads.ListThreadMessagesRequest(thread_id="t"),
        "GetWorkingMemory": notes.GetWorkingMemoryRequest(thread_id="t"),
        "ListAgents": catalog.ListAgentsRequest(),
        "GetAgent": catalog.GetAgentRequest(agent_id="a"),
        "CreateAgentVersion": catalog.CreateAgentVersionRequest(agent_id="made", definition=definition()),
        "PublishAgentVersion": catalog.PublishAgentVersionRequest(agent_id="a", version_id="v"),
        "ArchiveAgentVersion": catalog.ArchiveAgentVersionRequest(agent_id="a", version_id="v"),
        "ListAgentVersions": catalog.ListAgentVersionsRequest(agent_id="a"),
        "UpdateWorkingMemory": notes.UpdateWorkingMemoryRequest(resource_id="ada"),
    }
    return requests[method]


class Broken:
    """A store every method of which fails with something nobody foresaw."""

    def __getattr__(self, name: str) -> Any:
        async def fail(*_: Any, **__: Any) -> Any:
            raise RuntimeError(SECRET)

        return fail


@pytest.mark.parametrize("method", METHODS)
async def test_no_rpc_tells_what_went_wrong_inside(method: str, logs: Logs) -> None:
    """Whatever is raised below any RPC: INTERNAL, its request id, and the log."""
    async with serving() as (server, peer):
        store = server.engine.store
        server.engine.store = Broken()
        try:
            refusal = await peer.refuse(method, _some(method))
        finally:
            server.engine.store = store
    assert (refusal.code, refusal.reason) == ("INTERNAL", "INTERNAL")
    assert "swordfish" not in refusal.shown
    (logged,) = failures(logs)
    assert logged["request_id"] == refusal.metadata["request_id"]


async def test_a_refusal_of_the_store_that_nobody_expected_is_a_fault(
    monkeypatch: pytest.MonkeyPatch, logs: Logs
) -> None:
    """It has a request id, and the log says what it was."""

    async def refuse(*_: Any, **__: Any) -> Any:
        raise Refused("claimed")

    async with serving() as (server, peer):
        monkeypatch.setattr(server.engine.store, "load", refuse)
        refusal = await peer.refuse("GetRun", runs.GetRunRequest(run_id="r"))
    assert (refusal.code, refusal.reason) == ("INTERNAL", "INTERNAL")
    (logged,) = failures(logs)
    assert logged["request_id"] == refusal.metadata["request_id"]


async def test_a_run_that_another_process_took_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """ABORTED, RUN_LEASE_LOST with RetryInfo."""

    async def lost(*_: Any, **__: Any) -> Any:
        raise LeaseLost("somebody else")

    async with serving() as (server, peer):
        run_id, _ = await peer.parked()
        monkeypatch.setattr(server.engine.store, "cancel", lost)
        refusal = await peer.refuse("CancelRun", runs.CancelRunRequest(run_id=run_id))
        assert (refusal.code, refusal.reason) == ("ABORTED", "RUN_LEASE_LOST")
        assert refusal.retry_after


async def test_what_a_tool_raises_is_told_to_the_model_and_is_no_status() -> None:
    """The message of a tool's exception goes to the model and into the stream, its stack nowhere; the
    RPC is OK."""

    @tool
    async def fails() -> str:
        """Fails."""
        raise ValueError("no such customer")

    agent = Agent(id="fails", model=once({"tool": "fails", "id": "c"}), tools=[fails])
    async with serving(agent) as (_, peer):
        response = await peer.one("Generate", generate("fails"))
        assert response.run.state == run_pb2.RUN_STATE_SUCCEEDED
        chunks = await peer.chunks(response.run.run_id)
        (error,) = [chunk.tool_error for chunk in chunks if chunk.HasField("tool_error")]
        assert (error.message, error.code) == ("no such customer", "exception")
        assert "Traceback" not in str(chunks)


async def test_what_a_tool_raises_can_be_kept_from_everybody(logs: Logs) -> None:
    """With `tool_errors = "generic"` neither the stream nor the result nor the model has the message,
    on no path: as it is raised, after an approval, after a suspension."""

    @tool(requires_approval=True)
    async def fails() -> str:
        """Fails."""
        raise ValueError(SECRET)

    agent = Agent(id="fails", model=once({"tool": "fails", "id": "c"}), tools=[fails])
    async with serving(agent, tool_errors="generic") as (_, peer):
        run_id, (pending,) = await peer.parked("fails")
        response = await peer.approved(pending)
        assert response.run.state == run_pb2.RUN_STATE_SUCCEEDED
        shown = f"{response} {await peer.chunks(run_id)}"
        assert "swordfish" not in shown
        assert "ValueError" not in shown


async def test_what_the_answers_model_raises_is_a_violation_without_its_inside() -> None:
    """A resume schema as a pydantic model: what does not fit is named by field, without pydantic's
    own words about itself, and the call waits on."""

    class Answer(pydantic.BaseModel):
        count: int

        @pydantic.field_validator("count")
        @classmethod
        def small(cls, value: int) -> int:
            if value > 10:
                raise ValueError("at most ten")
            return value

    @tool(resume_schema=Answer)
    async def ask(ctx: ToolContext[Any]) -> Any:
        """Asks."""
        if not ctx.resumed:
            ctx.suspend({})
        return ctx.resume_data.count

    agent = Agent(id="counts", model=once({"tool": "ask", "id": "c"}), tools=[ask])
    async with serving(agent) as (_, peer):
        _, (pending,) = await peer.parked("counts")
        for text, field in (
            ('{"count":"many"}', "resume_data/count"),
            ('{"count":11}', "resume_data/count"),
            ("{}", "resume_data"),
            ("7", "resume_data"),
        ):
            request = agents.ResumeRequest(call=ref(pending.pending_call_id), resume_data=js(text))
            refusal = await peer.refuse("Resume", request)
            assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "RESUME_DATA_INVALID")
            assert next(iter(refusal.violations)) == field, text
        request = agents.ResumeRequest(
            call=ref(pending.pending_call_id), resume_data=js('{"count":3}'), wait=True
        )
        assert (await peer.one("Resume", request)).run.state == run_pb2.RUN_STATE_SUCCEEDED


# ---- a database that does not answer ----


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program holds the database's write lock."""
    other = sqlite3.connect(path, isolation_level=None)
    try:
        other.execute("BEGIN EXCLUSIVE")
        yield
    finally:
        other.rollback()
        other.close()


@asynccontextmanager
async def lockable(
    path: Path, monkeypatch: pytest.MonkeyPatch, *more: Agent
) -> AsyncIterator[tuple[Any, Peer]]:
    """A server that does not wait long for its database."""
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_SECONDS", 0.1)
    async with serving(*more, store=path) as served:
        yield served


async def test_a_database_that_does_not_answer_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """UNAVAILABLE, STORE_UNAVAILABLE with RetryInfo from every RPC that writes; nothing was changed,
    and the same request is served once the database answers again."""
    path = tmp_path / "entracte.db"
    async with lockable(path, monkeypatch) as (_, peer):
        _, (one,) = await peer.parked()
        run_id, (other,) = await peer.parked()
        ended = (await peer.one("Generate", generate())).run.run_id
        changes: dict[str, Any] = {
            "Generate": generate(request_id="q"),
            "Stream": stream(request_id="q"),
            "ClaimPendingCall": inbox.ClaimPendingCallRequest(
                pending_call_id=one.pending_call_id, request_id="q"
            ),
            "ReleasePendingCall": inbox.ReleasePendingCallRequest(
                pending_call_id=one.pending_call_id, request_id="q"
            ),
            "Approve": agents.ApproveRequest(call=ref(one.pending_call_id), request_id="q"),
            "Decline": agents.DeclineRequest(call=ref(other.pending_call_id), request_id="q"),
            "CancelRun": runs.CancelRunRequest(run_id=run_id, request_id="q"),
            "DeleteRun": runs.DeleteRunRequest(run_id=ended, request_id="q"),
        }
        with locked(path):
            for method, request in changes.items():
                refusal = await peer.refuse(method, request)
                assert (refusal.code, refusal.reason) == ("UNAVAILABLE", "STORE_UNAVAILABLE"), method
                assert refusal.retry_after
            assert (await peer.run(run_id)).state == run_pb2.RUN_STATE_SUSPENDED
        assert len((await peer.one("ListRuns", runs.ListRunsRequest())).runs) == 3
        assert not (await peer.one("ListDecisions", inbox.ListDecisionsRequest())).decisions
        for method, request in changes.items():
            for response in await peer.call(method, request):
                assert not getattr(response, "replayed", False), method


async def test_a_run_waits_for_its_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that does not answer for a while holds a run up and loses nothing of it: what was not
    stored was not shown, and it goes on by itself."""
    gate = asyncio.Event()

    @tool
    async def work() -> str:
        """Works until it is let go."""
        await gate.wait()
        return "worked"

    agent = Agent(id="works", model=once({"tool": "work", "id": "c"}), tools=[work])
    path = tmp_path / "entracte.db"
    async with lockable(path, monkeypatch, agent) as (_, peer):
        call = peer.open("Stream", stream("works", run_id="r"))
        seen: list[Any] = []
        while not any(chunk.HasField("tool_call") for chunk in seen):
            seen.extend((await call.read()).chunks)
        with locked(path):
            gate.set()
            await asyncio.sleep(0.3)
            assert (await peer.run("r")).last_sequence == seen[-1].sequence
        seen += [chunk for response in await rest_of(call) for chunk in response.chunks]
        assert kinds(seen)[-1] == "finish"
        assert [chunk.sequence for chunk in seen] == list(range(1, len(seen) + 1))
        assert (await peer.run("r")).state == run_pb2.RUN_STATE_SUCCEEDED


class Worse(BaseException):
    """What handlers of exceptions do not catch."""


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, Worse])
async def test_what_is_no_exception_does_not_end_the_server(kind: type[BaseException]) -> None:
    """Code of an author that raises what is not an Exception: a policy that fails means "ask", a model
    that fails ends its run, an answer that cannot be checked is not taken, and the server lives."""

    def policy(arguments: Any) -> bool:
        raise kind(SECRET)

    @tool(requires_approval=policy)
    async def work() -> str:
        """Works."""
        return "worked"

    def answer(request: Any) -> Any:
        raise kind(SECRET)

    class Answer(pydantic.BaseModel):
        ok: bool

        @pydantic.field_validator("ok")
        @classmethod
        def fails(cls, value: bool) -> bool:
            raise kind(SECRET)

    @tool(resume_schema=Answer)
    async def ask(ctx: ToolContext[Any]) -> Any:
        """Asks."""
        if not ctx.resumed:
            ctx.suspend({})
        return "asked"

    questions = Agent(id="questions", model=once({"tool": "ask", "id": "c"}), tools=[ask])
    broken = Agent(id="broken", model=scripted(answer))
    asks = Agent(id="careful", model=once({"tool": "work", "id": "c"}), tools=[work])
    async with serving(broken, asks, questions) as (server, peer):
        _, (pending,) = await peer.parked("careful")
        assert (await peer.approved(pending)).run.state == run_pb2.RUN_STATE_SUCCEEDED
        response = await peer.one("Generate", generate("broken"), timeout=10)
        assert response.run.state == run_pb2.RUN_STATE_FAILED
        assert response.result.error.kind == "internal"
        run_id, (asked,) = await peer.parked("questions")
        answer_it = agents.ResumeRequest(call=ref(asked.pending_call_id), resume_data=js('{"ok":true}'))
        assert (await peer.refuse("Resume", answer_it)).reason == "INTERNAL"
        assert (await peer.run(run_id)).state == run_pb2.RUN_STATE_SUSPENDED
        assert "swordfish" not in str(response)
        assert server.engine.active_runs == 0


LOGS_AN_ERROR = """
import structlog
from entracte_server.app.logs import configure

def work(prompt):
    raise RuntimeError("it broke")

writer = configure("error", "{form}")
try:
    work("the prompt of " + "somebody")
except RuntimeError:
    structlog.get_logger().exception("failed")
writer.flush(10)
"""


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_logged_error_has_no_values_of_variables(form: str) -> None:
    """The log says where it broke. What was in the variables there, prompts and keys, it does not."""
    code = LOGS_AN_ERROR.replace("{form}", form)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "it broke" in ran.stderr
    assert "work" in ran.stderr
    assert "the prompt of somebody" not in ran.stderr


async def test_the_server_lives_through_many_faults() -> None:
    """A hundred RPCs that fail at once leave nothing open and nothing broken."""

    def instructions(context: Any) -> str:
        raise ValueError(SECRET)

    broken = Agent(id="broken", model=saying({"text": "x"}), instructions=instructions)
    async with serving(broken, streams_per_principal=150) as (server, peer):
        for _ in range(2):
            await asyncio.gather(*(peer.refuse("Stream", stream("broken")) for _ in range(100)))
        await until(lambda: server.engine.active_runs == 0, "nothing is left running")
        assert (await peer.one("Generate", generate())).result.text == "good day"
