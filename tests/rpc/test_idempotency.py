"""Request ids: a request that is sent again changes nothing and joins what the first one did; one with
another body is refused. Whatever races, over a restart of the server, and for every RPC that changes
something.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from google.protobuf import duration_pb2

from entracte.v1 import agent_service_pb2 as agents
from entracte.v1 import catalog_service_pb2 as catalog
from entracte.v1 import inbox_service_pb2 as inbox
from entracte.v1 import pending_call_pb2, run_pb2
from entracte.v1 import run_service_pb2 as runs
from entracte.v1 import thread_service_pb2 as threads
from entracte.v1 import working_memory_pb2 as notes
from entracte_server import Agent, tool
from tests.rpc.support import (
    METHODS,
    Peer,
    definition,
    generate,
    js,
    kinds,
    once,
    parts_of,
    peer_of,
    ref,
    rest_of,
    saying,
    serving,
    stream,
    until,
)

pytestmark = pytest.mark.usefixtures("each_store")

Q = "the-request-id"


@dataclass(frozen=True)
class Target:
    """What a request is about: a run that waits, has ended, or is of nobody; a thread; or a version."""

    run_id: str = ""
    pending: pending_call_pb2.PendingCall | None = None
    thread_id: str = ""
    version_id: str = ""

    @property
    def call(self) -> pending_call_pb2.CallRef:
        """The pending call."""
        assert self.pending is not None
        return ref(self.pending.pending_call_id)

    @property
    def pending_call_id(self) -> str:
        """The pending call's id."""
        assert self.pending is not None
        return self.pending.pending_call_id


@dataclass(frozen=True)
class Change:
    """An RPC that changes something: what must be there before, the request, others with the same id
    and another body, and fields in which the same request may differ."""

    method: str
    prepare: Callable[[Peer], Awaitable[Target]]
    make: Callable[..., Any]
    others: tuple[dict[str, Any], ...]
    same: tuple[dict[str, Any], ...] = ()


async def nothing(peer: Peer) -> Target:
    """Nothing has to be there."""
    return Target()


def waiting(agent_id: str) -> Callable[[Peer], Awaitable[Target]]:
    """A run that waits."""

    async def prepare(peer: Peer) -> Target:
        run_id, (pending,) = await peer.parked(agent_id)
        return Target(run_id, pending)

    return prepare


async def over(peer: Peer) -> Target:
    """A run that has ended."""
    return Target((await peer.one("Generate", generate())).run.run_id)


async def conversation(peer: Peer) -> Target:
    """A thread."""
    return Target(thread_id=(await peer.thread()).thread_id)


async def agent(peer: Peer) -> Target:
    """A draft of an agent."""
    request = catalog.CreateAgentVersionRequest(agent_id="made", definition=definition())
    return Target(version_id=(await peer.one("CreateAgentVersion", request)).version.version_id)


def minutes(number: int) -> duration_pb2.Duration:
    """A time."""
    return duration_pb2.Duration(seconds=number * 60)


def _start(make: Any) -> Callable[..., Any]:
    def request(target: Target, **fields: Any) -> Any:
        return make(fields.pop("agent_id", "talk"), fields.pop("text", "hi"), **{"request_id": Q, **fields})

    return request


def _decide(kind: Any, **given: Any) -> Callable[..., Any]:
    return lambda target, **fields: kind(**{"call": target.call, "request_id": Q, **given, **fields})


def _about_run(kind: Any, **given: Any) -> Callable[..., Any]:
    return lambda target, **fields: kind(**{"run_id": target.run_id, "request_id": Q, **given, **fields})


def _about_call(kind: Any, **given: Any) -> Callable[..., Any]:
    return lambda target, **fields: kind(
        **{"pending_call_id": target.pending_call_id, "request_id": Q, **given, **fields}
    )


def _about_thread(kind: Any, **given: Any) -> Callable[..., Any]:
    return lambda target, **fields: kind(
        **{"thread_id": target.thread_id, "request_id": Q, **given, **fields}
    )


def _about_version(kind: Any) -> Callable[..., Any]:
    return lambda target, **fields: kind(
        **{"agent_id": "made", "version_id": target.version_id, "request_id": Q, **fields}
    )


