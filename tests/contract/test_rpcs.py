"""The basic contract of every RPC, as a blocking client sees it: what it does and what it refuses."""

import json
from typing import Any

import grpc
import pytest

from entracte.v1 import (
    agent_pb2,
    agent_service_pb2_grpc,
    catalog_service_pb2_grpc,
    chunk_pb2,
    inbox_service_pb2_grpc,
    message_pb2,
    options_pb2,
    pending_call_pb2,
    run_pb2,
    run_service_pb2_grpc,
    thread_pb2,
    thread_service_pb2_grpc,
)
from entracte.v1 import agent_service_pb2 as agents
from entracte.v1 import catalog_service_pb2 as catalog
from entracte.v1 import inbox_service_pb2 as inbox
from entracte.v1 import result_pb2 as results
from entracte.v1 import run_service_pb2 as runs
from entracte.v1 import thread_service_pb2 as threads
from entracte.v1 import working_memory_pb2 as notes
from tests.contract.support import Client
from tests.rpc.support import METHODS, definition, generate, js, kinds, ref, stream

SUCCEEDED, SUSPENDED = run_pb2.RUN_STATE_SUCCEEDED, run_pb2.RUN_STATE_SUSPENDED
STOP = results.FINISH_REASON_STOP
USER, ASSISTANT = message_pb2.ROLE_USER, message_pb2.ROLE_ASSISTANT


def of(messages: list[Any]) -> list[chunk_pb2.Chunk]:
    """The chunks in a stream's messages."""
    return [chunk for message in messages for chunk in message.chunks]


def shown(pending: pending_call_pb2.PendingCall) -> pending_call_pb2.CallRef:
    """Names a call that waits."""
    return ref(pending.pending_call_id)


def finished(response: Any, verb: int) -> Any:
    """What a decision with `wait` must say: the run ended, and who decided what."""
    assert response.run.state == SUCCEEDED
    assert response.result.finish_reason == STOP
    assert (response.decision.verb, response.decision.principal) == (verb, "local")
    assert not response.replayed
    return response


def test_the_generated_stubs_have_every_rpc(grpc_channel: grpc.Channel) -> None:
    """What the tests call by name is what a generated stub offers, and every RPC is tested here."""
    stubs: list[Any] = [
        agent_service_pb2_grpc.AgentServiceStub(grpc_channel),
        run_service_pb2_grpc.RunServiceStub(grpc_channel),
        inbox_service_pb2_grpc.InboxServiceStub(grpc_channel),
        thread_service_pb2_grpc.ThreadServiceStub(grpc_channel),
        catalog_service_pb2_grpc.CatalogServiceStub(grpc_channel),
    ]
    assert {name for stub in stubs for name in vars(stub) if not name.startswith("_")} == set(METHODS)
    response = stubs[0].Generate(generate(), timeout=20)
    assert response.result.text == "good day"
    done = {name.removeprefix("test_").replace("_", "") for name in globals()}
    assert {name for name in METHODS if name.lower() not in done} == set()
    assert {method for method, *_ in REFUSALS} == set(METHODS)


# ---- AgentService ----


def test_generate(client: Client) -> None:
    """Runs an agent to its end: text, reason, the steps, the run and its id in the metadata. Sent
    again under its `request_id` it gives the same run; with another body it is refused."""
    request = generate(request_id="contract-generate")
    call = client.open("Generate", request)
    response = call.result()
    assert response.result.text == "good day"
    assert response.result.finish_reason == STOP
    assert len(response.result.steps) == 1
    assert response.run.state == SUCCEEDED
    assert dict(call.initial_metadata())["entracte-run-id"] == response.run.run_id

    again = client.one("Generate", request)
    assert (again.run, again.result, again.replayed) == (response.run, response.result, True)
    other = client.refuse("Generate", generate(text="other", request_id="contract-generate"))
    assert (other.code, other.reason) == ("INVALID_ARGUMENT", "REQUEST_ID_REUSED")
    assert other.metadata == {"request_id": "contract-generate"}


def test_stream(client: Client) -> None:
    """Streams a run: chunks from `start` to `finish`, numbered from 1, the run's id in the metadata."""
    call = client.open("Stream", stream())
    run_id = dict(call.initial_metadata())["entracte-run-id"]
    chunks = of(list(call))
    assert [chunk.sequence for chunk in chunks] == list(range(1, len(chunks) + 1))
    assert {chunk.run_id for chunk in chunks} == {run_id}
    assert (kinds(chunks)[0], kinds(chunks)[-1]) == ("start", "finish")
    assert "".join(chunk.text_delta.text for chunk in chunks) == "good day"
    assert chunks[-1].finish.reason == STOP


