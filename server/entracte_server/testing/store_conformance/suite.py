"""What all suites have in common: the store under test."""

from collections.abc import Awaitable, Callable

import pytest

from entracte_server.store.base import Store

OpenStore = Callable[[], Awaitable[Store]]
"""Opens a store on the database of the test; see `entracte_server.testing.store_conformance`."""


class StoreSuite:
    """Tests of a `store`, opened by the fixture `open_store` that the author supplies."""

    @pytest.fixture
    async def store(self, open_store: OpenStore) -> Store:
        """The one store of a test that needs no second."""
        return await open_store()
