"""Where this process gives work to the workers whose streams it serves, and takes what they answer.

Work is claimed for the streams here whenever there may be some and one of them has room; other processes do
the same, and the store gives each piece to one. All is found again by looks once a second, whatever was not
heard of.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

import structlog

from entracte_server.domain.ids import new_id
from entracte_server.domain.work import Answer, CloseWork, OfferedTool, Output
from entracte_server.engine.lease import Lease
from entracte_server.engine.outside import OutsideWork
from entracte_server.engine.settings import EngineSettings
from entracte_server.engine.stations import Station
from entracte_server.store.base import Store, StoreError
from entracte_server.store.signals import seen_topic, work_topic
from entracte_server.store.work import Bearer, ConnectWorker, Handled, SessionKey, Swept

_log = structlog.get_logger(__name__)

T = TypeVar("T")

CLAIMED = 256
"""How much work is claimed at once."""

SEATS = 64
"""For how many streams."""

PAGE = 200
"""How many sessions are looked at in one read."""


class Desk:
    """See the module. `draining`: nothing is claimed any more."""

    def __init__(self, store: Store, settings: EngineSettings, lease: Lease, outside: OutsideWork) -> None:
        self._store = store
        self._lease = lease
        self._outside = outside
        self._grace = settings.tool_worker_grace
        self._stations: dict[str, dict[tuple[str, str], Station]] = {}
        """By tenant, then principal and session id."""
        self._claims: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._looks: dict[str, asyncio.Task[None]] = {}
        self._look_again: set[str] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._kept = 0.0
        self.draining = False

    # ---- streams ----

    async def connect(
        self, tenant: str, principal: str, session_id: str, tools: tuple[OfferedTool, ...], credit: int
    ) -> Station:
        """A stream of a session begins: give it back with `disconnect`. Raises what
        `WorkStore.connect_worker` raises."""
        op = ConnectWorker(tenant, principal, session_id, tools, self._life)
        stream = await self._store.connect_worker(op)
        key = SessionKey(tenant, principal, session_id, stream)
        station = Station(key, tools, credit)
        stations = self._stations.setdefault(tenant, {})
        if not stations:
            self._watch(tenant, True)
        older = stations.get((principal, session_id))
        if older is not None:
            older.end("replaced")
        stations[principal, session_id] = station
        try:
            (held,) = await self._store.held_work([key])
            ids = [work_id for work_id, _ in held.work]
            for work in await self._store.given_work(tenant, principal, ids):
                if work.session_id == session_id:
                    station.give(work)
        except BaseException:
            self.disconnect(station)
            raise
        return station

    def disconnect(self, station: Station) -> None:
        """A stream has ended; its session lives on for a while. Idempotent."""
        station.end("replaced")
        key = station.key
        stations = self._stations.get(key.tenant, {})
        if stations.get((key.principal, key.session_id)) is station:
            del stations[key.principal, key.session_id]
            if not stations:
                del self._stations[key.tenant]
                self._watch(key.tenant, False)

    def _watch(self, tenant: str, wanted: bool) -> None:
        signals = self._store.signals
        change = signals.watch if wanted else signals.unwatch
        for what in ("open", "gone"):
            change(work_topic(tenant, what))

    @property
    def _life(self) -> int:
        """How long a session lives unless it is kept. It is kept often enough to have its grace time left
        whenever its stream ends."""
        return int(self._grace * 1500)

    # ---- what is told ----

    def opened(self, tenant: str) -> None:
        """Work of a tenant was opened by this process."""
        self.claim(tenant)
        self._store.signals.tell(work_topic(tenant, "open"))

    def closed(self, tenant: str, work: Iterable[CloseWork]) -> None:
        """Work was closed by this process."""
        stations, unwanted = self._stations.get(tenant, {}), False
        for it in work:
            unwanted = unwanted or it.unwanted
            for station in stations.values() if it.unwanted else ():
                station.gone(it.work_id)
        if unwanted:
            self._store.signals.tell(work_topic(tenant, "gone"))
            self.claim(tenant)

    def dropped(self, tenant: str) -> None:
        """Work was closed that is not known here."""
        self.heard(tenant, "gone")
        self._store.signals.tell(work_topic(tenant, "gone"))

    def heard(self, tenant: str, what: str) -> None:
        """Another process told something about work of a tenant."""
        if tenant in self._stations:
            if what == "gone":
                self._look_at(tenant)
            else:
                self.claim(tenant)

    def swept(self, work: Iterable[Swept]) -> None:
        """The state of work was changed because its time, or its session's, is over."""
        tenants = set()
        for it in work:
            _log.info("work_swept", work_id=it.work_id, state=it.state)
            tenants.add(it.tenant)
            if it.state == "open":
                self.opened(it.tenant)
            else:
                self._tell(it.tenant, it.work_id, it.owner)
        for tenant in tenants:
            self.dropped(tenant)

    def _tell(self, tenant: str, work_id: str, owner: str, answer: Answer | None = None) -> None:
        """Tell the owner of a run what it may hear."""
        if owner != self._lease.process_id:
            self._store.signals.send(owner, seen_topic(tenant, work_id))
        elif answer is not None:
            self._outside.answered(tenant, work_id, answer)
        else:
            self._outside.look(tenant, work_id)

    # ---- giving out ----

    def claim(self, tenant: str) -> None:
        """There may be work for the streams of a tenant, or room."""
        if self.draining or tenant not in self._stations:
            return
        self._again.add(tenant)
        task = self._claims.get(tenant)
        if task is None or task.done():
            self._claims[tenant] = self._spawn(self._claim(tenant))

    async def _claim(self, tenant: str) -> None:
        while tenant in self._again and not self.draining:
            self._again.discard(tenant)
            stations = self._stations.get(tenant, {})
            seats = [seat for station in stations.values() if (seat := station.seat()) is not None]
            seats.sort(key=lambda seat: -seat.free)
            if not seats:
                continue
            try:
                given = await self._store.claim_work(seats[:SEATS], limit=CLAIMED)
            except StoreError as error:  # the next look tries again
                _log.warning("work_not_claimed", error=str(error))
                return
            for work in given:
                station = stations.get((work.principal, work.session_id))
                if station is not None:
                    station.give(work)
            if len(given) == CLAIMED:
                self._again.add(tenant)
        self._claims.pop(tenant, None)

    # ---- answers ----

    async def answer(self, bearer: Bearer, answer: Answer, digest: bytes) -> Handled:
        """Take what work came to. Raises `WorkRefused`, `StoreUnavailable`."""
        return await self._protected(self._answer(bearer, answer, digest))

    async def _answer(self, bearer: Bearer, answer: Answer, digest: bytes) -> Handled:
        handled = await self._store.answer_work(bearer, answer, digest)
        if not handled.replayed:
            self._let_go(bearer)
            self._tell(bearer.tenant, bearer.work_id, handled.owner, None if handled.written else answer)
        return handled

    async def extend(self, bearer: Bearer, timeout: float, outputs: tuple[Output, ...]) -> Handled:
        """Move a deadline, and take what a tool wrote. Raises `WorkRefused`, `StoreUnavailable`."""
        return await self._protected(self._extend(bearer, timeout, outputs))

    async def _extend(self, bearer: Bearer, timeout: float, outputs: tuple[Output, ...]) -> Handled:
        handled = await self._store.extend_work(bearer, int(timeout * 1000), outputs)
        if outputs:
            self._tell(bearer.tenant, bearer.work_id, handled.owner)
        return handled

    async def abandon(self, bearer: Bearer) -> Handled:
        """Give work out again. Raises `WorkRefused`, `StoreUnavailable`."""
        return await self._protected(self._abandon(bearer))

    async def _abandon(self, bearer: Bearer) -> Handled:
        handled = await self._store.abandon_work(bearer)
        if not handled.replayed:
            self._let_go(bearer)
            self._tell(bearer.tenant, bearer.work_id, handled.owner)
            self.opened(bearer.tenant)
        return handled

    def _let_go(self, bearer: Bearer) -> None:
        for station in self._stations.get(bearer.tenant, {}).values():
            if station.let_go(bearer.work_id, bearer.token):
                self.claim(bearer.tenant)
                return
        self._store.signals.tell(work_topic(bearer.tenant, "gone"))

    # ---- looking after it ----

    async def look(self) -> None:
        """Once a second: keep the sessions, and find what was not heard of. Raises `StoreError`."""
        loop = asyncio.get_running_loop()
        keys = [station.key for of in self._stations.values() for station in of.values()]
        if keys and loop.time() - self._kept > self._grace / 2 - 1:
            for start in range(0, len(keys), PAGE):
                await self._store.keep_workers(keys[start : start + PAGE], self._life)
            self._kept = loop.time()
        for tenant in list(self._stations):
            self._look_at(tenant)
            self.claim(tenant)
        self._outside.look_at_all()

    def _look_at(self, tenant: str) -> None:
        self._look_again.add(tenant)
        task = self._looks.get(tenant)
        if task is None or task.done():
            self._looks[tenant] = self._spawn(self._look(tenant))

    async def _look(self, tenant: str) -> None:
        while tenant in self._look_again:
            self._look_again.discard(tenant)
            stations = list(self._stations.get(tenant, {}).values())
            try:
                for start in range(0, len(stations), PAGE):
                    await self._compare(tenant, stations[start : start + PAGE])
            except StoreError as error:  # the next look does it
                _log.warning("work_not_compared", error=str(error))
                return
            self.claim(tenant)
        self._looks.pop(tenant, None)

    async def _compare(self, tenant: str, stations: list[Station]) -> None:
        begun = asyncio.get_running_loop().time()
        held = await self._store.held_work([station.key for station in stations])
        for station, it in zip(stations, held, strict=True):
            if lost := station.compare(it, begun):
                key = station.key
                for work in await self._store.given_work(tenant, key.principal, lost):
                    if work.session_id == key.session_id:
                        station.give(work)

    # ---- life ----

    def wake_all(self) -> None:
        """The server stops: nothing is claimed any more, and the streams are to look."""
        self.draining = True
        for stations in self._stations.values():
            for station in stations.values():
                station.wake()

    async def close(self) -> None:
        """End all tasks, and the looks of those who wait."""
        self.draining = True
        await self._outside.close()
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work, name=f"desk-{new_id()}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # its caller may be gone

    async def _protected(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`; cancelling the caller only stops the waiting."""
        return await asyncio.shield(self._spawn(work))
