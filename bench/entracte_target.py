"""Entracte under load, spoken to with the generated messages; streams stay bytes until checked."""

from __future__ import annotations

from typing import Any, Protocol

import grpc.aio
from ulid import ULID

from bench.mock_backend import DELTA_TEXT, MARK, TOOL_NAME
from bench.targets import BadAnswerError
from entracte.v1 import agent_service_pb2 as agents
from entracte.v1 import chunk_pb2, message_pb2, options_pb2, pending_call_pb2, result_pb2, run_pb2
from entracte.v1 import run_service_pb2 as runs

STREAM = "/entracte.v1.AgentService/Stream"
APPROVE = "/entracte.v1.AgentService/Approve"
WATCH = "/entracte.v1.RunService/WatchRun"
_MARK = MARK.encode()
_SECONDS = 60.0


class _Tally(Protocol):
    chunks: int

    def sampled(self) -> bool: ...


def agent_id(model: str) -> str:
    """The id of the benchmark's agent that uses a model of the mock."""
    return "bench-" + model.replace("@", "-")


class EntracteTarget:
    """The server."""

    method = STREAM

    def request(self, model: str) -> bytes:
        """A `StreamRequest` as an SDK makes it, with a run id and a request id of its own."""
        user = message_pb2.Message(
            role=message_pb2.ROLE_USER,
            parts=[message_pb2.MessagePart(text=message_pb2.TextPart(text="go"))],
        )
        options = options_pb2.GenerateOptions(run_id=str(ULID()))
        request = agents.StreamRequest(
            agent_id=agent_id(model), messages=[user], options=options, request_id=str(ULID())
        )
        return request.SerializeToString()

    def check(self, messages: list[bytes], deltas: int) -> None:
        """Sequences 1 to n without a gap, each delta once and unchanged, `finish` last."""
        check_chunks(parse(messages), deltas)


def parse(messages: list[bytes]) -> list[chunk_pb2.Chunk]:
    """The chunks of a stream's messages (`StreamResponse` and `WatchRunResponse` agree about field 1)."""
    return [chunk for message in messages for chunk in agents.StreamResponse.FromString(message).chunks]


def check_chunks(
    chunks: list[chunk_pb2.Chunk],
    deltas: int,
    after: int = 0,
    finish: result_pb2.FinishReason.ValueType | None = None,
) -> None:
    """Check the chunks of one stream that follow the sequence `after`."""
    types = [chunk.WhichOneof("payload") for chunk in chunks]
    sequences = [chunk.sequence for chunk in chunks]
    if sequences != list(range(after + 1, after + 1 + len(chunks))):
        raise BadAnswerError(f"sequences after {after}: {sequences}")
    if len({chunk.run_id for chunk in chunks}) != 1:
        raise BadAnswerError(f"run ids: {sorted({chunk.run_id for chunk in chunks})}")
    texts = [chunk.text_delta.text for chunk in chunks if chunk.WhichOneof("payload") == "text_delta"]
    if "".join(texts) != DELTA_TEXT * deltas:
        raise BadAnswerError(f"expected {deltas} deltas: {texts[:3]}, {len(texts)} in all")
    if types.count("finish") != 1 or types[-1] != "finish":
        raise BadAnswerError(f"types: {types[:3]} ... {types[-3:]}")
    if finish is not None and chunks[-1].finish.reason != finish:
        raise BadAnswerError(f"finished with {chunks[-1].finish}")


async def cycle_once(channel: grpc.aio.Channel, model: str, deltas: int, follow: bool, tally: _Tally) -> None:
    """Start a run, approve the call it parks on, and see it finish.

    With `follow` the rest is read with WatchRun, as a display does; without, Approve waits for the result.
    """
    stream: Any = channel.unary_stream(STREAM)
    started = stream(EntracteTarget().request(model), timeout=_SECONDS)
    messages = [message async for message in started]
    tally.chunks += sum(message.count(_MARK) for message in messages)
    chunks = parse(messages)
    asked = [
        chunk.tool_call_approval for chunk in chunks if chunk.WhichOneof("payload") == "tool_call_approval"
    ]
    if len(asked) != 1 or asked[0].tool_name != TOOL_NAME:
        raise BadAnswerError(f"expected one approval: {asked}, last chunk {chunks[-1:]}")
    sampled = tally.sampled()
    if sampled:
        check_chunks(chunks, deltas, finish=result_pb2.FINISH_REASON_SUSPENDED)
    approval = agents.ApproveRequest(
        call=pending_call_pb2.CallRef(pending_call_id=asked[0].pending_call_id),
        args_digest=asked[0].args_digest,
        request_id=str(ULID()),
        wait=not follow,
    )
    approve: Any = channel.unary_unary(APPROVE)
    answer = agents.ApproveResponse.FromString(await approve(approval.SerializeToString(), timeout=_SECONDS))
    if not follow:
        tally.chunks += deltas
        if answer.run.state != run_pb2.RUN_STATE_SUCCEEDED or DELTA_TEXT * deltas not in answer.result.text:
            raise BadAnswerError(f"after the approval: {answer}")
        return
    last = chunks[-1].sequence
    watch = runs.WatchRunRequest(run_id=answer.run.run_id, after_sequence=last)
    follow_run: Any = channel.unary_stream(WATCH)
    rest = follow_run(watch.SerializeToString(), timeout=_SECONDS)
    messages = [message async for message in rest]
    seen = sum(message.count(_MARK) for message in messages)
    tally.chunks += seen
    if seen != deltas:
        raise BadAnswerError(f"expected {deltas} deltas after the approval, got {seen}")
    if sampled:
        check_chunks(parse(messages), deltas, after=last, finish=result_pb2.FINISH_REASON_STOP)
