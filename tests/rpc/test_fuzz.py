"""Whatever arrives as a request is served or refused for what it is: never INTERNAL, never UNKNOWN, and
the server lives. One server serves the whole module.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from entracte.v1 import pending_call_pb2, run_pb2
from entracte_server import Agent
from entracte_server.testing import TestServer
from tests.rpc.fuzzing import damaged, requests
from tests.rpc.support import METHODS, PAY, Peer, once, parts_of, pay, saying, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

HARMLESS = {
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "FAILED_PRECONDITION",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
}


@dataclass
class Target:
    """A server, ids that exist on it, and a run that must survive."""

    server: TestServer
    peer: Peer
    known: list[str]
    run_id: str
    pending: pending_call_pb2.PendingCall


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def target() -> AsyncIterator[Target]:
    """A server with something in it. The ids in `known` may be decided, cancelled or deleted."""
    agents = [
        Agent(id="talk", model=saying({"text": "x"})),
        Agent(id="gate", model=once(PAY), tools=[pay]),
    ]
    async with serving(*agents, only=True, keep_alive=0.5) as (server, peer):
        run_id, (pending,) = await peer.parked()
        known = ["talk", "gate", "pay", "c-pay", "local"]
        for _ in range(2):
            other, (waits,) = await peer.parked()
            known += [other, waits.pending_call_id]
        yield Target(server, peer, known, run_id, pending)


async def outcome(peer: Peer, method: str, data: bytes) -> str:
    """Send bytes and read what comes, of a stream the first message: the name of the status."""
    call = peer.open(method, data, timeout=20)
    try:
        if METHODS[method].server_streaming:
            await call.read()
            call.cancel()
        else:
            await call
    except grpc.aio.AioRpcError as error:
        refusal = error
    else:
        return "OK"
    parts = parts_of(refusal)
    # A version that is not the memory's, which is as likely as any other number.
    changed = (parts.code, parts.reason) == ("ABORTED", "WORKING_MEMORY_CHANGED")
    if parts.code not in HARMLESS and not changed:
        pytest.fail(f"{method} {data.hex()}: {refusal.code()} {refusal.details()}")
    return parts.code


def made_by(strategy: st.SearchStrategy[bytes], count: int) -> list[bytes]:
    """Some requests, made before the first is sent."""
    found: list[bytes] = []

    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=strategy)
    def make(data: bytes) -> None:
        found.append(data)

    make()
    return found


@pytest.mark.parametrize("method", METHODS)
async def test_any_request_is_served_or_refused(target: Target, method: str) -> None:
    """Well-formed requests with any values in them, the same with bytes changed, cut out or put in,
    and bytes of any kind; several at a time."""
    found = [
        *made_by(requests(method, target.known), 30),
        *made_by(damaged(method, target.known), 20),
        *made_by(st.binary(max_size=100), 20),
    ]
    for start in range(0, len(found), 10):
        await asyncio.gather(*(outcome(target.peer, method, data) for data in found[start : start + 10]))


# ---- what is not a message ----


def _tag(number: int, wire_type: int) -> bytes:
    value = number << 3 | wire_type
    return bytes([value]) if value < 128 else bytes([value & 127 | 128, value >> 7])


NOT_UTF8 = [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"a\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"]


def _string_fields() -> list[tuple[str, FieldDescriptor]]:
    return [
        (method, field)
        for method, descriptor in METHODS.items()
        for field in descriptor.input_type.fields
        if field.type == FieldDescriptor.TYPE_STRING and not field.is_repeated
    ]


@pytest.mark.parametrize(
    ("method", "field"), _string_fields(), ids=[f"{m}.{f.name}" for m, f in _string_fields()]
)
async def test_text_that_is_not_utf8_is_refused(target: Target, method: str, field: FieldDescriptor) -> None:
    """In every text of every request: overlong forms, halves of surrogate pairs, cut sequences."""
    for raw in NOT_UTF8:
        data = _tag(field.number, 2) + bytes([len(raw)]) + raw
        refusal = await target.peer.refuse(method, data)
        assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "REQUEST_INVALID")


NOT_A_MESSAGE = {
    "cut length": b"\x0a\x05ab",
    "huge length": b"\x0a\xff\xff\xff\xff\x07x",
    "endless varint": b"\x08" + b"\xff" * 11,
    "field zero": b"\x00\x01",
    "wire type six": b"\x0e",
    "wire type seven": b"\x0f",
    "end of no group": b"\x0c",
    "open group": b"\x0b",
    "nested groups": b"\x9b\x3f" * 5000,
}


@pytest.mark.parametrize("method", METHODS)
async def test_what_is_no_message_is_refused(target: Target, method: str) -> None:
    """REQUEST_INVALID; the same words whatever is wrong with the bytes."""
    texts = set()
    for name, data in NOT_A_MESSAGE.items():
        refusal = await target.peer.refuse(method, data)
        assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "REQUEST_INVALID"), name
        texts.add(refusal.text)
    assert len(texts) == 1


async def test_a_message_nested_in_itself_is_refused(target: Target) -> None:
    """Nesting deeper than any request has does not recurse in the server."""
    from entracte.v1 import options_pb2

    inner = b""
    for _ in range(2000):
        inner = b"\x0a" + _varint(len(inner)) + inner
    data = b"\x0a\x04talk\x1a" + _varint(len(inner)) + inner
    await outcome(target.peer, "Generate", data)
    assert options_pb2.GenerateOptions.DESCRIPTOR.fields_by_number[1].name == "run_id"


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


async def test_the_server_lives_and_the_run_that_waited_is_answered(target: Target) -> None:
    """After all of it."""
    peer: Any = target.peer
    run = await peer.run(target.run_id)
    assert run.state == run_pb2.RUN_STATE_SUSPENDED
    response = await peer.approved(target.pending)
    assert response.run.state == run_pb2.RUN_STATE_SUCCEEDED
