"""Sending a run's chunks to one client."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from entracte.v1 import agent_service_pb2
from entracte_server.domain.errors import Refusal
from entracte_server.engine.reading import KeepAlive
from entracte_server.rpc.call import Context


def keep_alive(through: int) -> bytes:
    """A response without chunks; the same bytes for every stream of chunks."""
    return agent_service_pb2.StreamResponse(through_sequence=through).SerializeToString()


async def send(
    context: Context,
    entries: AsyncIterator[bytes | KeepAlive],
    *,
    run_id: str,
    reader_timeout: float,
) -> None:
    """Write entries until there are no more. Raises as `PatientWriter`."""
    with PatientWriter(context, reader_timeout, run_id) as writer:
        async for item in entries:
            await writer.write(keep_alive(item.through) if isinstance(item, KeepAlive) else item)


class PatientWriter:
    """Writes messages to a stream. Raises `Refusal` READER_TOO_SLOW when one of them takes longer than
    `seconds`: the client re-attaches. Use as a context manager, in the task that made it.

    As `asyncio.timeout` around each write would do, with one timer for all of them.
    """

    def __init__(self, context: Context, seconds: float, run_id: str = "") -> None:
        self._context = context
        self._seconds = seconds
        self._run_id = run_id
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._cut_off = False

    def __enter__(self) -> "PatientWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._cut_off:
            return
        assert self._task is not None
        if self._task.uncancel() or kind is not asyncio.CancelledError:
            return  # somebody else cancelled it as well, or it ended by another fault
        refusal = Refusal(
            "READER_TOO_SLOW",
            "The stream was read too slowly; re-attach after the last message that was read.",
            retry_after=0.1,
        )
        if self._run_id:
            refusal.metadata["run_id"] = self._run_id
        raise refusal from None

    async def write(self, response: Any) -> None:
        """Write one message."""
        self._since = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._check)
        await self._context.write(response)
        self._since = None

    def _check(self) -> None:
        self._timer = None
        if self._since is None:
            return
        ends = self._since + self._seconds
        if self._loop.time() < ends:
            self._timer = self._loop.call_at(ends, self._check)
        else:
            self._cut_off = True
            assert self._task is not None
            self._task.cancel()
