"""Every RPC refuses what is missing or wrong, and says which field it is; nothing is changed by it.

One server serves the whole module. A run is parked before the first bad request, and answered after
the last.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from google.protobuf import duration_pb2

from entracte.v1 import agent_service_pb2 as agents
from entracte.v1 import catalog_service_pb2 as catalog
from entracte.v1 import inbox_service_pb2 as inbox
from entracte.v1 import message_pb2 as m
from entracte.v1 import pending_call_pb2, run_pb2
from entracte.v1 import run_service_pb2 as runs
from entracte.v1 import thread_service_pb2 as threads
from entracte.v1 import working_memory_pb2 as notes
from tests.rpc.support import METHODS, Peer, definition, generate, js, ref, serving, stream, user

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG = "x" * 257
NUL = "a\0b"
UNKNOWN = "01JZZZZZZZZZZZZZZZZZZZZZZZ"


@dataclass
class Standing:
    """What stands before the bad requests come, and must stand after them."""

    peer: Peer
    run_id: str
    pending: pending_call_pb2.PendingCall
    last_sequence: int


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def standing() -> AsyncIterator[Standing]:
    """A server with a parked run."""
    async with serving() as (_, peer):
        run_id, (pending,) = await peer.parked()
        yield Standing(peer, run_id, pending, (await peer.run(run_id)).last_sequence)


@dataclass(frozen=True)
class Bad:
    """A bad request: for an RPC, with the field and the reason that the refusal must name."""

    method: str
    name: str
    request: Any
    field: str
    reason: str = "REQUEST_INVALID"
    code: str = "INVALID_ARGUMENT"


def part(**fields: Any) -> m.MessagePart:
    """A part of a message."""
    return m.MessagePart(**fields)


def said(role: Any, *parts: m.MessagePart, **fields: Any) -> m.Message:
    """A message."""
    return m.Message(role=role, parts=parts, **fields)


TEXT = part(text=m.TextPart(text="x"))
CALL = part(tool_call=m.ToolCallPart(tool_call_id="c", tool_name="t"))
RESULT = part(tool_result=m.ToolResultPart(tool_call_id="c", tool_name="t", result=js("1")))
USER, ASSISTANT, SYSTEM, TOOL = m.ROLE_USER, m.ROLE_ASSISTANT, m.ROLE_SYSTEM, m.ROLE_TOOL

MESSAGES: list[tuple[str, list[m.Message], str]] = [
    ("none", [], "messages"),
    ("no role", [said(m.ROLE_UNSPECIFIED, TEXT)], "messages[0].role"),
    ("unknown role", [said(99, TEXT)], "messages[0].role"),
    ("negative role", [said(-1, TEXT)], "messages[0].role"),
    ("no parts", [user(), said(USER)], "messages[1].parts"),
    ("empty part", [said(USER, TEXT, part())], "messages[0].parts[1]"),
    ("call of a user", [said(USER, CALL)], "messages[0].parts[0].tool_call"),
    ("image of the system", [said(SYSTEM, part(image=m.ImagePart(url="x")))], "messages[0].parts[0].image"),
    ("text of a tool", [said(TOOL, TEXT)], "messages[0].parts[0].text"),
    ("image from nowhere", [said(USER, part(image=m.ImagePart()))], "messages[0].parts[0].image"),
    ("blank url", [said(USER, part(image=m.ImagePart(url=" ")))], "messages[0].parts[0].image.url"),
    (
        "image without a type",
        [said(USER, part(image=m.ImagePart(data=b"x")))],
        "messages[0].parts[0].image.media_type",
    ),
    (
        "file without a type",
        [said(USER, part(file=m.FilePart(data=b"x")))],
        "messages[0].parts[0].file.media_type",
    ),
    ("call without a result", [user(), said(ASSISTANT, CALL)], "messages[1].parts[0]"),
    (
        "call with a late result",
        [said(ASSISTANT, CALL), user(), said(TOOL, RESULT)],
        "messages[0].parts[0]",
    ),
    ("result without a call", [said(TOOL, RESULT)], "messages[0].parts[0]"),
    ("two results", [said(ASSISTANT, CALL), said(TOOL, RESULT, RESULT)], "messages[1].parts[1]"),
    ("two calls of one id", [said(ASSISTANT, CALL, CALL), said(TOOL, RESULT)], "messages[0].parts[1]"),
    (
        "result of nothing",
        [said(ASSISTANT, CALL), said(TOOL, part(tool_result=m.ToolResultPart(tool_call_id="c")))],
        "messages[1].parts[0].tool_result.result",
    ),
    (
        "call without an id",
        [said(ASSISTANT, part(tool_call=m.ToolCallPart(tool_name="t")))],
        "messages[0].parts[0].tool_call.tool_call_id",
    ),
    (
        "call without a name",
        [said(ASSISTANT, part(tool_call=m.ToolCallPart(tool_call_id="c")))],
        "messages[0].parts[0].tool_call.tool_name",
    ),
    (
        "arguments that are a list",
        [said(ASSISTANT, part(tool_call=m.ToolCallPart(tool_call_id="c", tool_name="t", args=js("[]"))))],
        "messages[0].parts[0].tool_call.args.text",
    ),
    ("NUL in a message id", [said(USER, TEXT, id=NUL)], "messages[0].id"),
    ("metadata that is a list", [said(USER, TEXT, metadata=js("[1]"))], "messages[0].metadata.text"),
    (
        "provider metadata that is a text",
        [said(ASSISTANT, part(reasoning=m.ReasoningPart(text="x", provider_metadata=js('"x"'))))],
        "messages[0].parts[0].reasoning.provider_metadata.text",
    ),
]


def starting() -> list[Bad]:
    """Bad requests for `Generate` and `Stream`, which take the same."""
    cases: list[Bad] = []
    make: dict[str, Callable[..., Any]] = {"Generate": generate, "Stream": stream}
    kinds: dict[str, Any] = {"Generate": agents.GenerateRequest, "Stream": agents.StreamRequest}
    for method in ("Generate", "Stream"):
        start = make[method]
        cases += [
            Bad(method, "no agent", start(""), "agent_id"),
            Bad(method, "NUL in the agent", start(NUL), "agent_id"),
            Bad(method, "long agent", start(LONG), "agent_id"),
            Bad(method, "unknown agent", start("nobody"), "", "AGENT_NOT_FOUND", "NOT_FOUND"),
            Bad(method, "space in the run id", start(run_id="a b"), "options.run_id"),
            Bad(method, "NUL in the run id", start(run_id=NUL), "options.run_id"),
            Bad(method, "letter of a run id", start(run_id="é"), "options.run_id"),
            Bad(method, "newline after the run id", start(run_id="a\n"), "options.run_id"),
            Bad(method, "long run id", start(run_id="x" * 129), "options.run_id"),
            Bad(method, "long request id", start(request_id="x" * 129), "request_id"),
            Bad(method, "NUL in the request id", start(request_id=NUL), "request_id"),
        ]
        cases += [
            Bad(method, name, kinds[method](agent_id="talk", messages=messages), field)
            for name, messages, field in MESSAGES
        ]
    return cases


DECISIONS: dict[str, Any] = {
    "Resume": lambda call, **more: agents.ResumeRequest(call=call, resume_data=js("{}"), **more),
    "Approve": lambda call, **more: agents.ApproveRequest(call=call, **more),
    "Decline": lambda call, **more: agents.DeclineRequest(call=call, **more),
    "SubmitToolResult": lambda call, **more: agents.SubmitToolResultRequest(
        call=call, result=js("1"), **more
    ),
}


def deciding() -> list[Bad]:
    """Bad requests for the four verbs: what they have in common, then what is their own."""
    cases: list[Bad] = []
    for method, make in DECISIONS.items():
        missing = ("PENDING_CALL_NOT_FOUND", "NOT_FOUND")
        known = ref(UNKNOWN)
        cases += [
            Bad(method, "no call", make(None), "call"),
            Bad(method, "empty call", make(ref()), "call"),
            Bad(method, "tool call without a run", make(ref(tool_call_id="c")), "call"),
            Bad(method, "NUL in the pending call", make(ref(NUL)), "call.pending_call_id"),
            Bad(method, "long pending call", make(ref(LONG)), "call.pending_call_id"),
            Bad(method, "NUL in the run", make(ref(run_id=NUL)), "call.run_id"),
            Bad(method, "NUL in the tool call", make(ref("", "r", NUL)), "call.tool_call_id"),
            Bad(method, "unknown pending call", make(known), "", *missing),
            Bad(method, "unknown run", make(ref(run_id=UNKNOWN)), "", "RUN_NOT_FOUND", "NOT_FOUND"),
            Bad(
                method, "unknown run of a call", make(ref("", UNKNOWN, "c")), "", "RUN_NOT_FOUND", "NOT_FOUND"
            ),
            Bad(method, "long request id", make(known, request_id="x" * 129), "request_id"),
            Bad(method, "NUL in the request id", make(known, request_id=NUL), "request_id"),
            Bad(method, "long comment", make(known, comment="é" * 2049), "comment"),
            Bad(method, "long name", make(known, on_behalf_of="x" * 4097), "on_behalf_of"),
        ]
    call = ref(UNKNOWN)
    return [
        *cases,
        Bad("Resume", "no answer", agents.ResumeRequest(call=call), "resume_data"),
        Bad("Approve", "short digest", agents.ApproveRequest(call=call, args_digest=b"x"), "args_digest"),
        Bad("Approve", "long digest", agents.ApproveRequest(call=call, args_digest=b"x" * 33), "args_digest"),
        Bad("Decline", "long reason", agents.DeclineRequest(call=call, reason="x" * 65537), "reason"),
        Bad("SubmitToolResult", "no outcome", agents.SubmitToolResultRequest(call=call), "outcome"),
        Bad(
            "SubmitToolResult",
            "long error",
            agents.SubmitToolResultRequest(call=call, error="x" * 65537),
            "error",
        ),
    ]


def about_runs() -> list[Bad]:
    """Bad requests for the RPCs about runs."""
    cases: list[Bad] = []
    kinds: dict[str, Any] = {
        "GetRun": runs.GetRunRequest,
        "WatchRun": runs.WatchRunRequest,
        "CancelRun": runs.CancelRunRequest,
        "DeleteRun": runs.DeleteRunRequest,
    }
    for method, kind in kinds.items():
        cases += [
            Bad(method, "no run", kind(), "run_id"),
            Bad(method, "NUL in the run", kind(run_id=NUL), "run_id"),
            Bad(method, "long run", kind(run_id=LONG), "run_id"),
            Bad(method, "unknown run", kind(run_id=UNKNOWN), "", "RUN_NOT_FOUND", "NOT_FOUND"),
        ]
    for method in ("CancelRun", "DeleteRun"):
        cases += [
            Bad(method, "long request id", kinds[method](run_id=UNKNOWN, request_id="x" * 129), "request_id"),
            Bad(method, "NUL in the request id", kinds[method](run_id=UNKNOWN, request_id=NUL), "request_id"),
        ]
    lists = runs.ListRunsRequest
    return [
        *cases,
        Bad("CancelRun", "long reason", kinds["CancelRun"](run_id=UNKNOWN, reason="é" * 2049), "reason"),
        Bad("ListRuns", "negative size", lists(page_size=-1), "page_size"),
        Bad("ListRuns", "least size", lists(page_size=-(2**31)), "page_size"),
        Bad("ListRuns", "no state", lists(states=[run_pb2.RUN_STATE_UNSPECIFIED]), "states[0]"),
        Bad("ListRuns", "unknown state", lists(states=[run_pb2.RUN_STATE_RUNNING, 77]), "states[1]"),  # type: ignore[list-item]
        Bad("ListRuns", "NUL in the agent", lists(agent_id=NUL), "agent_id"),
        Bad("ListRuns", "long thread", lists(thread_id=LONG), "thread_id"),
    ]


def about_the_inbox() -> list[Bad]:
    """Bad requests for the RPCs about pending calls."""
    cases: list[Bad] = []
    kinds: dict[str, Any] = {
        "GetPendingCall": inbox.GetPendingCallRequest,
        "ClaimPendingCall": inbox.ClaimPendingCallRequest,
        "ReleasePendingCall": inbox.ReleasePendingCallRequest,
    }
    for method, kind in kinds.items():
        missing = ("PENDING_CALL_NOT_FOUND", "NOT_FOUND")
        cases += [
            Bad(method, "no call", kind(), "pending_call_id"),
            Bad(method, "NUL in the call", kind(pending_call_id=NUL), "pending_call_id"),
            Bad(method, "long call", kind(pending_call_id=LONG), "pending_call_id"),
            Bad(method, "unknown call", kind(pending_call_id=UNKNOWN), "", *missing),
        ]
    for method in ("ClaimPendingCall", "ReleasePendingCall"):
        for name, value in (("long", "x" * 129), ("NUL", NUL)):
            request = kinds[method](pending_call_id=UNKNOWN, request_id=value)
            cases.append(Bad(method, f"{name} request id", request, "request_id"))
    for name, seconds, nanos in [
        ("zero", 0, 0),
        ("short", 0, 999_999_999),
        ("negative", -5, 0),
        ("over a day", 86400, 1),
        ("for ever", 2**62, 0),
        ("endless", 2**63 - 1, 2**31 - 1),
    ]:
        ttl = duration_pb2.Duration(seconds=seconds, nanos=nanos)
        request = inbox.ClaimPendingCallRequest(pending_call_id=UNKNOWN, ttl=ttl)
        cases.append(Bad("ClaimPendingCall", f"{name} ttl", request, "ttl"))
    filters: dict[str, tuple[Any, tuple[str, ...]]] = {
        "ListPendingCalls": (
            inbox.ListPendingCallsRequest,
            ("run_id", "agent_id", "thread_id", "resource_id"),
        ),
        "WatchPendingCalls": (inbox.WatchPendingCallsRequest, ("run_id", "agent_id", "resource_id")),
        "ListDecisions": (inbox.ListDecisionsRequest, ("run_id", "pending_call_id", "principal")),
    }
    for method, (kind, names) in filters.items():
        for field in names:
            cases.append(Bad(method, f"NUL in {field}", kind(**{field: NUL}), field))
            cases.append(Bad(method, f"long {field}", kind(**{field: LONG}), field))
        if method.startswith("List"):
            cases.append(Bad(method, "negative size", kind(page_size=-3), "page_size"))
    return cases


def about_threads() -> list[Bad]:
    """Bad requests for the RPCs about threads."""
    kinds: dict[str, Any] = {
        "GetThread": threads.GetThreadRequest,
        "UpdateThread": lambda **fields: threads.UpdateThreadRequest(**{"title": "x", **fields}),
        "DeleteThread": threads.DeleteThreadRequest,
        "ListThreadMessages": threads.ListThreadMessagesRequest,
        "GetWorkingMemory": notes.GetWorkingMemoryRequest,
        "UpdateWorkingMemory": notes.UpdateWorkingMemoryRequest,
    }
    cases: list[Bad] = []
    for method, kind in kinds.items():
        cases += [
            Bad(method, "no thread", kind(), "thread_id"),
            Bad(method, "NUL in the thread", kind(thread_id=NUL), "thread_id"),
            Bad(method, "long thread", kind(thread_id=LONG), "thread_id"),
            Bad(method, "unknown thread", kind(thread_id=UNKNOWN), "", "THREAD_NOT_FOUND", "NOT_FOUND"),
        ]

    def create(**fields: Any) -> Any:
        return threads.CreateThreadRequest(**{"resource_id": "ada", **fields})

    def messages(**fields: Any) -> Any:
        return threads.ListThreadMessagesRequest(**{"thread_id": UNKNOWN, **fields})

    kinds["CreateThread"] = create
    for method in ("CreateThread", "UpdateThread", "DeleteThread", "UpdateWorkingMemory"):
        for name, value in (("long", "x" * 129), ("NUL", NUL)):
            request = kinds[method](thread_id=UNKNOWN, request_id=value)
            cases.append(Bad(method, f"{name} request id", request, "request_id"))
    for method in ("GetWorkingMemory", "UpdateWorkingMemory"):
        cases += [
            Bad(method, "no resource", kinds[method](resource_id=""), "resource_id"),
            Bad(method, "long resource", kinds[method](resource_id=LONG), "resource_id"),
        ]
    large = js('{"a":"' + "x" * 65529 + '"}')
    for method in ("CreateThread", "UpdateThread"):
        cases += [
            Bad(method, "long title", kinds[method](thread_id="t", title="é" * 1001), "title"),
            Bad(
                method, "metadata as a list", kinds[method](thread_id="t", metadata=js("[]")), "metadata.text"
            ),
            Bad(method, "large metadata", kinds[method](thread_id="t", metadata=large), "metadata.text"),
        ]
    role = "roles[1]"
    return [
        *cases,
        Bad("CreateThread", "long id", create(thread_id="x" * 129), "thread_id"),
        Bad("CreateThread", "NUL in the id", create(thread_id=NUL), "thread_id"),
        Bad("CreateThread", "no resource", create(resource_id=""), "resource_id"),
        Bad("CreateThread", "long resource", create(resource_id=LONG), "resource_id"),
        Bad("CreateThread", "line break", create(resource_id="a\nb"), "resource_id"),
        Bad("UpdateThread", "nothing to change", threads.UpdateThreadRequest(thread_id="t"), "title"),
        Bad(
            "UpdateWorkingMemory",
            "large content",
            notes.UpdateWorkingMemoryRequest(resource_id="ada", content="é" * 32769),
            "content",
        ),
        Bad(
            "UpdateWorkingMemory",
            "another version",
            notes.UpdateWorkingMemoryRequest(resource_id=UNKNOWN, expected_version=7),
            "",
            "WORKING_MEMORY_CHANGED",
            "ABORTED",
        ),
        Bad("ListThreads", "negative size", threads.ListThreadsRequest(page_size=-1), "page_size"),
        Bad("ListThreads", "NUL in resource_id", threads.ListThreadsRequest(resource_id=NUL), "resource_id"),
        Bad("ListThreadMessages", "negative size", messages(page_size=-1), "page_size"),
        Bad("ListThreadMessages", "long run", messages(run_id=LONG), "run_id"),
        Bad("ListThreadMessages", "no role", messages(roles=[USER, m.ROLE_UNSPECIFIED]), role),
        Bad("ListThreadMessages", "a tool", messages(roles=[USER, TOOL]), role),
        Bad("ListThreadMessages", "unknown role", messages(roles=[ASSISTANT, 9]), role),
    ]


def about_agents() -> list[Bad]:
    """Bad requests for the RPCs about agents."""
    kinds: dict[str, Any] = {
        "GetAgent": catalog.GetAgentRequest,
        "ListAgentVersions": catalog.ListAgentVersionsRequest,
        "PublishAgentVersion": lambda **f: catalog.PublishAgentVersionRequest(**{"version_id": "v", **f}),
        "ArchiveAgentVersion": lambda **f: catalog.ArchiveAgentVersionRequest(**{"version_id": "v", **f}),
    }
    cases: list[Bad] = []
    for method, kind in kinds.items():
        cases += [
            Bad(method, "no agent", kind(), "agent_id"),
            Bad(method, "NUL in the agent", kind(agent_id=NUL), "agent_id"),
            Bad(method, "long agent", kind(agent_id=LONG), "agent_id"),
            Bad(method, "unknown agent", kind(agent_id=UNKNOWN), "", "AGENT_NOT_FOUND", "NOT_FOUND"),
        ]

    def create(**fields: Any) -> Any:
        return catalog.CreateAgentVersionRequest(**{"agent_id": "a", "definition": definition(), **fields})

    kinds["CreateAgentVersion"] = create
    for method in ("CreateAgentVersion", "PublishAgentVersion", "ArchiveAgentVersion"):
        for name, value in (("long", "x" * 129), ("NUL", NUL)):
            request = kinds[method](agent_id="a", request_id=value)
            cases.append(Bad(method, f"{name} request id", request, "request_id"))
    for method in ("PublishAgentVersion", "ArchiveAgentVersion"):
        for name, value in (("no", ""), ("long", LONG), ("NUL in the", NUL)):
            request = kinds[method](agent_id="a", version_id=value)
            cases.append(Bad(method, f"{name} version", request, "version_id"))
    taken = create(agent_id="talk")
    return [
        *cases,
        Bad("CreateAgentVersion", "no agent", create(agent_id=""), "agent_id"),
        Bad("CreateAgentVersion", "no tool's name", create(agent_id="a.b"), "agent_id"),
        Bad("CreateAgentVersion", "nothing", create(definition=None), "definition"),
        Bad("CreateAgentVersion", "no model", create(definition=definition(models=[])), "definition.models"),
        Bad("CreateAgentVersion", "taken", taken, "", "AGENT_DEFINED_IN_CODE", "ALREADY_EXISTS"),
        Bad("GetAgent", "no choice", kinds["GetAgent"](agent_id="a", version={}), "version"),
        Bad("ListAgents", "negative size", catalog.ListAgentsRequest(page_size=-1), "page_size"),
        Bad("ListAgentVersions", "size", kinds["ListAgentVersions"](agent_id="a", page_size=-1), "page_size"),
    ]


CASES = [
    *starting(),
    *deciding(),
    *about_runs(),
    *about_the_inbox(),
    *about_threads(),
    *about_agents(),
]


async def test_every_rpc_of_the_contract_is_tried() -> None:
    """No RPC is left out; a new one cannot be forgotten."""
    assert {case.method for case in CASES} == set(METHODS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.method}: {case.name}")
async def test_a_bad_request_is_refused_by_name(standing: Standing, case: Bad) -> None:
    """The code, the reason, and a BadRequest that names the field where it is a field's fault."""
    refusal = await standing.peer.refuse(case.method, case.request)
    assert (refusal.code, refusal.reason) == (case.code, case.reason)
    assert list(refusal.violations) == ([case.field] if case.field else [])


