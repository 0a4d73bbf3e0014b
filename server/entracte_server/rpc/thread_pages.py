"""Pages of threads and of messages, cut by bytes: whatever they hold, a page is no larger than a response
may be, and no more is read for it than fits into some of them.
"""

import re

import msgspec

from entracte.v1 import thread_pb2
from entracte_server.rpc.results import MAX_MESSAGE
from entracte_server.rpc.threads import said_message, thread_message
from entracte_server.store.base import Store
from entracte_server.store.threads import MessageRange

PAGE_BYTES = 8 * 1024 * 1024
"""A page that has this much ends, though it may have room for more items."""

LARGEST = MAX_MESSAGE - 64 * 1024
"""The largest message of a thread that a page may have; it has a page to itself."""

BATCH = 100
"""Threads that are read at once. A thread takes up to 70 KiB, so that they never outgrow what is left of a
response when `PAGE_BYTES` of it are used."""

FIRST_BATCH = 10
"""Messages that are read at once while it is not known how large they are."""

_POSITION = re.compile(r"[1-9][0-9]{0,17}")


async def page_of_threads(
    store: Store, tenant: str, resource_id: str, cursor: str, size: int
) -> tuple[list[thread_pb2.Thread], str]:
    """Up to `size` threads, and the cursor of the next page. Raises `ValueError` for what is no cursor."""
    found: list[thread_pb2.Thread] = []
    used = 0
    while True:
        views, cursor = await store.list_threads(
            tenant, resource_id, cursor=cursor, limit=min(size - len(found), BATCH)
        )
        found += map(thread_message, views)
        used += sum(thread.ByteSize() for thread in found[len(found) - len(views) :])
        if not cursor or len(found) >= size or used >= PAGE_BYTES:
            return found, cursor


async def page_of_messages(
    store: Store, tenant: str, thread_id: str, where: MessageRange, cursor: str, size: int
) -> tuple[list[thread_pb2.ThreadMessage], str]:
    """Up to `size` messages, with `where.newest` from the newest on, and the cursor of the next page. Raises
    `NotFound`, and `ValueError` for what is no cursor."""
    if cursor and not _POSITION.fullmatch(cursor):
        raise ValueError("not a position")
    found: list[thread_pb2.ThreadMessage] = []
    used, position, batch = 0, int(cursor or 0), FIRST_BATCH
    while True:
        # One more than there is room for tells whether another page follows.
        batch = min(batch, size - len(found) + 1)
        read = await store.read_messages(tenant, thread_id, _beyond(where, position), limit=batch)
        if not read:
            return found, ""
        for message in reversed(read) if where.newest else read:
            said = said_message(message, LARGEST)
            used += said.ByteSize()
            if len(found) == size or (found and used > PAGE_BYTES):
                return found, str(position)
            found.append(said)
            position = message.position
        mean = used // len(found) + 1
        batch = max(1, (PAGE_BYTES - used) // mean)


def _beyond(where: MessageRange, position: int) -> MessageRange:
    """What of it comes after a position, in the order of the list; 0: all."""
    if where.newest:
        return msgspec.structs.replace(where, before=position)
    return msgspec.structs.replace(where, after=position)
