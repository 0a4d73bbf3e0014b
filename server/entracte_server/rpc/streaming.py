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
    """Write entries until there are no more. Raises as `write`."""
    async for item in entries:
        data = keep_alive(item.through) if isinstance(item, KeepAlive) else item
        await write(context, data, reader_timeout=reader_timeout, run_id=run_id)


async def write(context: Context, response: Any, *, reader_timeout: float, run_id: str = "") -> None:
    """Write one message. Raises `Refusal` READER_TOO_SLOW when it takes longer than `reader_timeout`
    seconds: the client re-attaches."""
    scope = asyncio.timeout(reader_timeout)
    try:
        async with scope:
            await context.write(response)
    except TimeoutError:
        if not scope.expired():
            raise
        refusal = Refusal(
            "READER_TOO_SLOW",
            "The stream was read too slowly; re-attach after the last message that was read.",
            retry_after=0.1,
        )
        if run_id:
            refusal.metadata["run_id"] = run_id
        raise refusal from None
