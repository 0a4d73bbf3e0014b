"""Keeps worker processes serving: starts, watches, replaces and stops them.

The supervisor itself serves nothing and imports nothing of the user's. Its signals: SIGTERM and SIGINT
stop gracefully (a second SIGINT at once), SIGHUP replaces the workers one after another.
"""

import asyncio
import signal
from collections import deque
from collections.abc import Callable

import structlog

from entracte_server.app.lifeline import Agents
from entracte_server.app.workers import Command, Worker, has_terminal, signal_name
from entracte_server.domain.data import Data

_log = structlog.get_logger("entracte.supervisor")

_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 5.0

_ECHO_SECONDS = 1.0
"""Interrupts that come so soon after the first are the same one: from the terminal, and passed on by
whatever started the server."""

_PINGS = 6
"""Unanswered pings that make a worker a hung one."""


class SupervisorSettings(Data, frozen=True):
    """How workers are kept. Times are in seconds.

    count: how many.
    start_timeout: how long one may take until it serves.
    hang_timeout: how long one may give no sign of life; 0: for ever.
    failures: how often in a row the workers of one place may die early; 0: without end.
    early: a worker that has served for less dies early.
    stop_timeout: how long one may take to stop, with the grace time of running work.
    """

    count: int
    start_timeout: float = 60.0
    hang_timeout: float = 60.0
    failures: int = 5
    early: float = 30.0
    stop_timeout: float = 15.0


class GaveUp(Exception):
    """The supervisor stops by itself, with this exit code. The text is for people; empty where the
    worker has said it all."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class _Place:
    """What a worker and its successors have in common."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.worker: Worker | None = None
        self.failures = 0
        self.filled = asyncio.Event()
        self.changing = asyncio.Lock()


