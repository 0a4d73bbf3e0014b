"""A blocking client of all services."""

from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from entracte.v1 import pending_call_pb2, run_pb2
from tests.rpc.support import METHODS, THEIRS, Refusal, generate, parts_of

WAIT = 20.0
"""Deadline of every RPC, in seconds: what hangs fails."""


class Client:
    """Calls any RPC by its name, as a generated stub does."""

    def __init__(self, channel: grpc.Channel, key: str = "") -> None:
        self.channel = channel
        self.metadata: tuple[tuple[str, str], ...] = (("authorization", f"Bearer {key}"),) if key else ()

    def open(self, method: str, request: Message) -> Any:
        """The call object: of a streaming RPC, or of a unary one that goes on in the background."""
        descriptor = METHODS[method]
        service = descriptor.containing_service
        assert service is not None
        streaming = descriptor.server_streaming
        make: Any = self.channel.unary_stream if streaming else self.channel.unary_unary
        stub = make(
            f"/{service.full_name}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=GetMessageClass(descriptor.output_type).FromString,
        )
        return (stub if streaming else stub.future)(request, timeout=WAIT, metadata=self.metadata)

    def one(self, method: str, request: Message) -> Any:
        """The response of a unary RPC."""
        return self.open(method, request).result()

    def all(self, method: str, request: Message) -> list[Any]:
        """The messages of a stream that ends OK."""
        return list(self.open(method, request))

    def refuse(self, method: str, request: Message) -> Refusal:
        """The refusal that an RPC must end with, held to what the contract says of every one."""
        with pytest.raises(grpc.RpcError) as caught:
            (self.all if METHODS[method].server_streaming else self.one)(method, request)
        return parts_of(caught.value)

    def parked(self, agent_id: str = "gate", **options: Any) -> pending_call_pb2.PendingCall:
        """Start a run that parks: the one call that waits."""
        if agent_id == "hands-out":
            options["client_tools"] = [THEIRS]
        response = self.one("Generate", generate(agent_id, **options))
        assert response.run.state == run_pb2.RUN_STATE_SUSPENDED
        [pending] = response.result.pending_calls
        assert isinstance(pending, pending_call_pb2.PendingCall)
        return pending
