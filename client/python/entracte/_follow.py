"""Following a run's chunks over any number of broken streams."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import grpc.aio

from entracte._chunk_codec import chunk_of
from entracte._chunks import Chunk
from entracte._connection import Connection, being_cancelled
from entracte._errors import EntracteError, SequenceGap, StreamBroken, UnknownChunk
from entracte._retry import Deadline
from entracte._status import error_of
from entracte.v1 import agent_service_pb2, chunk_pb2, result_pb2, run_service_pb2

Opener = Callable[[float | None], Any]
"""Makes a streaming call with a timeout in seconds."""


async def responses_of(call: Any) -> AsyncGenerator[Any, None]:
    """The messages of a streaming call. Cancels the call when the iteration is left, which gRPC does
    not do by itself. Raises EntracteError for a status other than OK."""
    try:
        while True:
            response = await call.read()
            if response is grpc.aio.EOF:
                return
            yield response
    except grpc.aio.AioRpcError as failure:
        raise error_of(failure) from failure
    except asyncio.CancelledError:
        if being_cancelled():
            raise
        raise EntracteError("the stream was cut off", code="CANCELLED") from None
    finally:
        call.cancel()


class Follower:
    """Reads a run's chunks in order, each once, from `position` on.

    `position` is the sequence of the last chunk handed out. A stream that breaks is opened again
    after it, and so is the next iteration after one that was left. `start` opens the first stream
    and is used until a chunk has arrived; it must be safe to repeat. `may_be_at_rest` tells that
    nothing need come after `position`. Chunks are left out as long as `skip` holds.
    """

    def __init__(
        self,
        connection: Connection,
        deadline: Deadline,
        *,
        run_id: str,
        position: int = 0,
        until_finished: bool = False,
        start: Opener | None = None,
        may_be_at_rest: bool = False,
        skip: Callable[[Chunk], bool] | None = None,
    ) -> None:
        self._connection = connection
        self._deadline = deadline
        self.run_id = run_id
        self._until_finished = until_finished
        self._start = start
        self._skip = skip
        self._at_rest = may_be_at_rest
        self._call: Any = None
        self.stopped = False
        self.auto_resume_error = ""
        """Why the message that began the stream did not answer the parked run that is followed now."""
        self._over = False
        self.position = position

    def is_over(self) -> bool:
        """Whether the run has ended and its last chunk was handed out."""
        return self._over

    def expect_more(self) -> None:
        """Say that more must come: a waiting call was decided."""
        self._at_rest = False

    def stop(self) -> None:
        """Make the iteration that goes on in another task end."""
        self.stopped = True
        if self._call is not None:
            self._call.cancel()

    async def chunks(self) -> AsyncGenerator[Chunk, None]:
        """The chunks from here to where the run parks or ends."""
        backoff = self._connection.backoff(self._deadline)
        self.stopped = False
        while not self.is_over():
            backoff.begin()
            self._call = self._open()
            try:
                async with aclosing(responses_of(self._call)) as responses:
                    async for response in responses:
                        self._connection.answered()
                        backoff.answered()
                        if self._start is not None and self.position == 0:
                            self._follow_answered(response)
                        if response.chunks and response.chunks[-1].sequence > self.position:
                            backoff.progress()
                        for message in response.chunks:
                            chunk = self._accept(message)
                            if chunk is not None:
                                yield chunk
                        if self.is_over():
                            return
                if self._at_rest:
                    return
                error: EntracteError = StreamBroken(
                    "the stream ended before its finish chunk",
                    metadata={"run_id": self.run_id, "sequence": str(self.position)},
                )
            except EntracteError as failure:
                if self.stopped:
                    return
                if not backoff.may_try_again(failure):
                    raise
                error = failure
            await backoff.pause(error)

    def _open(self) -> Any:
        remaining = self._deadline.remaining()
        if self._start is not None and self.position == 0:
            return self._start(remaining)
        request = run_service_pb2.WatchRunRequest(
            run_id=self.run_id, after_sequence=self.position, until_finished=self._until_finished
        )
        connection = self._connection
        return connection.runs.WatchRun(request, timeout=remaining, metadata=connection.metadata())

    def _follow_answered(self, response: Any) -> None:
        """Follow the parked run that the message was taken as an answer to, where it was."""
        if isinstance(response, agent_service_pb2.StreamResponse) and response.HasField("answered"):
            self.run_id = response.answered.run_id
            self.position = response.answered.after_sequence
            self.auto_resume_error = response.answered.auto_resume_error

    def _accept(self, message: chunk_pb2.Chunk) -> Chunk | None:
        """The chunk to hand out; None for one that was handed out before or is to be left out."""
        sequence = message.sequence
        if sequence <= self.position:
            return None
        if not self.run_id:  # the server chose it
            self.run_id = message.run_id
        # A sub-agent's run is a part of its root's log: its numbers have gaps, and its paths are long.
        is_part = message.run_id != self.run_id
        if sequence != self.position + 1 and not is_part:
            raise SequenceGap(
                f"chunk {self.position + 1} of run {self.run_id} is missing: {sequence} came instead",
                metadata={
                    "run_id": self.run_id,
                    "expected": str(self.position + 1),
                    "sequence": str(sequence),
                },
            )
        chunk = chunk_of(message)
        if chunk is None and not message.ignorable:
            raise UnknownChunk(
                f"chunk {sequence} of run {self.run_id} is of a type this version does not know",
                metadata={"run_id": self.run_id, "sequence": str(sequence)},
            )
        self.position = sequence
        if is_part:
            self._at_rest = True
        elif not message.agent_path:
            is_finish = chunk is not None and chunk.type == "finish"
            is_parked = message.finish.reason == result_pb2.FINISH_REASON_SUSPENDED
            self._at_rest = is_finish and not (is_parked and self._until_finished)
            self._over = is_finish and not is_parked
        if self._skip is not None and chunk is not None:
            if self._skip(chunk):
                return None
            self._skip = None
        return chunk
