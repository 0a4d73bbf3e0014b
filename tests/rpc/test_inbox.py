"""The inbox as a stream, and claims: a snapshot, then every change; a hold on a call for a while."""

import asyncio
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import duration_pb2

from entracte.v1 import agent_service_pb2 as agents
from entracte.v1 import inbox_service_pb2 as inbox
from entracte.v1 import pending_call_pb2, run_pb2
from entracte.v1 import run_service_pb2 as runs
from entracte_server.rpc import open_calls
from tests.rpc.support import Peer, generate, kinds, peer_of, ref, serving

pytestmark = pytest.mark.usefixtures("each_store")

KEYS = [
    {"key": "key-of-ada-0123", "principal": "ada"},
    {"key": "key-of-bob-0123", "principal": "bob"},
]
ADA, BOB = (key["key"] for key in KEYS)


class Watch:
    """A watcher: what it believes is open, from what it was told."""

    def __init__(self, peer: Peer, **where: str) -> None:
        self.call = peer.open("WatchPendingCalls", inbox.WatchPendingCallsRequest(**where), timeout=None)
        self.open: dict[str, pending_call_pb2.PendingCall] = {}
        self.complete = 0

    async def read(self) -> Any:
        """Take in one message."""
        response = await asyncio.wait_for(self.call.read(), 10)
        for call in response.opened:
            assert call.state == pending_call_pb2.PENDING_CALL_STATE_OPEN
            self.open[call.pending_call_id] = call
        for closed in response.closed_pending_call_ids:
            del self.open[closed]
        self.complete += response.snapshot_complete
        return response

    async def snapshot(self) -> "Watch":
        """Read on until the snapshot is complete."""
        while not self.complete:
            await self.read()
        return self

    async def until(self, ids: set[str]) -> None:
        """Read on until exactly these are open."""
        while set(self.open) != ids:
            await self.read()


async def test_a_snapshot_then_every_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """All open calls in as many messages as it takes, the end of the snapshot told once; then calls
    that open, and calls that are closed by a decision, a cancellation, or the deletion of their run."""
    monkeypatch.setattr(open_calls, "PAGE", 2)
    async with serving() as (_, peer):
        first = [await peer.parked() for _ in range(5)]
        watch = await Watch(peer).snapshot()
        ids = {pending.pending_call_id for _, (pending,) in first}
        assert set(watch.open) == ids
        assert next(iter(watch.open.values())) == first[0][1][0]
        await peer.one("Decline", agents.DeclineRequest(call=ref(first[0][1][0].pending_call_id)))
        await peer.one("CancelRun", runs.CancelRunRequest(run_id=first[1][0]))
        await peer.one("DeleteRun", runs.DeleteRunRequest(run_id=first[2][0], force=True))
        _, more = await peer.parked("both")
        ids -= {pending.pending_call_id for _, (pending,) in first[:3]}
        ids |= {pending.pending_call_id for pending in more}
        await watch.until(ids)
        assert watch.complete == 1
        watch.call.cancel()
        again = await Watch(peer).snapshot()
        assert set(again.open) == ids
        again.call.cancel()


async def test_an_empty_snapshot_is_complete_too() -> None:
    """At once, and with every filter that nothing fits."""
    async with serving() as (_, peer):
        for where in ({}, {"run_id": "nobody"}, {"agent_id": "nobody"}, {"resource_id": "nobody"}):
            watch = Watch(peer, **where)
            assert (await watch.read()).snapshot_complete
            assert not watch.open
            watch.call.cancel()


async def test_filters_of_a_watch() -> None:
    """By run and by agent; what does not fit never shows."""
    async with serving() as (_, peer):
        run_id, (mine,) = await peer.parked("gate")
        by_run = await Watch(peer, run_id=run_id).snapshot()
        by_agent = await Watch(peer, agent_id="suspends").snapshot()
        _, (other,) = await peer.parked("suspends")
        await by_agent.until({other.pending_call_id})
        await peer.one("Decline", agents.DeclineRequest(call=ref(mine.pending_call_id)))
        await by_run.until(set())
        for watch in (by_run, by_agent):
            watch.call.cancel()