def test_resume(client: Client) -> None:
    """An answer that fits goes to the tool that asked; one that does not leaves the call waiting."""
    pending = client.parked("suspends")
    assert pending.kind == chunk_pb2.PENDING_CALL_KIND_SUSPENSION
    assert json.loads(pending.suspend_payload.text) == {"confirm": "it"}
    refusal = client.refuse("Resume", agents.ResumeRequest(call=shown(pending), resume_data=js("{}")))
    assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "RESUME_DATA_INVALID")
    assert refusal.violations
    request = agents.ResumeRequest(call=shown(pending), resume_data=js('{"ok":true}'), wait=True)
    response = finished(client.one("Resume", request), chunk_pb2.DECISION_VERB_RESUME)
    assert [json.loads(c.tool_result.result.text) for c in response.result.tool_results] == [{"ok": True}]


def test_approve(client: Client) -> None:
    """An approval of what was shown runs the tool; of anything else it is refused; a second one too."""
    pending = client.parked()
    assert pending.kind == chunk_pb2.PENDING_CALL_KIND_APPROVAL
    wrong = agents.ApproveRequest(call=shown(pending), args_digest=b"\0" * 32, wait=True)
    refusal = client.refuse("Approve", wrong)
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "ARGS_DIGEST_MISMATCH")
    assert refusal.metadata == {"pending_call_id": pending.pending_call_id}

    request = agents.ApproveRequest(call=shown(pending), args_digest=pending.args_digest, wait=True)
    response = finished(client.one("Approve", request), chunk_pb2.DECISION_VERB_APPROVE)
    assert [json.loads(c.tool_result.result.text) for c in response.result.tool_results] == [{"paid": 7}]

    second = client.refuse("Approve", request)
    assert (second.code, second.reason) == ("FAILED_PRECONDITION", "PENDING_CALL_ALREADY_DECIDED")
    assert second.metadata["decision_id"] == response.decision.decision_id
    assert (second.metadata["verb"], second.metadata["principal"]) == ("approve", "local")
    edited = agents.ApproveRequest(call=shown(client.parked()), edited_args=js('{"amount":"x"}'))
    assert client.refuse("Approve", edited).reason == "EDITED_ARGS_INVALID"


def test_decline(client: Client) -> None:
    """A declined call is not executed and the model goes on; the words are in the audit and the stream."""
    pending = client.parked()
    request = agents.DeclineRequest(call=shown(pending), reason="too much", wait=True)
    response = finished(client.one("Decline", request), chunk_pb2.DECISION_VERB_DECLINE)
    assert response.decision.reason == "too much"
    assert not response.result.tool_results
    chunks = of(client.all("WatchRun", runs.WatchRunRequest(run_id=pending.run_id)))
    assert [c.tool_output_denied.reason for c in chunks if c.HasField("tool_output_denied")] == ["too much"]
    assert client.refuse("Decline", request).reason == "PENDING_CALL_ALREADY_DECIDED"


def test_submit_tool_result(client: Client) -> None:
    """What the caller's own tool returned goes to the model; an approval is no answer to such a call."""
    pending = client.parked("hands-out")
    assert pending.kind == chunk_pb2.PENDING_CALL_KIND_CLIENT_TOOL
    refusal = client.refuse("Approve", agents.ApproveRequest(call=shown(pending)))
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "VERB_MISMATCH")
    assert refusal.metadata["kind"] == "client-tool"
    request = agents.SubmitToolResultRequest(call=shown(pending), result=js('{"n":2}'), wait=True)
    response = finished(client.one("SubmitToolResult", request), chunk_pb2.DECISION_VERB_SUBMIT)
    assert [json.loads(c.tool_result.result.text) for c in response.result.tool_results] == [{"n": 2}]


# ---- RunService ----


def test_get_run(client: Client) -> None:
    """The same run and result that `Generate` gave; without the result where it is not wanted."""
    made = client.one("Generate", generate())
    read = client.one("GetRun", runs.GetRunRequest(run_id=made.run.run_id))
    assert (read.run, read.result) == (made.run, made.result)
    short = client.one("GetRun", runs.GetRunRequest(run_id=made.run.run_id, omit_result=True))
    assert short.run == made.run
    assert not short.HasField("result")


def test_list_runs(client: Client) -> None:
    """Newest first, page by page, only those that the filters let pass."""
    made = [client.parked("asks").run_id for _ in range(3)]
    where: dict[str, Any] = {"agent_id": "asks", "states": [SUSPENDED], "page_size": 2}
    first = client.one("ListRuns", runs.ListRunsRequest(**where))
    assert first.next_page_token
    second = client.one("ListRuns", runs.ListRunsRequest(**where, page_token=first.next_page_token))
    assert [run.run_id for page in (first, second) for run in page.runs] == made[::-1]
    assert not second.next_page_token
    other = client.one("ListRuns", runs.ListRunsRequest(agent_id="asks", states=[SUCCEEDED]))
    assert not other.runs


