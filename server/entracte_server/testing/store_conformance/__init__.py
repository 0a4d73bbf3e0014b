"""What a store is, as tests: for the stores of this package and for yours.

The suites are classes of tests. You supply one fixture, `open_store`, and inherit:

    # conftest.py: failures are explained, as in any test module
    pytest.register_assert_rewrite("entracte_server.testing.store_conformance")

    # test_my_store.py
    from entracte_server.testing.store_conformance.suite import OpenStore
    from entracte_server.testing.store_conformance.owner import OwnerSuite
    ...

    @pytest.fixture
    async def open_store() -> AsyncIterator[OpenStore]:
        opened: list[MyStore] = []

        async def open_one() -> MyStore:
            store = await MyStore.open(database)
            opened.append(store)
            return store

        yield open_one
        for store in opened:
            await store.close()

    class TestOwner(OwnerSuite):
        pass

Each call of `open_store` opens one more store on the same database, which is empty when the test
begins, as another process would; what was opened is closed after the test, and closing is idempotent.

The suites, each in the module of its name: `owner.OwnerSuite`, `decisions.DecisionSuite`,
`requests.RequestSuite`, `reading.ReadingSuite`, `isolation.IsolationSuite`, `processes.LeaseSuite`,
`processes.OwnershipSuite`, `processes.CommandSuite`, `signals.SignalSuite`, `upkeep.BacklogSuite`,
`upkeep.ExpirySuite`, `upkeep.RetentionSuite`, `follow_ups.FollowUpSuite`, `threads.ThreadSuite`,
`turns.TurnSuite`, `messages.MessageSuite`, `working_memory.WorkingMemorySuite`, `vectors.VectorSuite`,
`children.ChildSuite`, `catalog.CatalogSuite`, `closing.CancellationSuite`, `closing.ClosingSuite`.
`interleavings.check_interleavings` plays random orders of events; it takes a function that makes an
empty database each time, and opens one or several stores on it.

Needed: pytest with pytest-asyncio in its auto mode, and hypothesis. Nothing is exported from here, and
`builders` can be used by processes that need no test tools.
"""