STARTS: tuple[dict[str, Any], ...] = (
    {"text": "ho"},
    {"agent_id": "gate"},
    {"max_steps": 3},
    {"run_id": "other"},
    {"request_context": js("{}")},
)
NOTES: tuple[dict[str, Any], ...] = ({"comment": "x"}, {"on_behalf_of": "x"}, {"call": ref("other")})
WAITS: tuple[dict[str, Any], ...] = ({"wait": True}, {"wait": False})

CHANGES = [
    Change("Generate", nothing, _start(generate), STARTS),
    Change("Stream", nothing, _start(stream), STARTS),
    Change(
        "Resume",
        waiting("asks"),
        _decide(agents.ResumeRequest, resume_data=js("1")),
        ({"resume_data": js("2")}, {"resume_data": js("1 ")}, *NOTES),
        WAITS,
    ),
    Change(
        "Approve",
        waiting("gate"),
        _decide(agents.ApproveRequest),
        ({"edited_args": js('{"amount":1}')}, {"args_digest": b"x" * 32}, *NOTES),
        WAITS,
    ),
    Change(
        "Decline",
        waiting("gate"),
        _decide(agents.DeclineRequest, reason="no"),
        ({"reason": "yes"}, {"reason_json": js("null")}, *NOTES),
        WAITS,
    ),
    Change(
        "SubmitToolResult",
        waiting("hands-out"),
        _decide(agents.SubmitToolResultRequest, result=js("1")),
        ({"result": js("2")}, {"error": "e"}, *NOTES),
        WAITS,
    ),
    Change(
        "CancelRun",
        waiting("gate"),
        _about_run(runs.CancelRunRequest, reason="why"),
        ({"reason": "because"}, {"run_id": "other"}),
        WAITS,
    ),
    Change("DeleteRun", over, _about_run(runs.DeleteRunRequest), ({"force": True}, {"run_id": "other"})),
    Change(
        "ClaimPendingCall",
        waiting("gate"),
        _about_call(inbox.ClaimPendingCallRequest, ttl=minutes(5)),
        ({"ttl": minutes(6)}, {"pending_call_id": "other"}),
    ),
    Change(
        "ReleasePendingCall",
        waiting("gate"),
        _about_call(inbox.ReleasePendingCallRequest),
        ({"pending_call_id": "other"},),
    ),
    Change(
        "CreateThread",
        nothing,
        _about_thread(threads.CreateThreadRequest, resource_id="ada", title="x"),
        ({"thread_id": "other"}, {"resource_id": "bea"}, {"title": "y"}, {"metadata": js("{}")}),
    ),
    Change(
        "UpdateThread",
        conversation,
        _about_thread(threads.UpdateThreadRequest, title="new"),
        ({"title": ""}, {"metadata": js("{}")}, {"thread_id": "other"}),
    ),
    Change(
        "DeleteThread",
        conversation,
        _about_thread(threads.DeleteThreadRequest),
        ({"force": True}, {"thread_id": "other"}),
    ),
    Change(
        "UpdateWorkingMemory",
        conversation,
        _about_thread(notes.UpdateWorkingMemoryRequest, content="new"),
        ({"content": ""}, {"expected_version": 1}, {"thread_id": "other"}, {"resource_id": "ada"}),
    ),
    Change(
        "CreateAgentVersion",
        nothing,
        lambda target, **fields: catalog.CreateAgentVersionRequest(
            **{"agent_id": "made", "definition": definition(), "request_id": Q, **fields}
        ),
        ({"agent_id": "other"}, {"definition": definition(name="x")}),
    ),
    Change(
        "PublishAgentVersion",
        agent,
        _about_version(catalog.PublishAgentVersionRequest),
        ({"agent_id": "other"}, {"version_id": "other"}, {"if_published": ""}),
    ),
    Change(
        "ArchiveAgentVersion",
        agent,
        _about_version(catalog.ArchiveAgentVersionRequest),
        ({"agent_id": "other"}, {"version_id": "other"}),
    ),
]


def replayed(responses: list[Any]) -> bool:
    """What the first response says of it."""
    said: bool = responses[0].replayed
    return said


def run_ids(responses: list[Any]) -> set[str]:
    """The runs the responses are about, or the thread, or the version of an agent."""
    found: set[str] = set()
    for response in responses:
        if hasattr(response, "thread"):
            found.add(response.thread.thread_id)
        if hasattr(response, "version"):
            found.add(response.version.version_id)
        if hasattr(response, "run"):
            found.add(response.run.run_id)
        if hasattr(response, "chunks"):
            found |= {chunk.run_id for chunk in response.chunks}
    return found


