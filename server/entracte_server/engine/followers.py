"""Runs that are cancelled when nobody follows them any more.

A run with `cancel_on_disconnect` that is executed here gets a grace time from the moment its last reader
left it. Readers in other processes say now and then that they are there.
"""

import asyncio
import math
from typing import TYPE_CHECKING

from entracte_server.engine.hub import RunKey
from entracte_server.engine.runlog import now_ms
from entracte_server.store.base import Cancel

if TYPE_CHECKING:
    from entracte_server.engine.engine import Engine


class Followers:
    """See the module. One of an engine."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._timers: dict[RunKey, asyncio.TimerHandle] = {}
        self._followed: dict[RunKey, float] = {}

    def left(self, key: RunKey) -> None:
        """A reader stopped following a run. One that is to be cancelled without readers gets its
        grace time."""
        engine = self._engine
        if not engine.ends_alone(key) or engine.hub.followers(key) or engine.draining:
            return
        loop = asyncio.get_running_loop()
        if (running := self._timers.pop(key, None)) is not None:  # who came back got the rest of it
            running.cancel()
        self._timers[key] = loop.call_later(engine.settings.disconnect_grace, self._left_alone, key)

    def seen_elsewhere(self, key: RunKey) -> None:
        """A reader in another process follows a run that is executed here."""
        self._followed[key] = asyncio.get_running_loop().time()

    def forget(self, key: RunKey) -> None:
        """A run is not executed here any more."""
        self._followed.pop(key, None)

    def stop(self) -> None:
        """Cancel nothing any more."""
        for timer in self._timers.values():
            timer.cancel()

    def _left_alone(self, key: RunKey) -> None:
        self._timers.pop(key, None)
        engine = self._engine
        if engine.hub.followers(key) or not engine.ends_alone(key) or not engine.lease.held():
            return
        loop = asyncio.get_running_loop()
        followed_until = self._followed.get(key, -math.inf) + engine.settings.disconnect_grace
        if loop.time() < followed_until:
            self._timers[key] = loop.call_at(followed_until, self._left_alone, key)
            return
        engine.cancel_soon(Cancel(*key, "Nobody followed the run.", engine.lease.process_id, now_ms()))
