"""What runs come to: results, steps, pending calls, decisions, runs.

`agent.generate`, a stream's `result()`, a waited decision and `client.runs.get` give the same
`GenerateResult`.
"""

from collections.abc import Mapping
from dataclasses import InitVar, dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Generic, TypeVar

from entracte._chunk_base import PathElement, value_of
from entracte._chunks import ToolCallChunk, ToolResultChunk
from entracte._enums import (
    DecisionVerb,
    ExpiryAction,
    FinishReason,
    FollowUpKind,
    FollowUpState,
    PendingCallKind,
    PendingCallState,
    RunState,
    StopCause,
)
from entracte._messages import Message, ReasoningPart
from entracte._outcomes import RunError, Tripwire, Usage

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Claim:
    """A person's hold on a pending call: until `expire_time` others cannot decide."""

    principal: str
    expire_time: datetime | None


@dataclass(frozen=True)
class Decision:
    """What decided a pending call: how, by whom (`system` for an expiry), when, and on what."""

    decision_id: str
    pending_call_id: str
    run_id: str
    tool_call_id: str
    tool_name: str
    verb: DecisionVerb
    principal: str
    on_behalf_of: str
    decide_time: datetime | None
    args_json: str | None
    edited_args_json: str | None
    data_json: str | None
    is_error: bool
    reason: str
    reason_json: str | None
    comment: str
    request_id: str
    args_digest: bytes

    @cached_property
    def args(self) -> Any:
        """The arguments that were shown, a dict."""
        return value_of(self.args_json)

    @cached_property
    def edited_args(self) -> Any:
        """The arguments as edited by the approver; None where they were not edited."""
        return value_of(self.edited_args_json)

    @cached_property
    def data(self) -> Any:
        """The answer, or the client's result; an error's text where `is_error`."""
        return value_of(self.data_json)

    @cached_property
    def reason_data(self) -> Any:
        """Why it was declined, as data; None where there is none."""
        return value_of(self.reason_json)


@dataclass(frozen=True)
class PendingCall:
    """A tool call that waits. Its id belongs to this round of waiting and is never used again, so
    a decision can only hit the call that was shown.

    `kind` tells which verbs fit: `approval` takes `approve`; `suspension` takes `resume`;
    `client-tool` takes `submit_tool_result`; `recovery` (the server stopped while the tool ran)
    takes `submit_tool_result`, or `approve` to run it again. Each can be declined.

    `expire_time` is the last moment at which it can be decided (None: it waits for ever). After it the
    server does what `on_expiry` says: `decline` it, `fail` the run, or give the `default_answer`.
    """

    pending_call_id: str
    run_id: str
    tool_call_id: str
    agent_id: str
    agent_path: tuple[PathElement, ...]
    kind: PendingCallKind
    tool_name: str
    tool_description: str
    args_json: str | None
    args_digest: bytes
    suspend_payload_json: str | None
    resume_schema_json: str | None
    create_time: datetime | None
    expire_time: datetime | None
    state: PendingCallState
    claim: Claim | None
    thread_id: str
    resource_id: str
    round: int
    decision: Decision | None
    on_expiry: ExpiryAction | None = None
    default_answer_json: str | None = None

    @cached_property
    def args(self) -> Any:
        """The validated arguments, a dict. `args_json` is the text that is digested and executed."""
        return value_of(self.args_json)

    @cached_property
    def suspend_payload(self) -> Any:
        """What the tool asked; None where it asked nothing."""
        return value_of(self.suspend_payload_json)

    @cached_property
    def resume_schema(self) -> Any:
        """The JSON Schema the answer must fit; None where any answer will do."""
        return value_of(self.resume_schema_json)

    @cached_property
    def default_answer(self) -> Any:
        """The answer that is given when it expires; None where there is none."""
        return value_of(self.default_answer_json)


