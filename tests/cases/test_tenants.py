"""What belongs to one tenant does not exist for another."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from entracte.v1 import inbox_service_pb2, pending_call_pb2
from entracte_server import tool
from entracte_server.testing import scripted
from tests.cases.support import Caller, app_of, read_refusal, refused, served, until

NOT_FOUND = grpc.StatusCode.NOT_FOUND

KEYS: list[dict[str, Any]] = [
    {"key": "key-of-a-1", "principal": "ann", "tenant": "a"},
    {"key": "key-of-a-2", "principal": "abe", "tenant": "a"},
    {"key": "key-of-b-1", "principal": "ben", "tenant": "b"},
    {"key": "key-of-a-reader", "principal": "aud", "tenant": "a", "roles": []},
]

entered: list[int] = []


@tool(requires_approval=True)
async def gated(v: int) -> int:
    entered.append(v)
    return v


def model() -> Any:
    call = {"tool": "gated", "id": "c1", "args": {"v": 1}}
    return scripted([[call], [{"text": "end"}]], position="transcript")


@pytest.fixture
async def callers() -> AsyncIterator[dict[str, Caller]]:
    """Callers by their principal."""
    entered.clear()
    async with served(app_of(model(), [gated]), api_keys=KEYS) as server:
        made = {str(k["principal"]): Caller(server.address, key=str(k["key"])) for k in KEYS}
        yield made
        for caller in made.values():
            await caller.channel.close()


def attempts(who: Caller, run_id: str, pending_call_id: str) -> dict[str, tuple[Any, str]]:
    """Every RPC that takes an id, with the reason it is refused with for an id that does not exist."""
    by_run = pending_call_pb2.CallRef(run_id=run_id, tool_call_id="c1")
    run_alone = pending_call_pb2.CallRef(run_id=run_id)
    get = inbox_service_pb2.GetPendingCallRequest(pending_call_id=pending_call_id)
    release = inbox_service_pb2.ReleasePendingCallRequest(pending_call_id=pending_call_id)
    call, run = "PENDING_CALL_NOT_FOUND", "RUN_NOT_FOUND"
    return {
        "GetRun": (who.get_run(run_id), run),
        "WatchRun": (who.watch(run_id), run),
        "WatchRun after": (who.watch(run_id, 3), run),
        "WatchRun far": (who.watch(run_id, 1000), run),
        "CancelRun": (who.cancel(run_id), run),
        "CancelRun at once": (who.cancel(run_id, wait=False), run),
        "DeleteRun": (who.delete(run_id, force=True), run),
        "Approve": (who.approve(pending_call_id), call),
        "Approve by run": (who.approve(by_run), run),
        "Approve by run alone": (who.approve(run_alone), run),
        "Decline": (who.decline(pending_call_id), call),
        "Decline by run": (who.decline(by_run), run),
        "Resume": (who.resume(pending_call_id, 1), call),
        "Resume by run": (who.resume(by_run, 1), run),
        "SubmitToolResult": (who.submit(pending_call_id, 1), call),
        "SubmitToolResult by run": (who.submit(by_run, 1), run),
        "GetPendingCall": (who.inbox.GetPendingCall(get, metadata=who._metadata), call),
        "ClaimPendingCall": (who.claim(pending_call_id), call),
        "ReleasePendingCall": (who.inbox.ReleasePendingCall(release, metadata=who._metadata), call),
    }


async def test_a_stranger_finds_nothing(callers: dict[str, Caller]) -> None:
    """AU-01: with the ids of another tenant every RPC answers as for an id that never was, word for
    word, and changes nothing."""
    ann, ben = callers["ann"], callers["ben"]
    waiting = (await ann.generate()).result.pending_calls[0]
    before = await ann.get_run(waiting.run_id)
    never = ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "01ARZ3NDEKTSV4RRFFQ69G5FAW")
    answers: list[dict[str, Any]] = []
    for run_id, pending_call_id in ((waiting.run_id, waiting.pending_call_id), never):
        seen: dict[str, Any] = {}
        for name, (attempt, reason) in attempts(ben, run_id, pending_call_id).items():
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await attempt
            refusal = read_refusal(raised.value)
            assert (refusal.code, refusal.reason) == (NOT_FOUND, reason), name
            text = refusal.text.replace(run_id, "RUN").replace(pending_call_id, "CALL")
            metadata = {
                key: value.replace(run_id, "RUN").replace(pending_call_id, "CALL")
                for key, value in refusal.metadata.items()
            }
            seen[name] = (text, metadata)
        answers.append(seen)
    assert answers[0] == answers[1]
    assert await ann.get_run(waiting.run_id) == before
    assert not entered


async def test_lists_hold_the_tenants_own(callers: dict[str, Caller]) -> None:
    """AU-01: lists, filters and the watch of the inbox show the tenant's own and no trace of others."""
    ann, ben = callers["ann"], callers["ben"]
    request = inbox_service_pb2.WatchPendingCallsRequest()
    rpc = ben.inbox.WatchPendingCalls(request, metadata=ben._metadata, timeout=20)
    assert (await rpc.read()).snapshot_complete
    waiting = (await ann.generate()).result.pending_calls[0]
    await ann.claim(waiting.pending_call_id)
    own = (await ben.generate()).result.pending_calls[0]
    seen = await rpc.read()
    assert [c.pending_call_id for c in seen.opened] == [own.pending_call_id]
    rpc.cancel()
    for filters in ({}, {"agent_id": "agent"}):
        assert [r.run_id for r in (await ben.list_runs(**filters)).runs] == [own.run_id]
        assert [c.run_id for c in await ben.pending(**filters)] == [own.run_id]
    assert not await ben.pending(waiting.run_id)
    await ann.approve(waiting)
    assert not await ben.decisions()
    assert not await ben.decisions(waiting.run_id)
    page = await ann.list_runs(page_size=1, states=[5, 3, 4])
    assert len(page.runs) == 1


