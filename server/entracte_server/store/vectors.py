"""The part of a store that keeps what recall searches: a vector for each message of a thread.

To a store they are bytes. Each belongs to a message and to the embedder that made it, and goes with its
message. The vectors of a thread are made in the order of its messages, so those that have none yet come
after the newest that has one.
"""

from typing import NamedTuple, Protocol

from entracte_server.domain.data import Data
from entracte_server.domain.threads import ThreadMessage


class Reach(Data, frozen=True):
    """What is searched: the threads of a resource, or only that one of them, by what `embedder` made of
    their messages."""

    tenant: str
    resource_id: str
    embedder: str
    thread_id: str = ""


class Unembedded(NamedTuple):
    """A message without a vector. `thread` is the store's own number of its thread, of which there is never
    another."""

    thread: int
    thread_id: str
    message: ThreadMessage


class StoredVector(NamedTuple):
    """The vector of a message; empty for a message of which there is nothing to find."""

    thread: int
    thread_id: str
    position: int
    data: bytes


class AddVectors(Data, frozen=True):
    """Add vectors made by `embedder`, for messages by the number of their thread and their position."""

    tenant: str
    embedder: str
    rows: tuple[tuple[int, int, bytes], ...]


class VectorStore(Protocol):
    """See the module. All methods raise `StoreUnavailable` when the database does not answer."""

    async def unembedded(self, where: Reach, *, newest: int, limit: int) -> list[Unembedded]:
        """Some messages that have no vector: of the newest threads first, and of each thread in their order,
        but only of its `newest`."""
        ...

    async def add_vectors(self, op: AddVectors) -> None:
        """Messages that have one keep it; of threads that are no more, and of other tenants, nothing is
        added."""
        ...

    async def read_vectors(
        self, where: Reach, *, after: StoredVector | None, limit: int
    ) -> list[StoredVector]:
        """A page of vectors, after the one the last page ended with: of the newest threads first, and of
        each thread the newest first."""
        ...
