"""Where telemetry goes: exporters by the standard variables, processes, and what happens when it cannot go
anywhere."""

import asyncio
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from entracte import Client
from entracte_server import Agent, App, TracingOptions
from entracte_server.testing import scripted, serve
from tests.cases.process import ROOT, executed, forked
from tests.rpc.support import until
from tests.telemetry.collector import Collector
from tests.telemetry.test_metrics import free_port, page


def app() -> App:
    """It talks."""
    return App(agents=[Agent(id="talks", model=scripted([[{"text": "Hello."}]]))])


async def talk() -> None:
    """One run on a server that traces."""
    async with serve(app(), telemetry=True) as server, Client(server.address) as client:
        await client.agent("talks").generate("Hi")


async def test_spans_go_over_http_where_the_protocol_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[tuple[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            got.append((self.path, body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{http.server_port}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        await talk()
        http.shutdown()
    assert {path for path, _ in got} == {"/v1/traces", "/v1/metrics"}
    [traces] = [body for path, body in got if path == "/v1/traces"]
    request = trace_service_pb2.ExportTraceServiceRequest.FromString(traces)
    names = [span.name for sent in request.resource_spans for s in sent.scope_spans for span in s.spans]
    assert sorted(name.split()[0] for name in names) == ["chat", "invoke_agent"]


@pytest.mark.parametrize(
    ("variables", "spans", "metrics"),
    [
        ({"OTEL_SDK_DISABLED": "true"}, False, False),
        ({"OTEL_TRACES_EXPORTER": "none"}, False, True),
        ({"OTEL_METRICS_EXPORTER": "none"}, True, False),
        ({"OTEL_TRACES_SAMPLER": "always_off"}, False, True),
    ],
)
async def test_the_standard_variables_count(
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    spans: bool,
    metrics: bool,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    await talk()
    assert (bool(collector.spans), bool(collector.metrics)) == (spans, metrics)


async def test_what_the_environment_says_of_the_service_counts(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,service.instance.id=a")
    await talk()
    resource = collector.one("invoke_agent").resource
    assert (
        resource.items()
        >= {
            "service.name": "shop",
            "deployment.environment.name": "test",
            "service.instance.id": "a",
        }.items()
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_TRACES_EXPORTER", "carrier-pigeon"),
        ("OTEL_METRICS_EXPORTER", "carrier-pigeon"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "carrier-pigeon"),
    ],
)
async def test_a_variable_that_cannot_be_used_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f"{name}.*{value}"):
        await talk()


async def test_a_collector_that_never_answers_does_not_keep_a_server_from_stopping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Collector() as collector:
        for name, value in {**collector.environment, "OTEL_EXPORTER_OTLP_TIMEOUT": "3600"}.items():
            monkeypatch.setenv(name, value)
        collector.answers.clear()
        async with asyncio.timeout(20):
            await talk()
        assert collector.spans == []
        collector.answers.set()
        await until(lambda: bool(collector.spans), "what was on its way arrived")


async def test_a_run_is_one_trace_when_its_processes_are_killed(collector: Collector, tmp_path: Path) -> None:
    store = tmp_path / "entracte.db"
    environment = {"ENTRACTE_TELEMETRY": "true", "ENTRACTE_LEASE": "3", "WORKERS_TEST": str(tmp_path)}
    environment |= collector.environment
    target = "tests.app.agents:app"
    async with forked(target, store, environment=environment) as server, Client(server.address) as client:
        parked = await client.agent("gated").generate("Go.")
        await until(lambda: len(collector.named("invoke_agent")) == 1, "the parked segment was sent")
        stream = client.agent("patient").stream("Go.", run_id="patient-1")
        async for chunk in stream:
            if chunk.type == "tool-call":
                break
        await until(lambda: any(tmp_path.glob("began-*")), "the tool was entered")
        await server.kill()
    (tmp_path / "go").touch()
    async with forked(target, store, environment=environment) as server:
        async with Client(server.address) as client:
            done = await client.agent("gated").approve(parked.pending_calls[0])
            [chunk async for chunk in client.runs.watch("patient-1", until_finished=True)]
            recovered = (await client.runs.get("patient-1")).result
        server.send(signal.SIGTERM)
        assert await server.ended() == 0
    first, second = collector.named("invoke_agent gated")
    for result in (parked, done):
        assert (result.trace_id, result.span_id) == (first.trace_id, first.span_id)
    assert (second.trace_id, second.parent_id) == (first.trace_id, first.span_id)
    assert second.links == [(first.trace_id, first.span_id, "previous_segment")]
    assert first.resource["service.instance.id"] != second.resource["service.instance.id"]
    assert recovered is not None
    # The span of the process that was killed is lost; what came after it says where it belongs.
    # More than one where the lease was lost on the way.
    rest = collector.named("invoke_agent patient")
    before = [recovered.span_id, *(span.span_id for span in rest)]
    for span, previous in zip(rest, before, strict=False):
        assert (span.trace_id, span.parent_id) == (recovered.trace_id, recovered.span_id)
        assert span.links == [(span.trace_id, previous, "previous_segment")]
    assert rest[-1].attributes["entracte.run.state"] == "succeeded"


async def test_each_worker_is_an_instance_with_a_page_of_its_own(
    collector: Collector, tmp_path: Path
) -> None:
    port = free_port()
    environment = {
        "ENTRACTE_TELEMETRY": "true",
        "ENTRACTE_WORKERS": "2",
        "ENTRACTE_METRICS_ADDRESS": f"127.0.0.1:{port}",
        "OTEL_RESOURCE_ATTRIBUTES": "service.instance.id=pod",
        "PYTHONDONTWRITEBYTECODE": "",  # half of a start is compiling
        **collector.environment,
    }
    store = tmp_path / "entracte.db"
    async with executed("tests.app.agents:app", store, environment=environment) as server:
        async with Client(server.address) as client:
            result = await client.agent("where").generate("Go.")
        pages = [await page(port), await page(port + 1)]
        server.send(signal.SIGTERM)
        assert await server.ended() == 0
    span = collector.one("invoke_agent where")
    assert span.trace_id == result.trace_id
    number = span.resource["entracte.worker"]
    assert span.resource["service.instance.id"] == f"pod-{number}"
    executing, idle = pages if number == 1 else reversed(pages)
    assert f'service_instance_id="pod-{number}"' in executing
    assert "entracte_runs_started_total{" in executing
    assert "entracte_runs_started_total{" not in idle


async def test_what_tools_record_themselves_goes_the_same_way(collector: Collector, tmp_path: Path) -> None:
    environment = {"ENTRACTE_TELEMETRY": "true", **collector.environment}
    target = "tests.telemetry.agents:app"
    async with forked(target, tmp_path / "entracte.db", environment=environment) as server:
        async with Client(server.address) as client:
            result = await client.agent("shop").generate("Where is order 7?")
        server.send(signal.SIGTERM)
        assert await server.ended() == 0
    query, execution = collector.one("query"), collector.one("execute_tool look")
    assert (query.trace_id, query.parent_id) == (result.trace_id, execution.span_id)
    assert query.attributes == {"shop.order": "7"}
    assert collector.total("shop.orders") == 1


def test_nothing_of_opentelemetry_is_loaded_without_the_setting() -> None:
    code = """
import asyncio, sys
from entracte import Client
from entracte_server import Agent, App
from entracte_server.testing import scripted, serve

async def main():
    app = App(agents=[Agent(id="talks", model=scripted([[{"text": "Hello."}]]))])
    async with serve(app, log_level="error") as server, Client(server.address) as client:
        await client.agent("talks").generate("Hi")

asyncio.run(main())
print([name for name in sys.modules if name.split(".")[0] in ("opentelemetry", "prometheus_client")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "[]"


def test_metadata_of_an_agent_are_json() -> None:
    with pytest.raises(ValueError, match="agent a: a value of type object is not JSON"):
        Agent(id="a", model="x/y", tracing_options=TracingOptions(metadata={"x": object()}))  # type: ignore[dict-item]
