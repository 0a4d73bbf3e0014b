"""Two tenants on one server: what belongs to the other does not exist, by any RPC and any id, and a
refusal does not tell it from what never existed.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from entracte.v1 import agent_service_pb2 as agents
from entracte.v1 import catalog_service_pb2 as catalog
from entracte.v1 import inbox_service_pb2 as inbox
from entracte.v1 import message_pb2, options_pb2, pending_call_pb2, run_pb2
from entracte.v1 import run_service_pb2 as runs
from entracte.v1 import thread_service_pb2 as threads
from entracte.v1 import working_memory_pb2 as notes
from tests.rpc.support import METHODS, Peer, Refusal, definition, generate, js, peer_of, ref, serving, stream

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROLES = ["run", "decide", "author"]
KEYS: list[dict[str, Any]] = [
    {"key": "key-of-ada-0123", "principal": "ada", "tenant": "north", "roles": ROLES},
    {"key": "key-of-bob-0123", "principal": "bob", "tenant": "south", "roles": ROLES},
    {"key": "key-of-eve-0123", "principal": "ada", "tenant": "south", "roles": ROLES},
]
ADA, BOB, NAMESAKE = (key["key"] for key in KEYS)
UNKNOWN = "01JZZZZZZZZZZZZZZZZZZZZZZZ"


@dataclass
class Two:
    """Ada's parked run, a thread of hers with the same id, and Bob, who wants them."""

    address: str
    ada: Peer
    bob: Peer
    run_id: str
    pending: pending_call_pb2.PendingCall


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def two() -> AsyncIterator[Two]:
    """A server with two tenants. The tenant of Bob has a run of its own."""
    async with (
        serving(api_keys=KEYS, key=ADA) as (server, ada),
        peer_of(server.address, BOB) as bob,
    ):
        run_id, (pending,) = await ada.parked("gate", request_id="q-ada")
        await bob.parked("gate")
        await ada.thread(run_id)
        made = catalog.CreateAgentVersionRequest(agent_id=run_id, definition=definition())
        await ada.one("CreateAgentVersion", made)
        await bob.thread("bobs")
        yield Two(server.address, ada, bob, run_id, pending)


Request = Callable[[str, str, str], Any]

BY_ID: list[tuple[str, Request]] = [
    ("GetRun", lambda run, pending, call: runs.GetRunRequest(run_id=run)),
    ("WatchRun", lambda run, pending, call: runs.WatchRunRequest(run_id=run)),
    ("WatchRun", lambda run, pending, call: runs.WatchRunRequest(run_id=run, until_finished=True)),
    ("WatchRun", lambda run, pending, call: runs.WatchRunRequest(run_id=run, after_sequence=999)),
    ("CancelRun", lambda run, pending, call: runs.CancelRunRequest(run_id=run, wait=True)),
    ("CancelRun", lambda run, pending, call: runs.CancelRunRequest(run_id=run, request_id="q-ada")),
    ("DeleteRun", lambda run, pending, call: runs.DeleteRunRequest(run_id=run, force=True)),
    ("DeleteRun", lambda run, pending, call: runs.DeleteRunRequest(run_id=run)),
    ("GetPendingCall", lambda run, pending, call: inbox.GetPendingCallRequest(pending_call_id=pending)),
    ("ClaimPendingCall", lambda run, pending, call: inbox.ClaimPendingCallRequest(pending_call_id=pending)),
    (
        "ReleasePendingCall",
        lambda run, pending, call: inbox.ReleasePendingCallRequest(pending_call_id=pending),
    ),
    ("GetThread", lambda run, pending, call: threads.GetThreadRequest(thread_id=run)),
    ("UpdateThread", lambda run, pending, call: threads.UpdateThreadRequest(thread_id=run, title="mine")),
    ("DeleteThread", lambda run, pending, call: threads.DeleteThreadRequest(thread_id=run)),
    ("DeleteThread", lambda run, pending, call: threads.DeleteThreadRequest(thread_id=run, force=True)),
    ("ListThreadMessages", lambda run, pending, call: threads.ListThreadMessagesRequest(thread_id=run)),
    ("GetWorkingMemory", lambda run, pending, call: notes.GetWorkingMemoryRequest(thread_id=run)),
    (
        "UpdateWorkingMemory",
        lambda run, pending, call: notes.UpdateWorkingMemoryRequest(thread_id=run, content="mine"),
    ),
    ("GetAgent", lambda run, pending, call: catalog.GetAgentRequest(agent_id=run)),
    ("ListAgentVersions", lambda run, pending, call: catalog.ListAgentVersionsRequest(agent_id=run)),
    (
        "PublishAgentVersion",
        lambda run, pending, call: catalog.PublishAgentVersionRequest(agent_id=run, version_id=call),
    ),
    (
        "ArchiveAgentVersion",
        lambda run, pending, call: catalog.ArchiveAgentVersionRequest(agent_id=run, version_id=call),
    ),
]

