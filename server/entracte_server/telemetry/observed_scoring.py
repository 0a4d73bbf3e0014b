"""The span and the figures of a scorer."""

import time
from contextvars import Token
from types import TracebackType
from typing import Self

from opentelemetry import context as otel_context
from opentelemetry import trace as otel
from opentelemetry.context import Context
from opentelemetry.trace import Span, Status, StatusCode

from entracte_server.telemetry import names as n
from entracte_server.telemetry.base import Scoring
from entracte_server.telemetry.instruments import Instruments
from entracte_server.telemetry.scope import Scope, current
from entracte_server.telemetry.spans import Attributes


class ObservedScoring(Scoring):
    """See `Scoring`. The model calls of one that asks models are parts of its span."""

    def __init__(self, instruments: Instruments, name: str) -> None:
        self._instruments = instruments
        self._name = name
        self._span: Span = otel.INVALID_SPAN
        self._outer = current.get()
        self._inner: Scope | None = None
        self._tokens: tuple[Token[Scope | None], Token[Context]] | None = None
        self._started = 0.0
        self._error = "cancelled"
        """Unless it comes to something."""

    def __enter__(self) -> Self:
        outer = self._outer
        if outer is not None:
            self._inner = inner = Scope(outer.run, outer.agent_name, outer.policy)
            if outer.spans is not None:
                attributes = {**outer.common(), n.EVALUATION: self._name}
                self._span = outer.spans.start(f"evaluate {self._name}", outer.context, attributes)
                inner.spans = outer.spans
                inner.context = otel.set_span_in_context(self._span, outer.context)
            self._tokens = (current.set(inner), otel_context.attach(inner.context))
        self._started = time.perf_counter()
        return self

    def came_to(self, score: float | None, reason: str, error: str) -> None:
        """See `Scoring`."""
        self._error = "no-score" if score is None else ""
        shows = self._outer is not None and self._outer.policy.outputs
        if score is None:
            self._span.set_status(Status(StatusCode.ERROR, error if shows else self._error))
            return
        self._span.set_attribute(n.SCORE, score)
        if reason and shows:
            self._span.set_attribute(n.EXPLANATION, reason)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._tokens is not None:
            current.reset(self._tokens[0])
            otel_context.detach(self._tokens[1])
        labels: Attributes = {n.EVALUATION: self._name}
        if self._outer is not None and self._inner is not None:
            self._outer.usage += self._inner.usage
        if self._error:
            labels[n.ERROR_TYPE] = self._error
            self._span.set_attribute(n.ERROR_TYPE, self._error)
        self._instruments.scorer_duration.record(time.perf_counter() - self._started, labels)
        self._span.end()
