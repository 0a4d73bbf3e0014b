"""Tells readers in this process what was committed. A hint: the log in the store is the truth."""

import asyncio
from collections import deque

from entracte_server.domain.runs import RunState
from entracte_server.engine.inbox import Inbox
from entracte_server.store.base import ChunkRow

RunKey = tuple[str, str]
"""Tenant and run id."""


class Event:
    """Chunks that were committed, the run's state after that, or both."""

    __slots__ = ("row", "state")

    def __init__(self, row: ChunkRow | None, state: RunState | None) -> None:
        self.row = row
        self.state = state


class Subscription:
    """One reader's queue. When it holds more than its limit it is emptied and `lagging` is set: the
    reader goes back to the log."""

    __slots__ = ("_events", "_limit", "_size", "_waiter", "counts", "key", "lagging")

    def __init__(self, key: RunKey, limit: int, counts: bool) -> None:
        self.key = key
        self.counts = counts
        self.lagging = False
        self._limit = limit
        self._events: deque[Event] = deque()
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None

    def push(self, event: Event) -> None:
        """Add an event and wake the reader."""
        if event.row is not None:
            self._size += len(event.row.data)
        if self._size > self._limit and self._events:
            self._events.clear()
            self._size = 0
            self.lagging = True
        else:
            self._events.append(event)
        self.wake()

    def wake(self) -> None:
        """End a wait, whether there is something to take or not."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def look_again(self) -> None:
        """Send the reader back to the store."""
        self.lagging = True
        self.wake()

    def take(self) -> list[Event]:
        """Everything that is there now."""
        events = list(self._events)
        self._events.clear()
        self._size = 0
        return events

    async def wait(self, seconds: float) -> bool:
        """Until there is something to take, or for `seconds`; says whether there is."""
        if self._events or self.lagging:
            return True
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        timer = loop.call_later(seconds, self.wake)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiter = None
        return bool(self._events) or self.lagging


class Hub:
    """The subscriptions of a process, by run. `followers` counts the readers that keep a run with
    `cancel_on_disconnect` alive."""

    def __init__(self, backlog: int) -> None:
        self._backlog = backlog
        self.inbox = Inbox()
        self._readers: dict[RunKey, set[Subscription]] = {}

    def subscribe(self, key: RunKey, *, counts: bool = True) -> Subscription:
        """A new subscription; give it back with `unsubscribe`."""
        subscription = Subscription(key, self._backlog, counts)
        self._readers.setdefault(key, set()).add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Idempotent."""
        readers = self._readers.get(subscription.key)
        if readers is not None:
            readers.discard(subscription)
            if not readers:
                del self._readers[subscription.key]

    def publish(self, key: RunKey, row: ChunkRow | None, state: RunState | None) -> None:
        """What was committed, in the order of commits."""
        readers = self._readers.get(key)
        if readers:
            event = Event(row, state)
            for reader in readers:
                reader.push(event)

    def deleted(self, key: RunKey) -> None:
        """A run is no more: its readers are to find out."""
        for reader in self._readers.get(key, ()):
            reader.look_again()

    def wake(self, key: RunKey) -> None:
        """Wake the readers of a run without an event."""
        for reader in self._readers.get(key, ()):
            reader.wake()

    def wake_all(self) -> None:
        """Wake every reader, because the server stops."""
        for readers in self._readers.values():
            for reader in readers:
                reader.wake()
        self.inbox.ring_all()

    def followers(self, key: RunKey) -> int:
        """How many readers follow a run in this process."""
        return sum(reader.counts for reader in self._readers.get(key, ()))
