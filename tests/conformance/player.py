"""A server that plays what a scenario tells it, with stubs of a newer contract. A program of its own: the
newer stubs cannot be in one process with the others.

    PYTHONPATH=FOLDER python -m tests.conformance.player

Each line on standard input is an object that opens a server, or closes one:
`{"play": {"AgentService.Stream": [[ACTION, ...], ...]}}`, `{"close": "127.0.0.1:40041"}`. The answer is
`{"address": "127.0.0.1:40041"}`, or what was asked of that server. The first call of a method is answered by
the first list of actions, the next by the next; the last repeats. An action is one of

* `{"respond": {...}}`: a message, in protobuf's JSON form;
* `{"refuse": {"reason": "RUN_NOT_FOUND", "message": "", "metadata": {}, "violations": {}, "retry_after": 1}}`
  the status that the server's own module makes of that. With a `code` the reason may be one that the module
  does not know;
* `{"status": "UNAVAILABLE"}`: a bare status, as a proxy or the transport makes it;
* `{"hold": true}`: nothing more until the client goes.

Text of the form `@{request.field}` in a response is what the request has there.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import grpc
import grpc.aio
from google.protobuf import any_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from entracte.v1 import (  # noqa: F401 - so that their descriptors are known
    agent_service_pb2,
    inbox_service_pb2,
    run_service_pb2,
    thread_service_pb2,
)
from entracte_server.domain.errors import FieldViolation, Refusal
from entracte_server.rpc.status import status

PACKAGE = "entracte.v1"
MESSAGE_BYTES = 16 * 1024 * 1024
Action = Mapping[str, Any]


def refusal_status(given: Mapping[str, Any]) -> status_pb2.Status:
    """The rich status of a refusal."""
    code = given.get("code")
    violations = tuple(FieldViolation(*item) for item in (given.get("violations") or {}).items())
    refusal = Refusal(
        given["reason"] if code is None else "INTERNAL",
        given.get("message", "no"),
        violations=violations,
        retry_after=given.get("retry_after"),
    )
    refusal.metadata.update(given.get("metadata") or {})
    made = status(refusal)
    if code is not None:
        made.code = grpc.StatusCode[code].value[0]
        info = error_details_pb2.ErrorInfo()
        made.details[0].Unpack(info)
        info.reason = given["reason"]
        replaced = any_pb2.Any()
        replaced.Pack(info)
        made.details[0].CopyFrom(replaced)
    return made


class Server(grpc.GenericRpcHandler):
    """One address and what is played there."""

    def __init__(self, plays: Mapping[str, Sequence[Sequence[Action]]]) -> None:
        self.plays = plays
        self.calls: dict[str, int] = {}
        self.asked: list[dict[str, Any]] = []
        self._server = grpc.aio.server(
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_send_message_length", MESSAGE_BYTES),
                ("grpc.max_receive_message_length", MESSAGE_BYTES),
            ]
        )
        self._server.add_generic_rpc_handlers((self,))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    async def start(self) -> None:
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(None)

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """The handler of a method of the contract, whatever its service."""
        _, full_service, method = details.method.split("/")
        name = f"{full_service.removeprefix(PACKAGE + '.')}.{method}"
        if name not in self.plays:
            return None
        found: Any = descriptor_pool.Default().FindMethodByName(f"{full_service}.{method}")
        request_type, response_type = map(
            message_factory.GetMessageClass, (found.input_type, found.output_type)
        )

        async def play(request: Message, context: Any) -> AsyncIterator[Message]:
            number = self.calls.get(name, 0)
            self.calls[name] = number + 1
            self.asked.append({"method": name, "request": _as_json(request)})
            courses = self.plays[name]
            for action in courses[min(number, len(courses) - 1)]:
                if "respond" in action:
                    filled = _filled(action["respond"], _as_json(request))
                    yield json_format.ParseDict(filled, response_type())
                elif "refuse" in action:
                    rich = rpc_status.to_status(refusal_status(action["refuse"]))
                    await context.abort(rich.code, rich.details, rich.trailing_metadata)
                elif "status" in action:
                    await context.abort(grpc.StatusCode[action["status"]], "as the transport says it")
                else:
                    await asyncio.Event().wait()

        async def play_one(request: Message, context: Any) -> Message:
            async for response in play(request, context):
                return response
            raise AssertionError(f"{name} is played without a response")

        converters: dict[str, Any] = {
            "request_deserializer": request_type.FromString,
            "response_serializer": response_type.SerializeToString,
        }
        if found.server_streaming:
            return grpc.unary_stream_rpc_method_handler(play, **converters)
        return grpc.unary_unary_rpc_method_handler(play_one, **converters)


def _as_json(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return found


def _filled(value: Any, request: Mapping[str, Any]) -> Any:
    """A response with what it takes from its request."""
    if isinstance(value, dict):
        return {key: _filled(item, request) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, request) for item in value]
    if isinstance(value, str) and value.startswith("@{") and value.endswith("}"):
        found: Any = request
        for key in value[2:-1].split("."):
            found = found.get(key, {})
        return found if isinstance(found, str) else ""
    return value


async def main() -> None:
    """Serve until standard input ends."""
    reader = asyncio.StreamReader(limit=64 * 1024 * 1024)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    servers: dict[str, Server] = {}
    while line := await reader.readline():
        order = json.loads(line)
        answer: dict[str, Any]
        if "play" in order:
            server = Server(order["play"])
            await server.start()
            servers[server.address] = server
            answer = {"address": server.address}
        else:
            server = servers.pop(order["close"])
            await server.stop()
            answer = {"asked": server.asked}
        print(json.dumps(answer), flush=True)
    for server in servers.values():
        await server.stop()


if __name__ == "__main__":
    asyncio.run(main())
