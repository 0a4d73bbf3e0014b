"""Vectors of messages: made in their order, kept apart, read page by page, gone with their thread."""

from typing import Any

from msgspec.structs import replace

from entracte_server.store.base import Store
from entracte_server.store.threads import DeleteThread
from entracte_server.store.vectors import AddVectors, Reach, StoredVector
from entracte_server.testing.store_conformance.builders import (
    NOW,
    TENANT,
    a_message,
    a_write,
    an_end,
    chunks,
    claiming,
)
from entracte_server.testing.store_conformance.suite import StoreSuite

HERE = Reach(TENANT, "alice", "e", "t")
EVERYWHERE = replace(HERE, thread_id="")


async def said(store: Store, thread_id: str, count: int, **run: Any) -> list[str]:
    """Messages that a run that has ended said on a thread: their ids."""
    row, _ = await claiming(store, thread_id, **run)
    messages = tuple(a_message() for _ in range(count))
    await store.write(a_write(row, chunks=chunks(1, 1), messages=messages, end=an_end()))
    return [message.id for message in messages]


async def missing(store: Store, where: Reach = HERE, *, newest: int = 100, limit: int = 100) -> list[str]:
    found = await store.unembedded(where, newest=newest, limit=limit)
    return [row.message.id for row in found]


async def embed(store: Store, where: Reach = HERE, *, limit: int = 100) -> list[StoredVector]:
    """Give vectors to messages that have none: to each its id."""
    new = await store.unembedded(where, newest=100, limit=limit)
    rows = tuple((row.thread, row.message.position, row.message.id.encode()) for row in new)
    await store.add_vectors(AddVectors(where.tenant, where.embedder, rows))
    return [
        StoredVector(row.thread, row.thread_id, row.message.position, row.message.id.encode()) for row in new
    ]


async def vectors(store: Store, where: Reach = HERE, *, limit: int = 100) -> list[str]:
    """The vectors that are found, read page by page, as the ids they were given."""
    found: list[StoredVector] = []
    while page := await store.read_vectors(where, after=found[-1] if found else None, limit=limit):
        assert len(page) <= limit
        found += page
    return [row.data.decode() for row in found]


class VectorSuite(StoreSuite):
    """`unembedded`, `add_vectors`, `read_vectors`, and what `sweep_threads` does about them."""

    async def test_a_message_has_none_until_it_is_given_one(self, store: Store) -> None:
        assert await missing(store) == await vectors(store) == []
        first = await said(store, "t", 3)
        assert await missing(store) == first
        assert await missing(store, limit=2) == first[:2]
        assert await missing(store, newest=2) == first[1:]
        await embed(store, limit=2)
        assert await missing(store) == first[2:]
        more = await said(store, "t", 2)
        assert await missing(store) == [*first[2:], *more]
        assert await missing(store, newest=1) == more[1:]
        assert await vectors(store) == [first[1], first[0]]
        await embed(store)
        assert await missing(store) == []
        assert await vectors(store, limit=2) == [*more[::-1], *first[::-1]]
        (row, *_) = await store.read_vectors(HERE, after=None, limit=1)
        assert (row.thread_id, row.position) == ("t", 5)

    async def test_a_vector_stays_what_it_is(self, store: Store) -> None:
        (one,) = await said(store, "t", 1)
        (row,) = await embed(store)
        other = AddVectors(TENANT, "e", ((row.thread, row.position, b"other"),))
        await store.add_vectors(other)
        assert await vectors(store) == [one]
        # One without content says that there is nothing to find.
        await said(store, "t", 1)
        await store.add_vectors(AddVectors(TENANT, "e", ((row.thread, 2, b""),)))
        assert await missing(store) == []
        assert await vectors(store) == ["", one]

    async def test_all_threads_of_a_resource(self, store: Store) -> None:
        old, new = await said(store, "t", 3), await said(store, "s", 3)
        assert await missing(store, EVERYWHERE) == [*new, *old]
        assert await missing(store, EVERYWHERE, limit=4) == [*new, old[0]]
        assert await missing(store, EVERYWHERE, newest=1) == [new[2], old[2]]
        await embed(store, EVERYWHERE)
        late = await said(store, "t", 1)
        await embed(store, EVERYWHERE)
        for limit in (1, 2, 3, 100):
            assert await vectors(store, EVERYWHERE, limit=limit) == [*new[::-1], *late, *old[::-1]]
        assert await vectors(store) == [*late, *old[::-1]]

    async def test_what_belongs_to_others_is_not_found(self, store: Store) -> None:
        mine = await said(store, "t", 1)
        theirs = await said(store, "t", 1, tenant="other")
        bobs = await said(store, "of-bob", 1, resource_id="bob")
        apart = {
            HERE: mine,
            EVERYWHERE: mine,
            replace(HERE, tenant="other"): theirs,
            replace(HERE, resource_id="bob"): [],
            replace(EVERYWHERE, resource_id="bob"): bobs,
            replace(HERE, embedder="e2"): mine,
            replace(HERE, tenant="nobody"): [],
        }
        for where, expected in apart.items():
            assert await missing(store, where) == expected
        (row,) = await store.unembedded(HERE, newest=1, limit=1)
        await store.add_vectors(AddVectors("other", "e", ((row.thread, 1, b"from another tenant"),)))
        for where, expected in apart.items():
            await embed(store, where)
            assert await vectors(store, where) == expected
        assert [await missing(store, where) for where in apart] == [[]] * len(apart)

    async def test_they_go_with_their_thread(self, store: Store) -> None:
        await said(store, "t", 4)
        before = await embed(store)
        await embed(store, replace(HERE, embedder="e2"))
        await said(store, "t", 1)
        (late,) = await store.unembedded(HERE, newest=1, limit=1)
        await store.delete_thread(DeleteThread(TENANT, "t", NOW))
        assert await vectors(store) == await missing(store) == []
        # Its name is another thread's by now, and what was meant for it does not reach that one.
        (again,) = await said(store, "t", 1)
        await store.add_vectors(AddVectors(TENANT, "e", ((late.thread, late.message.position, b"late"),)))
        assert await vectors(store) == []
        assert await missing(store) == [again]
        await embed(store)
        while await store.sweep_threads(limit=2):
            assert await vectors(store) == [again]
        await store.add_vectors(AddVectors(TENANT, "e", ((before[0].thread, 1, b"late"),)))
        assert await vectors(store) == await vectors(store, EVERYWHERE) == [again]