async def test_colleagues_share_and_are_told_apart(callers: dict[str, Caller]) -> None:
    """AU-01: within a tenant anyone with the role may decide, and the audit has who did; without the
    role nobody may, and without a credential there is nothing."""
    ann, abe, aud = callers["ann"], callers["abe"], callers["aud"]
    waiting = (await ann.generate()).result.pending_calls[0]
    for role, attempt in (("decide", aud.approve(waiting)), ("run", aud.generate())):
        with refused(grpc.StatusCode.PERMISSION_DENIED, "ROLE_REQUIRED") as refusal:
            await attempt
        assert refusal.metadata["role"] == role
    assert (await aud.get_run(waiting.run_id)).run.principal == "ann"
    done = await abe.approve(waiting, on_behalf_of="the board")
    assert (done.decision.principal, done.decision.on_behalf_of) == ("abe", "the board")
    assert entered == [1]
    for key in ("", "key-of-nobody"):
        async with Caller(ann.address, key=key) as stranger:
            with refused(grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED"):
                await stranger.get_run(waiting.run_id)


async def test_a_claim_keeps_others_out(callers: dict[str, Caller]) -> None:
    """SR-02: a claimed call is decided by its holder; others are told who that is."""
    ann, abe = callers["ann"], callers["abe"]
    waiting = (await ann.generate()).result.pending_calls[0]
    await ann.claim(waiting.pending_call_id)
    for attempt in (abe.approve(waiting), abe.decline(waiting), abe.claim(waiting.pending_call_id)):
        with refused(grpc.StatusCode.FAILED_PRECONDITION, "PENDING_CALL_CLAIMED") as refusal:
            await attempt
        assert refusal.metadata["principal"] == "ann"
    assert not entered
    await ann.approve(waiting)
    assert entered == [1]


async def test_ids_do_not_cross_tenants(callers: dict[str, Caller]) -> None:
    """AU-02: a run id taken in one tenant is free in another; both runs are whole and apart, down to a
    request id they share."""
    ann, ben = callers["ann"], callers["ben"]
    one, two = await asyncio.gather(*(who.generate(run_id="mine", request_id="r1") for who in (ann, ben)))
    assert not one.replayed
    assert not two.replayed
    assert (one.run.principal, two.run.principal) == ("ann", "ben")
    with refused(grpc.StatusCode.ALREADY_EXISTS, "RUN_ALREADY_EXISTS"):
        await ann.generate(run_id="mine")
    by_run = pending_call_pb2.CallRef(run_id="mine", tool_call_id="c1")
    await ann.decline(by_run)
    assert await ann.state("mine") == "SUCCEEDED"
    assert await ben.state("mine") == "SUSPENDED"
    await ann.delete("mine")
    assert len(await ben.watch("mine")) > 3
    await ben.approve(by_run)
    assert await ben.state("mine") == "SUCCEEDED"


async def test_made_ids_cannot_be_guessed(callers: dict[str, Caller]) -> None:
    """AU-02: ids the server makes carry at least 80 random bits each, fresh within a millisecond too."""
    ann = callers["ann"]
    runs = await asyncio.gather(*(ann.generate() for _ in range(30)))
    ids = [run.run.run_id for run in runs] + [
        c.pending_call_id for run in runs for c in run.result.pending_calls
    ]
    tails = [made[10:] for made in ids]
    assert all(len(tail) == 16 for tail in tails)
    assert len(set(tails)) == len(tails)
    # Neighbours differ in most characters, so one does not lead to the next.
    ordered = sorted(ids)
    for one, two in itertools.pairwise(ordered):
        assert sum(a != b for a, b in zip(one[10:], two[10:], strict=True)) >= 8


async def test_a_tenants_watch_ends_with_its_run(callers: dict[str, Caller]) -> None:
    """AU-01: a watch of one's own run does not take part in a run of the same name elsewhere."""
    ann, ben = callers["ann"], callers["ben"]
    await ann.generate(run_id="same")
    await ben.generate(run_id="same")
    watching = asyncio.create_task(ann.watch("same", until_finished=True))
    await ben.cancel("same")
    await until(lambda: ben.has_state("same", "CANCELLED"))
    assert not watching.done()
    await ann.cancel("same")
    chunks = await watching
    assert sum(c.WhichOneof("payload") == "abort" for c in chunks) == 1