async def test_what_was_asked_for_is_in_the_metadata(standing: Standing) -> None:
    """The metadata that the contract lists for each NOT_FOUND."""
    refuse = standing.peer.refuse
    assert (await refuse("Generate", generate("nobody"))).metadata == {"agent_id": "nobody"}
    request = runs.GetRunRequest(run_id=UNKNOWN)
    assert (await refuse("GetRun", request)).metadata == {"run_id": UNKNOWN}
    for given in ({"pending_call_id": UNKNOWN}, {"pending_call_id": UNKNOWN, "run_id": standing.run_id}):
        declined = agents.DeclineRequest(call=ref(**given))
        assert (await refuse("Decline", declined)).metadata == given
    thread = threads.GetThreadRequest(thread_id=UNKNOWN)
    assert (await refuse("GetThread", thread)).metadata == {"thread_id": UNKNOWN}


@pytest.mark.parametrize(
    "wrong", [{"run_id": UNKNOWN}, {"tool_call_id": "c-other"}, {"run_id": UNKNOWN, "tool_call_id": "c-pay"}]
)
async def test_a_pending_call_named_with_another_run_or_call_is_not_found(
    standing: Standing, wrong: dict[str, str]
) -> None:
    """Two names that contradict each other name nothing: a decision never lands on a call that was
    not meant."""
    call = ref(standing.pending.pending_call_id, **wrong)
    refusal = await standing.peer.refuse("Approve", agents.ApproveRequest(call=call))
    assert (refusal.code, refusal.reason) == ("NOT_FOUND", "PENDING_CALL_NOT_FOUND")


