"""Tells those who watch a tenant's pending calls that something changed. A hint: they look again."""

import asyncio


class Changes:
    """One watcher's bell. Use as a context manager."""

    __slots__ = ("_inbox", "_rung", "_tenant")

    def __init__(self, inbox: "Inbox", tenant: str) -> None:
        self._inbox = inbox
        self._tenant = tenant
        self._rung = asyncio.Event()

    def __enter__(self) -> "Changes":
        self._inbox.watchers.setdefault(self._tenant, set()).add(self)
        return self

    def __exit__(self, *_: object) -> None:
        watchers = self._inbox.watchers.get(self._tenant, set())
        watchers.discard(self)
        if not watchers:
            self._inbox.watchers.pop(self._tenant, None)

    def clear(self) -> None:
        """Forget what was rung so far; call it before looking."""
        self._rung.clear()

    def ring(self) -> None:
        """Something changed."""
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

    def changed(self, tenant: str) -> None:
        """A pending call of the tenant was opened, decided, claimed or deleted."""
        for watcher in self.watchers.get(tenant, ()):
            watcher.ring()

    def ring_all(self) -> None:
        """Wake every watcher, because the server stops."""
        for watchers in self.watchers.values():
            for watcher in watchers:
                watcher.ring()