async def standing(peer: Peer) -> tuple[Any, ...]:
    """All there is, to tell whether something changed."""
    listed = (await peer.one("ListRuns", runs.ListRunsRequest(page_size=1000))).runs
    pending = await peer.one(
        "ListPendingCalls", inbox.ListPendingCallsRequest(page_size=1000, include_decided=True)
    )
    decided = await peer.one("ListDecisions", inbox.ListDecisionsRequest(page_size=1000))
    kept = await peer.one("ListThreads", threads.ListThreadsRequest(page_size=1000))
    made = await peer.one("ListAgents", catalog.ListAgentsRequest(page_size=1000))
    return (
        [thread.SerializeToString() for thread in kept.threads],
        [agent.SerializeToString() for agent in made.agents],
        [run.SerializeToString() for run in listed],
        [call.SerializeToString() for call in pending.pending_calls],
        [decision.SerializeToString() for decision in decided.decisions],
    )


async def settled(peer: Peer) -> None:
    """Until no run executes."""
    running = runs.ListRunsRequest(states=[run_pb2.RUN_STATE_RUNNING])

    async def still() -> bool:
        return not (await peer.one("ListRuns", running)).runs

    await until(still, "no run executes")


def test_every_rpc_with_a_request_id_is_tried() -> None:
    """A new one cannot be forgotten."""
    mutating = {name for name, m in METHODS.items() if "request_id" in m.input_type.fields_by_name}
    assert {change.method for change in CHANGES} == mutating


def test_every_field_of_a_request_counts() -> None:
    """Each field but the request id and `wait` is part of the body that must be the same."""
    for change in CHANGES:
        names = set(METHODS[change.method].input_type.fields_by_name) - {"request_id", "wait"}
        if change.method in ("Generate", "Stream"):
            names = {"text", "agent_id", "max_steps", "run_id", "request_context"}
        assert {name for other in change.others for name in other} == names, change.method


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.method)
async def test_a_request_that_is_repeated_changes_nothing(change: Change) -> None:
    """It is answered as the first one was, with `replayed`; everything else is as it was."""
    async with serving() as (_, peer):
        target = await change.prepare(peer)
        first = await peer.call(change.method, change.make(target))
        await settled(peer)
        assert not replayed(first)
        before = await standing(peer)
        for more in ({}, *change.same, {}):
            again = await peer.call(change.method, change.make(target, **more))
            assert replayed(again)
            assert run_ids(again) == run_ids(first)
        assert await standing(peer) == before
        if change.method == "Stream":
            chunks = [chunk for response in first for chunk in response.chunks]
            assert [chunk for response in again for chunk in response.chunks] == chunks
        elif "decision" in first[0].DESCRIPTOR.fields_by_name:
            assert again[0].decision == first[0].decision


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.method)
async def test_one_request_id_for_another_body_is_refused(change: Change) -> None:
    """INVALID_ARGUMENT, REQUEST_ID_REUSED with the id, whatever field differs, before anything else is
    looked at; nothing changes."""
    async with serving() as (_, peer):
        target = await change.prepare(peer)
        await peer.call(change.method, change.make(target))
        await settled(peer)
        before = await standing(peer)
        for other in change.others:
            refusal = await peer.refuse(change.method, change.make(target, **other))
            assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "REQUEST_ID_REUSED"), other
            assert refusal.metadata == {"request_id": Q}
        assert await standing(peer) == before


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.method)
async def test_a_request_sent_many_times_at_once_is_done_once(change: Change) -> None:
    """Twenty at a time: one of them does it, the others join it, none is refused."""
    async with serving() as (_, peer):
        target = await change.prepare(peer)
        request = change.make(target)
        answers = await asyncio.gather(*(peer.call(change.method, request) for _ in range(20)))
        assert sorted(replayed(answer) for answer in answers) == [False, *[True] * 19]
        assert len({frozenset(run_ids(answer)) for answer in answers}) == 1
        await settled(peer)
        listed = (await peer.one("ListRuns", runs.ListRunsRequest())).runs
        without = ("DeleteRun", "UpdateWorkingMemory")
        about = ("Thread" in change.method, "AgentVersion" in change.method, change.method in without)
        assert len(listed) == (0 if any(about) else 1)
        kept = (await peer.one("ListThreads", threads.ListThreadsRequest())).threads
        assert len(kept) == (change.method in ("CreateThread", "UpdateThread", "UpdateWorkingMemory"))
        decided = await peer.one("ListDecisions", inbox.ListDecisionsRequest())
        assert len(decided.decisions) <= 1


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.method)
async def test_a_request_is_recognised_after_a_restart(change: Change, tmp_path: Path) -> None:
    """By the next server on the same database: the same one joins, another body is refused."""
    path = tmp_path / "entracte.db"
    async with serving(store=path) as (_, peer):
        target = await change.prepare(peer)
        first = await peer.call(change.method, change.make(target))
        await settled(peer)
        before = await standing(peer)
    async with serving(store=path) as (_, peer):
        again = await peer.call(change.method, change.make(target))
        assert replayed(again)
        assert run_ids(again) == run_ids(first)
        refusal = await peer.refuse(change.method, change.make(target, **change.others[0]))
        assert refusal.reason == "REQUEST_ID_REUSED"
        assert await standing(peer) == before