_VERBS: dict[str, Callable[..., Any]] = {
    "Resume": lambda call: agents.ResumeRequest(call=call, resume_data=js("{}"), request_id="q-ada"),
    "Approve": lambda call: agents.ApproveRequest(call=call, wait=True),
    "Decline": lambda call: agents.DeclineRequest(call=call),
    "SubmitToolResult": lambda call: agents.SubmitToolResultRequest(call=call, result=js("1")),
}
for _name, _make in _VERBS.items():
    for _how in (
        lambda run, pending, call: ref(pending),
        lambda run, pending, call: ref(pending, run, call),
        lambda run, pending, call: ref(run_id=run, tool_call_id=call),
        lambda run, pending, call: ref(run_id=run),
    ):
        BY_ID.append(
            (
                _name,
                lambda run, pending, call, make=_make, how=_how: make(how(run, pending, call)),  # type: ignore[misc]
            )
        )

WITHOUT_IDS = {"Generate", "Stream", "ListRuns", "ListPendingCalls", "WatchPendingCalls", "ListDecisions"}
WITHOUT_IDS |= {"CreateThread", "ListThreads", "CreateAgentVersion", "ListAgents"}


async def test_every_rpc_is_tried() -> None:
    """A new RPC cannot be forgotten."""
    assert {method for method, _ in BY_ID} | WITHOUT_IDS == set(METHODS)


def _without(refusal: Refusal, *ids: str) -> Refusal:
    """A refusal with ids put out of sight, to compare what is left."""
    metadata = dict(refusal.metadata)
    text = refusal.text
    for number, value in enumerate(ids):
        text = text.replace(value, f"<{number}>")
        metadata = {key: given.replace(value, f"<{number}>") for key, given in metadata.items()}
    return Refusal(refusal.code, refusal.reason, text, metadata, refusal.violations, refusal.retry_after)


@pytest.mark.parametrize(("method", "make"), BY_ID, ids=[f"{i}-{m}" for i, (m, _) in enumerate(BY_ID)])
async def test_what_belongs_to_another_tenant_is_not_found(two: Two, method: str, make: Request) -> None:
    """NOT_FOUND, and word for word what an unknown id gets; for the other tenant's principal of the
    same name as well."""
    theirs = (two.run_id, two.pending.pending_call_id, two.pending.tool_call_id)
    nobodys = (UNKNOWN, UNKNOWN[:-1] + "Y", "c-unknown")
    async with peer_of(two.address, NAMESAKE) as namesake:
        for stranger in (two.bob, namesake):
            refusal = await stranger.refuse(method, make(*theirs))
            unknown = await stranger.refuse(method, make(*nobodys))
            assert refusal.code == "NOT_FOUND"
            assert _without(refusal, *theirs) == _without(unknown, *nobodys)
    run = await two.ada.run(two.run_id)
    assert run.state == run_pb2.RUN_STATE_SUSPENDED
    assert not run.pending_calls[0].HasField("claim")


