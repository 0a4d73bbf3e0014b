"""What the tests of the RPC layer share."""

import logging
from collections.abc import AsyncIterator, Iterator, MutableMapping
from typing import Any

import pytest
import structlog
import structlog.testing

from tests.rpc.support import Peer, serving


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The server's log is not the test's output."""
    structlog.configure(
        processors=[structlog.processors.format_exc_info, structlog.processors.KeyValueRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
    )
    yield
    structlog.reset_defaults()


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    """A peer of a server with the agents of `support`."""
    async with serving() as (_, connected):
        yield connected


@pytest.fixture
def logs() -> Iterator[list[MutableMapping[str, Any]]]:
    """What the server logs, at every level, while the test runs."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG))
    with structlog.testing.capture_logs() as entries:
        yield entries
