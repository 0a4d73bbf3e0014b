"""What the golden databases hold: put there by the version that made them, read by every later one."""

from msgspec.structs import replace

from entracte_server.domain.agents import AgentDefinition, AgentVersionRow, MemorySettings, SubAgent
from entracte_server.domain.chunks import PathElement
from entracte_server.domain.follow_ups import FollowUpRow
from entracte_server.domain.messages import FilePart, Message, TextPart
from entracte_server.domain.options import ApprovalRules, ClientTool, ModelSettings, RunOptions
from entracte_server.domain.results import RunError, Usage
from entracte_server.domain.runs import FileRecord, Outcome, Remembered, Resolution, Response, RunSpec
from entracte_server.domain.threads import CallPart, SourcePart, ThreadRow, ThreadRun, ThreadView
from entracte_server.domain.working_memory import WorkingMemoryRow
from entracte_server.store.base import (
    ChunkRow,
    Claim,
    Created,
    CreateRun,
    Decide,
    DecisionFilter,
    Made,
    NotFound,
    RunFilter,
    RunPatch,
    Store,
)
from entracte_server.store.catalog import CreateAgentVersion, PublishAgentVersion
from entracte_server.store.threads import DeleteThread, MessageRange, ThreadClaim
from entracte_server.store.vectors import AddVectors, Reach
from entracte_server.store.working_memory import Note, SetWorkingMemory
from entracte_server.testing.store_conformance.builders import (
    NOW,
    OWNER,
    TENANT,
    a_call,
    a_decision,
    a_message,
    a_park,
    a_pending,
    a_request,
    a_run,
    a_step,
    a_write,
    an_end,
    chunks,
    claiming,
    log_of,
    took,
)

LONG = ChunkRow(3, 40, b"The same again and again. " * 100)
"""Large enough to be packed."""

RUN = a_run(
    run_id="golden-run",
    last_sequence=2,
    thread_id="thread",
    resource_id="resource",
    root_run_id="golden-run",
    agent_version="2",
)
SPEC = RunSpec(
    (
        Message(
            "user", (TextPart("Grüße 🙈\0"), FilePart(data=b"\x00\xff", media_type="x/y")), '{"a":1}', "m"
        ),
    ),
    RunOptions(
        max_steps=3,
        require_tool_approval=ApprovalRules(names=("refund",)),
        model_settings=ModelSettings(temperature=0.5, headers={"x": "y"}),
        client_tools=(ClientTool("pick", "Pick.", "{}"),),
        request_context='{"n":9007199254740993}',
    ),
    ("Be kind.",),
    "msg",
)
STEP = a_step(
    parts=(TextPart("Let me see."),),
    response=Response("r", "model", 1_700_000_000, {"h": "v"}, "{}"),
    files=(FileRecord("image/png", b"\x89PNG"),),
)
CALLS = tuple(
    a_call(RUN, call_id=f"golden-call-{number}", index=number, run_args="{}", tool_state="1")
    for number in range(3)
)
PENDING = tuple(
    a_pending(
        RUN,
        call,
        pending_call_id=f"golden-pending-{number}",
        kind="suspension",
        suspend_payload='{"question":"?"}',
        resume_schema="{}",
        tool_description="Refunds.",
        tool_digest=b"tool",
        agent_path=(PathElement("sub", "call"),),
        expire_time=NOW + 10**9,
    )
    for number, call in enumerate(CALLS)
)
DECISION = a_decision(
    PENDING[0],
    decision_id="golden-decision",
    verb="resume",
    edited_args="{}",
    data="true",
    reason="because",
    reason_json='"r"',
    comment="c",
    on_behalf_of="boss",
    request_id="q",
    args_digest=b"digest",
)
RESUMED = replace(
    CALLS[0],
    state="started",
    key="key",
    resumed=True,
    resume_data="true",
    resolution=Resolution("golden-pending-0", "golden-decision", "resume", "bob", edited=True),
)
FAILED = a_run(run_id="golden-failed", parent_run_id="golden-run", root_run_id="golden-run")
ERROR = RunError("provider_error", "boom", 503, True, 2.5, "code", "{}")
JOB = FollowUpRow(
    TENANT,
    "golden-failed",
    "score",
    "tone",
    "score tone-v2",
    "waiting",
    NOW,
    due_time=NOW + 5,
    subject="tone-v2",
    ratio=0.5,
    error="again",
    usage=Usage(1, 2, 3),
)
THREAD = ThreadRow(
    TENANT, "golden-thread", "resource", NOW, NOW + 9, title="Grüße", metadata='{"a":1}', last_position=2
)
MESSAGES = (
    a_message(id="golden-said", position=1, create_time=NOW + 8, author="alice", metadata="{}"),
    a_message(
        id="golden-answer",
        position=2,
        create_time=NOW + 9,
        role="assistant",
        run_id="golden-has",
        step=1,
        aborted=True,
        parts=(
            TextPart("Let me see.\0"),
            CallPart("c", "refund", '{"n":9007199254740993}', Outcome("result", '"ok"')),
            SourcePart("s", "https://example.com"),
        ),
    ),
)
REMEMBERED = Remembered(1, 2, (("other", 3),), "Likes tea.")
NOTED = WorkingMemoryRow(TENANT, "", "resource", "Likes tea. 🙈\0", 2, NOW + 5)
HAS, WAITS = (
    a_run(run_id=f"golden-{name}", thread_id="golden-thread", resource_id="resource", root_run_id="")
    for name in ("has", "waits")
)
REACH = Reach(TENANT, "resource", "e", "golden-thread")
VECTOR = b"\x00\x00\x80\x3f\xff"
VERSION = AgentVersionRow(
    TENANT,
    "golden-agent",
    "golden-version",
    "Golden",
    "Grüße 🙈",
    "alice",
    NOW,
    AgentDefinition(
        models=("openai/gpt-5-mini",),
        instructions=("Be kind.\0",),
        tools=("refund",),
        agents=(SubAgent("helper", "help"),),
        defaults=RunOptions(max_steps=3),
        memory=MemorySettings(last_messages=2),
    ),
    b"\x00source",
)
CREATION = a_request(request_id="golden-create")
DECIDING = a_request(request_id="golden-decide", principal="bob", method="Resume")