async def test_lists_show_only_the_own_tenant(two: Two) -> None:
    """By every filter, with the other's ids in it too."""
    bob = two.bob
    own = {run.run_id for run in (await bob.one("ListRuns", runs.ListRunsRequest())).runs}
    assert own
    assert two.run_id not in own
    for where in (
        inbox.ListPendingCallsRequest(),
        inbox.ListPendingCallsRequest(run_id=two.run_id),
        inbox.ListPendingCallsRequest(agent_id="gate"),
        inbox.ListPendingCallsRequest(include_decided=True),
    ):
        page = await bob.one("ListPendingCalls", where)
        assert {call.run_id for call in page.pending_calls} <= own
    for request in (
        inbox.ListDecisionsRequest(),
        inbox.ListDecisionsRequest(run_id=two.run_id),
        inbox.ListDecisionsRequest(principal="ada"),
        inbox.ListDecisionsRequest(pending_call_id=two.pending.pending_call_id),
    ):
        assert not (await bob.one("ListDecisions", request)).decisions
    for resource in ("", "ada"):
        listed = await bob.one("ListThreads", threads.ListThreadsRequest(resource_id=resource))
        assert [thread.thread_id for thread in listed.threads] == ["bobs"]


async def test_a_page_token_of_another_tenant_is_none(two: Two) -> None:
    """It would be a position in a list the tenant cannot see."""
    for peer, other in ((two.ada, two.bob), (two.bob, two.ada)):
        for _ in range(2):
            await peer.one("Generate", generate())
        page = await peer.one("ListRuns", runs.ListRunsRequest(page_size=1))
        request = runs.ListRunsRequest(page_size=1, page_token=page.next_page_token)
        assert (await other.refuse("ListRuns", request)).reason == "PAGE_TOKEN_INVALID"
        await peer.thread("second")
        page = await peer.one("ListThreads", threads.ListThreadsRequest(page_size=1))
        assert page.next_page_token
        following = threads.ListThreadsRequest(page_size=1, page_token=page.next_page_token)
        assert (await other.refuse("ListThreads", following)).reason == "PAGE_TOKEN_INVALID"
        await peer.one("DeleteThread", threads.DeleteThreadRequest(thread_id="second"))


async def test_the_inbox_of_another_tenant_is_not_watched(two: Two) -> None:
    """Calls that open and close in one tenant make nothing happen on the other's stream."""
    watch = two.bob.open("WatchPendingCalls", inbox.WatchPendingCallsRequest())
    snapshot = await watch.read()
    while not snapshot.snapshot_complete:
        assert all(call.run_id != two.run_id for call in snapshot.opened)
        snapshot = await watch.read()
    _, (pending,) = await two.ada.parked()
    await two.ada.one("Decline", agents.DeclineRequest(call=ref(pending.pending_call_id), wait=True))
    _, (own,) = await two.bob.parked()
    seen = await watch.read()
    assert [call.pending_call_id for call in seen.opened] == [own.pending_call_id]
    assert not seen.closed_pending_call_ids
    watch.cancel()


async def test_one_run_id_in_two_tenants(two: Two) -> None:
    """Ids are unique per tenant: both runs live side by side, and what is done to one is not done to
    the other."""
    (_, (adas,)), (_, (bobs,)) = await asyncio.gather(
        two.ada.parked(run_id="same"), two.bob.parked(run_id="same")
    )
    assert adas.pending_call_id != bobs.pending_call_id
    assert adas.tool_call_id == bobs.tool_call_id
    by_run = agents.DeclineRequest(call=ref(run_id="same"), reason="mine only", wait=True)
    declined = await two.bob.one("Decline", by_run)
    assert declined.decision.pending_call_id == bobs.pending_call_id
    assert (await two.ada.run("same")).state == run_pb2.RUN_STATE_SUSPENDED
    assert (await two.bob.run("same")).state == run_pb2.RUN_STATE_SUCCEEDED
    await two.bob.one("DeleteRun", runs.DeleteRunRequest(run_id="same"))
    assert (await two.bob.refuse("GetRun", runs.GetRunRequest(run_id="same"))).code == "NOT_FOUND"
    assert [c.sequence for c in await two.ada.chunks("same")] == list(range(1, 10))
    assert (await two.ada.approved(adas)).run.state == run_pb2.RUN_STATE_SUCCEEDED


