"""The SQLite store does what every store must."""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from entracte_server.store.base import Store
from entracte_server.store.sqlite import SQLiteStore
from entracte_server.testing.store_conformance.catalog import CatalogSuite
from entracte_server.testing.store_conformance.children import ChildSuite
from entracte_server.testing.store_conformance.closing import CancellationSuite, ClosingSuite
from entracte_server.testing.store_conformance.decisions import DecisionSuite
from entracte_server.testing.store_conformance.follow_ups import FollowUpSuite
from entracte_server.testing.store_conformance.interleavings import check_interleavings
from entracte_server.testing.store_conformance.isolation import IsolationSuite
from entracte_server.testing.store_conformance.messages import MessageSuite
from entracte_server.testing.store_conformance.owner import OwnerSuite
from entracte_server.testing.store_conformance.processes import CommandSuite, LeaseSuite, OwnershipSuite
from entracte_server.testing.store_conformance.reading import ReadingSuite
from entracte_server.testing.store_conformance.requests import RequestSuite
from entracte_server.testing.store_conformance.signals import SignalSuite
from entracte_server.testing.store_conformance.suite import OpenStore
from entracte_server.testing.store_conformance.threads import ThreadSuite
from entracte_server.testing.store_conformance.turns import TurnSuite
from entracte_server.testing.store_conformance.upkeep import BacklogSuite, ExpirySuite, RetentionSuite
from entracte_server.testing.store_conformance.vectors import VectorSuite
from entracte_server.testing.store_conformance.working_memory import WorkingMemorySuite


@pytest.fixture
async def open_store(tmp_path: Path) -> AsyncIterator[OpenStore]:
    opened: list[SQLiteStore] = []

    async def open_one() -> SQLiteStore:
        store = await SQLiteStore.open(tmp_path / "store.db")
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        await store.close()


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


class TestLeases(LeaseSuite):
    pass


class TestOwnership(OwnershipSuite):
    pass


class TestCommands(CommandSuite):
    pass


class TestSignals(SignalSuite):
    pass


class TestBacklog(BacklogSuite):
    pass


class TestExpiry(ExpirySuite):
    pass


class TestRetention(RetentionSuite):
    pass


class TestVectors(VectorSuite):
    pass


class TestFollowUps(FollowUpSuite):
    pass


class TestThreads(ThreadSuite):
    pass


class TestTurns(TurnSuite):
    pass


class TestMessages(MessageSuite):
    pass


class TestChildren(ChildSuite):
    pass


class TestWorkingMemory(WorkingMemorySuite):
    pass


class TestCatalog(CatalogSuite):
    pass


class TestCancellation(CancellationSuite):
    pass


class TestClosing(ClosingSuite):
    pass


@pytest.mark.parametrize("processes", [1, 2])
def test_any_order_of_events(tmp_path: Path, processes: int) -> None:
    numbers = itertools.count()

    async def open_stores() -> list[Store]:
        path = tmp_path / f"{next(numbers)}.db"
        # Only what is written is looked at, not what a power cut would leave.
        return [await SQLiteStore.open(path, synchronous="OFF") for _ in range(processes)]

    check_interleavings(open_stores, examples=100 // processes)