def test_watch_run(client: Client) -> None:
    """The chunks that were streamed, from any position; the end of what there is, but not beyond."""
    sent = of(client.all("Stream", stream()))
    run_id = sent[0].run_id
    assert of(client.all("WatchRun", runs.WatchRunRequest(run_id=run_id))) == sent
    assert of(client.all("WatchRun", runs.WatchRunRequest(run_id=run_id, after_sequence=2))) == sent[2:]
    end = len(sent)
    assert client.all("WatchRun", runs.WatchRunRequest(run_id=run_id, after_sequence=end)) == []
    ahead = client.refuse("WatchRun", runs.WatchRunRequest(run_id=run_id, after_sequence=end + 1))
    assert (ahead.code, ahead.reason) == ("OUT_OF_RANGE", "SEQUENCE_AHEAD")
    assert ahead.metadata == {"run_id": run_id, "last_sequence": str(end)}


def test_watch_run_follows_a_run_through_its_suspension(client: Client) -> None:
    """With `until_finished` the stream waits for the decision and ends with the run."""
    pending = client.parked()
    call = client.open("WatchRun", runs.WatchRunRequest(run_id=pending.run_id, until_finished=True))
    first = next(call)
    assert first.chunks[0].sequence == 1
    client.one("Approve", agents.ApproveRequest(call=shown(pending)))
    chunks = of([first, *call])
    assert kinds(chunks).count("finish") == 2
    assert (kinds(chunks)[-1], chunks[-1].finish.reason) == ("finish", STOP)
    assert [chunk.sequence for chunk in chunks] == list(range(1, len(chunks) + 1))


def test_cancel_run(client: Client) -> None:
    """A run at work and a parked one end as cancelled, with the reason in `abort`; the call that
    waited cannot be decided any more. Cancelling a run that has ended changes nothing."""
    call = client.open("Stream", stream("slow"))
    run_id = dict(call.initial_metadata())["entracte-run-id"]
    request = runs.CancelRunRequest(run_id=run_id, reason="changed my mind", wait=True)
    response = client.one("CancelRun", request)
    assert response.run.state == run_pb2.RUN_STATE_CANCELLED
    chunks = of(list(call))
    assert kinds(chunks)[-2:] == ["abort", "finish"]
    assert chunks[-2].abort.reason == "changed my mind"
    assert client.one("CancelRun", request).run == response.run

    pending = client.parked()
    response = client.one("CancelRun", runs.CancelRunRequest(run_id=pending.run_id, wait=True))
    assert response.run.state == run_pb2.RUN_STATE_CANCELLED
    late = client.refuse("Approve", agents.ApproveRequest(call=shown(pending)))
    assert late.code == "FAILED_PRECONDITION"
    assert late.reason in {"RUN_FINISHED", "PENDING_CALL_ALREADY_DECIDED"}


def test_delete_run(client: Client) -> None:
    """A run that has ended is gone from everywhere; a parked one needs `force`."""
    done = client.one("Generate", generate()).run.run_id
    assert not client.one("DeleteRun", runs.DeleteRunRequest(run_id=done)).replayed
    assert client.refuse("GetRun", runs.GetRunRequest(run_id=done)).reason == "RUN_NOT_FOUND"

    pending = client.parked()
    refusal = client.refuse("DeleteRun", runs.DeleteRunRequest(run_id=pending.run_id))
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "RUN_NOT_FINISHED")
    assert refusal.metadata == {"run_id": pending.run_id, "state": "suspended"}
    client.one("DeleteRun", runs.DeleteRunRequest(run_id=pending.run_id, force=True))
    gone = client.refuse(
        "GetPendingCall", inbox.GetPendingCallRequest(pending_call_id=pending.pending_call_id)
    )
    assert gone.reason == "PENDING_CALL_NOT_FOUND"


# ---- InboxService ----


def test_list_pending_calls(client: Client) -> None:
    """Oldest first, page by page; a decided call is listed where that is asked for."""
    calls = [client.parked("suspends") for _ in range(3)]
    run_ids = [pending.run_id for pending in calls]
    found: list[str] = []
    token = ""
    while token or not found:
        request = inbox.ListPendingCallsRequest(agent_id="suspends", page_size=2, page_token=token)
        page = client.one("ListPendingCalls", request)
        found += [pending.run_id for pending in page.pending_calls]
        token = page.next_page_token
    assert found[-3:] == run_ids
    client.one("Decline", agents.DeclineRequest(call=shown(calls[0]), wait=True))
    where: dict[str, Any] = {"run_id": run_ids[0]}
    assert not client.one("ListPendingCalls", inbox.ListPendingCallsRequest(**where)).pending_calls
    request = inbox.ListPendingCallsRequest(**where, include_decided=True)
    [decided] = client.one("ListPendingCalls", request).pending_calls
    assert decided.decision.verb == chunk_pb2.DECISION_VERB_DECLINE