ROLES = ["run", "decide", "author"]
KEYS: list[dict[str, Any]] = [
    {"key": "key-of-ada-0123", "principal": "ada", "tenant": "north", "roles": ROLES},
    {"key": "key-of-bea-0123", "principal": "bea", "tenant": "north", "roles": ROLES},
    {"key": "key-of-eve-0123", "principal": "ada", "tenant": "south", "roles": ROLES},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.method)
async def test_request_ids_are_scoped_to_tenant_principal_and_method(change: Change) -> None:
    """The same id with another body is another request for another principal, for a namesake in
    another tenant, and for another method."""
    ada_key, *others = (key["key"] for key in KEYS)
    async with serving(api_keys=KEYS, key=ada_key) as (server, ada):
        target = await change.prepare(ada)
        await ada.call(change.method, change.make(target))
        for key in others:
            async with peer_of(server.address, key) as other:
                own = await change.prepare(other)
                assert not replayed(await other.call(change.method, change.make(own)))
        for another in CHANGES:
            if another.method != change.method:
                own = await another.prepare(ada)
                assert not replayed(await ada.call(another.method, another.make(own))), another.method


# ---- joining ----


async def test_a_repeated_start_joins_the_run_wherever_it_is() -> None:
    """While it executes, when it is parked, after it was decided, when it has ended: a stream shows it
    from its first chunk, a wait waits for where it rests next."""
    gate = asyncio.Event()

    @tool(requires_approval=True)
    async def work() -> str:
        """Works until it is let go."""
        await gate.wait()
        return "worked"

    agent = Agent(id="works", model=once({"tool": "work", "id": "c"}), tools=[work])
    async with serving(agent) as (_, peer):
        begin = stream("works", request_id=Q)
        parked = await peer.call("Stream", begin)
        run_id = parked[0].chunks[0].run_id
        again = await peer.call("Stream", begin)
        assert again[0].replayed
        assert not again[0].chunks
        (pending,) = parked[-1].chunks[-1].finish.open_calls
        await peer.one("Approve", agents.ApproveRequest(call=ref(pending.pending_call_id)))
        joined = peer.open("Stream", begin)
        assert (await joined.read()).replayed
        seen: list[Any] = []
        while not any(chunk.HasField("tool_call_resolved") for chunk in seen):
            seen.extend((await joined.read()).chunks)
        assert [chunk.sequence for chunk in seen] == list(range(1, len(seen) + 1))
        gate.set()
        seen += [chunk for response in await rest_of(joined) for chunk in response.chunks]
        assert kinds(seen)[-1] == "finish"
        ended = await peer.call("Stream", begin)
        assert [chunk for response in ended for chunk in response.chunks] == seen
        assert seen == await peer.chunks(run_id)


async def test_a_repeat_is_recognised_before_the_run_id_is_found_taken() -> None:
    """The same request names the same run id, which is taken by itself: it joins. Without a request id,
    or with another one, the run id is taken."""
    async with serving() as (_, peer):
        request = generate(run_id="mine", request_id=Q)
        assert not (await peer.one("Generate", request)).replayed
        assert (await peer.one("Generate", request)).replayed
        for other in (generate(run_id="mine"), generate(run_id="mine", request_id="another")):
            assert (await peer.refuse("Generate", other)).reason == "RUN_ALREADY_EXISTS"
        answers = await asyncio.gather(
            *(peer.call("Stream", stream(run_id="raced", request_id="r")) for _ in range(10))
        )
        assert sum(not replayed(answer) for answer in answers) == 1


