"""The SQLite store does what every store must."""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from entracte_server.store.base import Store
from entracte_server.store.sqlite import SQLiteStore
from tests.store.conformance.decisions import DecisionSuite
from tests.store.conformance.interleavings import check_interleavings
from tests.store.conformance.isolation import IsolationSuite
from tests.store.conformance.owner import OwnerSuite
from tests.store.conformance.reading import ReadingSuite
from tests.store.conformance.requests import RequestSuite


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await SQLiteStore.open(tmp_path / "store.db")
    yield opened
    await opened.close()


class TestOwner(OwnerSuite):
    pass


class TestDecisions(DecisionSuite):
    pass


class TestRequests(RequestSuite):
    pass


class TestReading(ReadingSuite):
    pass


class TestIsolation(IsolationSuite):
    pass


def test_any_order_of_events(tmp_path: Path) -> None:
    numbers = itertools.count()

    async def open_store() -> Store:
        # Only what is written is looked at, not what a power cut would leave.
        return await SQLiteStore.open(tmp_path / f"{next(numbers)}.db", synchronous="OFF")

    check_interleavings(open_store)