def test_get_pending_call(client: Client) -> None:
    """A call as the run's result shows it, and after the decision with that."""
    pending = client.parked()
    request = inbox.GetPendingCallRequest(pending_call_id=pending.pending_call_id)
    assert client.one("GetPendingCall", request).pending_call == pending
    client.one("Decline", agents.DeclineRequest(call=shown(pending), reason="no"))
    decided = client.one("GetPendingCall", request).pending_call
    assert decided.state == pending_call_pb2.PENDING_CALL_STATE_DECIDED
    assert decided.decision.reason == "no"


def test_watch_pending_calls(client: Client) -> None:
    """First what is open, marked where that is complete, then what opens and what closes."""
    pending = client.parked("asks")
    call = client.open("WatchPendingCalls", inbox.WatchPendingCallsRequest(run_id=pending.run_id))
    messages = [next(call)]
    while not messages[-1].snapshot_complete:
        messages.append(next(call))
    assert [p.pending_call_id for m in messages for p in m.opened] == [pending.pending_call_id]
    client.one("Resume", agents.ResumeRequest(call=shown(pending), resume_data=js("0"), wait=True))
    message = next(call)
    while not message.closed_pending_call_ids:
        message = next(call)
    assert list(message.closed_pending_call_ids) == [pending.pending_call_id]
    call.cancel()
    assert call.code() is grpc.StatusCode.CANCELLED


def test_claim_pending_call(client: Client) -> None:
    """The claim is the caller's for the time it asks for, and it may still decide."""
    pending = client.parked()
    request = inbox.ClaimPendingCallRequest(pending_call_id=pending.pending_call_id)
    request.ttl.seconds = 60
    claim = client.one("ClaimPendingCall", request).pending_call.claim
    assert claim.principal == "local"
    assert claim.expire_time.seconds > pending.create_time.seconds
    client.one("Approve", agents.ApproveRequest(call=shown(pending), wait=True))
    late = client.refuse("ClaimPendingCall", request)
    assert (late.code, late.reason) == ("FAILED_PRECONDITION", "PENDING_CALL_ALREADY_DECIDED")


def test_release_pending_call(client: Client) -> None:
    """A released call has no claim; releasing what nobody claimed is no error."""
    pending = client.parked()
    name = pending.pending_call_id
    client.one("ClaimPendingCall", inbox.ClaimPendingCallRequest(pending_call_id=name))
    for _ in range(2):
        released = client.one("ReleasePendingCall", inbox.ReleasePendingCallRequest(pending_call_id=name))
        assert not released.pending_call.HasField("claim")


def test_list_decisions(client: Client) -> None:
    """Newest first: who decided what about which arguments, with the words and notes of the request."""
    first, second = client.parked(), client.parked()
    client.one("Approve", agents.ApproveRequest(call=shown(first), comment="fine", on_behalf_of="ada"))
    client.one("Decline", agents.DeclineRequest(call=shown(second), reason="no"))
    listed = client.one("ListDecisions", inbox.ListDecisionsRequest(page_size=2)).decisions
    assert [decision.pending_call_id for decision in listed] == [
        second.pending_call_id,
        first.pending_call_id,
    ]
    assert (listed[1].comment, listed[1].on_behalf_of, listed[1].principal) == ("fine", "ada", "local")
    assert listed[1].args == first.args
    where = inbox.ListDecisionsRequest(pending_call_id=first.pending_call_id)
    assert list(client.one("ListDecisions", where).decisions) == [listed[1]]


# ---- CatalogService ----


def version_of(client: Client, agent_id: str, **fields: Any) -> agent_pb2.AgentVersion:
    """A new version of an agent."""
    request = catalog.CreateAgentVersionRequest(agent_id=agent_id, definition=definition(**fields))
    made: agent_pb2.AgentVersion = client.one("CreateAgentVersion", request).version
    return made


def publish(client: Client, version: agent_pb2.AgentVersion, **fields: Any) -> Any:
    """The response to a version's being published."""
    request = catalog.PublishAgentVersionRequest(
        agent_id=version.agent_id, version_id=version.version_id, **fields
    )
    return client.one("PublishAgentVersion", request)


def test_list_agents(client: Client) -> None:
    """Those written in Python and those made of data, by id, page by page."""
    version_of(client, "listed", description="Lists.")
    first = client.one("ListAgents", catalog.ListAgentsRequest(page_size=3))
    rest = client.one("ListAgents", catalog.ListAgentsRequest(page_token=first.next_page_token))
    assert len(first.agents) == 3
    found = {agent.agent_id: agent for page in (first, rest) for agent in page.agents}
    assert list(found) == sorted(found)
    assert found["talk"].origin == agent_pb2.Agent.ORIGIN_CODE
    assert (found["listed"].origin, found["listed"].description) == (agent_pb2.Agent.ORIGIN_DATA, "Lists.")
    assert not rest.next_page_token