async def test_one_run_id_raced_for_by_different_requests_is_given_once() -> None:
    """One of ten starts the run, the others are told that the id is taken."""
    async with serving() as (_, peer):
        answers = await asyncio.gather(
            *(peer.one("Generate", generate(run_id="mine", request_id=f"q{i}")) for i in range(10)),
            return_exceptions=True,
        )
        lost = [answer for answer in answers if isinstance(answer, grpc.aio.AioRpcError)]
        assert len(lost) == 9
        assert {error.code().name for error in lost} == {"ALREADY_EXISTS"}


async def test_a_decision_without_a_request_id_is_not_repeated() -> None:
    """PENDING_CALL_ALREADY_DECIDED says who decided what and when, under every verb and name."""
    async with serving() as (_, peer):
        run_id, (pending,) = await peer.parked()
        first = await peer.approved(pending)
        decision = first.decision
        for request in (
            agents.ApproveRequest(call=ref(pending.pending_call_id)),
            agents.ApproveRequest(call=ref(pending.pending_call_id), request_id="another"),
            agents.ApproveRequest(call=ref(run_id=run_id, tool_call_id=pending.tool_call_id)),
        ):
            refusal = await peer.refuse("Approve", request)
            assert refusal.reason == "PENDING_CALL_ALREADY_DECIDED"
            assert refusal.metadata == {
                "pending_call_id": pending.pending_call_id,
                "decision_id": decision.decision_id,
                "verb": "approve",
                "principal": "local",
                "decide_time": str(decision.decide_time.ToMilliseconds()),
            }
        claim = inbox.ClaimPendingCallRequest(pending_call_id=pending.pending_call_id)
        refusal = await peer.refuse("ClaimPendingCall", claim)
        assert refusal.reason == "PENDING_CALL_ALREADY_DECIDED"


async def test_many_different_decisions_at_once_decide_once() -> None:
    """Whatever races, one decision stands; the others are told which."""
    async with serving() as (_, peer):
        run_id, (pending,) = await peer.parked()
        call = ref(pending.pending_call_id)
        attempts: list[Any] = []
        for i in range(10):
            attempts.append(peer.call("Approve", agents.ApproveRequest(call=call, request_id=f"a{i}")))
            attempts.append(peer.call("Decline", agents.DeclineRequest(call=call, request_id=f"d{i}")))
        answers = await asyncio.gather(*attempts, return_exceptions=True)
        lost = [parts_of(answer) for answer in answers if isinstance(answer, grpc.aio.AioRpcError)]
        assert len(lost) == 19
        assert {refusal.reason for refusal in lost} == {"PENDING_CALL_ALREADY_DECIDED"}
        await settled(peer)
        (decision,) = (await peer.one("ListDecisions", inbox.ListDecisionsRequest())).decisions
        assert {refusal.metadata["decision_id"] for refusal in lost} == {decision.decision_id}
        chunks = await peer.chunks(run_id)
        assert sum(chunk.HasField("tool_call_resolved") for chunk in chunks) == 1


async def test_a_repeated_decision_waits_for_its_own_next_rest() -> None:
    """With `wait` it gives what the run came to after this decision, when it has already gone on, too."""
    async with serving(Agent(id="t", model=saying({"text": "x"}))) as (_, peer):
        _, pending = await peer.parked("both")
        by_tool = {call.tool_name: call for call in pending}
        pay = agents.ApproveRequest(call=ref(by_tool["pay"].pending_call_id), request_id=Q, wait=True)
        first = await peer.one("Approve", pay)
        assert first.run.state == run_pb2.RUN_STATE_SUSPENDED
        again = await peer.one("Approve", pay)
        assert (again.replayed, again.run.state) == (True, run_pb2.RUN_STATE_SUSPENDED)
        await peer.one(
            "Resume",
            agents.ResumeRequest(
                call=ref(by_tool["confirm"].pending_call_id), resume_data=js('{"ok":true}'), wait=True
            ),
        )
        late = await peer.one("Approve", pay)
        assert (late.replayed, late.run.state) == (True, run_pb2.RUN_STATE_SUCCEEDED)
        assert late.decision == first.decision


async def test_requests_without_an_id_are_each_their_own() -> None:
    """Nothing is guessed from the body."""
    async with serving() as (_, peer):
        started = [await peer.one("Generate", generate()) for _ in range(2)]
        assert len({response.run.run_id for response in started}) == 2
        assert not any(response.replayed for response in started)
