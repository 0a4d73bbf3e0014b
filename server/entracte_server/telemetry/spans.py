"""Spans with ids of our choice, and the contexts they stand in.

The id of a segment's span is made of the run and of the number of its ownership. So a segment can name
the first one and the one before it, whatever became of the processes that recorded them, and nothing
has to be stored when a run parks.
"""

import hashlib
import threading
from collections.abc import Mapping, Sequence

from opentelemetry import trace as otel
from opentelemetry.context import Context
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, TraceFlags, Tracer
from opentelemetry.trace.span import TraceState
from opentelemetry.util.types import AttributeValue

from entracte_server.domain.tracing import Trace

Attributes = dict[str, AttributeValue]


class Ids(IdGenerator):
    """Random ids, but those that the next span of this thread is to have."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()
        self._next = threading.local()

    def set_next(self, trace_id: int, span_id: int) -> None:
        """The trace, where the span has no parent, and the id of the next span that is started."""
        self._next.ids = (trace_id, span_id)

    def clear(self) -> None:
        """The next span has random ids again."""
        self._next.ids = (0, 0)

    def _given(self) -> tuple[int, int]:
        ids: tuple[int, int] = getattr(self._next, "ids", (0, 0))
        return ids

    def generate_trace_id(self) -> int:
        """See `IdGenerator`."""
        return self._given()[0] or self._random.generate_trace_id()

    def generate_span_id(self) -> int:
        """See `IdGenerator`."""
        return self._given()[1] or self._random.generate_span_id()

    def is_trace_id_random(self) -> bool:
        """See `IdGenerator`."""
        return False


class Spans:
    """Starts spans on a tracer whose provider has these ids."""

    def __init__(self, tracer: Tracer, ids: Ids) -> None:
        self._tracer = tracer
        self._ids = ids

    def new_trace_id(self) -> int:
        """Of a trace that begins here."""
        return self._ids.generate_trace_id()

    def start(
        self,
        name: str,
        parent: Context,
        attributes: Mapping[str, AttributeValue],
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Sequence[Link] = (),
        start_time: int | None = None,
        ids: tuple[int, int] | None = None,
    ) -> Span:
        """A span, which is to be ended. `ids` are those of its trace, where `parent` has none, and its own;
        `start_time` is in nanoseconds since the epoch."""
        if ids is not None:
            self._ids.set_next(*ids)
        try:
            return self._tracer.start_span(
                name, parent, kind, dict(attributes), links=links, start_time=start_time
            )
        finally:
            if ids is not None:
                self._ids.clear()


def segment_span_id(trace_id: int, tenant: str, run_id: str, number: int) -> int:
    """The id of the span of a run's segment."""
    named = f"{trace_id:032x}\0{tenant}\0{run_id}\0{number}".encode()
    return int.from_bytes(hashlib.sha256(named).digest()[:8], "big") or 1


def around(context: SpanContext) -> Context:
    """What has this span as its parent, and nothing else."""
    return otel.set_span_in_context(otel.NonRecordingSpan(context), Context())


def remote(trace_id: int, span_id: int, flags: int = TraceFlags.SAMPLED, state: str = "") -> SpanContext:
    """A span of another process."""
    return SpanContext(
        trace_id, span_id, True, TraceFlags(flags), TraceState.from_header([state]) if state else None
    )


def first_span(trace: Trace) -> SpanContext:
    """The first span of a run."""
    return remote(int(trace.trace_id, 16), int(trace.span_id, 16), trace.flags, trace.state)


def trace_of(context: SpanContext) -> Trace:
    """What is stored with a run of its first span."""
    return Trace(
        f"{context.trace_id:032x}",
        f"{context.span_id:016x}",
        int(context.trace_flags),
        context.trace_state.to_header(),
    )