async def fill(store: Store) -> None:
    """Make the content in an empty store."""
    await store.create_run(CreateRun(RUN, SPEC, chunks(1, 2), CREATION))
    await store.write(
        a_write(
            RUN,
            chunks=LONG,
            patch=RunPatch(1, 2, Usage(1, 2, 3, 4, 5)),
            steps=(STEP,),
            calls=CALLS,
            opened=PENDING,
            park=a_park(41),
        )
    )
    await store.claim(Claim(TENANT, "golden-pending-1", "carol", NOW + 500, NOW))
    await store.decide(Decide(DECISION, replace(RESUMED, state="decided"), OWNER, RESUMED, DECIDING))
    done = replace(RESUMED, state="done", resolution=None, outcome=Outcome("result", '"ok"'))
    await store.write(a_write(RUN, fence=2, calls=(done,), park=a_park(42)))
    await store.create_run(CreateRun(FAILED, SPEC))
    end = an_end(state="failed", finish_reason="error", stop_cause="error", error=ERROR, follow_ups=(JOB,))
    await store.write(a_write(FAILED, chunks=chunks(1, 1), end=end))
    claim = ThreadClaim(title=THREAD.title, metadata=THREAD.metadata, queue=True, room=1, deadline=NOW)
    for run in (HAS, WAITS):
        await store.create_run(CreateRun(replace(run, root_run_id=run.run_id), SPEC, claim=claim))
    await store.set_working_memory(SetWorkingMemory(TENANT, "Likes coffee.", NOW, resource_id="resource"))
    note = Note(NOTED.content, NOTED.version, NOTED.update_time, NOTED.resource_id)
    await store.write(a_write(HAS, messages=MESSAGES, remembered=REMEMBERED, notes=(note,)))
    first, *_ = await store.unembedded(REACH, newest=9, limit=9)
    await store.add_vectors(AddVectors(TENANT, "e", ((first.thread, 1, VECTOR),)))
    await store.create_agent_version(CreateAgentVersion(VERSION))
    key = (TENANT, VERSION.agent_id, VERSION.version_id)
    await store.publish_agent_version(PublishAgentVersion(*key, "bob", NOW + 5))


async def check(store: Store) -> None:
    """All of it is read as it was written, and the runs go on."""
    await check_runs(store)
    await check_threads(store)
    await check_working_memory(store)
    await check_agents(store)


async def check_agents(store: Store) -> None:
    """Versions before had none."""
    for agent in await store.list_agents(TENANT, after="", limit=9):
        assert (agent.agent_id, agent.name, agent.published) == ("golden-agent", "Golden", "golden-version")
        version = await store.get_agent_version(TENANT, "golden-agent", "golden-version")
        assert version == replace(
            VERSION, number=1, status="published", publisher="bob", publish_time=NOW + 5, is_published=True
        )
    new = replace(VERSION, version_id="golden-new")
    row, _ = await store.create_agent_version(CreateAgentVersion(new))
    assert (await store.get_agent(TENANT, "golden-agent")).draft == row.version_id


