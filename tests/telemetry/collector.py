"""A collector in this process: takes what servers send over OTLP, and reads it back."""

import threading
from concurrent import futures
from types import TracebackType
from typing import Any, Self

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1 import common_pb2


def value_of(value: common_pb2.AnyValue) -> Any:
    """An attribute's value."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(item) for item in value.array_value.values]
    return getattr(value, kind) if kind is not None else None


def attributes_of(given: Any) -> dict[str, Any]:
    """Attributes by name."""
    return {item.key: value_of(item.value) for item in given}


class Span:
    """A span as it was sent. `links` are (trace, span, what it says it is)."""

    def __init__(self, sent: Any, resource: dict[str, Any]) -> None:
        self.resource = resource
        self.name: str = sent.name
        self.kind: int = sent.kind
        self.trace_id: str = sent.trace_id.hex()
        self.span_id: str = sent.span_id.hex()
        self.parent_id: str = sent.parent_span_id.hex()
        self.start: int = sent.start_time_unix_nano
        self.end: int = sent.end_time_unix_nano
        self.attributes = attributes_of(sent.attributes)
        self.failed: bool = sent.status.code == 2
        self.status: str = sent.status.message
        self.events = [(event.name, attributes_of(event.attributes)) for event in sent.events]
        self.links = [
            (link.trace_id.hex(), link.span_id.hex(), attributes_of(link.attributes).get("entracte.link"))
            for link in sent.links
        ]

    def __repr__(self) -> str:
        return f"<{self.name} {self.attributes}>"


class Collector:
    """See the module; a context manager. `address` is `host:port`."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.answers = threading.Event()
        """Cleared, it takes nothing and does not answer."""
        self.answers.set()
        self._points: dict[tuple[str, str, tuple[tuple[str, Any], ...]], Any] = {}
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        add: Any = trace_service_pb2_grpc.add_TraceServiceServicer_to_server
        add(_Traces(self), self._server)
        add = metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server
        add(_Metrics(self), self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop(None).wait()

    @property
    def environment(self) -> dict[str, str]:
        """What makes a server send here, soon."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{self.address}",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
            "OTEL_METRIC_EXPORT_INTERVAL": "100",
        }

    def take_metrics(self, resource: dict[str, Any], metric: Any) -> None:
        """The last value of each series counts."""
        data = getattr(metric, metric.WhichOneof("data"))
        for point in data.data_points:
            labels = tuple(sorted(attributes_of(point.attributes).items()))
            self._points[(resource["service.instance.id"], metric.name, labels)] = point

    def named(self, start: str) -> list[Span]:
        """The spans whose names begin so, in the order in which they started."""
        return sorted((s for s in self.spans if s.name.startswith(start)), key=lambda span: span.start)

    def one(self, start: str) -> Span:
        """The only such span."""
        [span] = self.named(start)
        return span

    def total(self, name: str, **labels: Any) -> float:
        """The sum of a counter, or how often a histogram was recorded, over the series and processes that
        have these labels; dots in the labels' names are two underscores here."""
        wanted = {key.replace("__", "."): value for key, value in labels.items()}
        found = 0.0
        for (_, metric, series), point in self._points.items():
            if metric == name and wanted.items() <= dict(series).items():
                found += point.count if hasattr(point, "bucket_counts") else point.as_int
        return found

    @property
    def metrics(self) -> set[str]:
        """The names of all metrics that came."""
        return {name for _, name, _ in self._points}

    @property
    def instances(self) -> set[str]:
        """The processes that sent spans."""
        return {span.resource["service.instance.id"] for span in self.spans}


class _Traces(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def Export(self, request: Any, context: Any) -> Any:
        """Takes spans."""
        self._collector.answers.wait(60)
        for sent in request.resource_spans:
            resource = attributes_of(sent.resource.attributes)
            for scope in sent.scope_spans:
                self._collector.spans += [Span(span, resource) for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()


class _Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):
    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def Export(self, request: Any, context: Any) -> Any:
        """Takes metrics."""
        self._collector.answers.wait(60)
        for sent in request.resource_metrics:
            resource = attributes_of(sent.resource.attributes)
            for scope in sent.scope_metrics:
                for metric in scope.metrics:
                    self._collector.take_metrics(resource, metric)
        return metrics_service_pb2.ExportMetricsServiceResponse()
