"""What is stored of a run: its row, its steps, its tool calls, what waits and what was decided.

Times are milliseconds since the epoch; JSON values are text.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

from entracte_server.domain.chunks import AgentPath, FinishReason, PendingKind, StopCause, Verb
from entracte_server.domain.data import Data
from entracte_server.domain.expiry import OnExpiry
from entracte_server.domain.messages import AnyPart, Message
from entracte_server.domain.options import PinnedTool, RunOptions, StepOverrides
from entracte_server.domain.results import CheckResult, RunError, Tripwire, Usage
from entracte_server.domain.tracing import Trace

SNAPSHOT_FORMAT = 1
"""The version of these records. A process claims only runs whose format it knows."""

RunState = Literal["queued", "running", "suspended", "succeeded", "failed", "cancelled"]

TERMINAL: frozenset[str] = frozenset({"succeeded", "failed", "cancelled"})


class RunRow(Data, frozen=True):
    """Where a run stands.

    `owner` is the process that executes it (empty: nobody) and `fence` the number of ownerships so
    far: a write under an older number is refused. `step` and `attempt` are those of the model call
    in progress or last made, 0 before the first. `executed_ms` is the time spent executing up to
    the last parking. `cancel_reason` is None unless somebody asked to cancel.
    """

    tenant: str
    run_id: str
    agent_id: str
    state: RunState
    principal: str
    create_time: int
    update_time: int
    owner: str = ""
    fence: int = 0
    last_sequence: int = 0
    step: int = 0
    attempt: int = 0
    finish_time: int = 0
    usage: Usage = Usage()
    finish_reason: FinishReason | None = None
    stop_cause: StopCause | None = None
    error: RunError | None = None
    executed_ms: int = 0
    cancel_reason: str | None = None
    takeovers: int = 0
    thread_id: str = ""
    resource_id: str = ""
    root_run_id: str = ""
    parent_run_id: str = ""
    agent_version: str = ""
    format: int = SNAPSHOT_FORMAT


class RunSpec(Data, frozen=True):
    """What a run was asked to do; written once. `system` are the resolved system texts. `trace` is None
    where the run is not traced. `history` and `known`, the earlier messages of its thread and the system
    texts about its user, are never written: `Remembered` says where they are. `path` are the delegations on
    the way to the agent; empty for a root."""

    input: tuple[Message, ...]
    options: RunOptions
    system: tuple[str, ...] = ()
    message_id: str = ""
    trace: Trace | None = None
    history: tuple[Message, ...] = ()
    known: tuple[str, ...] = ()
    path: AgentPath = ()


class Response(Data, frozen=True):
    """What the provider said about an answer. `time` is the provider's own. `refused`: its text is the
    model's refusal to answer."""

    id: str = ""
    model: str = ""
    time: int = 0
    headers: Mapping[str, str] = {}
    provider_metadata: str | None = None
    refused: bool = False


class SourceRecord(Data, frozen=True):
    """Something the model cited."""

    id: str
    url: str
    title: str = ""
    provider_metadata: str | None = None


class FileRecord(Data, frozen=True):
    """A file the model made."""

    media_type: str
    data: bytes = b""
    url: str = ""


class Feedback(Data, frozen=True):
    """What the model is told after a step, as a message of the user that no user wrote. `source` says who
    tells it: `completion-check`, `iteration`, `processor`."""

    source: str
    text: str


class CheckRecord(Data, frozen=True):
    """What the checks of a step came to together. `usage` is what the models that judged used, `spent` the
    same by their names."""

    verdict: Literal["passed", "failed", "unavailable"]
    results: tuple[CheckResult, ...] = ()
    timed_out: bool = False
    usage: Usage = Usage()
    spent: Mapping[str, Usage] = {}


class Rejected(Data, frozen=True):
    """An attempt at a step whose answer was sent back. `parts` are what the model is shown of that answer
    when it is asked again, `feedback` what it is told of it."""

    parts: tuple[AnyPart, ...]
    feedback: tuple[Feedback, ...]


class ObjectRecord(Data, frozen=True):
    """What an answer came to as structured output: `object` is JSON text, None where nothing fits the
    schema. `usage` is what the structuring model `model` used, where there is one."""

    object: str | None = None
    is_fallback: bool = False
    model: str = ""
    usage: Usage = Usage()