class Supervisor:
    """Runs workers until it is told to stop, or gives up.

    `command` makes a worker's command line. `started` is called once, with the agents, when all serve;
    `stopping` once, when they are told to stop. Both are for telling people.
    """

    def __init__(
        self,
        command: Command,
        settings: SupervisorSettings,
        *,
        started: Callable[[Agents], None],
        stopping: Callable[[], None],
    ) -> None:
        self._command = command
        self._settings = settings
        self._started = started
        self._stopping = stopping
        self._places = [_Place(number) for number in range(1, settings.count + 1)]
        self._workers: set[Worker] = set()
        self._dead: deque[str] = deque(maxlen=4 * settings.count)
        self._stop = asyncio.Event()
        self._at_once = asyncio.Event()
        self._interrupt_time = 0.0
        self._renew = asyncio.Event()

    async def run(self) -> int:
        """Until stopped; the exit code. Raises `GaveUp` once all workers have ended."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        loop.add_signal_handler(signal.SIGINT, self._on_interrupt)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # it is under nohup
            loop.add_signal_handler(signal.SIGHUP, self._on_hangup, has_terminal())
        work = asyncio.create_task(self._work(), name="work")
        told = asyncio.create_task(self._stop.wait(), name="told")
        gave_up: GaveUp | None = None
        in_time = True
        try:
            await asyncio.wait({work, told}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._stop.set()  # from here on an interrupt means: at once
            work.cancel()
            told.cancel()
            try:
                await work
            except* asyncio.CancelledError:
                pass
            except* GaveUp as group:
                gave_up = _reason(group)
            finally:
                in_time = await self._end_all()
        if gave_up is not None:
            raise gave_up
        if self._at_once.is_set():
            return 128 + signal.SIGINT
        return 0 if in_time else 1

    def _on_interrupt(self) -> None:
        now = asyncio.get_running_loop().time()
        if not self._stop.is_set():
            self._interrupt_time = now
            self._stop.set()
        elif now - self._interrupt_time > _ECHO_SECONDS:
            self._at_once.set()

    def _on_hangup(self, had_terminal: bool) -> None:
        # A terminal that closes sends the same signal as somebody who wants new workers.
        (self._stop if had_terminal and not has_terminal() else self._renew).set()

    async def _work(self) -> None:
        # The first worker alone finds out what is wrong with the app, the settings or the database, says
        # it once, and brings the database to the schema of its code, before the others come.
        self._take(self._places[0], await self._first())
        async with asyncio.TaskGroup() as group:
            for place in self._places:
                group.create_task(self._keep(place), name=f"keep-{place.number}")
            group.create_task(self._announce(), name="announce")
            group.create_task(self._renew_when_told(), name="renew")
            if self._settings.hang_timeout:
                group.create_task(self._ping_all(), name="ping")

    # ---- starting ----

    async def _spawn(self, number: int) -> Worker:
        """Raises `OSError`."""
        worker = await Worker.start(number, self._command)
        self._workers.add(worker)
        worker.end.add_done_callback(lambda _: self._ended(worker))
        return worker

    def _take(self, place: _Place, worker: Worker) -> None:
        place.worker = worker
        place.filled.set()
        _log.info("worker_ready", worker=worker.number, pid=worker.pid)
        # When many died at once, those before it may have been told in vain. To be told twice does no harm.
        for process_id in self._dead:
            worker.tell_dead(process_id)

    async def _first(self) -> Worker:
        """The first worker of all, once it serves. Raises `GaveUp`."""
        seconds = self._settings.start_timeout
        try:
            worker = await self._spawn(1)
        except OSError as error:
            raise GaveUp(f"cannot start a worker: {error}", 1) from error
        if await worker.becomes_ready(seconds):
            return worker
        if not worker.end.done():
            await worker.abort()
            raise GaveUp(f"the first worker did not serve within {seconds:g} s", 1)
        code = worker.end.result()
        if code < 0:
            raise GaveUp(f"the first worker was ended by {signal_name(-code)} before it served", 1)
        raise GaveUp("", code or 1)

    async def _next(self, number: int) -> Worker | None:
        """A further worker, once it serves; None, and a line in the log, when it does not come to that."""
        seconds = self._settings.start_timeout
        try:
            worker = await self._spawn(number)
        except OSError as error:
            _log.error("worker_not_started", worker=number, error=str(error))
            return None
        if await worker.becomes_ready(seconds):
            return worker
        if worker.end.done():
            _log_death(worker)
        else:
            _log.error("worker_not_ready", worker=number, pid=worker.pid, seconds=seconds)
            await worker.abort()
        return None

    async def _announce(self) -> None:
        for place in self._places:
            await place.filled.wait()
        first = self._places[0].worker
        self._started(first.agents if first is not None else ())

    # ---- deaths ----

    async def _keep(self, place: _Place) -> None:
        """Have a worker at a place for ever."""
        while True:
            async with place.changing:
                if place.worker is None or place.worker.end.done():
                    await self._fill(place)
                worker = place.worker
            if worker is not None:
                await asyncio.wait([worker.end])

    def _ended(self, worker: Worker) -> None:
        self._workers.discard(worker)
        if worker.end.cancelled() or worker.end.result() == 0:  # it has left its runs to others itself
            return
        if worker.process_id:
            self._dead.append(worker.process_id)
            for place in self._places:
                if place.worker is not None and not place.worker.end.done():
                    place.worker.tell_dead(worker.process_id)

    async def _fill(self, place: _Place) -> None:
        dead = place.worker
        if dead is not None:
            _log_death(dead)
            place.failures = 0 if dead.served() >= self._settings.early else place.failures + 1
            await self._pause(place)
        while (worker := await self._next(place.number)) is None:
            place.failures += 1
            await self._pause(place)
        self._take(place, worker)

    async def _pause(self, place: _Place) -> None:
        """Before the next start: not at all after the first failure, then more and more. Raises `GaveUp`
        when there were too many."""
        if 0 < self._settings.failures <= place.failures:
            raise GaveUp(
                f"{place.failures} workers in a row died before they had served for "
                f"{self._settings.early:g} s; the log says how each ended",
                1,
            )
        if place.failures > 1:
            await asyncio.sleep(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(place.failures - 2, 16)))

    async def _ping_all(self) -> None:
        """End workers that give no sign of life. Pings are counted, not seconds: a supervisor that was
        suspended, perhaps with its workers, must not take its own sleep for theirs."""
        while True:
            await asyncio.sleep(self._settings.hang_timeout / _PINGS)
            hung = []
            for place in self._places:
                worker = place.worker
                if worker is None or worker.end.done():
                    continue
                if worker.unanswered < _PINGS:
                    worker.ping()
                    continue
                hung.append(worker)
                seconds = self._settings.hang_timeout
                _log.error("worker_hung", worker=worker.number, pid=worker.pid, seconds=seconds)
            await asyncio.gather(*(worker.abort() for worker in hung))

    # ---- replacing ----

    async def _renew_when_told(self) -> None:
        while True:
            await self._renew.wait()
            self._renew.clear()
            _log.info("workers_restart")
            for place in self._places:
                if not await self._replace(place):
                    # What is new does not work: those not yet replaced go on with what is old.
                    _log.error("workers_restart_stopped", worker=place.number)
                    break
            else:
                _log.info("workers_restarted")

    async def _replace(self, place: _Place) -> bool:
        """Start a successor and, once it serves, stop the worker at a place. False when it does not."""
        async with place.changing:
            worker = await self._next(place.number)
            if worker is None:
                return False
            old = place.worker
            place.failures = 0
            self._take(place, worker)
        if old is not None:
            await self._stop_one(old)
        return True

    # ---- stopping ----

    async def _stop_one(self, worker: Worker) -> bool:
        bound = self._settings.stop_timeout
        in_time = await worker.stop(bound)
        if in_time:
            _log.info("worker_stopped", worker=worker.number, pid=worker.pid, **worker.describe_end())
        else:
            _log.error("worker_killed", worker=worker.number, pid=worker.pid, seconds=bound)
        return in_time

    async def _end_all(self) -> bool:
        """Stop all workers, at once when told so a second time; says whether all stopped in time."""
        workers = list(self._workers)
        if workers:
            self._stopping()
        stops = [asyncio.create_task(self._stop_one(worker)) for worker in workers]
        hurry = asyncio.create_task(self._kill_when_told(workers))
        try:
            return all(await asyncio.gather(*stops))
        finally:
            hurry.cancel()

    async def _kill_when_told(self, workers: list[Worker]) -> None:
        await self._at_once.wait()
        for worker in workers:
            worker.send(signal.SIGKILL)


def _log_death(worker: Worker) -> None:
    _log.error(
        "worker_died",
        worker=worker.number,
        pid=worker.pid,
        served_seconds=round(worker.served(), 1),
        **worker.describe_end(),
    )


def _reason(group: BaseExceptionGroup[GaveUp]) -> GaveUp:
    found = group.exceptions[0]
    return _reason(found) if isinstance(found, BaseExceptionGroup) else found
