"""What clients receive: a stream and every later look at it are the same bytes."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from entracte.v1 import agent_service_pb2, chunk_pb2, pending_call_pb2, run_service_pb2
from entracte_server import Agent
from entracte_server.wire import codec
from tests.rpc.support import PAY, THEIRS, Peer, once, pay, ref, saying, serving, stream
from tests.wire.payloads import ODD_TEXTS

ODD = " ".join(ODD_TEXTS)


def agents() -> list[Agent]:
    """Agents whose runs have chunks of many kinds."""
    rich = (
        {"reasoning": "let me see"},
        {"text": ODD},
        {"source": "https://example.org/a", "title": "A"},
        {"file": "aGVsbG8=", "mediaType": "text/plain"},
    )
    return [
        Agent(id="rich", model=saying(*rich)),
        Agent(id="large", model=saying({"text": "word " * 30_000})),
        Agent(id="pays", model=once({"text": "I pay."}, PAY, then="Paid."), tools=[pay]),
        Agent(id="asks-the-client", model=once({"tool": "theirs", "id": "c1", "args": {"n": 1}})),
        Agent(id="fails", model=saying({"text": "half "}, {"breakStream": "gone"})),
        Agent(id="bad-args", model=once({"tool": "pay", "id": "c1", "rawArgs": "{no"}), tools=[pay]),
    ]


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    """A peer of a server with these agents. No message is a keep-alive."""
    async with serving(*agents(), only=True, log_level="error", keep_alive=60) as (_, connected):
        yield connected


async def streamed(peer: Peer, agent_id: str) -> bytes:
    """All a `Stream` sent, as bytes."""
    options: dict[str, Any] = {"client_tools": [THEIRS]} if agent_id == "asks-the-client" else {}
    call = peer.open("Stream", stream(agent_id, **options), raw_responses=True)
    return b"".join([message async for message in call])


async def watched(peer: Peer, run_id: str, after: int = 0) -> list[bytes]:
    """The messages of a `WatchRun`, as bytes."""
    request = run_service_pb2.WatchRunRequest(run_id=run_id, after_sequence=after)
    return [message async for message in peer.open("WatchRun", request, raw_responses=True)]


def chunks_in(entries: bytes) -> list[chunk_pb2.Chunk]:
    """What protobuf makes of all messages of a stream, one after another."""
    return list(agent_service_pb2.StreamResponse.FromString(entries).chunks)


@pytest.mark.parametrize("agent_id", [agent.id for agent in agents()])
async def test_a_run_looked_at_again_is_what_was_streamed(peer: Peer, agent_id: str) -> None:
    """Messages one after another: `WatchRun` twice and the `Stream` are equal, byte for byte, and
    number the chunks from 1 without a gap."""
    sent = await streamed(peer, agent_id)
    chunks = chunks_in(sent)
    assert [chunk.sequence for chunk in chunks] == list(range(1, len(chunks) + 1))
    first, second = await watched(peer, chunks[0].run_id), await watched(peer, chunks[0].run_id)
    assert first == second
    assert b"".join(first) == sent


async def test_a_run_looked_at_from_any_position_is_the_rest_of_it(peer: Peer) -> None:
    """From after any chunk: the bytes that follow it, the end included, where nothing follows."""
    sent = await streamed(peer, "pays")
    total = len(chunks_in(sent))
    run_id = chunks_in(sent)[0].run_id
    for after in range(total + 1):
        assert b"".join(await watched(peer, run_id, after)) == codec.without_first(sent, after)


async def test_what_follows_a_decision_is_added_to_the_same_bytes(peer: Peer) -> None:
    """A run that parked and went on begins with exactly what was streamed before it parked."""
    before = await streamed(peer, "pays")
    run_id = chunks_in(before)[0].run_id
    [announced] = [
        chunk.tool_call_approval for chunk in chunks_in(before) if chunk.HasField("tool_call_approval")
    ]
    call: pending_call_pb2.CallRef = ref(announced.pending_call_id)
    await peer.one(
        "Approve",
        agent_service_pb2.ApproveRequest(call=call, args_digest=announced.args_digest, wait=True),
    )
    whole = b"".join(await watched(peer, run_id))
    assert whole.startswith(before)
    last = len(chunks_in(before))
    after = await watched(peer, run_id, last)
    assert before + b"".join(after) == whole
    assert chunks_in(whole)[-1].WhichOneof("payload") == "finish"


async def test_odd_texts_reach_the_client_as_they_were(peer: Peer) -> None:
    """NUL, marks, surrogate pairs and non-characters pass from the model to the client unchanged."""
    sent = chunks_in(await streamed(peer, "rich"))
    assert "".join(chunk.text_delta.text for chunk in sent) == ODD


async def test_a_large_run_comes_in_messages_below_the_limit(peer: Peer) -> None:
    """No message is larger than a client takes by default, 4 MiB, however long the run."""
    run_id = chunks_in(await streamed(peer, "large"))[0].run_id
    messages = await watched(peer, run_id)
    assert len(messages) > 1
    assert max(map(len, messages)) < 4 * 1024 * 1024
    assert all(chunks_in(message) for message in messages)
