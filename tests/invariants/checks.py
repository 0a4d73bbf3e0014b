"""What must hold of a run when it has ended, whatever was done to it."""

import json
from collections import Counter
from typing import Any

from entracte.v1 import agent_service_pb2 as agents_pb
from entracte.v1 import chunk_pb2, inbox_service_pb2, pending_call_pb2, result_pb2, run_pb2
from entracte.v1.chunk_pb2 import Chunk
from tests.cases.support import kind_of
from tests.invariants.following import Seen, follow, start_stream
from tests.invariants.harness import Harness, insist
from tests.invariants.playing import RECOVERY, Player, Playing
from tests.invariants.world import TOOLS

APPROVE = chunk_pb2.DECISION_VERB_APPROVE
DECLINE = chunk_pb2.DECISION_VERB_DECLINE
RESUME = chunk_pb2.DECISION_VERB_RESUME
SUBMIT = chunk_pb2.DECISION_VERB_SUBMIT
CANCEL = chunk_pb2.DECISION_VERB_CANCEL

SETTLING = ("tool_result", "tool_error", "tool_output_denied")

SERVED = {tool.name for tool in TOOLS}
GATED = {tool.name for tool in TOOLS if tool.requires_approval}
REPEATABLE = {tool.name for tool in TOOLS if tool.idempotent}


class Ended:
    """Everything there is to know of a run that has ended."""

    def __init__(self, run: Playing) -> None:
        self.played = run
        self.raw: list[bytes] = []
        self.chunks: list[Chunk] = []
        self.run = run_pb2.Run()
        self.result: Any = None
        self.pending: dict[str, pending_call_pb2.PendingCall] = {}
        self.decisions: list[pending_call_pb2.Decision] = []
        self.entries: list[dict[str, Any]] = []
        self.asked: list[dict[str, Any]] = []

    async def read(self, harness: Harness) -> None:
        """Read it all."""
        run = self.played
        seen = Seen(run.run_id)
        await follow(harness, run.owner, seen, until_finished=True)
        self.raw = seen.chunks
        self.chunks = [Chunk.FromString(raw) for raw in self.raw]
        shown = await insist(harness, run.owner, lambda c: c.get_run(run.run_id))
        self.run, self.result = shown.run, shown.result
        calls = await insist(harness, run.owner, lambda c: c.pending(run.run_id, include_decided=True))
        self.pending = {call.pending_call_id: call for call in calls}
        self.decisions = await insist(harness, run.owner, lambda c: c.decisions(run.run_id))
        for entry in harness.journal():
            if entry.get("name") == run.name:
                (self.asked if entry["event"] == "asked" else self.entries).append(entry)

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.run.state == run_pb2.RUN_STATE_CANCELLED

    def of(self, kind: str) -> list[Any]:
        """The payloads of one kind."""
        return [getattr(chunk, kind) for chunk in self.chunks if kind_of(chunk) == kind]


async def check(player: Player, harness: Harness) -> None:
    """Check every run of a history that was played to its end."""
    for run in player.runs:
        ended = Ended(run)
        await ended.read(harness)
        check_end(ended)
        check_readers(ended)
        check_decisions(ended)
        check_order(ended, kills=harness.kills)
        check_entries(ended, kills=harness.kills)
        check_requests(ended, kills=harness.kills)
        check_result(ended)
        await check_replay(ended, harness)
        await check_strangers(ended, harness)


def check_end(ended: Ended) -> None:
    """The run ended, cancelled only if somebody asked for it, and nothing of it waits."""
    states = {run_pb2.RUN_STATE_SUCCEEDED}
    if ended.played.cancels:
        states.add(run_pb2.RUN_STATE_CANCELLED)
    assert ended.run.state in states, run_pb2.RunState.Name(ended.run.state)
    assert not ended.run.pending_calls
    opened = [c for c in ended.pending.values() if c.state == pending_call_pb2.PENDING_CALL_STATE_OPEN]
    assert not opened
    assert [chunk.sequence for chunk in ended.chunks] == list(range(1, len(ended.chunks) + 1))
    assert ended.run.last_sequence == len(ended.chunks)
    kinds = [kind_of(chunk) for chunk in ended.chunks]
    assert kinds[0] == "start"
    assert kinds.count("start") == 1
    assert kinds[-1] == "finish"
    assert kinds.count("abort") == ended.cancelled


