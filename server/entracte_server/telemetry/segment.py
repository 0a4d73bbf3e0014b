"""The span and the figures of a run between two rests."""

import time
from collections.abc import Mapping
from contextvars import Token
from types import TracebackType
from typing import Any, Self

from opentelemetry import context as otel_context
from opentelemetry import trace as otel
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, Status, StatusCode
from structlog.contextvars import bind_contextvars, reset_contextvars

from entracte_server.agents.agent import Agent
from entracte_server.domain import json_text
from entracte_server.domain.chunks import FinishReason, StopCause
from entracte_server.domain.results import RunError
from entracte_server.domain.runs import PendingRow, Resolution, RunState, Snapshot, StepRecord
from entracte_server.domain.tracing import Trace
from entracte_server.telemetry import content
from entracte_server.telemetry import names as n
from entracte_server.telemetry.base import Segment
from entracte_server.telemetry.instruments import Instruments
from entracte_server.telemetry.scope import Policy, Scope, current
from entracte_server.telemetry.spans import Attributes, Spans, around, first_span, trace_of


class ObservedSegment(Scope, Segment):
    """See `Segment`."""

    def __init__(
        self, instruments: Instruments, snapshot: Snapshot, agent: Agent, policy: Policy, *, is_first: bool
    ) -> None:
        super().__init__(snapshot.run, agent.name, policy)
        self.trace: Trace | None = None
        self._answer: StepRecord | None = None
        self._instruments = instruments
        self._snapshot = snapshot
        self._agent = agent
        self._is_first = is_first
        self._span: Span = otel.INVALID_SPAN
        self._callers: list[Link] = []
        self._started = self._step_started = time.perf_counter()
        self._error = ""
        self._state = ""
        self._tokens: tuple[Token[Scope | None], Token[Context]] | None = None
        self._logged: Mapping[str, Token[Any]] = {}

    def start_span(
        self,
        spans: Spans,
        parent: Context,
        ids: tuple[int, int],
        *,
        previous: SpanContext | None = None,
        caller: SpanContext | None = None,
    ) -> None:
        """Trace it. `previous` is the segment before it, `caller` whoever made it go on."""
        self.spans = spans
        links = []
        if previous is not None:
            links.append(Link(previous, {n.LINK: "previous_segment"}))
        if caller is not None:
            self._callers.append(Link(caller, {n.LINK: "caller"}))
        self._span = spans.start(
            f"invoke_agent {self.agent_name}",
            parent,
            self._attributes(),
            links=[*links, *self._callers],
            ids=ids,
        )
        self.context = otel.set_span_in_context(self._span, Context())
        self.trace = self._snapshot.spec.trace or trace_of(self._span.get_span_context())
        if self._is_first and self.policy.raw_inputs and self._span.is_recording():
            spec = self._snapshot.spec
            self._span.set_attribute(n.INPUT_MESSAGES, content.messages(spec.input))
            if spec.system:
                parts = [{"type": "text", "content": text} for text in spec.system]
                self._span.set_attribute(n.SYSTEM_INSTRUCTIONS, json_text.dump(parts))
        self._span.set_attribute(n.SEGMENT, self.run.fence)

    def _attributes(self) -> Attributes:
        run, agent, options = self.run, self._agent, self._snapshot.spec.options
        wanted = self.policy.tracing
        given: dict[str, Any] = {}
        if wanted.request_context_keys and options.request_context:
            given = json_text.parse(options.request_context)
        # Ours come last: nobody can say who was called, or that it was somebody else's run.
        found: Attributes = {**wanted.attributes(given)}
        if wanted.tags:
            found[n.TAGS] = wanted.tags
        found.update(self.common())
        found[n.OPERATION] = "invoke_agent"
        found[n.TENANT] = run.tenant
        found[n.AGENT_ID] = agent.id
        model = agent.models[0] if len(agent.models) == 1 else ""
        names = [item if isinstance(item, str) else item.name for item in agent.models]
        found[n.PROVIDER] = n.model_names(names[0])[0]
        if model:
            found[n.REQUEST_MODEL] = n.model_names(names[0])[1]
        if agent.description:
            found[n.AGENT_DESCRIPTION] = agent.description
        if run.agent_version:
            found[n.AGENT_VERSION] = run.agent_version
        return found

    # ---- life ----

    def __enter__(self) -> Self:
        self._started = self._step_started = time.perf_counter()
        self._tokens = (current.set(self), otel_context.attach(self.context))
        if self.trace is not None:
            self._logged = bind_contextvars(trace_id=self.trace.trace_id)
        self._instruments.runs_active.add(1, self._labels())
        if self._is_first:
            self._instruments.runs_started.add(1, self._labels())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._tokens is not None:
            current.reset(self._tokens[0])
            otel_context.detach(self._tokens[1])
            reset_contextvars(**self._logged)
        self._instruments.runs_active.add(-1, self._labels())
        labels = self._labels()
        if self._error:
            labels[n.ERROR_TYPE] = self._error
        self._instruments.agent_duration.record(time.perf_counter() - self._started, labels)
        span = self._span
        if span.is_recording():
            span.set_attribute(n.RUN_STATE, self._state or "given-up")
            span.set_attribute(n.INPUT_TOKENS, self.usage.input)
            span.set_attribute(n.OUTPUT_TOKENS, self.usage.output)
            if self._answer is not None:
                answer = content.answer(self._answer.parts, self._answer.reason)
                span.set_attribute(n.OUTPUT_MESSAGES, answer)
        span.end()

    def rested(
        self, state: RunState, reason: FinishReason, cause: StopCause, error: RunError | None = None
    ) -> None:
        """See `Segment`."""
        self._state = state
        self._span.set_attribute(n.FINISH_REASONS, [reason])
        self._span.set_attribute(n.STOP_CAUSE, cause)
        if error is not None:
            self._error = error.kind
            self._span.set_attribute(n.ERROR_TYPE, error.kind)
            # A provider's message may quote what it was sent.
            self._span.set_status(
                Status(StatusCode.ERROR, error.message if self.policy.outputs else error.kind)
            )
        labels = self._labels()
        if state == "suspended":
            self._instruments.runs_parked.add(1, labels)
            return
        labels[n.RUN_STATE] = state
        labels[n.STOP_CAUSE] = cause
        self._instruments.runs_ended.add(1, labels)
        self._instruments.run_duration.record(_seconds_since(self.run.create_time), labels)

    def _labels(self) -> Attributes:
        return {n.AGENT_NAME: self.agent_name}

    # ---- what happens in it ----

    def step_ended(self, record: StepRecord) -> None:
        """See `Segment`."""
        if self.policy.outputs:
            self._answer = record
        now = time.perf_counter()
        self._instruments.steps.add(1, self._labels())
        self._instruments.step_duration.record(now - self._step_started, self._labels())
        self._step_started = now

    def opened(self, pending: PendingRow) -> None:
        """See `Segment`."""
        labels = {**self._labels(), n.PENDING_KIND: pending.kind}
        self._instruments.pending_opened.add(1, labels)
        waiting = _waiting(pending.call_id, pending.tool_name, pending.pending_call_id, pending.kind)
        self._span.add_event("entracte.pending_call.opened", waiting)

    def decided(self, call_id: str, tool_name: str, resolution: Resolution) -> None:
        """See `Segment`. The wait has a span of its own, from when the call was announced until then."""
        kind = resolution.kind or ""
        labels = {**self._labels(), n.PENDING_KIND: kind, n.VERB: resolution.verb}
        self._instruments.pending_decided.add(1, labels)
        if not resolution.opened:
            return
        waited = max(0, resolution.decided - resolution.opened)
        self._instruments.pending_wait.record(waited / 1000, labels)
        if self.spans is None or self.trace is None:
            return
        waiting = _waiting(call_id, tool_name, resolution.pending_call_id, kind)
        self.spans.start(
            f"wait {tool_name}",
            around(first_span(self.trace)),
            {**self.common(), **waiting, n.VERB: resolution.verb},
            links=self._callers,
            start_time=resolution.opened * 1_000_000,
        ).end((resolution.opened + waited) * 1_000_000)


def _waiting(call_id: str, tool_name: str, pending_call_id: str, kind: str) -> Attributes:
    return {
        n.PENDING_CALL_ID: pending_call_id,
        n.PENDING_KIND: kind,
        n.TOOL_NAME: tool_name,
        n.TOOL_CALL_ID: call_id,
    }


def _seconds_since(milliseconds: int) -> float:
    return max(0.0, time.time() - milliseconds / 1000)
