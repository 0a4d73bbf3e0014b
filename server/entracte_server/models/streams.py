"""Leaving a model's answer."""

import contextlib
from collections.abc import AsyncIterator

from entracte_server.models.base import ModelEvent


@contextlib.asynccontextmanager
async def closing(batches: AsyncIterator[list[ModelEvent]]) -> AsyncIterator[AsyncIterator[list[ModelEvent]]]:
    """Closes an answer on the way out, and with it the connection to the provider.

    `async for` alone leaves that to the garbage collector when it is left early.
    """
    try:
        yield batches
    finally:
        aclose = getattr(batches, "aclose", None)
        if aclose is not None:
            await aclose()