def test_get_agent(client: Client) -> None:
    """With the version that is asked for, what it works with, and its newest versions."""
    one, two = version_of(client, "got", name="One"), version_of(client, "got", name="Two")
    publish(client, one)
    response = client.one("GetAgent", catalog.GetAgentRequest(agent_id="got"))
    assert (response.agent.name, response.agent.published_version_id) == ("One", one.version_id)
    assert (response.version.version_id, response.version.definition.name) == (one.version_id, "One")
    assert list(response.parts.models) == list(one.definition.models)
    assert [version.number for version in response.versions] == [2, 1]
    for chosen in ({"version_id": two.version_id}, {"published": False}):
        request = catalog.GetAgentRequest(agent_id="got", version=options_pb2.VersionSelector(**chosen))
        assert client.one("GetAgent", request).version.definition.name == "Two"
    response = client.one("GetAgent", catalog.GetAgentRequest(agent_id="gate"))
    assert "pay" in response.parts.tools
    assert not response.HasField("version")


def test_create_agent_version(client: Client) -> None:
    """A draft, which runs by its author's wish only; the definition is shown as it was sent."""
    version = version_of(client, "created", instructions=["Be kind."])
    assert (version.number, version.status) == (1, agent_pb2.AgentVersion.STATUS_DRAFT)
    assert version.definition == definition(instructions=["Be kind."])
    refusal = client.refuse("Generate", generate("created"))
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "AGENT_NOT_PUBLISHED")
    assert refusal.metadata == {"agent_id": "created", "status": "published"}
    draft = options_pb2.VersionSelector(published=False)
    response = client.one("Generate", generate("created", versions={"created": draft}))
    assert (response.result.text, response.run.agent_version_id) == ("made", version.version_id)


def test_publish_agent_version(client: Client) -> None:
    """Runs use it from then on; it may depend on what is published now."""
    one, two = version_of(client, "published"), version_of(client, "published")
    published = publish(client, one, if_published="", request_id="q-published")
    assert (published.version.is_published, published.replayed) == (True, False)
    assert publish(client, one, if_published="", request_id="q-published").replayed
    response = client.one("Generate", generate("published"))
    assert response.run.agent_version_id == one.version_id
    request = catalog.PublishAgentVersionRequest(
        agent_id="published", version_id=two.version_id, if_published="another"
    )
    refusal = client.refuse("PublishAgentVersion", request)
    assert (refusal.code, refusal.reason) == ("ABORTED", "PUBLISHED_VERSION_CHANGED")
    assert refusal.metadata == {"agent_id": "published", "published_version_id": one.version_id}


def test_archive_agent_version(client: Client) -> None:
    """No new run uses it; published again it is used again."""
    version = version_of(client, "archived")
    publish(client, version)
    request = catalog.ArchiveAgentVersionRequest(agent_id="archived", version_id=version.version_id)
    archived = client.one("ArchiveAgentVersion", request).version
    assert (archived.status, archived.is_published) == (agent_pb2.AgentVersion.STATUS_ARCHIVED, False)
    chosen = options_pb2.VersionSelector(version_id=version.version_id)
    refusal = client.refuse("Generate", generate("archived", versions={"archived": chosen}))
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "AGENT_VERSION_ARCHIVED")
    publish(client, version)
    assert client.one("Generate", generate("archived")).result.text == "made"


def test_list_agent_versions(client: Client) -> None:
    """Newest first, page by page, without what they say."""
    for _ in range(3):
        version_of(client, "many")
    first = client.one("ListAgentVersions", catalog.ListAgentVersionsRequest(agent_id="many", page_size=2))
    request = catalog.ListAgentVersionsRequest(agent_id="many", page_token=first.next_page_token)
    rest = client.one("ListAgentVersions", request)
    found = [version for page in (first, rest) for version in page.versions]
    assert [version.number for version in found] == [3, 2, 1]
    assert not any(version.HasField("definition") for version in found)


# ---- ThreadService ----


def on(thread_id: str, **options: Any) -> options_pb2.MemoryOptions:
    """The memory of a run on a thread of Ada's."""
    return options_pb2.MemoryOptions(thread=options_pb2.ThreadRef(id=thread_id), resource="ada", **options)


def test_create_thread(client: Client) -> None:
    """A thread with its title and metadata, under an id of the caller's or of the server's."""
    request = threads.CreateThreadRequest(
        thread_id="made", resource_id="ada", title="Hats", metadata=js('{"n":1.0}'), request_id="q-made"
    )
    first = client.one("CreateThread", request)
    thread = first.thread
    assert (thread.thread_id, thread.resource_id, thread.title) == ("made", "ada", "Hats")
    assert (thread.metadata.text, thread.message_count, thread.active_run_id) == ('{"n":1.0}', 0, "")
    again = client.one("CreateThread", request)
    assert (again.thread, again.replayed) == (thread, True)
    taken = client.refuse("CreateThread", threads.CreateThreadRequest(thread_id="made", resource_id="bea"))
    assert (taken.code, taken.reason) == ("ALREADY_EXISTS", "THREAD_EXISTS")
    assert taken.metadata == {"thread_id": "made"}
    nameless = [client.one("CreateThread", threads.CreateThreadRequest(resource_id="ada")) for _ in range(2)]
    assert len({made.thread.thread_id for made in nameless} - {""}) == 2