class StepRecord(Data, frozen=True):
    """A complete answer of the model: the checkpoint before any tool starts.

    `parts` hold text and reasoning in the model's order; the calls of the step are rows of their
    own. `requested_tools` says whether the answer had calls. What comes to light after the answer is added
    when the step ends: `check` is what the checks of completion said, `is_draft` that the text is none of
    the run's text because it was not enough, `feedback` what the model is told of it. `overrides` are the
    step's own settings. `structured` is there once the answer was read as structured output, and
    `schema_injected` says that the prompt had the schema because the provider refused it natively.

    `rejected` are earlier attempts whose answers were sent back; `usage` includes theirs. `again` says
    that the last of them was the last answer so far: the step is to be asked again, and the record holds
    nothing but that.

    `tripwire` is there when a processor vetoed the step: then there is nothing else
    of the answer, unless only what came after it was stopped. `metadata`, the JSON text of an object, is
    what processors attached to the answer's message. An answer is `held` until the processors of results
    have passed it, which nobody but them sees before.
    """

    step: int
    attempt: int
    message_id: str
    reason: FinishReason
    usage: Usage
    parts: tuple[AnyPart, ...] = ()
    raw_reason: str = ""
    response: Response = Response()
    warnings: tuple[str, ...] = ()
    sources: tuple[SourceRecord, ...] = ()
    files: tuple[FileRecord, ...] = ()
    model: str = ""
    requested_tools: bool = False
    check: CheckRecord | None = None
    is_draft: bool = False
    feedback: tuple[Feedback, ...] = ()
    overrides: StepOverrides | None = None
    structured: ObjectRecord | None = None
    rejected: tuple[Rejected, ...] = ()
    again: bool = False
    schema_injected: bool = False
    tripwire: Tripwire | None = None
    metadata: str | None = None
    held: bool = False

    @property
    def whole_usage(self) -> Usage:
        """With what was used on the answer once it was there."""
        usage = self.usage
        if self.structured is not None:
            usage = usage + self.structured.usage
        return usage if self.check is None else usage + self.check.usage


CallState = Literal["requested", "waiting", "decided", "started", "done"]
OutcomeKind = Literal["result", "error", "denied", "cancelled"]


class Outcome(Data, frozen=True):
    """How a call ended.

    `result`: `value` is the JSON text a tool returned. `error` and `cancelled`: `value` is the
    message for the model and `code` says whose fault it was (see `chunks.ToolError`). `denied`:
    `value` is the reason, `reason_json` the reason as data.
    """

    kind: OutcomeKind
    value: str
    code: str = ""
    reason_json: str | None = None


class Resolution(Data, frozen=True):
    """A decision that the run's stream does not show yet. `opened` and `decided` are when the call began
    to wait and was decided; 0 where an older version wrote it."""

    pending_call_id: str
    decision_id: str
    verb: Verb
    principal: str
    edited: bool = False
    kind: PendingKind | None = None
    opened: int = 0
    decided: int = 0


class CallRow(Data, frozen=True):
    """A tool call of a step.

    `args` is what the model wrote, `run_args` what is executed and what the model sees from then on
    when it differs (normalised by the tool's schema, or edited by a reviewer); `edited` tells which.
    `round` counts the times it waited. `key` is the idempotency key minted when the body was first
    entered. `resumed` and `resume_data` carry the answer of the last round, `defaulted` that it is the
    default one because nobody answered in time, `suspend_payload` what was asked in it, `tool_state`
    what the tool keeps over suspensions. `approved` holds once a person approved the call: it is not
    asked again. `redefined` says that the tool is another one than
    was shown, so that its own policy is asked anew. `resolution` waits to be shown.
    `definition` is the tool that it is about where an MCP server has changed it since the run started.
    `provider_executed` calls have no outcome of ours.

    The calls of a tree of agents belong to its root, and their ids are unique in it. `run_id` is the
    sub-agent's run whose call it is, empty for the root's own agent. A call that delegates has the run that
    it began, `child_run_id`, and, once that has ended or the root parked, the tokens used and what they cost
    (millionths), all below included; one that a message answered has what models used to read that. A hook
    may have something to tell the model beside its result, `feedback`, and may end the run with it: `bail`.
    """

    call_id: str
    step: int
    index: int
    tool_name: str
    args: str | None
    state: CallState = "requested"
    invalid_args: str | None = None
    args_error: str | None = None
    run_args: str | None = None
    edited: bool = False
    round: int = 0
    key: str = ""
    resumed: bool = False
    resume_data: str | None = None
    suspend_payload: str | None = None
    tool_state: str | None = None
    approved: bool = False
    redefined: bool = False
    resolution: Resolution | None = None
    outcome: Outcome | None = None
    provider_executed: bool = False
    provider_metadata: str | None = None
    defaulted: bool = False
    definition: PinnedTool | None = None
    run_id: str = ""
    child_run_id: str = ""
    usage: Usage | None = None
    cost: float = 0.0
    feedback: str = ""
    bail: bool = False


PendingState = Literal["open", "decided"]


