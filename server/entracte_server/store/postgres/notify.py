"""NOTIFY and LISTEN: how the processes of one database wake each other.

All listen on one channel, and each on one of its own. A connection is kept for it, apart from those
that write: a notification waits for its transaction, and transactions that notify wait for each other.
What is said while that connection is broken is lost; once there is another, all is announced anew.
"""

import asyncio
import logging
import random
from collections import deque
from hashlib import blake2b

from entracte_server.store.interests import Interests
from entracte_server.store.postgres.connection import Connection, Result, Statement
from entracte_server.store.postgres.errors import ConnectionLost, DatabaseError
from entracte_server.store.postgres.pool import Connect
from entracte_server.store.postgres.retrying import FIRST_PAUSE
from entracte_server.store.postgres.transactions import TRIP_SECONDS

EVERYBODY = "entracte"
"""The channel of all processes."""

MAX_WAITING = 4096
"""Messages that wait to be sent."""

MAX_BATCH = 100
"""Messages in one transaction."""

PROBE_SECONDS = 5.0
"""How long a notification to ourselves may take to arrive."""

LONGEST_PAUSE = 5.0
"""Seconds between attempts to connect again, at most."""

_SETTINGS: Statement = (
    # Nothing is written that needs to be durable.
    "SELECT set_config('synchronous_commit', 'off', true), set_config('statement_timeout', '5000', true)",
    (),
)
_NOTIFY = "SELECT pg_notify($1, $2)"
_PROBE = ""

_log = logging.getLogger(__name__)


def channel_of(process_id: str) -> str:
    """The channel of one process."""
    return "entracte_" + blake2b(process_id.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class Notifier:
    """A `Transport` for `interests`. All methods are to be called on the event loop."""

    def __init__(self, connect: Connect, interests: Interests) -> None:
        self._connect = connect
        self._interests = interests
        self._process_id = ""
        self._connection: Connection | None = None
        self._waiting: deque[tuple[str, str]] = deque()
        self._flush: asyncio.Handle | None = None
        self._arrived = False
        self._warned = False
        self._task: asyncio.Task[None] | None = None

    async def open(self, process_id: str) -> None:
        """Be `process_id`, in place of the one before. Raises `ConnectionLost`, `DatabaseError`."""
        await self.close()
        self._process_id = process_id
        await self._begin()
        self._task = asyncio.create_task(self._keep(), name="postgres-notifier")

    async def close(self) -> None:
        """Say what is still to be said, and stop. Idempotent."""
        self._process_id = ""
        self._interests.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        if (connection := self._connection) is not None:
            self._connection = None
            connection.lost = None
            await self._say_the_rest(connection)
            connection.close()
        self._waiting.clear()

    async def _say_the_rest(self, connection: Connection) -> None:
        try:
            if connection.busy:
                idle = asyncio.Event()
                connection.idle = idle.set
                await idle.wait()
            while self._waiting:
                await connection.run(self._batch(), TRIP_SECONDS)
        except (ConnectionLost, DatabaseError) as error:
            _log.debug("the last notifications were not sent: %s", error)

    # ---- the connection ----

    async def _begin(self) -> None:
        """Listen, and announce what is watched."""
        connection = await self._connect()
        connection.notified = self._notified
        own = channel_of(self._process_id)
        try:
            await connection.run([(f'LISTEN "{EVERYBODY}"', ()), (f'LISTEN "{own}"', ())], TRIP_SECONDS)
        except BaseException:
            connection.close()
            raise
        self._arrived = False
        self._waiting.clear()
        self._connection = connection
        self._enqueue(own, _PROBE)
        self._interests.start(self._process_id, self)

    async def _keep(self) -> None:
        """Connect again whenever the connection breaks."""
        while True:
            connection = self._connection
            assert connection is not None
            broken = asyncio.Event()
            connection.lost = broken.set
            if not connection.closed:
                await self._watch(broken)
            pause = FIRST_PAUSE
            while True:
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                try:
                    await self._begin()
                    break
                except (ConnectionLost, DatabaseError) as error:
                    if pause == FIRST_PAUSE:
                        _log.warning("no notifications for now: %s", error)
                    pause = min(2 * pause, LONGEST_PAUSE)

    async def _watch(self, broken: asyncio.Event) -> None:
        """Wait until the connection breaks. Warn, once, when notifications do not come in."""
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await broken.wait()
                return
        except TimeoutError:
            if not self._arrived and not self._warned:
                self._warned = True
                _log.warning(
                    "notifications do not arrive, so processes notice each other's doings a second later: "
                    "if the store's URL leads through a pooler, set store_listen_url to a direct one"
                )
        await broken.wait()

    def _notified(self, channel: str, text: str) -> None:
        self._arrived = True
        if text != _PROBE:
            self._interests.receive(text)

    # ---- Transport ----

    def broadcast(self, text: str) -> bool:
        """See `Transport.broadcast`."""
        return self._enqueue(EVERYBODY, text)

    def send(self, process_id: str, text: str) -> bool:
        """See `Transport.send`."""
        return self._enqueue(channel_of(process_id), text)

    def _enqueue(self, channel: str, text: str) -> bool:
        connection = self._connection
        if connection is None or connection.closed:
            return True
        if len(self._waiting) >= MAX_WAITING:
            return False
        self._waiting.append((channel, text))
        if self._flush is None and not connection.busy:
            self._flush = asyncio.get_running_loop().call_soon(self._send)
        return True

    def _send(self) -> None:
        self._flush = None
        connection = self._connection
        if connection is None or connection.closed or connection.busy or not self._waiting:
            return
        connection.run(self._batch(), TRIP_SECONDS).add_done_callback(self._sent)

    def _batch(self) -> list[Statement]:
        count = min(MAX_BATCH, len(self._waiting))
        return [_SETTINGS, *((_NOTIFY, self._waiting.popleft()) for _ in range(count))]

    def _sent(self, done: "asyncio.Future[list[Result]]") -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            _log.debug("notifications were not sent: %s", error)
        self._send()
