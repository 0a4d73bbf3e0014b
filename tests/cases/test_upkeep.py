"""Cases about what nobody answers and what nobody needs any more."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from entracte.v1 import options_pb2
from entracte_server import ask_user, tool
from entracte_server.engine import decisions, keeper, upkeep
from entracte_server.engine.runlog import now_ms
from entracte_server.testing import scripted
from tests.cases.support import (
    announced,
    app_of,
    kind_of,
    payloads,
    refused,
    serving,
    told_results,
    until,
)

DAY_MS = 86_400_000

GATED = {"tool": "gated", "id": "g"}


@tool(requires_approval=True)
async def gated() -> str:
    """Is approved, or not."""
    return "ran"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers look around twenty times a second rather than once."""
    monkeypatch.setattr(keeper, "ROUND", 0.05)
    monkeypatch.setattr(upkeep, "ASK_SECONDS", 0.1)


def play(request: Any) -> list[dict[str, Any]]:
    """Calls the tool, then says what became of it."""
    told = told_results(request)
    return [{"text": told[-1][1]}] if told else [GATED]


async def test_a_pause_nobody_answers_is_settled_and_the_run_goes_on(quick: None) -> None:
    """AP-15: with an expiry a call is settled as declined, the model and the stream are told that it
    expired, and an approval that comes late is refused, before and after the server has settled it."""
    after = options_pb2.PendingCallExpiry(after=Duration(nanos=400_000_000))
    model = scripted(play)
    async with serving(app_of(model, [gated])) as caller:
        started = await caller.generate(pending_call_expiry=after)
        [waiting] = started.result.pending_calls
        assert waiting.expire_time.ToMilliseconds() == waiting.create_time.ToMilliseconds() + 400
        await until(lambda: caller.has_state(started.run.run_id, "SUCCEEDED"))
        chunks = await caller.watch(started.run.run_id)
        [shown] = announced(chunks)
        assert shown.expire_time == waiting.expire_time
        [resolved] = payloads(chunks, "tool_call_resolved")
        assert resolved.principal == "system"
        [denied] = payloads(chunks, "tool_output_denied")
        assert denied.reason_json.text == '{"expired":true}'
        assert kind_of(chunks[-1]) == "finish"
        [(_, text)] = told_results(model.requests[-1])
        assert "Nobody approved the call in time" in text
        with refused(grpc.StatusCode.FAILED_PRECONDITION, "PENDING_CALL_ALREADY_DECIDED") as refusal:
            await caller.approve(waiting)
        assert refusal.metadata["principal"] == "system"


async def test_a_late_approval_is_refused_though_nobody_has_settled_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """AP-15: the statement that would decide the call refuses it; the tool is not entered."""
    monkeypatch.setattr(keeper, "ROUND", 3600.0)
    after = options_pb2.PendingCallExpiry(after=Duration(nanos=100_000_000))
    async with serving(app_of(scripted(play), [gated])) as caller:
        started = await caller.generate(pending_call_expiry=after)
        await asyncio.sleep(0.15)
        with refused(grpc.StatusCode.FAILED_PRECONDITION, "PENDING_CALL_EXPIRED"):
            await caller.approve(started.result.pending_calls[0])
        assert await caller.state(started.run.run_id) == "SUSPENDED"
        assert not await caller.decisions(started.run.run_id)


async def test_a_pause_without_an_expiry_waits_for_ever(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """AP-15: there is no expiry unless somebody asks for one: a week later, by every clock there is, the
    call is open and can be approved."""
    model = scripted(play)
    async with serving(app_of(model, [gated, ask_user])) as caller:
        started = await caller.generate()
        [waiting] = started.result.pending_calls
        assert not waiting.HasField("expire_time")
        for module in (decisions, upkeep):
            monkeypatch.setattr(module, "now_ms", lambda: now_ms() + 8 * DAY_MS)
        await asyncio.sleep(0.3)
        assert await caller.pending() == [waiting]
        approved = await caller.approve(waiting)
        assert approved.result.text == '"ran"'


async def test_ended_runs_go_by_their_age(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PS-04: with a retention setting nothing of a thousand ended runs is left, in no state and no list,
    and the runs that wait are as they were."""
    monkeypatch.setattr(upkeep, "TRIM_PAUSE", 0.1)
    model = scripted(lambda request: [GATED] if "wait" in str(request.messages[0]) else [{"text": "end"}])
    async with serving(app_of(model, [gated]), store=tmp_path / "db", retain_runs=0.3) as caller:
        waiting = [await caller.generate("wait") for _ in range(3)]
        for _ in range(10):
            await asyncio.gather(*(caller.generate("end") for _ in range(100)))

        async def only_those_that_wait() -> bool:
            listed = await caller.list_runs(page_size=1000)
            return {run.run_id for run in listed.runs} == {run.run.run_id for run in waiting}

        await until(only_those_that_wait, 20)
        assert len((await caller.list_runs(states=[3])).runs) == 3
        assert len(await caller.pending()) == 3
