"""What the SDK's tests share."""

from collections.abc import AsyncIterator

import pytest

from entracte import Client, _retry
from tests.client.fake import FakeServer


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back-off in milliseconds."""
    monkeypatch.setattr(_retry, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(_retry, "LONGEST_PAUSE", 0.01)


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    """A server with a short run."""
    async with FakeServer().running() as running:
        yield running


@pytest.fixture
async def client(server: FakeServer) -> AsyncIterator[Client]:
    """A client of the server."""
    async with Client(server.address, timeout=10) as connected:
        yield connected
