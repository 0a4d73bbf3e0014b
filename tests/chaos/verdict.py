"""What must hold of a run, whatever became of the processes that executed it."""

from collections.abc import Mapping, Sequence
from typing import Any

from entracte.v1 import chunk_pb2, run_pb2
from tests.cases.support import Caller
from tests.chaos.following import Reader, Servers
from tests.chaos.people import Life
from tests.chaos.stories import RECOVERY, Story, story_of
from tests.chaos.world import IDEMPOTENT
from tests.invariants.checks import (
    Ended,
    check_decisions,
    check_end,
    check_order,
    check_readers,
    check_result,
)
from tests.invariants.histories import PlannedRun
from tests.invariants.playing import Playing

APPROVE = chunk_pb2.DECISION_VERB_APPROVE
DECLINE = chunk_pb2.DECISION_VERB_DECLINE
RESUME = chunk_pb2.DECISION_VERB_RESUME

SYSTEM = "system"

GATED = frozenset({"gated", "gated_again"})


class _Harness:
    """What the checks of random histories ask of their servers."""

    def __init__(self, fleet: Servers) -> None:
        self._fleet = fleet
        self.kills = 1

    async def caller(self, principal: str) -> Caller:
        return self._fleet.caller()

    async def restart(self, *, abrupt: bool) -> None:
        raise NotImplementedError

    def journal(self) -> list[dict[str, Any]]:
        return []


async def read(fleet: Servers, run_id: str, readers: Sequence[Reader], *, cancelled: bool) -> Ended:
    """Everything there is to know of a run that has ended; `cancelled` says whether it may have been."""
    playing = Playing(PlannedRun("a", "stream", ()), name=run_id, run_id=run_id)
    playing.readers = list(readers)
    playing.cancels = int(cancelled)
    ended = Ended(playing)
    await ended.read(_Harness(fleet))
    return ended


def check_story(ended: Ended, *, interruptions: int) -> None:
    """What the stream, the decisions and the result say fits together."""
    check_end(ended)
    check_readers(ended)
    check_decisions(ended)
    check_order(ended, kills=interruptions)
    check_result(ended)


async def check(life: Life, references: Mapping[str, Story], *, interruptions: int) -> int:
    """Check one run against an uninterrupted one of the same plan. `interruptions` is how often a
    process of its fleet came to its end. How many calls had to be recovered."""
    ended = await read(life.fleet, life.run_id, life.readers, cancelled=bool(life.plan.cancel))
    check_story(ended, interruptions=interruptions)
    check_made(life, ended)
    traces = life.fleet.traces(life.run_id)
    check_effects(ended, traces, interruptions)
    check_questions(life, traces)
    if life.plan.cancel:
        assert ended.run.state == run_pb2.RUN_STATE_CANCELLED
    else:
        same(story_of(ended.chunks, ended.result), references[life.plan.name])
    await check_replay(life, ended)
    recovered = [call for call in ended.pending.values() if call.kind == RECOVERY]
    assert interruptions or not recovered
    return len(recovered)


def same(story: Story, reference: Story) -> None:
    """Two runs of one plan said and did the same."""
    _equal("result", story.result, reference.result)
    _equal("end", story.end, reference.end)
    _equal("steps", story.steps.keys(), reference.steps.keys())
    for number, step in story.steps.items():
        wanted = reference.steps[number]
        for part in ("said", "verdicts", "finish", "outcomes"):
            _equal(f"{part} in step {number}", getattr(step, part), getattr(wanted, part))
        assert set(step.reports) <= set(wanted.reports), number
        for call_id, reports in step.reports.items():
            assert reports <= wanted.reports[call_id], call_id


def _equal(what: str, value: Any, reference: Any) -> None:
    assert value == reference, f"{what}: {value}\nwithout interruptions: {reference}"


def check_made(life: Life, ended: Ended) -> None:
    """Every decision that somebody was told is made is the one on record, and nobody else made one."""
    on_record = {decision.pending_call_id: decision for decision in ended.decisions}
    verbs = {
        "approve": APPROVE,
        "decline": DECLINE,
        "resume": RESUME,
        "submit": chunk_pb2.DECISION_VERB_SUBMIT,
    }
    for made in life.made:
        decision = on_record[made.call.pending_call_id]
        assert decision.request_id == made.request_id
        assert decision.verb == verbs[made.verb]
        assert made.decision.decision_id == decision.decision_id
    told = {made.call.pending_call_id for made in life.made}
    of_people = {d.pending_call_id for d in ended.decisions if d.principal != SYSTEM}
    assert told == of_people


def check_effects(ended: Ended, traces: list[dict[str, Any]], interruptions: int) -> None:
    """No body was entered more often than people's decisions allow, except idempotent ones after an
    interruption, always with the same key; none without a decision that it needed."""
    entries: dict[str, list[dict[str, Any]]] = {}
    for trace in traces:
        if trace["event"] == "enter":
            entries.setdefault(trace["call"], []).append(trace)
    calls = {call.tool_call_id: call for call in ended.of("tool_call")}
    assert set(entries) <= set(calls)
    for call_id, entered in entries.items():
        tool_name = calls[call_id].tool_name
        assert len({entry["key"] for entry in entered}) == 1, entered
        decisions = [d for d in ended.decisions if d.tool_call_id == call_id]
        allowed = sum(d.verb == RESUME or d.verb == APPROVE for d in decisions) + (tool_name not in GATED)
        if tool_name in IDEMPOTENT and interruptions:
            assert allowed, entered
            assert len(entered) <= allowed + interruptions, (entered, decisions)
        else:
            assert len(entered) <= allowed, (entered, decisions)
    for result in ended.of("tool_result"):
        own = [d for d in ended.decisions if d.tool_call_id == result.tool_call_id]
        by_hand = any(d.verb == chunk_pb2.DECISION_VERB_SUBMIT for d in own)
        if not by_hand and result.tool_name != "ask_user":
            assert entries.get(result.tool_call_id), result


def check_questions(life: Life, traces: list[dict[str, Any]]) -> None:
    """A model was not asked again for an answer of which somebody had seen what came of it."""
    asked = [(trace["step"], trace["time"]) for trace in traces if trace["event"] == "asked"]
    for reader in life.readers:
        for step, seen in reader.answered.items():
            assert all(time < seen for number, time in asked if number == step), (step, seen, asked)


async def check_replay(life: Life, ended: Ended) -> None:
    """The request that started it, sent again, gives what the run has come to."""
    async with life.fleet.client() as client:
        run = await client.runs.get(life.run_id)
        assert run.result is not None
        agent = client.agent("world")
        if life.streamed:
            stream = agent.stream(**life.start())
            assert await stream.result() == run.result
        else:
            assert await agent.generate(**life.start()) == run.result
