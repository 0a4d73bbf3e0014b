"""A provider per test."""

from collections.abc import AsyncIterator

import pytest

from tests.models.support import FakeProvider


@pytest.fixture
async def provider() -> AsyncIterator[FakeProvider]:
    async with FakeProvider() as fake:
        yield fake