class PendingRow(Data, frozen=True):
    """A call that waits or waited. `run_id` is the root of a tree of agents, `agent_id` the agent whose call
    it is, and `agent_path` the way to it.

    `args_digest` covers tool name and `args`. `tool_digest` is over the tool's definition when the
    call was shown. `claimed_by` and `claimed_until` are a person's hold on it. `expire_time` (0: never)
    is the last moment at which a person can decide; `on_expiry` is what happens after that. `needs` is
    what a process that goes on with the run must have registered, beside its agent.
    """

    tenant: str
    pending_call_id: str
    run_id: str
    call_id: str
    kind: PendingKind
    tool_name: str
    args: str
    args_digest: bytes
    create_time: int
    agent_id: str
    state: PendingState = "open"
    round: int = 1
    suspend_payload: str | None = None
    resume_schema: str | None = None
    tool_description: str = ""
    tool_digest: bytes = b""
    agent_path: AgentPath = ()
    thread_id: str = ""
    resource_id: str = ""
    expire_time: int = 0
    claimed_by: str = ""
    claimed_until: int = 0
    decision_id: str = ""
    on_expiry: OnExpiry | None = None
    needs: tuple[str, ...] = ()


class DecisionRow(Data, frozen=True):
    """Who decided what, when. Only ever added."""

    tenant: str
    decision_id: str
    pending_call_id: str
    run_id: str
    call_id: str
    tool_name: str
    verb: Verb
    principal: str
    decide_time: int
    args: str
    edited_args: str | None = None
    data: str | None = None
    is_error: bool = False
    reason: str = ""
    reason_json: str | None = None
    comment: str = ""
    on_behalf_of: str = ""
    request_id: str = ""
    args_digest: bytes = b""
    sequence: int = 0
    """The run's last sequence when it was decided: where to follow it from."""


class Processing(Data, frozen=True):
    """What processors have done in a run, and what they keep.

    `states` are their own states, JSON texts by the key of the processor. `input_passed`: the input was
    processed, and `opening` is what became of it, None where it is what it was. Of the step whose answer is
    due: `failures` counts the failed model calls that were made again, and `spent` is what processors used.
    """

    states: Mapping[str, str] = {}
    input_passed: bool = False
    opening: tuple[Message, ...] | None = None
    failures: int = 0
    spent: Usage = Usage()


class Remembered(Data, frozen=True):
    """What a run knows of its thread, found when it started: the messages from position `first` to `last`
    (0: none), `recalled` ones that come before these, as (thread id, position), and what its system
    messages say of the working memory (None: nothing). `warning` says why nothing is recalled, where that
    failed. `working_version` is that of the working memory as its model knows it now. `untitled`: the thread
    has no title, and is to be given one after the reply."""

    first: int = 0
    last: int = 0
    recalled: tuple[tuple[str, int], ...] = ()
    working: str | None = None
    warning: str = ""
    working_version: int = 0
    untitled: bool = False


class Snapshot(Data, frozen=True):
    """All that is needed to go on with a run.

    `calls` are those of its own agent; `below` are those of its sub-agents, at any depth, for a root.
    `pending` are the open ones, those below included.
    """

    run: RunRow
    spec: RunSpec
    steps: tuple[StepRecord, ...] = ()
    calls: tuple[CallRow, ...] = ()
    pending: tuple[PendingRow, ...] = ()
    processing: Processing | None = None
    remembered: Remembered | None = None
    below: tuple[CallRow, ...] = ()

    @property
    def waiting(self) -> list[PendingRow]:
        """The open pending calls in the order in which the models made the calls, those of a sub-agent
        where it was delegated to."""
        order = {call.call_id: (call.step, call.index) for call in (*self.calls, *self.below)}

        def place(row: PendingRow) -> list[tuple[int, int]]:
            way = [element.tool_call_id for element in row.agent_path]
            return [order.get(call_id, (0, 0)) for call_id in (*way, row.call_id)]

        return sorted(self.pending, key=place)

    @property
    def delegated(self) -> list[str]:
        """The runs of sub-agents, at any depth, that it waits for."""
        calls = (*self.calls, *self.below)
        return [call.child_run_id for call in calls if call.child_run_id and call.state != "done"]


def split_calls(run: RunRow, calls: Iterable[CallRow]) -> tuple[tuple[CallRow, ...], tuple[CallRow, ...]]:
    """Of the calls of a tree, those of one run, in the model's order, and, for the root, those below."""
    is_root = run.root_run_id in ("", run.run_id)
    owner = "" if is_root else run.run_id
    own: list[CallRow] = []
    below: list[CallRow] = []
    for call in calls:
        (own if call.run_id == owner else below).append(call)
    own.sort(key=_place)
    return tuple(own), tuple(below) if is_root else ()


def pending_under(path: AgentPath, pending: Iterable[PendingRow]) -> tuple[PendingRow, ...]:
    """What waits in the run of the sub-agent at `path`, and below it."""
    return tuple(row for row in pending if row.agent_path[: len(path)] == path)


def _place(call: CallRow) -> tuple[int, int]:
    return call.step, call.index
