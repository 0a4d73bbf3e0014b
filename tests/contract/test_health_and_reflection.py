"""The standard services beside ours, with blocking stubs."""

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from entracte.v1 import worker_service_pb2
from tests.rpc.support import METHODS as RPCS

WORKERS = worker_service_pb2.DESCRIPTOR.services_by_name["WorkerService"]
METHODS = {**RPCS, **{method.name: method for method in WORKERS.methods}}
SERVICES = sorted({m.containing_service.full_name for m in METHODS.values() if m.containing_service})
WAIT = 20.0


@pytest.mark.parametrize("service", ["", *SERVICES])
def test_health(grpc_channel: grpc.Channel, service: str) -> None:
    """The server and each of its services are serving, asked once and watched."""
    stub = health_pb2_grpc.HealthStub(grpc_channel)
    request = health_pb2.HealthCheckRequest(service=service)
    assert stub.Check(request, timeout=WAIT).status == health_pb2.HealthCheckResponse.SERVING
    watch = stub.Watch(request, timeout=WAIT)
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    watch.cancel()


def test_health_of_a_service_that_is_not_there(grpc_channel: grpc.Channel) -> None:
    """NOT_FOUND, as the health protocol says."""
    stub = health_pb2_grpc.HealthStub(grpc_channel)
    with pytest.raises(grpc.RpcError) as caught:
        stub.Check(health_pb2.HealthCheckRequest(service="entracte.v1.Nothing"), timeout=WAIT)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_reflection_lists_the_services(grpc_channel: grpc.Channel) -> None:
    """Ours, health and reflection itself; no others."""
    stub = reflection_pb2_grpc.ServerReflectionStub(grpc_channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    [response] = stub.ServerReflectionInfo(iter([request]), timeout=WAIT)
    assert sorted(service.name for service in response.list_services_response.service) == sorted(
        [*SERVICES, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"]
    )


def test_reflection_describes_every_rpc(grpc_channel: grpc.Channel) -> None:
    """A client with nothing but the address finds each method, its types and whether it streams."""
    pool = DescriptorPool(ProtoReflectionDescriptorDatabase(grpc_channel))
    found = {}
    for name in SERVICES:
        for method in pool.FindServiceByName(name).methods:
            found[method.name] = method
    assert set(found) == set(METHODS)
    for name, method in METHODS.items():
        assert found[name].full_name == method.full_name
        assert found[name].input_type.full_name == method.input_type.full_name
        assert found[name].server_streaming == method.server_streaming
        assert [f.name for f in found[name].output_type.fields] == [f.name for f in method.output_type.fields]
