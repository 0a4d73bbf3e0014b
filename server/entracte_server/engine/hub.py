"""Tells readers, here and in other processes, what was committed. A hint: the log in the store is the
truth.

Readers of a run that is executed here are told everything by its log. Those of a run that is not are
told by other processes that there is something to read, and once a second by a look into the store.
"""

import asyncio
from collections import deque
from collections.abc import Iterable

from entracte_server.domain.runs import RunState
from entracte_server.engine.desk import Desk
from entracte_server.engine.inbox import Inbox
from entracte_server.store.base import ChunkRow, Sighting
from entracte_server.store.signals import Signals, run_topic

RunKey = tuple[str, str]
"""Tenant and run id."""


EVENT_BYTES = 256
"""What an event takes beside its chunks, in bytes."""


class Event:
    """Chunks that were committed, the run's state after that, or both."""

    __slots__ = ("row", "state")

    def __init__(self, row: ChunkRow | None, state: RunState | None) -> None:
        self.row = row
        self.state = state


class Subscription:
    """One reader's queue. When it holds more than its limit it is emptied and `lagging` is set: the
    reader goes back to the log."""

    __slots__ = (
        "_events",
        "_limit",
        "_loop",
        "_size",
        "_timer",
        "_until",
        "_waiter",
        "counts",
        "key",
        "lagging",
        "listening",
    )

    def __init__(self, key: RunKey, limit: int, counts: bool) -> None:
        self.key = key
        self.counts = counts
        self.lagging = False
        self.listening = False
        self._limit = limit
        self._events: deque[Event] = deque()
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def push(self, event: Event) -> None:
        """Add an event and wake the reader."""
        self._size += EVENT_BYTES if event.row is None else EVENT_BYTES + len(event.row.data)
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
        """Send the reader back to the store, which knows better than what was told before."""
        self._events.clear()
        self._size = 0
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
        self._until = self._loop.time() + seconds
        # One timer for many waits: it is set again when it fires too early. A busy stream waits
        # thousands of times in the span of one.
        if self._timer is None or self._timer.when() > self._until:
            self.close()
            self._timer = self._loop.call_at(self._until, self._time_passed)
        self._waiter = waiter = self._loop.create_future()
        try:
            await waiter
        finally:
            self._waiter = None
        return bool(self._events) or self.lagging

    def _time_passed(self) -> None:
        self._timer = None
        if self._waiter is None:
            return
        if self._loop.time() < self._until:
            self._timer = self._loop.call_at(self._until, self._time_passed)
        else:
            self.wake()

    def close(self) -> None:
        """Let go of the timer. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Hub:
    """The subscriptions of a process, by run. `followers` counts the readers that keep a run with
    `cancel_on_disconnect` alive."""

    def __init__(self, backlog: int, signals: Signals, desk: Desk) -> None:
        self._backlog = backlog
        self._signals = signals
        self.desk = desk
        self.inbox = Inbox(signals)
        self._readers: dict[RunKey, set[Subscription]] = {}
        self._remote: dict[RunKey, int] = {}
        self._seen: dict[RunKey, tuple[RunState, int, int]] = {}

    def subscribe(self, key: RunKey, *, counts: bool = True) -> Subscription:
        """A new subscription; give it back with `unsubscribe`."""
        subscription = Subscription(key, self._backlog, counts)
        self._readers.setdefault(key, set()).add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Idempotent."""
        subscription.close()
        self.listen(subscription, False)
        readers = self._readers.get(subscription.key)
        if readers is not None:
            readers.discard(subscription)
            if not readers:
                del self._readers[subscription.key]

    def listen(self, subscription: Subscription, wanted: bool) -> None:
        """Whether a subscription wants to hear of what other processes do to its run."""
        if wanted == subscription.listening:
            return
        subscription.listening = wanted
        key = subscription.key
        count = self._remote.get(key, 0) + (1 if wanted else -1)
        if count:
            self._remote[key] = count
        else:
            del self._remote[key]
            self._seen.pop(key, None)
        if wanted:
            self._signals.watch(run_topic(*key))
        else:
            self._signals.unwatch(run_topic(*key))

    @property
    def remote(self) -> list[RunKey]:
        """The runs of which some reader wants to hear what other processes do."""
        return list(self._remote)

    def saw(self, sightings: Iterable[Sighting]) -> None:
        """How runs stand in the store: the readers of those that changed look again."""
        for seen in sightings:
            key = (seen.tenant, seen.run_id)
            now = (seen.state, seen.fence, seen.last_sequence)
            if key in self._remote and self._seen.get(key) != now:
                self._seen[key] = now
                self.look_again(key)

    def publish(self, key: RunKey, row: ChunkRow | None, state: RunState | None) -> None:
        """What was committed here, in the order of commits."""
        readers = self._readers.get(key)
        if readers:
            event = Event(row, state)
            for reader in readers:
                reader.push(event)
        self._signals.tell(run_topic(*key))

    def look_again(self, key: RunKey) -> None:
        """Something happened to a run: its readers are to look into the store."""
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
        self.desk.wake_all()

    def followers(self, key: RunKey) -> int:
        """How many readers follow a run in this process."""
        return sum(reader.counts for reader in self._readers.get(key, ()))