def check_readers(ended: Ended) -> None:
    """Every reader, whenever it came and however often it attached again, saw the bytes that are stored,
    and the first of them saw all."""
    for seen in ended.played.readers:
        for raw, stored in zip(seen.chunks, ended.raw[seen.after :], strict=False):
            assert raw == stored, (Chunk.FromString(raw), Chunk.FromString(stored))
        assert seen.through <= len(ended.raw)
    whole = [seen for seen in ended.played.readers if seen.after == 0 and seen.through == len(ended.raw)]
    assert whole


def check_decisions(ended: Ended) -> None:
    """Each announced call was decided once; what was acknowledged is on record as it was; every decision
    of a person is shown once in the stream."""
    announced = ended.of("tool_call_approval") + ended.of("tool_call_suspended")
    assert Counter(a.pending_call_id for a in announced) == Counter(ended.pending.keys())
    for announcement in announced:
        call = ended.pending[announcement.pending_call_id]
        assert (call.tool_call_id, call.tool_name) == (announcement.tool_call_id, announcement.tool_name)
        assert call.args == announcement.args
        assert call.args_digest == announcement.args_digest
    by_call = Counter(decision.pending_call_id for decision in ended.decisions)
    assert by_call == Counter(ended.pending.keys())
    on_record = {d.decision_id: d for d in ended.decisions}
    for decision in ended.played.acknowledged:
        assert on_record[decision.decision_id] == decision
    for call in ended.pending.values():
        assert call.decision == on_record[call.decision.decision_id]
    shown = Counter(r.decision_id for r in ended.of("tool_call_resolved"))
    of_people = {d.decision_id for d in ended.decisions if d.verb != CANCEL}
    assert set(shown) <= of_people
    assert max(shown.values(), default=1) == 1
    if not ended.cancelled:
        assert set(shown) == of_people
    for resolved in ended.of("tool_call_resolved"):
        decision = on_record[resolved.decision_id]
        assert resolved.pending_call_id == decision.pending_call_id
        assert (resolved.verb, resolved.principal) == (decision.verb, decision.principal)
        assert resolved.edited_args == decision.edited_args or decision.HasField("edited_args")


def check_order(ended: Ended, *, kills: int) -> None:
    """A call comes first, then its announcements, each with its decision after it, then one outcome;
    every step of the run that counts has each of its calls settled once, and no attempt is shown twice."""
    attempts = [(c.step, c.attempt) for c in ended.chunks if kind_of(c) == "step_start"]
    assert attempts == sorted(set(attempts))
    if not kills:
        assert all(attempt == 1 for _, attempt in attempts)
    latest = dict(attempts)
    story: dict[str, list[str]] = {}
    for chunk in ended.chunks:
        kind = kind_of(chunk)
        payload = getattr(chunk, kind)
        if kind == "tool_call":
            if chunk.attempt == latest[chunk.step]:
                assert payload.tool_call_id not in story
                story[payload.tool_call_id] = []
        elif kind in (*SETTLING, "tool_call_approval", "tool_call_suspended", "tool_call_resolved"):
            assert chunk.attempt == latest[chunk.step]
            story[payload.tool_call_id].append(kind)
    for call_id, events in story.items():
        settled = [kind for kind in events if kind in SETTLING]
        if ended.cancelled:
            assert len(settled) <= 1, call_id
        else:
            assert len(settled) == 1, call_id
        if settled:
            assert events[-1] in SETTLING, (call_id, events)
        waits = [kind for kind in events if kind not in SETTLING]
        for position, kind in enumerate(waits):
            if position % 2:
                assert kind == "tool_call_resolved", (call_id, events)
            else:
                assert kind in ("tool_call_approval", "tool_call_suspended"), (call_id, events)