async def test_a_claim_and_its_end_are_changes() -> None:
    """A call that is claimed, claimed again, released, or whose claim runs out is shown again as it is."""
    async with serving(api_keys=KEYS, key=ADA, keep_alive=0.3) as (_, peer):
        _, (pending,) = await peer.parked()
        watch = await Watch(peer).snapshot()

        def holder() -> str:
            return watch.open[pending.pending_call_id].claim.principal

        claim = inbox.ClaimPendingCallRequest(pending_call_id=pending.pending_call_id)
        await peer.one("ClaimPendingCall", claim)
        while holder() != "ada":
            await watch.read()
        release = inbox.ReleasePendingCallRequest(pending_call_id=pending.pending_call_id)
        await peer.one("ReleasePendingCall", release)
        while holder() != "":
            await watch.read()
        claim.ttl.seconds = 1
        await peer.one("ClaimPendingCall", claim)
        while holder() != "ada":
            await watch.read()
        while holder() != "":
            await watch.read()
        watch.call.cancel()


async def test_the_end_of_a_claim_is_told_in_a_busy_inbox() -> None:
    """Nobody says so when a claim runs out, and other changes may come all the time."""
    async with serving(api_keys=KEYS, key=ADA, keep_alive=30.0) as (_, peer):
        _, (pending,) = await peer.parked()
        claim = inbox.ClaimPendingCallRequest(
            pending_call_id=pending.pending_call_id, ttl=duration_pb2.Duration(seconds=1)
        )
        await peer.one("ClaimPendingCall", claim)
        watch = await Watch(peer).snapshot()
        assert watch.open[pending.pending_call_id].HasField("claim")

        async def busy() -> None:
            while True:
                await peer.parked()
                await asyncio.sleep(0.1)

        noise = asyncio.create_task(busy())
        while watch.open[pending.pending_call_id].HasField("claim"):
            await watch.read()
        noise.cancel()
        quiet = await Watch(peer).snapshot()
        await peer.one("ClaimPendingCall", claim)
        while not quiet.open[pending.pending_call_id].HasField("claim"):
            await quiet.read()
        while quiet.open[pending.pending_call_id].HasField("claim"):
            await quiet.read()
        for opened in (watch, quiet):
            opened.call.cancel()


async def test_how_long_a_claim_lasts() -> None:
    """Five minutes unless told otherwise, from a second to a day; claiming again extends it."""
    async with serving() as (_, peer):
        _, (pending,) = await peer.parked()

        async def claimed(ttl: duration_pb2.Duration | None) -> float:
            before = time.time()
            request = inbox.ClaimPendingCallRequest(pending_call_id=pending.pending_call_id, ttl=ttl)
            response = await peer.one("ClaimPendingCall", request)
            call = response.pending_call
            listed = await peer.one(
                "GetPendingCall", inbox.GetPendingCallRequest(pending_call_id=pending.pending_call_id)
            )
            assert listed.pending_call == call
            until: float = call.claim.expire_time.ToMilliseconds() / 1000
            return until - before

        for ttl, seconds in (
            (None, 300),
            (duration_pb2.Duration(seconds=1), 1),
            (duration_pb2.Duration(seconds=86400), 86400),
            (duration_pb2.Duration(seconds=90, nanos=500_000_000), 90.5),
        ):
            assert await claimed(ttl) == pytest.approx(seconds, abs=30.0 if seconds > 60 else 10.0)


async def test_a_claim_that_ran_out_keeps_nobody_away() -> None:
    """Others claim and decide after it."""
    async with (
        serving(api_keys=KEYS, key=ADA) as (server, ada),
        peer_of(server.address, BOB) as bob,
    ):
        _, (pending,) = await ada.parked()
        claim = inbox.ClaimPendingCallRequest(
            pending_call_id=pending.pending_call_id, ttl=duration_pb2.Duration(seconds=1)
        )
        await ada.one("ClaimPendingCall", claim)
        decide = agents.DeclineRequest(call=ref(pending.pending_call_id))
        assert (await bob.refuse("Decline", decide)).reason == "PENDING_CALL_CLAIMED"
        await asyncio.sleep(1.1)
        assert (await bob.one("ClaimPendingCall", claim)).pending_call.claim.principal == "bob"
        refusal = await ada.refuse("Decline", decide)
        assert (refusal.reason, refusal.metadata["principal"]) == ("PENDING_CALL_CLAIMED", "bob")
        assert (await bob.one("Decline", decide)).decision.principal == "bob"


