"""What the tests of the RPC layer share."""

import logging
from collections.abc import AsyncIterator, Iterator

import pytest
import structlog

from tests.rpc.support import Peer, serving


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The server's log is not the test's output."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield
    structlog.reset_defaults()


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    """A peer of a server with the agents of `support`."""
    async with serving() as (_, connected):
        yield connected
