"""Tells those who watch a tenant's pending calls which of them changed. A hint: they look again."""

import asyncio
from collections.abc import Iterable

from entracte_server.store.signals import Signals, inbox_topic

MAX_IDS = 256
"""Changed calls that are told one by one; beyond that a watcher looks at everything."""


class Changes:
    """One watcher's bell. Use as a context manager."""

    __slots__ = ("_everything", "_ids", "_inbox", "_rung", "_tenant")

    def __init__(self, inbox: "Inbox", tenant: str) -> None:
        self._inbox = inbox
        self._tenant = tenant
        self._rung = asyncio.Event()
        self._ids: set[str] = set()
        self._everything = False

    def __enter__(self) -> "Changes":
        self._inbox.add(self._tenant, self)
        return self

    def __exit__(self, *_: object) -> None:
        self._inbox.remove(self._tenant, self)

    def take(self) -> set[str] | None:
        """The ids of the calls that changed since the last time; None: look at everything."""
        self._rung.clear()
        ids, self._ids = self._ids, set()
        everything, self._everything = self._everything, False
        return None if everything else ids

    def ring(self, ids: Iterable[str] | None) -> None:
        """These calls changed; None: any of them may have."""
        if ids is None or self._everything:
            self._everything = True
        else:
            self._ids.update(ids)
            self._everything = len(self._ids) > MAX_IDS
        self._rung.set()

    async def wait(self, seconds: float) -> bool:
        """Until something changes, or for `seconds`; says whether it did."""
        try:
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        except TimeoutError:
            return False
        return True


class Inbox:
    """The watchers of this process, by tenant."""

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._watchers: dict[str, set[Changes]] = {}

    def watch(self, tenant: str) -> Changes:
        """A bell for one watcher."""
        return Changes(self, tenant)

    def add(self, tenant: str, watcher: Changes) -> None:
        """For `Changes`: it is watching."""
        self._watchers.setdefault(tenant, set()).add(watcher)
        self._signals.watch(inbox_topic(tenant))

    def remove(self, tenant: str, watcher: Changes) -> None:
        """For `Changes`: it is watching no more."""
        watchers = self._watchers[tenant]
        watchers.discard(watcher)
        if not watchers:
            del self._watchers[tenant]
        self._signals.unwatch(inbox_topic(tenant))

    def changed(self, tenant: str, ids: Iterable[str] | None) -> None:
        """Pending calls of the tenant were opened, decided, claimed or deleted here; None: any."""
        for watcher in self._watchers.get(tenant, ()):
            watcher.ring(ids)
        self._signals.tell(inbox_topic(tenant))

    def changed_elsewhere(self, tenant: str) -> None:
        """Some pending calls of the tenant were changed by another process."""
        for watcher in self._watchers.get(tenant, ()):
            watcher.ring(None)

    def ring_all(self) -> None:
        """Wake every watcher, because the server stops."""
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.ring(())
