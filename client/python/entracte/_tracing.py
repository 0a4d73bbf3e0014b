"""The caller's span, so that a run becomes a part of the caller's trace."""

import sys
from collections.abc import Mapping
from typing import Any


def span_metadata(options: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The span in the option `traceparent`, else OpenTelemetry's current one where this process uses that
    library: it is looked for, never loaded."""
    if traceparent := options.get("traceparent"):
        return (("traceparent", traceparent),)
    if "opentelemetry.trace" not in sys.modules:
        return ()
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return tuple(carrier.items())
