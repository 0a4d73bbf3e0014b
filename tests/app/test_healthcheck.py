"""The health check that containers run."""

from collections.abc import Iterator
from concurrent import futures

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from entracte_server.app import healthcheck

Statuses = health_pb2.HealthCheckResponse


@pytest.fixture
def served() -> Iterator[tuple[str, health.HealthServicer]]:
    server = grpc.server(futures.ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
    servicer = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}", servicer
    server.stop(None).wait(5)


def test_a_serving_server_is_healthy(
    served: tuple[str, health.HealthServicer], capsys: pytest.CaptureFixture[str]
) -> None:
    address, servicer = served
    servicer.set("", Statuses.SERVING)
    assert healthcheck.main([address]) == 0
    assert capsys.readouterr().out == f"{address}: SERVING\n"


def test_a_draining_server_is_not(served: tuple[str, health.HealthServicer]) -> None:
    address, servicer = served
    servicer.set("", Statuses.NOT_SERVING)
    assert healthcheck.main([address]) == 1


def test_one_service_can_be_asked_about(served: tuple[str, health.HealthServicer]) -> None:
    address, servicer = served
    servicer.set("", Statuses.SERVING)
    assert healthcheck.main([address, "--service", "no.such.Service"]) == 1
    servicer.set("entracte.v1.RunService", Statuses.SERVING)
    assert healthcheck.main([address, "--service", "entracte.v1.RunService"]) == 0


def test_no_server_is_unhealthy_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert healthcheck.main(["127.0.0.1:1", "--timeout", "3"]) == 1
    assert "UNAVAILABLE" in capsys.readouterr().out
