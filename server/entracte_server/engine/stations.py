"""A worker's stream in this process: what its session has, what it has room for, what it is to be told."""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable

from entracte_server.domain.data import Data
from entracte_server.domain.work import GivenWork, OfferedTool
from entracte_server.store.work import Held, Seat, SessionKey


class Gone(Data, frozen=True):
    """Work that the session does not have any more."""

    work_id: str
    token: str


Told = GivenWork | Gone


class _Having:
    """One piece of work that a session has, and since when it is known here."""

    __slots__ = ("since", "target", "token")

    def __init__(self, token: str, target: str, since: float) -> None:
        self.token = token
        self.target = target
        self.since = since


class Station:
    """See the module. Belongs to the task that writes the stream; filled by the desk."""

    def __init__(self, key: SessionKey, tools: Iterable[OfferedTool], credit: int) -> None:
        self.key = key
        self.credit = credit
        self.ended = ""
        """Why the stream is to end: `replaced` by a newer one, or its session is `gone`."""
        self._limits = {tool.target: tool.concurrency or credit for tool in tools}
        self._has: dict[str, _Having] = {}
        self._busy: Counter[str] = Counter()
        self._strange: frozenset[tuple[str, str]] = frozenset()
        self._told: deque[Told] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()

    # ---- what it has ----

    @property
    def has(self) -> int:
        """How many pieces of work it has."""
        return len(self._has)

    def seat(self) -> Seat | None:
        """What it has room for; None where that is nothing."""
        free = self.credit - len(self._has)
        if free <= 0 or self.ended:
            return None
        room = [(target, limit - self._busy[target]) for target, limit in self._limits.items()]
        room = [(target, number) for target, number in room if number > 0]
        return Seat(self.key, free, tuple(room)) if room else None

    def give(self, work: GivenWork) -> None:
        """It has this work from now on, and is told so; unless it has it."""
        known = self._has.get(work.work_id)
        if known is not None and known.token == work.token:
            return
        self._drop(work.work_id)
        self._has[work.work_id] = _Having(work.token, work.target, self._loop.time())
        self._busy[work.target] += 1
        self._told.append(work)
        self.wake()

    def let_go(self, work_id: str, token: str) -> bool:
        """It answered work, or gave it back; says whether it had it."""
        known = self._has.get(work_id)
        if known is None or known.token != token:
            return False
        self._drop(work_id)
        return True

    def gone(self, work_id: str) -> None:
        """Nobody wants this work any more."""
        if (known := self._has.get(work_id)) is not None:
            self._drop(work_id)
            self._told.append(Gone(work_id, known.token))
            self.wake()

    def _drop(self, work_id: str) -> None:
        known = self._has.pop(work_id, None)
        if known is not None:
            self._busy[known.target] -= 1

    def compare(self, held: Held, begun: float) -> list[str]:
        """Compare with what the store said when it was asked at `begun`: the work that it has and was not
        told of, once that was seen twice."""
        if held.stream != self.key.stream:
            self.end("replaced" if held.stream else "gone")
            return []
        truth = dict(held.work)
        for work_id, having in list(self._has.items()):
            if having.since < begun and truth.get(work_id) != having.token:
                self.gone(work_id)
        strange = frozenset(
            (work_id, token)
            for work_id, token in held.work
            if (known := self._has.get(work_id)) is None or known.token != token
        )
        lost = [work_id for work_id, _ in strange & self._strange]
        self._strange = strange
        return lost

    # ---- what it is told ----

    def end(self, why: str) -> None:
        """The stream is to end."""
        self.ended = self.ended or why
        self.wake()

    def take(self) -> list[Told]:
        """What it is to be told now."""
        told = list(self._told)
        self._told.clear()
        return told

    def wake(self) -> None:
        """End a wait."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Until there is something to tell, it is to end or was woken, or for `seconds`."""
        if self._told or self.ended:
            return
        self._waiter = self._loop.create_future()
        timer = self._loop.call_later(seconds, self.wake)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None