def check_entries(ended: Ended, *, kills: int) -> None:
    """A tool's body was entered at most once for each decision that calls for it, and not at all where
    nothing did: declined, refused and client tools. Without a crash it was entered exactly so often."""
    entered: dict[str, list[dict[str, Any]]] = {}
    for entry in ended.entries:
        if entry["event"] == "enter":
            entered.setdefault(entry["call"], []).append(entry)
    calls = {call.tool_call_id: call for call in ended.of("tool_call")}
    assert set(entered) <= set(calls)
    for call_id, call in calls.items():
        entries = entered.get(call_id, [])
        assert len({entry["key"] for entry in entries}) <= 1
        own = [d for d in ended.decisions if d.tool_call_id == call_id]
        invalid = call.tool_name == "gated" and call.args.text == '{"v":"one"}'
        if call.tool_name not in SERVED or call.HasField("invalid_args") or invalid:
            assert not entries
            continue
        allowed = 0 if call.tool_name in GATED else 1
        for decision in own:
            kind = ended.pending[decision.pending_call_id].kind
            if decision.verb == RESUME or (decision.verb == APPROVE and kind == RECOVERY):
                allowed += 1
            elif decision.verb == APPROVE:
                allowed = 1
        # What came after a decline or a person's own result: nothing.
        if own and own[0].verb == DECLINE and ended.pending[own[0].pending_call_id].kind != RECOVERY:
            assert len(entries) <= (0 if call.tool_name in GATED else 1 + kills)
        if call.tool_name == "ask_user":  # its body is ours and keeps no journal
            assert not entries
            continue
        if call.tool_name in REPEATABLE:
            assert len(entries) <= allowed + kills, (call_id, entries, own)
        else:
            assert len(entries) <= allowed, (call_id, entries, own)
        if not kills and not ended.cancelled:
            assert len(entries) == allowed, (call_id, entries, own)
        answers = [json.loads(d.data.text) for d in own if d.verb == RESUME]
        given = [entry["data"] for entry in entries if entry["resumed"]]
        if not kills and not ended.cancelled:
            assert json.dumps(given) == json.dumps(answers)
        for entry in entries:
            if entry["resumed"]:
                assert json.dumps(entry["data"]) in map(json.dumps, answers)
        check_arguments(call, entries, own)


def check_arguments(call: Any, entries: list[dict[str, Any]], decisions: list[Any]) -> None:
    """Each entry had the arguments the model wrote, or those a reviewer edited last before it."""
    values = [json.loads(call.args.text)["v"]]
    values += [json.loads(d.edited_args.text)["v"] for d in decisions if d.HasField("edited_args")]
    for entry in entries:
        assert entry["args"]["v"] in values
    if entries and decisions and decisions[-1].HasField("edited_args") and decisions[-1].verb == APPROVE:
        assert entries[-1]["args"]["v"] == values[-1] or len(entries) < len(decisions)