def test_get_thread(client: Client) -> None:
    """How many messages it has, and the run that has it."""
    pending = client.parked(memory=on("got"))
    thread = client.one("GetThread", threads.GetThreadRequest(thread_id="got")).thread
    assert (thread.resource_id, thread.active_run_id) == ("ada", pending.run_id)
    assert (thread.active_run_state, thread.queued_runs) == (SUSPENDED, 0)
    client.one("Approve", agents.ApproveRequest(call=shown(pending), wait=True))
    thread = client.one("GetThread", threads.GetThreadRequest(thread_id="got")).thread
    assert (thread.active_run_id, thread.active_run_state) == ("", run_pb2.RUN_STATE_UNSPECIFIED)
    assert thread.message_count == 3


def test_list_threads(client: Client) -> None:
    """Newest first, page by page, of one resource."""
    for number in range(3):
        request = threads.CreateThreadRequest(thread_id=f"listed-{number}", resource_id="lists")
        client.one("CreateThread", request)
    where: dict[str, Any] = {"resource_id": "lists", "page_size": 2}
    first = client.one("ListThreads", threads.ListThreadsRequest(**where))
    rest = client.one("ListThreads", threads.ListThreadsRequest(**where, page_token=first.next_page_token))
    found = [thread.thread_id for page in (first, rest) for thread in page.threads]
    assert found == ["listed-2", "listed-1", "listed-0"]
    assert not rest.next_page_token


def test_update_thread(client: Client) -> None:
    """What is given is changed, the rest stays; an empty title takes it away."""
    request = threads.CreateThreadRequest(thread_id="changed", resource_id="ada", title="a")
    client.one("CreateThread", request)

    def change(**fields: Any) -> Any:
        return client.one("UpdateThread", threads.UpdateThreadRequest(thread_id="changed", **fields)).thread

    assert change(metadata=js('{"a":[]}')).title == "a"
    thread = change(title="b")
    assert (thread.title, thread.metadata.text) == ("b", '{"a":[]}')
    thread = change(title="", metadata=js("{}"))
    assert (thread.title, thread.metadata.text) == ("", "{}")
    assert client.one("GetThread", threads.GetThreadRequest(thread_id="changed")).thread == thread


def test_delete_thread(client: Client) -> None:
    """A thread is gone at once, and its id is free; one that a parked run has needs `force`, which
    cancels the run."""
    pending = client.parked(memory=on("doomed"))
    request = threads.DeleteThreadRequest(thread_id="doomed")
    refusal = client.refuse("DeleteThread", request)
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "THREAD_PARKED")
    assert refusal.metadata == {
        "thread_id": "doomed",
        "run_id": pending.run_id,
        "pending_call_ids": pending.pending_call_id,
    }
    response = client.one("DeleteThread", threads.DeleteThreadRequest(thread_id="doomed", force=True))
    assert list(response.cancelled_run_ids) == [pending.run_id]
    assert client.refuse("GetThread", threads.GetThreadRequest(thread_id="doomed")).code == "NOT_FOUND"
    client.one("CreateThread", threads.CreateThreadRequest(thread_id="doomed", resource_id="bea"))


OWNERS: list[dict[str, Any]] = [{"thread_id": "notes"}, {"resource_id": "of-notes"}]
"""Whose working memories are looked at."""


def test_get_working_memory(client: Client) -> None:
    """That of a thread and that of a resource, which is empty where nothing was noted."""
    client.one("CreateThread", threads.CreateThreadRequest(thread_id="unnoted", resource_id="ada"))
    for owner in ({"thread_id": "unnoted"}, {"resource_id": "unnoted"}):
        response = client.one("GetWorkingMemory", notes.GetWorkingMemoryRequest(**owner))
        assert response.working_memory == notes.WorkingMemory(**owner)  # type: ignore[arg-type]


def test_update_working_memory(client: Client) -> None:
    """It is replaced whole, by the version that was read."""
    client.one("CreateThread", threads.CreateThreadRequest(thread_id="notes", resource_id="ada"))
    for owner in OWNERS:
        request = notes.UpdateWorkingMemoryRequest(
            **owner, content="# Ada", expected_version=0, request_id=f"q-{owner}"
        )
        first = client.one("UpdateWorkingMemory", request)
        assert (first.working_memory.content, first.working_memory.version) == ("# Ada", 1)
        again = client.one("UpdateWorkingMemory", request)
        assert (again.working_memory, again.replayed) == (first.working_memory, True)
        stale = notes.UpdateWorkingMemoryRequest(**owner, content="lost", expected_version=0)
        refusal = client.refuse("UpdateWorkingMemory", stale)
        assert (refusal.code, refusal.reason) == ("ABORTED", "WORKING_MEMORY_CHANGED")
        assert refusal.metadata == {"version": "1"}
        read = client.one("GetWorkingMemory", notes.GetWorkingMemoryRequest(**owner)).working_memory
        assert read == first.working_memory


