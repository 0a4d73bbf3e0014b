"""What the golden databases hold: put there by the version that made them, read by every later one."""

from msgspec.structs import replace

from entracte_server.domain.chunks import PathElement
from entracte_server.domain.follow_ups import FollowUpRow
from entracte_server.domain.messages import FilePart, Message, TextPart
from entracte_server.domain.options import ApprovalRules, ClientTool, ModelSettings, RunOptions
from entracte_server.domain.results import RunError, Usage
from entracte_server.domain.runs import FileRecord, Outcome, Resolution, Response, RunSpec
from entracte_server.store.base import (
    ChunkRow,
    Claim,
    CreateRun,
    Decide,
    DecisionFilter,
    Made,
    RunFilter,
    RunPatch,
    Store,
)
from entracte_server.testing.store_conformance.builders import (
    NOW,
    OWNER,
    TENANT,
    a_call,
    a_decision,
    a_park,
    a_pending,
    a_request,
    a_run,
    a_step,
    a_write,
    an_end,
    chunks,
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


async def check(store: Store) -> None:
    """All of it is read as it was written, and the runs go on."""
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
