"""Sending a run's chunks to one client."""

import asyncio
from collections.abc import AsyncIterator

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
    """Write entries until there are no more. Raises `Refusal` READER_TOO_SLOW when one message
    takes longer than `reader_timeout` seconds: the client re-attaches."""
    async for item in entries:
        data = keep_alive(item.through) if isinstance(item, KeepAlive) else item
        scope = asyncio.timeout(reader_timeout)
        try:
            async with scope:
                await context.write(data)
        except TimeoutError:
            if not scope.expired():
                raise
            raise Refusal(
                "READER_TOO_SLOW",
                "The stream was read too slowly; re-attach after the last chunk that was read.",
                run_id=run_id,
                retry_after=0.1,
            ) from None