def test_list_thread_messages(client: Client) -> None:
    """What was said, with each tool call and what came of it in one part; by role, by run, and from the
    newest on."""
    pending = client.parked(memory=on("said"))
    client.one("Approve", agents.ApproveRequest(call=shown(pending), wait=True))
    other = client.one("Generate", generate(text="bye", memory=on("said"))).run.run_id

    def said(**fields: Any) -> list[Any]:
        request = threads.ListThreadMessagesRequest(thread_id="said", **fields)
        return list(client.one("ListThreadMessages", request).messages)

    everything = said()
    assert [message.position for message in everything] == [1, 2, 3, 4, 5]
    assert [message.role for message in everything] == [USER, ASSISTANT, ASSISTANT, USER, ASSISTANT]
    assert [message.author for message in everything] == ["local", "gate", "gate", "local", "talk"]
    [part] = everything[1].parts
    assert (part.tool_invocation.tool_name, part.tool_invocation.args.text) == ("pay", '{"amount":7}')
    assert part.tool_invocation.state == thread_pb2.TOOL_INVOCATION_STATE_RESULT
    assert json.loads(part.tool_invocation.result.text) == {"paid": 7}
    assert everything[2].parts[0].text.text == "done"
    assert said(newest_first=True, page_size=2) == everything[:-3:-1]
    assert said(roles=[USER]) == [everything[0], everything[3]]
    assert said(run_id=other) == everything[3:]


# ---- refusals ----

NOWHERE = ref("no-such-call")
MISSING: dict[str, Any] = {"pending_call_id": "no-such-call"}
NO_THREAD: dict[str, Any] = {"thread_id": "no-such-thread"}
NOBODY: dict[str, Any] = {"agent_id": "nobody"}