@dataclass(frozen=True)
class RequestInfo:
    """A request to a model."""

    body_json: str | None

    @cached_property
    def body(self) -> Any:
        """What was sent, with `include_request_body`; None otherwise."""
        return value_of(self.body_json)


@dataclass(frozen=True, slots=True)
class RateLimit:
    """A limit of the provider, as it was when an answer began: how much it allows, how much of that is left,
    and how long until all of it is there again. None where the provider does not say."""

    limit: int | None = None
    remaining: int | None = None
    reset: timedelta | None = None


@dataclass(frozen=True, slots=True)
class ResponseInfo:
    """An answer of a model. `messages` are those the run added to the conversation, `ui_messages`
    the same with what processors attached. `request_limit` and `token_limit` are the provider's limits, where
    it told them."""

    id: str
    timestamp: datetime | None
    model_id: str
    headers: Mapping[str, str]
    messages: tuple[Message, ...]
    ui_messages: tuple[Message, ...]
    request_limit: RateLimit | None = None
    token_limit: RateLimit | None = None


@dataclass(frozen=True)
class StepResult:
    """One step of a run. `is_draft`: a completion check failed, its text is not the result's."""

    step: int
    text: str
    tool_calls: tuple[ToolCallChunk, ...]
    tool_results: tuple[ToolResultChunk, ...]
    finish_reason: FinishReason | None
    usage: Usage
    request: RequestInfo | None = None
    response: ResponseInfo | None = None
    reasoning_text: str = ""
    tripwire: Tripwire | None = None
    is_draft: bool = False


@dataclass(frozen=True)
class Source:
    """Something the model cited."""

    id: str
    url: str
    title: str
    provider_metadata_json: str | None

    @cached_property
    def provider_metadata(self) -> Any:
        """What the provider attached; None where it attached nothing."""
        return value_of(self.provider_metadata_json)


@dataclass(frozen=True, slots=True)
class File:
    """A file the model made: its `data`, or the `url` when the provider gave only that."""

    media_type: str
    data: bytes
    url: str


@dataclass(frozen=True)
class SuspendPayload:
    """The first waiting call of a parked run; `GenerateResult.pending_calls` has all of them."""

    tool_call_id: str
    tool_name: str
    args_json: str | None
    suspend_payload_json: str | None
    resume_schema_json: str | None

    @cached_property
    def args(self) -> Any:
        """Its arguments, a dict."""
        return value_of(self.args_json)

    @cached_property
    def suspend_payload(self) -> Any:
        """What the tool asked; None for an approval."""
        return value_of(self.suspend_payload_json)

    @cached_property
    def resume_schema(self) -> Any:
        """The JSON Schema of the answer; None where there is none."""
        return value_of(self.resume_schema_json)


@dataclass(frozen=True)
class ScoringData:
    """What scorers see of a run."""

    input_json: str | None
    output_json: str | None

    @cached_property
    def input(self) -> Any:
        """The input, a dict."""
        return value_of(self.input_json)

    @cached_property
    def output(self) -> Any:
        """The output."""
        return value_of(self.output_json)