async def test_a_tool_call_that_never_waited_is_not_found(standing: Standing) -> None:
    """The run exists, the call does not."""
    call = ref(run_id=standing.run_id, tool_call_id="c-never")
    refusal = await standing.peer.refuse("Approve", agents.ApproveRequest(call=call))
    assert (refusal.code, refusal.reason) == ("NOT_FOUND", "PENDING_CALL_NOT_FOUND")


WRONG_VERBS = [
    ("gate", "Resume", "approval", "approve,decline"),
    ("gate", "SubmitToolResult", "approval", "approve,decline"),
    ("suspends", "Approve", "suspension", "resume,decline"),
    ("suspends", "SubmitToolResult", "suspension", "resume,decline"),
    ("hands-out", "Approve", "client-tool", "submit,decline"),
    ("hands-out", "Resume", "client-tool", "submit,decline"),
]


@pytest.mark.parametrize(("agent_id", "method", "kind", "verbs"), WRONG_VERBS)
async def test_a_verb_that_does_not_fit_the_kind_is_refused(
    standing: Standing, agent_id: str, method: str, kind: str, verbs: str
) -> None:
    """VERB_MISMATCH with the verbs that fit; the call still waits."""
    run_id, (pending,) = await standing.peer.parked(agent_id)
    refusal = await standing.peer.refuse(method, DECISIONS[method](ref(pending.pending_call_id)))
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "VERB_MISMATCH")
    assert refusal.metadata == {"pending_call_id": pending.pending_call_id, "kind": kind, "verbs": verbs}
    assert (await standing.peer.run(run_id)).state == run_pb2.RUN_STATE_SUSPENDED
    await standing.peer.one("Decline", agents.DeclineRequest(call=ref(pending.pending_call_id)))