async def check_working_memory(store: Store) -> None:
    """Versions before had none."""
    there = await store.get_working_memory(TENANT, resource_id="resource")
    assert there in (NOTED, WorkingMemoryRow(TENANT, resource_id="resource"))
    op = SetWorkingMemory(TENANT, "New", NOW, resource_id="resource", expected=there.version)
    changed, _ = await store.set_working_memory(op)
    assert (changed.content, changed.version) == ("New", there.version + 1)


async def check_threads(store: Store) -> None:
    """Versions before had none."""
    try:
        view = await store.get_thread(TENANT, "golden-thread")
    except NotFound:
        pass
    else:
        assert view == ThreadView(THREAD, ThreadRun("golden-has", "running"), 1)
        assert tuple(await store.read_messages(TENANT, "golden-thread", MessageRange(), limit=9)) == MESSAGES
        assert (await store.load(TENANT, "golden-has")).remembered == REMEMBERED
        assert [run.run_id for run in await store.overdue(NOW + 1, limit=9)] == ["golden-waits"]
        vectors = await store.read_vectors(REACH, after=None, limit=9)  # versions before had none
        assert [(row.position, row.data) for row in vectors] in ([], [(1, VECTOR)])
        missing = await store.unembedded(REACH, newest=9, limit=9)
        assert [row.message for row in missing] == list(MESSAGES[len(vectors) :])
        written = await store.write(a_write(HAS, chunks=chunks(1, 1), end=an_end()))
        assert written.freed
        deleted = await store.delete_thread(DeleteThread(TENANT, "golden-thread", NOW, force=True))
        assert deleted.cancelled == ("golden-waits",)
    run, made = await claiming(store, "golden-thread")
    assert made == Created()
    await store.write(a_write(run, messages=MESSAGES[:1], remembered=REMEMBERED))
    while await store.sweep_threads(limit=9):
        pass
    assert await store.read_messages(TENANT, "golden-thread", MessageRange(), limit=9) == [MESSAGES[0]]
    assert (await store.load(TENANT, run.run_id)).remembered == REMEMBERED


async def check_runs(store: Store) -> None:
    snapshot = await store.load(TENANT, "golden-run")
    run = snapshot.run
    assert run == replace(
        RUN,
        state="suspended",
        owner="",
        fence=2,
        last_sequence=42,
        step=1,
        attempt=2,
        usage=Usage(1, 2, 3, 4, 5),
        executed_ms=200,
        finish_reason="suspended",
        stop_cause="suspended",
        update_time=run.update_time,
    )
    done = replace(RESUMED, state="done", resolution=None, outcome=Outcome("result", '"ok"'))
    claimed = replace(PENDING[1], claimed_by="carol", claimed_until=NOW + 500)
    assert snapshot.spec == SPEC
    assert snapshot.steps == (STEP,)
    assert snapshot.calls == (done, *CALLS[1:])
    assert snapshot.pending == (claimed, PENDING[2])
    assert await log_of(store, run) == b"<1><2>" + LONG.data + b"<41><42>"
    decision = replace(DECISION, sequence=41)
    assert await store.list_decisions(TENANT, DecisionFilter(), cursor="", limit=9) == ([decision], "")
    settled, _ = await store.get_pending(TENANT, "golden-pending-0")
    assert settled == replace(PENDING[0], state="decided", decision_id="golden-decision")
    assert await store.find_request(CREATION) == Made("golden-run")
    assert await store.find_request(DECIDING) == Made("golden-run", "golden-decision")
    failed = await store.get_run(TENANT, "golden-failed")
    assert (failed.state, failed.error, failed.parent_run_id) == ("failed", ERROR, "golden-run")
    jobs = await store.follow_ups(TENANT, ["golden-failed"])
    assert jobs in ([JOB], [])  # versions before had none
    assert await store.list_runs(TENANT, RunFilter(thread_id="thread"), cursor="", limit=9) == ([run], "")
    call = CALLS[2]
    op = Decide(
        a_decision(PENDING[2]), replace(call, state="decided"), OWNER, replace(call, state="started", key="k")
    )
    decided = await store.decide(op)
    assert (took(decided), decided.run.fence) == (True, 3)
    await store.write(a_write(run, fence=3, chunks=chunks(43, 43), end=an_end()))
    await store.delete_run(TENANT, "golden-run", force=False, request=None)