def check_requests(ended: Ended, *, kills: int) -> None:
    """Every request to the model was well formed: each call with exactly one result, in the order of the
    calls; each step was asked for once, and what was told once is told the same again. (A model may be
    asked while the results it is told are still being written. After a crash they may be lost, and so is
    its answer.)"""
    steps = Counter(entry["step"] for entry in ended.asked)
    if not kills:
        assert max(steps.values(), default=1) == 1
    told: dict[str, str] = {}
    for entry in ended.asked:
        turns = entry["turns"]
        for position, turn in enumerate(turns):
            if not turn["calls"]:
                assert not turn["results"] or turns[position - 1]["calls"]
                continue
            called = [call_id for call_id, _, _ in turn["calls"]]
            assert position + 1 < len(turns), "calls without results"
            assert [call_id for call_id, _ in turns[position + 1]["results"]] == called
            assert called == sorted(called, key=lambda c: int(c.rpartition("c")[2]))
        for turn in turns:
            for call_id, output in turn["results"]:
                assert kills or told.get(call_id, output) == output
                told[call_id] = output
    for result in ended.of("tool_result"):
        if result.tool_call_id in told:
            assert told[result.tool_call_id] == result.result.text
    for denied in ended.of("tool_output_denied"):
        if denied.tool_call_id in told:
            assert json.loads(told[denied.tool_call_id]) == {"status": "declined", "reason": denied.reason}
    for error in ended.of("tool_error"):
        if error.tool_call_id in told:
            assert told[error.tool_call_id] == error.message


def without_position(chunk: Chunk) -> bytes:
    """A chunk's payload and step, without where and when it was sent."""
    bare = Chunk()
    bare.CopyFrom(chunk)
    for name in ("sequence", "emit_time", "attempt", "source", "ignorable"):
        bare.ClearField(name)
    return bare.SerializeToString(deterministic=True)


def check_result(ended: Ended) -> None:
    """The stored result says what the stream says."""
    latest = {c.step: c.attempt for c in ended.chunks if kind_of(c) == "step_start"}
    valid = [c for c in ended.chunks if c.step == 0 or c.attempt == latest[c.step]]
    text = "".join(c.text_delta.text for c in valid if kind_of(c) == "text_delta")
    finish = ended.chunks[-1].finish
    result = ended.result
    assert result.text == text
    assert result.finish_reason == finish.reason == ended.run.finish_reason
    assert result.stop_cause == finish.stop_cause == ended.run.stop_cause
    assert result.usage == finish.usage == ended.run.usage
    assert not result.pending_calls
    shown = Counter(without_position(c) for c in valid if kind_of(c) == "tool_result")
    assert Counter(map(without_position, result.tool_results)) == shown
    finished = [c.step_finish for c in valid if kind_of(c) == "step_finish"]
    if not ended.cancelled:
        assert [step.finish_reason for step in result.steps] == [f.reason for f in finished]
        assert result.finish_reason == result_pb2.FINISH_REASON_STOP
        called = [c.tool_call.tool_call_id for c in valid if kind_of(c) == "tool_call"]
        assert [c.tool_call.tool_call_id for c in result.tool_calls] == called
    calls, results = [], []
    for message in result.messages:
        for part in message.parts:
            if part.HasField("tool_call"):
                calls.append(part.tool_call.tool_call_id)
            elif part.HasField("tool_result"):
                results.append(part.tool_result.tool_call_id)
    assert calls == results
    assert len(calls) == len(set(calls))


async def check_replay(ended: Ended, harness: Harness) -> None:
    """The request that started the run, sent again, gives the same: the result, or every chunk."""
    run = ended.played
    if run.plan.started_by == "generate":
        request = agents_pb.GenerateRequest(**run.fields())
        again = await insist(harness, run.owner, lambda c: c._unary(c.agents.Generate, request))
        assert again.replayed
        assert again.result == ended.result
        return
    seen = Seen(run.run_id)
    await start_stream(harness, run.owner, agents_pb.StreamRequest(**run.fields()), seen)
    assert seen.chunks == ended.raw


async def check_strangers(ended: Ended, harness: Harness) -> None:
    """The other tenant's lists hold nothing of this run."""
    run = ended.played
    request = inbox_service_pb2.ListPendingCallsRequest(include_decided=True, page_size=1000)
    theirs = await insist(harness, run.stranger, lambda c: c._unary(c.inbox.ListPendingCalls, request))
    assert not {c.pending_call_id for c in theirs.pending_calls} & set(ended.pending)
    decided = await insist(harness, run.stranger, lambda c: c.decisions())
    assert not {d.decision_id for d in decided} & {d.decision_id for d in ended.decisions}
