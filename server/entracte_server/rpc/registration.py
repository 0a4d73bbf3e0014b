"""Registers a servicer from its service descriptor, with serialisers of our own: responses may be
bytes that were encoded before, and a request that cannot be parsed is refused like any other.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from entracte_server.domain.errors import Refusal
from entracte_server.rpc.call import Context, current
from entracte_server.rpc.middleware import Middleware
from entracte_server.rpc.results import MAX_MESSAGE, too_large


class Malformed:
    """Stands for a request that is not a message of its type."""


def _deserializer(message_class: Any) -> Callable[[bytes], Any]:
    parse = message_class.FromString

    def deserialize(data: bytes) -> Any:
        try:
            return parse(data)
        except (DecodeError, UnicodeDecodeError, ValueError):
            return Malformed()

    return deserialize


def _serialize(response: Any) -> bytes:
    if type(response) is bytes:
        return response
    data: bytes = response.SerializeToString()
    return data


def _checked(method: Callable[[Any, Context], Awaitable[Any]]) -> Callable[[Any, Context], Awaitable[Any]]:
    async def behavior(request: Any, context: Context) -> Any:
        if isinstance(request, Malformed):
            raise Refusal(
                "REQUEST_INVALID", "The request is not a valid protobuf message (is all text UTF-8?)."
            )
        response = await method(request, context)
        return response if response is None else _fitting(response)

    return behavior


def _fitting(response: Any) -> bytes:
    """A response as it is sent. The transport would break one that is too large off without a word."""
    data: bytes = response.SerializeToString()
    if len(data) > MAX_MESSAGE:
        call = current.get()
        rpc = _READS_THE_REST.get(call.method, "WatchRun")
        raise too_large(len(data), run_id=call.run_id, rpc=rpc)
    return data


_READS_THE_REST = {"GetRun": "ListPendingCalls"}
"""What to read with when it is not a result that is too large; a result is measured when it is made."""


def register(
    server: grpc.aio.Server, service: ServiceDescriptor, servicer: object, layers: Sequence[Middleware]
) -> None:
    """Serve `service` with the methods of `servicer`, each `async (request, context)`: unary ones
    return the response (a message or its bytes), streaming ones write to the context. An RPC goes
    through `layers`, the first one outermost."""
    handlers = {}
    for method in service.methods:
        behavior = _checked(getattr(servicer, method.name))
        for layer in reversed(layers):
            behavior = layer.wrap(behavior, f"/{service.full_name}/{method.name}")
        make: Any = (
            grpc.unary_stream_rpc_method_handler
            if method.server_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        handlers[method.name] = make(
            behavior,
            request_deserializer=_deserializer(GetMessageClass(method.input_type)),
            response_serializer=_serialize,
        )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))