REFUSALS: list[tuple[str, Any, str, str, dict[str, str]]] = [
    ("Generate", generate("nobody"), "NOT_FOUND", "AGENT_NOT_FOUND", {"agent_id": "nobody"}),
    ("Stream", stream("nobody"), "NOT_FOUND", "AGENT_NOT_FOUND", {"agent_id": "nobody"}),
    (
        "Resume",
        agents.ResumeRequest(call=NOWHERE, resume_data=js("1")),
        "NOT_FOUND",
        "PENDING_CALL_NOT_FOUND",
        MISSING,
    ),
    ("Approve", agents.ApproveRequest(call=NOWHERE), "NOT_FOUND", "PENDING_CALL_NOT_FOUND", MISSING),
    ("Decline", agents.DeclineRequest(call=NOWHERE), "NOT_FOUND", "PENDING_CALL_NOT_FOUND", MISSING),
    (
        "SubmitToolResult",
        agents.SubmitToolResultRequest(call=NOWHERE, result=js("1")),
        "NOT_FOUND",
        "PENDING_CALL_NOT_FOUND",
        MISSING,
    ),
    ("GetRun", runs.GetRunRequest(run_id="none"), "NOT_FOUND", "RUN_NOT_FOUND", {"run_id": "none"}),
    ("ListRuns", runs.ListRunsRequest(page_token="x"), "INVALID_ARGUMENT", "PAGE_TOKEN_INVALID", {}),
    ("ListAgents", catalog.ListAgentsRequest(page_token="x"), "INVALID_ARGUMENT", "PAGE_TOKEN_INVALID", {}),
    ("GetAgent", catalog.GetAgentRequest(**NOBODY), "NOT_FOUND", "AGENT_NOT_FOUND", NOBODY),
    ("ListAgentVersions", catalog.ListAgentVersionsRequest(**NOBODY), "NOT_FOUND", "AGENT_NOT_FOUND", NOBODY),
    (
        "CreateAgentVersion",
        catalog.CreateAgentVersionRequest(agent_id="talk", definition=definition()),
        "ALREADY_EXISTS",
        "AGENT_DEFINED_IN_CODE",
        {"agent_id": "talk"},
    ),
    (
        "PublishAgentVersion",
        catalog.PublishAgentVersionRequest(**NOBODY, version_id="v"),
        "NOT_FOUND",
        "AGENT_NOT_FOUND",
        NOBODY,
    ),
    (
        "ArchiveAgentVersion",
        catalog.ArchiveAgentVersionRequest(**NOBODY, version_id="v"),
        "NOT_FOUND",
        "AGENT_NOT_FOUND",
        NOBODY,
    ),
    ("WatchRun", runs.WatchRunRequest(run_id="none"), "NOT_FOUND", "RUN_NOT_FOUND", {"run_id": "none"}),
    ("CancelRun", runs.CancelRunRequest(run_id="none"), "NOT_FOUND", "RUN_NOT_FOUND", {"run_id": "none"}),
    ("DeleteRun", runs.DeleteRunRequest(run_id="none"), "NOT_FOUND", "RUN_NOT_FOUND", {"run_id": "none"}),
    (
        "ListPendingCalls",
        inbox.ListPendingCallsRequest(page_token="x"),
        "INVALID_ARGUMENT",
        "PAGE_TOKEN_INVALID",
        {},
    ),
    (
        "GetPendingCall",
        inbox.GetPendingCallRequest(**MISSING),
        "NOT_FOUND",
        "PENDING_CALL_NOT_FOUND",
        MISSING,
    ),
    (
        "WatchPendingCalls",
        inbox.WatchPendingCallsRequest(run_id="line\nbreak"),
        "INVALID_ARGUMENT",
        "REQUEST_INVALID",
        {},
    ),
    (
        "ClaimPendingCall",
        inbox.ClaimPendingCallRequest(**MISSING),
        "NOT_FOUND",
        "PENDING_CALL_NOT_FOUND",
        MISSING,
    ),
    (
        "ReleasePendingCall",
        inbox.ReleasePendingCallRequest(**MISSING),
        "NOT_FOUND",
        "PENDING_CALL_NOT_FOUND",
        MISSING,
    ),
    (
        "ListDecisions",
        inbox.ListDecisionsRequest(page_token="x"),
        "INVALID_ARGUMENT",
        "PAGE_TOKEN_INVALID",
        {},
    ),
    ("CreateThread", threads.CreateThreadRequest(), "INVALID_ARGUMENT", "REQUEST_INVALID", {}),
    ("GetThread", threads.GetThreadRequest(**NO_THREAD), "NOT_FOUND", "THREAD_NOT_FOUND", NO_THREAD),
    ("ListThreads", threads.ListThreadsRequest(page_token="x"), "INVALID_ARGUMENT", "PAGE_TOKEN_INVALID", {}),
    (
        "UpdateThread",
        threads.UpdateThreadRequest(**NO_THREAD, title="x"),
        "NOT_FOUND",
        "THREAD_NOT_FOUND",
        NO_THREAD,
    ),
    ("DeleteThread", threads.DeleteThreadRequest(**NO_THREAD), "NOT_FOUND", "THREAD_NOT_FOUND", NO_THREAD),
    (
        "ListThreadMessages",
        threads.ListThreadMessagesRequest(**NO_THREAD),
        "NOT_FOUND",
        "THREAD_NOT_FOUND",
        NO_THREAD,
    ),
    (
        "GetWorkingMemory",
        notes.GetWorkingMemoryRequest(**NO_THREAD),
        "NOT_FOUND",
        "THREAD_NOT_FOUND",
        NO_THREAD,
    ),
    (
        "UpdateWorkingMemory",
        notes.UpdateWorkingMemoryRequest(**NO_THREAD, content="x"),
        "NOT_FOUND",
        "THREAD_NOT_FOUND",
        NO_THREAD,
    ),
]
"""For each RPC, a request about what does not exist: status, reason, metadata."""


@pytest.mark.parametrize(
    ("method", "request_", "code", "reason", "metadata"), REFUSALS, ids=[row[0] for row in REFUSALS]
)
def test_what_does_not_exist(
    client: Client, method: str, request_: Any, code: str, reason: str, metadata: dict[str, str]
) -> None:
    """The refusal says what was asked for, in the metadata or by the field."""
    refusal = client.refuse(method, request_)
    assert (refusal.code, refusal.reason, refusal.metadata) == (code, reason, metadata)
    assert bool(refusal.violations) == (code == "INVALID_ARGUMENT")


@pytest.mark.parametrize("make", [generate, stream])
def test_a_run_is_not_started_by_a_wrong_request(client: Client, make: Any) -> None:
    """`Generate` and `Stream` refuse alike: no input, a taken run id, an option that is not supported."""
    method = "Generate" if make is generate else "Stream"
    empty = make()
    del empty.messages[:]
    refusal = client.refuse(method, empty)
    assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "REQUEST_INVALID")
    assert list(refusal.violations) == ["messages"]

    taken = client.one("Generate", generate()).run.run_id
    refusal = client.refuse(method, make(run_id=taken))
    assert (refusal.code, refusal.reason) == ("ALREADY_EXISTS", "RUN_ALREADY_EXISTS")
    assert refusal.metadata == {"run_id": taken}

    newer = make()
    newer.options.MergeFromString(b"\xc0\x3e\x01")
    refusal = client.refuse(method, newer)
    assert (refusal.code, refusal.reason) == ("UNIMPLEMENTED", "OPTION_UNSUPPORTED")
    assert refusal.metadata["field"] == "options.1000"
