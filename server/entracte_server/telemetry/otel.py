"""Telemetry by OpenTelemetry."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Span, SpanContext, get_current_span, set_span_in_context

from entracte_server.agents.agent import Agent
from entracte_server.agents.context import ToolContext
from entracte_server.agents.tools import Arguments, Tool
from entracte_server.domain.runs import Snapshot
from entracte_server.domain.tracing import TracingOptions
from entracte_server.models.base import Model
from entracte_server.telemetry import names as n
from entracte_server.telemetry.base import Scoring, Segment, Telemetry, ToolExecution
from entracte_server.telemetry.instruments import Instruments
from entracte_server.telemetry.observed_model import ObservedModel
from entracte_server.telemetry.observed_scoring import ObservedScoring
from entracte_server.telemetry.observed_tool import ObservedTool
from entracte_server.telemetry.scope import Policy, Scope, current, policy_of
from entracte_server.telemetry.segment import ObservedSegment
from entracte_server.telemetry.spans import (
    Spans,
    around,
    first_span,
    remote,
    segment_span_id,
)

FLUSH_SECONDS = 1.5
"""The longest a server that stops waits for what it recorded to be sent."""

_caller: ContextVar[SpanContext | None] = ContextVar("entracte_caller_span", default=None)
"""The span of whoever makes the RPC that this task handles, or that started what it executes."""


class OtelTelemetry(Telemetry):
    """See `Telemetry`. `spans` None: nothing is traced. `record_content`: whether spans carry what is said
    where neither run nor agent say so. `shutdown` sends what there is and may block, `make_global` makes
    others use the same providers."""

    reads_backlog = True

    def __init__(
        self,
        spans: Spans | None,
        instruments: Instruments,
        *,
        record_content: bool,
        shutdown: Callable[[], None],
        make_global: Callable[[], None],
    ) -> None:
        self._spans = spans
        self._instruments = instruments
        self._record_content = record_content
        self._shutdown = shutdown
        self._make_global = make_global
        self.reads_callers = spans is not None

    def caller(self, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        """See `Telemetry`. Which headers count is said by OTEL_PROPAGATORS."""
        carrier = {key: value for key, value in metadata if isinstance(value, str)}
        found = get_current_span(propagate.extract(carrier)).get_span_context()
        _caller.set(found if found.is_valid else None)

    def backlog(self, waiting: Mapping[str, tuple[int, int]] | None) -> None:
        """See `Telemetry`."""
        self._instruments.tell_backlog(waiting)

    def begin(self, snapshot: Snapshot, agent: Agent) -> Segment:
        """See `Telemetry`."""
        policy = self._policy(snapshot, agent)
        segment = ObservedSegment(self._instruments, snapshot, agent, policy, is_first=True)
        if self._spans is not None and policy.traced:
            parent, trace_id = _belongs_to(snapshot.spec.options.tracing_options)
            ids = _ids(snapshot, trace_id or self._spans.new_trace_id())
            segment.start_span(self._spans, parent, ids)
        return segment

    def resume(self, snapshot: Snapshot, agent: Agent) -> Segment:
        """See `Telemetry`. A run that was started without a trace has none later."""
        policy = self._policy(snapshot, agent)
        segment = ObservedSegment(self._instruments, snapshot, agent, policy, is_first=False)
        trace = snapshot.spec.trace
        if self._spans is not None and policy.traced and trace is not None:
            first = first_span(trace)
            _, previous = _ids(snapshot, first.trace_id, before=1)
            segment.start_span(
                self._spans,
                around(first),
                _ids(snapshot, first.trace_id),
                previous=remote(first.trace_id, previous, trace.flags),
                caller=_caller.get(),
            )
        return segment

    def _policy(self, snapshot: Snapshot, agent: Agent | None) -> Policy:
        return policy_of(snapshot.spec, agent, record_content=self._record_content)

    def model(self, model: Model, *, content: bool = True) -> Model:
        """See `Telemetry`."""
        return ObservedModel(model, self._instruments, content)

    def tool(self, tool: Tool, arguments: Arguments, context: ToolContext[Any]) -> ToolExecution:
        """See `Telemetry`."""
        return ObservedTool(self._instruments, tool, arguments, context)

    def scorer(self, name: str) -> Scoring:
        """See `Telemetry`."""
        return ObservedScoring(self._instruments, name)

    @contextmanager
    def below(self, snapshot: Snapshot, agent: Agent) -> Iterator[None]:
        """See `Telemetry`. Its span is a child of that of the agent that delegated."""
        above = current.get()
        scope = Scope(snapshot.run, agent.name, self._policy(snapshot, agent))
        span: Span = INVALID_SPAN
        if above is not None and above.spans is not None:
            attributes = {**scope.common(), n.OPERATION: "invoke_agent", n.AGENT_ID: agent.id}
            span = above.spans.start(f"invoke_agent {agent.name}", above.context, attributes)
            scope.spans, scope.context = above.spans, set_span_in_context(span, Context())
        token = current.set(scope)
        try:
            yield
        finally:
            current.reset(token)
            span.end()
            if above is not None:
                above.usage = above.usage + scope.usage

    @contextmanager
    def afterwards(self, snapshot: Snapshot, agent: Agent | None) -> Iterator[None]:
        """See `Telemetry`. Spans are children of the run's first one."""
        run, trace = snapshot.run, snapshot.spec.trace
        policy = self._policy(snapshot, agent)
        scope = Scope(run, run.agent_id if agent is None else agent.name, policy)
        if self._spans is not None and policy.traced and trace is not None:
            scope.spans, scope.context = self._spans, around(first_span(trace))
        token = current.set(scope)
        try:
            yield
        finally:
            current.reset(token)

    def make_global(self) -> None:
        """See `Telemetry`."""
        self._make_global()

    async def close(self) -> None:
        """See `Telemetry`. What cannot be sent in `FLUSH_SECONDS` is given up."""
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def work() -> None:
            try:
                self._shutdown()
            finally:
                _tell(loop, done)

        # A thread of its own: those of the loop's pool would be waited for, however long it takes.
        threading.Thread(target=work, name="entracte-telemetry", daemon=True).start()
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                await done.wait()
        except TimeoutError:
            return


def _tell(loop: asyncio.AbstractEventLoop, done: asyncio.Event) -> None:
    try:
        loop.call_soon_threadsafe(done.set)
    except RuntimeError:  # the loop is closed: nobody waits any more
        return


def _ids(snapshot: Snapshot, trace_id: int, *, before: int = 0) -> tuple[int, int]:
    """The ids of a run's segment, or of one before it."""
    run = snapshot.run
    return trace_id, segment_span_id(trace_id, run.tenant, run.run_id, run.fence - before)


def _belongs_to(options: TracingOptions) -> tuple[Context, int]:
    """What a new run is a child of, and its trace, 0 for one of its own. The caller's span comes before
    what the options say."""
    caller = _caller.get()
    if caller is not None:
        return around(caller), caller.trace_id
    trace_id = int(options.trace_id or "0", 16)
    if options.parent_span_id:
        return around(remote(trace_id, int(options.parent_span_id, 16))), trace_id
    return Context(), trace_id
