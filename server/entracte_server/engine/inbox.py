"""Tells those who watch a tenant's pending calls which of them changed. A hint: they look again."""

import asyncio
from collections.abc import Iterable

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
        self._inbox.watchers.setdefault(self._tenant, set()).add(self)
        return self

    def __exit__(self, *_: object) -> None:
        watchers = self._inbox.watchers.get(self._tenant, set())
        watchers.discard(self)
        if not watchers:
            self._inbox.watchers.pop(self._tenant, None)

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

    def __init__(self) -> None:
        self.watchers: dict[str, set[Changes]] = {}

    def watch(self, tenant: str) -> Changes:
        """A bell for one watcher."""
        return Changes(self, tenant)

    def changed(self, tenant: str, ids: Iterable[str] | None = None) -> None:
        """Pending calls of the tenant were opened, decided, claimed or deleted; None: any."""
        for watcher in self.watchers.get(tenant, ()):
            watcher.ring(ids)

    def ring_all(self) -> None:
        """Wake every watcher, because the server stops."""
        for watchers in self.watchers.values():
            for watcher in watchers:
                watcher.ring(())