async def test_a_decided_call_is_shown_with_its_decision() -> None:
    """By its id for good, in the list when asked for, and not in the list of what is open."""
    async with serving() as (_, peer):
        _, (pending,) = await peer.parked()
        decided = (await peer.approved(pending)).decision
        shown = await peer.one(
            "GetPendingCall", inbox.GetPendingCallRequest(pending_call_id=pending.pending_call_id)
        )
        assert shown.pending_call.state == pending_call_pb2.PENDING_CALL_STATE_DECIDED
        assert shown.pending_call.decision == decided
        assert not (await peer.one("ListPendingCalls", inbox.ListPendingCallsRequest())).pending_calls
        everything = inbox.ListPendingCallsRequest(include_decided=True)
        (listed,) = (await peer.one("ListPendingCalls", everything)).pending_calls
        assert listed == shown.pending_call


# ---- what is left of a run's log ----


async def test_a_position_that_is_no_longer_stored_is_refused(tmp_path: Path) -> None:
    """OUT_OF_RANGE, SEQUENCE_TRIMMED with the first sequence that is left; from there on it is served."""
    path = tmp_path / "entracte.db"
    async with serving(store=path) as (_, peer):
        run_id, (pending,) = await peer.parked()
        await peer.approved(pending)
        chunks = await peer.chunks(run_id)
        with sqlite3.connect(path) as database:
            (last,) = database.execute("SELECT last FROM chunks ORDER BY last LIMIT 1 OFFSET 1").fetchone()
            database.execute("DELETE FROM chunks WHERE last <= ?", (last,))
        database.close()
        for position in (0, 1, last - 1):
            request = runs.WatchRunRequest(run_id=run_id, after_sequence=position)
            refusal = await peer.refuse("WatchRun", request)
            assert (refusal.code, refusal.reason) == ("OUT_OF_RANGE", "SEQUENCE_TRIMMED")
            assert refusal.metadata == {"run_id": run_id, "first_sequence": str(last + 1)}
        assert await peer.chunks(run_id, last) == chunks[last:]


# ---- deleting ----


async def test_nothing_is_left_of_a_deleted_run() -> None:
    """Not the run, not its calls, not its decisions, not its chunks; a new run can have its id."""
    async with serving() as (_, peer):
        run_id, (pending,) = await peer.parked(run_id="mine")
        await peer.approved(pending)
        await peer.one("DeleteRun", runs.DeleteRunRequest(run_id=run_id))
        for method, request, reason in (
            ("GetRun", runs.GetRunRequest(run_id=run_id), "RUN_NOT_FOUND"),
            ("WatchRun", runs.WatchRunRequest(run_id=run_id), "RUN_NOT_FOUND"),
            ("CancelRun", runs.CancelRunRequest(run_id=run_id), "RUN_NOT_FOUND"),
            ("DeleteRun", runs.DeleteRunRequest(run_id=run_id), "RUN_NOT_FOUND"),
            (
                "GetPendingCall",
                inbox.GetPendingCallRequest(pending_call_id=pending.pending_call_id),
                "PENDING_CALL_NOT_FOUND",
            ),
            (
                "Approve",
                agents.ApproveRequest(call=ref(pending.pending_call_id)),
                "PENDING_CALL_NOT_FOUND",
            ),
        ):
            refusal = await peer.refuse(method, request)
            assert (refusal.code, refusal.reason) == ("NOT_FOUND", reason), method
        assert not (await peer.one("ListDecisions", inbox.ListDecisionsRequest())).decisions
        again = await peer.one("Generate", generate(run_id="mine"))
        assert again.run.state == run_pb2.RUN_STATE_SUCCEEDED
        assert kinds(await peer.chunks("mine"))[0] == "start"


async def test_a_run_that_executes_is_not_deleted() -> None:
    """Not even with `force`."""
    async with serving() as (_, peer):
        running = peer.open("Generate", generate("slow", run_id="r"), as_stream=True)
        await running.initial_metadata()
        for force in (False, True):
            refusal = await peer.refuse("DeleteRun", runs.DeleteRunRequest(run_id="r", force=force))
            assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "RUN_NOT_FINISHED")
            assert refusal.metadata == {"run_id": "r", "state": "running"}
        running.cancel()