async def test_one_thread_id_in_two_tenants(two: Two) -> None:
    """Both threads live side by side, with what was said on each; one goes without the other."""

    def said(word: str) -> Any:
        memory = options_pb2.MemoryOptions(thread=options_pb2.ThreadRef(id="shared"), resource="ada")
        return generate("talk", word, memory=memory)

    for peer, word in ((two.ada, "north"), (two.bob, "south"), (two.ada, "north")):
        await peer.one("Generate", said(word))
    listing = threads.ListThreadMessagesRequest(thread_id="shared", roles=[message_pb2.ROLE_USER])
    for peer, words in ((two.ada, ["north", "north"]), (two.bob, ["south"])):
        listed = (await peer.one("ListThreadMessages", listing)).messages
        assert [message.parts[0].text.text for message in listed] == words
    await two.bob.one("DeleteThread", threads.DeleteThreadRequest(thread_id="shared"))
    assert (await two.bob.refuse("ListThreadMessages", listing)).reason == "THREAD_NOT_FOUND"
    assert len((await two.ada.one("ListThreadMessages", listing)).messages) == 2


async def test_two_runs_of_one_id_are_streamed_apart(two: Two) -> None:
    """Readers get the chunks of their own tenant's run, live and from the log."""

    async def text(peer: Peer, word: str) -> tuple[str, int]:
        responses = await peer.call("Stream", stream("talk", word, run_id="live"))
        chunks = [chunk for response in responses for chunk in response.chunks]
        return chunks[0].start.message_id, len(chunks)

    adas, bobs = await asyncio.gather(text(two.ada, "a"), text(two.bob, "b"))
    assert adas[0] != bobs[0]
    assert adas[1] == bobs[1]
    for peer, (message_id, _) in ((two.ada, adas), (two.bob, bobs)):
        assert (await peer.chunks("live"))[0].start.message_id == message_id


async def test_one_request_id_in_two_tenants(two: Two) -> None:
    """Request ids are scoped to the tenant, and to the principal: nobody joins another's run by
    guessing one, not even a namesake or a colleague."""
    async with peer_of(two.address, NAMESAKE) as namesake:
        started = [
            await peer.one("Generate", generate(request_id="q-same"))
            for peer in (two.ada, two.bob, namesake, two.ada)
        ]
    assert [response.replayed for response in started] == [False, False, False, True]
    assert len({response.run.run_id for response in started}) == 3
    assert started[0].run.run_id == started[3].run.run_id


async def test_limits_are_not_shared_between_tenants() -> None:
    """A principal that has used up its streams takes none from its namesake in another tenant."""
    async with (
        serving(api_keys=KEYS, key=ADA, streams_per_principal=1) as (server, ada),
        peer_of(server.address, NAMESAKE) as namesake,
    ):
        watch = ada.open("WatchPendingCalls", inbox.WatchPendingCallsRequest())
        await watch.read()
        assert (await ada.refuse("ListRuns", runs.ListRunsRequest())).reason == "TOO_MANY_STREAMS"
        await namesake.one("ListRuns", runs.ListRunsRequest())
        watch.cancel()


async def test_what_was_untouched_is_still_there(two: Two) -> None:
    """After all of it Ada's run is answered by Ada, and her thread is as she made it."""
    thread = await two.ada.one("GetThread", threads.GetThreadRequest(thread_id=two.run_id))
    assert thread.thread.title == ""
    decisions = await two.ada.one("ListDecisions", inbox.ListDecisionsRequest(run_id=two.run_id))
    assert not decisions.decisions
    response = await two.ada.approved(two.pending)
    assert response.run.state == run_pb2.RUN_STATE_SUCCEEDED