async def test_another_digest_is_refused(standing: Standing) -> None:
    """ARGS_DIGEST_MISMATCH: the approver saw something else."""
    call = ref(standing.pending.pending_call_id)
    refusal = await standing.peer.refuse("Approve", agents.ApproveRequest(call=call, args_digest=b"x" * 32))
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "ARGS_DIGEST_MISMATCH")
    assert refusal.metadata == {"pending_call_id": standing.pending.pending_call_id}


async def test_a_taken_run_id_is_refused(standing: Standing) -> None:
    """ALREADY_EXISTS, RUN_ALREADY_EXISTS with the id."""
    for method, request in (
        ("Generate", generate(run_id=standing.run_id)),
        ("Stream", stream(run_id=standing.run_id)),
    ):
        refusal = await standing.peer.refuse(method, request)
        assert (refusal.code, refusal.reason) == ("ALREADY_EXISTS", "RUN_ALREADY_EXISTS")
        assert refusal.metadata == {"run_id": standing.run_id}


async def test_a_run_alone_names_no_call_once_two_wait(standing: Standing) -> None:
    """PENDING_CALL_AMBIGUOUS lists the calls; nothing is decided."""
    run_id, pending = await standing.peer.parked("both")
    refusal = await standing.peer.refuse("Decline", agents.DeclineRequest(call=ref(run_id=run_id)))
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "PENDING_CALL_AMBIGUOUS")
    assert refusal.metadata["run_id"] == run_id
    assert set(refusal.metadata["pending_call_ids"].split(",")) == {p.pending_call_id for p in pending}
    decisions = await standing.peer.one("ListDecisions", inbox.ListDecisionsRequest(run_id=run_id))
    assert not decisions.decisions


async def test_a_run_that_waits_or_executes_is_not_deleted_by_accident(standing: Standing) -> None:
    """RUN_NOT_FINISHED with the state."""
    refusal = await standing.peer.refuse("DeleteRun", runs.DeleteRunRequest(run_id=standing.run_id))
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "RUN_NOT_FINISHED")
    assert refusal.metadata == {"run_id": standing.run_id, "state": "suspended"}


async def test_what_stood_before_still_stands(standing: Standing) -> None:
    """After all of it the parked run is as it was, without a decision, and can be answered."""
    peer, run_id = standing.peer, standing.run_id
    run = await peer.run(run_id)
    assert (run.state, run.last_sequence) == (run_pb2.RUN_STATE_SUSPENDED, standing.last_sequence)
    decisions = await peer.one("ListDecisions", inbox.ListDecisionsRequest(run_id=run_id))
    assert not decisions.decisions
    response = await peer.approved(standing.pending)
    assert response.run.state == run_pb2.RUN_STATE_SUCCEEDED
    assert response.result.text == "done"
