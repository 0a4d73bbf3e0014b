"""Readers that take the chunks as bytes, go away now and then, and come back, to whichever process is
there."""

import asyncio
import random
import time
from typing import Any, Protocol

import grpc.aio

from entracte import Client
from entracte.v1 import result_pb2, run_service_pb2
from entracte.v1.chunk_pb2 import Chunk
from tests.cases.support import Caller, kind_of, read_refusal
from tests.invariants.following import Seen, raw_stream
from tests.invariants.harness import went_away

AWAY = frozenset({"STORE_UNAVAILABLE", "READER_TOO_SLOW"})
"""Reasons to come again, besides those of a server that goes away."""

OUTCOMES = frozenset(
    {
        "tool_call_approval",
        "tool_call_suspended",
        "tool_result",
        "tool_error",
        "tool_output_denied",
        "step_finish",
    }
)
"""Chunks that come of an answer of the model, when that is stored."""


class Servers(Protocol):
    """Servers with one store, as their clients see them."""

    @property
    def size(self) -> int:
        """How many can be told apart."""
        ...

    def client(self, first: int = 0) -> Client:
        """A client of the SDK, connected to the server at `first` or, while it is away, to another."""
        ...

    def caller(self, first: int = 0) -> Caller:
        """A caller without retries, of the server at `first` or another; one for all who ask."""
        ...

    def traces(self, run_id: str) -> list[dict[str, Any]]:
        """What the tools and the model of a run wrote."""
        ...


def passes(error: grpc.aio.AioRpcError) -> bool:
    """Whether an RPC failed in a way that clients take for a reason to try again."""
    return went_away(error) or read_refusal(error).reason in AWAY


async def read_away(rpc: Any) -> None:
    """Read a stream that may break off."""
    try:
        async for _ in rpc:
            pass
    except grpc.aio.AioRpcError as error:
        if not passes(error):
            raise


class Reader(Seen):
    """What one reader saw. `answered` tells when it was first shown something that came of the answer
    of each step."""

    def __init__(self, run_id: str, after: int = 0) -> None:
        super().__init__(run_id, after)
        self.answered: dict[int, float] = {}
        self.over = False
        self.attached = 0

    def add(self, response: bytes) -> None:
        """Take a response in."""
        known = len(self.chunks)
        super().add(response)
        for raw in self.chunks[known:]:
            chunk = Chunk.FromString(raw)
            kind = kind_of(chunk)
            if kind in OUTCOMES:
                self.answered.setdefault(chunk.step, time.monotonic())
            elif kind == "finish":
                self.over = chunk.finish.reason != result_pb2.FINISH_REASON_SUSPENDED

    async def read(
        self, fleet: Servers, rng: random.Random, *, at: int | None = None, fickle: float = 0.02
    ) -> None:
        """Until the run has ended, at one member or at any. `fickle` is how often it goes away, of the
        messages it gets."""
        while not self.over:
            caller = fleet.caller(rng.randrange(fleet.size) if at is None else at)
            request = run_service_pb2.WatchRunRequest(
                run_id=self.run_id, after_sequence=self.through, until_finished=True
            )
            rpc = raw_stream(caller.channel, "RunService/WatchRun", request, None)
            self.attached += 1
            try:
                async for response in rpc:
                    self.add(response)
                    if rng.random() < fickle:
                        break
            except grpc.aio.AioRpcError as error:
                if not passes(error):
                    raise
                await asyncio.sleep(0.02)
            finally:
                rpc.cancel()
