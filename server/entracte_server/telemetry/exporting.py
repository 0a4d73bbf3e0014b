"""Where telemetry goes: exporters, readers and what they are told about this process.

The `OTEL_*` variables are read by the packages of OpenTelemetry: sampler, limits, endpoints, headers,
intervals. Read here are those that choose among exporters, which these packages leave to a launcher.
"""

import os
import threading
import uuid
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from entracte_server import __version__
from entracte_server.domain.data import Data
from entracte_server.telemetry.base import NOTHING, Telemetry
from entracte_server.telemetry.instruments import Instruments
from entracte_server.telemetry.otel import OtelTelemetry
from entracte_server.telemetry.page import MetricsPage
from entracte_server.telemetry.spans import Ids, Spans

SCOPE = "entracte_server"


class Exports(Data, frozen=True):
    """What is wanted.

    export: whether traces and metrics are sent.
    record_content: whether spans carry what is said, where neither run nor agent say so.
    metrics_address: where the page for Prometheus is served; empty: nowhere.
    worker: the number of this process among the workers of a supervisor.
    """

    export: bool
    record_content: bool = False
    metrics_address: str = ""
    worker: int | None = None


def open_telemetry(exports: Exports) -> Telemetry:
    """Telemetry that records, to be closed. Raises `ValueError` for variables that cannot be used, and what
    `MetricsPage` raises."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return NOTHING
    resource = _resource(exports.worker)
    traces = _traces(resource) if exports.export else None
    exporters = list(_exporters("metrics")) if exports.export else []
    page = _page(exports)
    readers: list[MetricReader] = [PeriodicExportingMetricReader(exporter) for exporter in exporters]
    if page is not None:
        readers.append(page.reader)
    meter_provider = MeterProvider(readers, resource, shutdown_on_exit=False)

    def shutdown() -> None:
        # Side by side: a collector that does not answer must not cost the others the time there is.
        closing: list[Callable[[], None]] = [meter_provider.shutdown]
        if traces is not None:
            closing.append(traces.provider.shutdown)
        if page is not None:
            closing.append(page.close)
        threads = [threading.Thread(target=close, daemon=True) for close in closing]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return OtelTelemetry(
        None if traces is None else traces.spans,
        Instruments(meter_provider.get_meter(SCOPE, __version__)),
        record_content=exports.record_content,
        shutdown=shutdown,
        make_global=lambda: _make_global(traces, meter_provider),
    )


class _Traces:
    """A tracer provider with ids of ours."""

    def __init__(self, resource: Resource) -> None:
        ids = Ids()
        self.provider = TracerProvider(resource=resource, id_generator=ids, shutdown_on_exit=False)
        self.spans = Spans(self.provider.get_tracer(SCOPE, __version__), ids)


def _traces(resource: Resource) -> _Traces | None:
    exporters = list(_exporters("traces"))
    if not exporters:
        return None
    traces = _Traces(resource)
    for exporter in exporters:
        traces.provider.add_span_processor(BatchSpanProcessor(exporter))
    return traces


def _page(exports: Exports) -> MetricsPage | None:
    address = exports.metrics_address
    if not address and exports.export and "prometheus" in _chosen("metrics"):
        host = os.environ.get("OTEL_EXPORTER_PROMETHEUS_HOST", "localhost")
        address = f"{host}:{os.environ.get('OTEL_EXPORTER_PROMETHEUS_PORT', '9464')}"
    if not address:
        return None
    worker = exports.worker
    return MetricsPage(address, offset=0 if worker is None else worker - 1, shared=worker is not None)


def _chosen(signal: str) -> list[str]:
    """The names of the exporters of `traces` or `metrics`."""
    given = os.environ.get(f"OTEL_{signal.upper()}_EXPORTER", "").strip() or "otlp"
    return [name.strip() for name in given.split(",") if name.strip() not in ("", "none")]


def _exporters(signal: str) -> Iterator[Any]:
    for name in _chosen(signal):
        if name == "prometheus" and signal == "metrics":
            continue
        wanted = _protocol(signal) if name == "otlp" else name
        found = entry_points(group=f"opentelemetry_{signal}_exporter", name=wanted)
        if not found:
            raise ValueError(f"OTEL_{signal.upper()}_EXPORTER: no exporter {name!r} is installed")
        try:
            yield next(iter(found)).load()()
        except Exception as error:  # each says in its own way that its variables make no sense
            raise ValueError(f"the {signal} exporter {name!r} cannot be used: {error}") from error


def _protocol(signal: str) -> str:
    name = f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL"
    given = os.environ.get(name) or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "grpc"
    if given == "grpc":
        return "otlp_proto_grpc"
    if given == "http/protobuf":
        return "otlp_proto_http"
    raise ValueError(f"OTEL_EXPORTER_OTLP_PROTOCOL: {given!r} is neither grpc nor http/protobuf")


def _resource(worker: int | None) -> Resource:
    """This process. What the environment says of it comes before our own words, but that each worker is an
    instance of its own."""
    given = dict(OTELResourceDetector().detect().attributes)
    instance = str(given.get("service.instance.id") or uuid.uuid4())
    found = {"service.name": "entracte", "service.version": __version__, **given}
    found["service.instance.id"] = instance
    if worker is not None:
        found["entracte.worker"] = worker
        if "service.instance.id" in given:
            found["service.instance.id"] = f"{instance}-{worker}"
    return Resource.create(found)


def _make_global(traces: _Traces | None, meter_provider: MeterProvider) -> None:
    """What authors record by themselves goes the same way, unless they arranged for another."""
    if traces is not None and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        trace.set_tracer_provider(traces.provider)
    # The default has no public name.
    if type(metrics.get_meter_provider()).__module__.startswith("opentelemetry.metrics"):
        metrics.set_meter_provider(meter_provider)
