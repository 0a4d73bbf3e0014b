"""Sizes: messages up to 16 MiB both ways; what would be larger is cut into pages or refused by name."""

from typing import Any

import grpc.aio
import pytest

from entracte.v1 import agent_service_pb2 as agents
from entracte.v1 import run_pb2
from entracte.v1 import run_service_pb2 as runs
from entracte_server import Agent, Tool
from entracte_server.testing import scripted
from tests.rpc.support import MIB, generate, once, pay, peer_of, ref, saying, serving, stream

WORDS = ("w" * 4999 + " ") * 1000
"""A text of 5 MB, which comes in 1000 chunks."""


async def test_a_text_of_ten_megabytes_works() -> None:
    """It is under the limit of a message: the run reads it and answers."""
    text = "y" * (10 * MIB)
    async with serving() as (server, peer):
        responses = await peer.call("Stream", stream("talk", text))
        chunks = [chunk for response in responses for chunk in response.chunks]
        assert chunks[-1].HasField("finish")
        snapshot = await server.store.load("local", chunks[0].run_id)
        assert snapshot.spec.input[0].parts[0].text == text  # type: ignore[union-attr]


async def test_a_request_of_17_megabytes_is_refused_and_the_connection_lives() -> None:
    """RESOURCE_EXHAUSTED by the transport, before any code of ours; the next call is served."""
    async with serving() as (_, peer):
        for method in ("Generate", "Stream"):
            request = generate("talk", "y" * (17 * MIB)).SerializeToString()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await peer.call(method, request)
            assert caught.value.code().name == "RESOURCE_EXHAUSTED"
            assert len((caught.value.details() or "").encode()) <= 4096
        assert (await peer.one("Generate", generate())).result.text == "good day"


async def test_a_result_that_is_too_large_is_refused_and_can_be_watched() -> None:
    """OUT_OF_RANGE, RESULT_TOO_LARGE with the run, its size, and the RPC that reads it: from Generate
    (the run is done all the same), from GetRun, and when the request is repeated. WatchRun has it."""
    big = Agent(id="big", model=saying({"text": WORDS}))
    async with serving(big) as (_, peer):
        for request in (generate("big", run_id="large", request_id="q"),) * 2:
            refusal = await peer.refuse("Generate", request)
            assert (refusal.code, refusal.reason) == ("OUT_OF_RANGE", "RESULT_TOO_LARGE")
            assert (refusal.metadata["run_id"], refusal.metadata["rpc"]) == ("large", "WatchRun")
            assert int(refusal.metadata["bytes"]) > 15 * MIB
        refusal = await peer.refuse("GetRun", runs.GetRunRequest(run_id="large"))
        assert (refusal.code, refusal.reason) == ("OUT_OF_RANGE", "RESULT_TOO_LARGE")
        run = await peer.run("large")
        assert run.state == run_pb2.RUN_STATE_SUCCEEDED
        texts = [c.text_delta.text for c in await peer.chunks("large") if c.HasField("text_delta")]
        assert len("".join(texts)) == 5_000_000


async def test_a_waited_decision_whose_result_is_too_large_is_made() -> None:
    """The refusal is about the answer: the decision stands."""
    model = scripted(
        lambda request: (
            [{"text": WORDS}]
            if any(message.role == "tool" for message in request.messages)
            else [{"tool": "pay", "id": "c", "args": {"amount": 1}}]
        )
    )
    async with serving(Agent(id="big", model=model, tools=[pay])) as (_, peer):
        run_id, (pending,) = await peer.parked("big")
        request = agents.ApproveRequest(call=ref(pending.pending_call_id), wait=True, request_id="q")
        for _ in range(2):
            refusal = await peer.refuse("Approve", request)
            assert (refusal.code, refusal.reason) == ("OUT_OF_RANGE", "RESULT_TOO_LARGE")
        assert (await peer.run(run_id)).state == run_pb2.RUN_STATE_SUCCEEDED
        request.wait = False
        response = await peer.one("Approve", request)
        assert response.replayed


async def test_messages_of_streams_are_small() -> None:
    """Chunks that were committed together are split at 1 MiB: a client with the customary limit of
    4 MiB can follow any run of ordinary chunks."""
    big = Agent(id="big", model=saying({"text": WORDS}))
    async with serving(big) as (server, _):
        options = [("grpc.max_receive_message_length", 4 * MIB)]
        async with peer_of(server.address, options=options) as small:
            started = await small.call(
                "Stream",
                stream("big", run_id="large"),
            )
            again = await small.call("WatchRun", runs.WatchRunRequest(run_id="large"))
            for responses in (started, again):
                assert all(response.ByteSize() <= MIB for response in responses)
                text = [c.text_delta.text for r in responses for c in r.chunks if c.HasField("text_delta")]
                assert len("".join(text)) == 5_000_000


async def test_a_large_result_of_a_tool_passes() -> None:
    """4 MiB of a tool's result arrive; more is an error that the model is told."""

    async def fetch(args: dict[str, int], ctx: Any) -> str:
        return "z" * args["size"]

    tool = Tool(name="fetch", execute=fetch, input_schema={"type": "object"})
    agent = Agent(
        id="fetches",
        model=once(
            {"tool": "fetch", "id": "c1", "args": {"size": 4 * MIB - 2}},
            {"tool": "fetch", "id": "c2", "args": {"size": 4 * MIB - 1}},
        ),
        tools=[tool],
    )
    async with serving(agent) as (_, peer):
        responses = await peer.call("Stream", stream("fetches"))
        chunks = [chunk for response in responses for chunk in response.chunks]
        (result,) = [c.tool_result for c in chunks if c.HasField("tool_result")]
        (error,) = [c.tool_error for c in chunks if c.HasField("tool_error")]
        assert (result.tool_call_id, len(result.result.text)) == ("c1", 4 * MIB)
        assert (error.tool_call_id, error.code) == ("c2", "invalid-result")