@dataclass(frozen=True)
class GenerateResult:
    """What a run has come to: its final result, or what there is so far when it is parked
    (`finish_reason == "suspended"`) or was cancelled (`"aborted"`).

    A run that failed is a result too: `finish_reason == "error"` and `error` says why.
    `usage` is of the whole run. `object_json` is the exact text of `object`.
    """

    run_id: str
    text: str
    object_json: str | None
    tool_calls: tuple[ToolCallChunk, ...]
    tool_results: tuple[ToolResultChunk, ...]
    usage: Usage
    steps: tuple[StepResult, ...]
    finish_reason: FinishReason | None
    stop_cause: StopCause | None
    response: ResponseInfo
    request: RequestInfo
    warnings: tuple[str, ...]
    provider_metadata_json: str | None
    reasoning: tuple[ReasoningPart, ...]
    reasoning_text: str
    sources: tuple[Source, ...]
    files: tuple[File, ...]
    suspend_payload: SuspendPayload | None
    pending_calls: tuple[PendingCall, ...]
    trace_id: str
    span_id: str
    messages: tuple[Message, ...]
    remembered_messages: tuple[Message, ...]
    error: RunError | None
    tripwire: Tripwire | None
    scoring_data: ScoringData | None
    used_fallback_value: bool
    auto_resume_error: str
    object_type: InitVar[Any] = None
    """The pydantic model that was given as `structured_output`, where one was."""

    def __post_init__(self, object_type: Any) -> None:
        object.__setattr__(self, "_object_type", object_type)

    @cached_property
    def object(self) -> Any:
        """The validated structured output; None where there is none. An instance of the pydantic model
        that was given as `structured_output`: then what the model checks beyond its schema is checked
        here, and raises what the model raises."""
        model = self.__dict__["_object_type"]
        if self.object_json is None or model is None:
            return value_of(self.object_json)
        return self.object_as(model)

    def object_as(self, model: type[T]) -> T:
        """The structured output as an instance of a pydantic model, for a result that knows of none: of a
        decision, or of `client.runs.get`. Raises ValueError where there is no object."""
        if self.object_json is None:
            raise ValueError("the run has no structured output")
        validate: Any = model.model_validate_json  # type: ignore[attr-defined]
        instance: T = validate(self.object_json)
        return instance

    @cached_property
    def provider_metadata(self) -> Any:
        """What the provider attached to the last answer; None where it attached nothing."""
        return value_of(self.provider_metadata_json)


@dataclass(frozen=True, slots=True)
class FollowUp:
    """Something that is done about a run after its end.

    A `score` is the judgement of `scorer`: `score` from 0 to 1 and `reason` when it `succeeded`; `error`
    when it `failed`, or why the last attempt did while it is `waiting`. `skipped`: the run was not among
    the share `sampling_ratio` that is scored. `usage` is what models used for it, `duration` the seconds
    of the last attempt. A `title` is what the run's thread was given: `title` when it `succeeded`;
    `skipped`: the thread had one by then.
    """

    kind: FollowUpKind
    name: str
    state: FollowUpState
    scorer: str
    score: float | None
    reason: str
    error: str
    attempts: int
    sampling_ratio: float | None
    usage: Usage
    duration: float
    create_time: datetime | None
    finish_time: datetime | None
    title: str | None = None


@dataclass(frozen=True)
class Run:
    """One execution of an agent, over any number of suspensions.

    `last_sequence` is where to follow it from with `client.runs.watch`. `result` is there when it
    was asked for (`client.runs.get`), not in lists. `follow_ups` are what is done about it after its end,
    in what `client.runs` reads.
    """

    run_id: str
    agent_id: str
    state: RunState
    last_sequence: int
    step: int
    create_time: datetime | None
    update_time: datetime | None
    finish_time: datetime | None
    finish_reason: FinishReason | None
    stop_cause: StopCause | None
    usage: Usage
    error: RunError | None
    principal: str
    thread_id: str
    resource_id: str
    root_run_id: str
    parent_run_id: str
    pending_calls: tuple[PendingCall, ...]
    request_context_json: str | None
    result: GenerateResult | None = None
    follow_ups: tuple[FollowUp, ...] = ()
    agent_version_id: str = ""

    @cached_property
    def request_context(self) -> Any:
        """The values given as `request_context`, a dict; None where none were given."""
        return value_of(self.request_context_json)


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A page of a list. `next_page_token` is empty on the last one."""

    items: tuple[T, ...]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class InboxChange:
    """A change of the open calls: those that opened or whose claim changed, and the ids of those no
    longer open. `snapshot_complete` is true once, when all calls open at the start were sent."""

    opened: tuple[PendingCall, ...]
    closed: tuple[str, ...]
    snapshot_complete: bool
