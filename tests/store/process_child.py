"""Another process on the same database, told what to do: a JSON list per line, a JSON value back for each.

Usage: python -m tests.store.process_child DATABASE
"""

import asyncio
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from entracte_server.domain.runs import CallRow, PendingRow, RunRow
from entracte_server.store.base import CreateRun, Refused, RunExists
from entracte_server.store.sqlite import SQLiteStore
from entracte_server.store.sqlite.writer import Transaction
from entracte_server.testing.store_conformance.builders import (
    SPEC,
    TENANT,
    a_call,
    a_decide,
    a_park,
    a_pending,
    a_run,
    a_write,
    an_end,
    chunks,
    created,
    took,
)


class Child:
    """What can be asked for: the methods without an underscore."""

    def __init__(self, store: SQLiteStore) -> None:
        self._store = store
        self._heard: list[str] = []
        self._held: asyncio.Future[Any] | None = None
        self._let_go = threading.Event()
        self._me = str(os.getpid())
        store.signals.listen(self._heard.append)

    async def enter(self, process_id: str, seconds: float) -> None:
        await self._store.enter(process_id, seconds)

    async def renew(self, process_id: str, seconds: float) -> bool:
        return await self._store.renew(process_id, seconds)

    async def create(self, run_id: str, owner: str) -> None:
        await created(self._store, run_id=run_id, owner=owner)

    async def append(self, run_id: str, number: int) -> None:
        run = await self._store.get_run(TENANT, run_id)
        await self._store.write(a_write(run, chunks=chunks(number, number)))

    async def tell(self, topic: str) -> None:
        self._store.signals.tell(topic)

    async def watch(self, topics: list[str]) -> None:
        for topic in topics:
            self._store.signals.watch(topic)

    async def be_busy(self, seconds: float) -> None:
        """Keep the event loop from reading anything."""
        time.sleep(seconds)  # noqa: ASYNC251

    async def heard(self) -> list[str]:
        return self._heard

    async def hold(self, run_id: str) -> None:
        """Be inside a transaction that has written something, until `let_go`."""
        inside = asyncio.Event()
        loop = asyncio.get_running_loop()

        def operation(transaction: Transaction) -> None:
            transaction.execute("UPDATE runs SET step = 77 WHERE run_id = ?", (run_id,))
            loop.call_soon_threadsafe(inside.set)
            self._let_go.wait()

        self._held = self._store._writer.submit(operation)
        await inside.wait()

    async def let_go(self) -> None:
        self._let_go.set()
        assert self._held is not None
        await self._held

    async def lock(self) -> None:
        """Take the lock file without a transaction."""
        self._store._files.acquire()

    async def fork(self) -> int:
        """Leave a process behind that has all that this one had open."""
        pid = os.fork()
        if pid == 0:
            for standard in range(3):  # whoever waits for this process's end waits for them
                os.close(standard)
            signal.pause()
        return pid

    async def work(self, name: str, seconds: float) -> list[tuple[str, int]]:
        """Runs from start to end for some time, several at once: their ids and last sequences."""
        until = time.monotonic() + seconds
        done: list[tuple[str, int]] = []

        async def lives(prefix: str) -> None:
            number = 0
            while time.monotonic() < until:
                number += 1
                run = await created(self._store, run_id=f"{prefix}-{number}", owner=name)
                for first in range(1, 6):
                    await self._store.write(a_write(run, chunks=chunks(first, first)))
                call = a_call(run)
                pending = a_pending(run, call, pending_call_id=f"{run.run_id}-pending")
                await self._store.write(a_write(run, calls=(call,), opened=(pending,), park=a_park(6)))
                decide = a_decide(pending, call, owner=name, decision_id=f"{run.run_id}-decision")
                decided = await self._store.decide(decide)
                await self._store.write(a_write(decided.run, chunks=chunks(7, 8), end=an_end()))
                done.append((run.run_id, 8))

        await asyncio.gather(*(lives(f"{name}-{number}") for number in range(4)))
        return done

    async def race(self, what: str, names: list[str]) -> list[str]:
        """Do something to each of these runs that others try as well, each in an order of its own; of
        which runs it was this process that did it."""
        do = {"create": self._create, "decide": self._decide, "take_over": self._take_over}[what]
        random.shuffle(names)
        return [name for name in names if await do(name)]

    async def _create(self, name: str) -> bool:
        run = a_run(run_id=name, owner=self._me)
        call, pending = asked(run)
        try:
            await self._store.create_run(CreateRun(run, SPEC))
        except RunExists:
            return False
        await self._store.write(a_write(run, calls=(call,), opened=(pending,), park=a_park(1)))
        return True

    async def _decide(self, name: str) -> bool:
        call, pending = asked(a_run(run_id=name))
        op = a_decide(pending, call, owner=self._me, decision_id=f"{name}-{self._me}")
        try:
            return took(await self._store.decide(op))
        except Refused:
            return False

    async def _take_over(self, name: str) -> bool:
        return await self._store.take_over(TENANT, name, fence=2, owner=self._me) is not None


def asked(run: RunRow) -> tuple[CallRow, PendingRow]:
    """The call of a run that all try to decide."""
    call = a_call(run, call_id=f"{run.run_id}-call")
    return call, a_pending(run, call, pending_call_id=f"{run.run_id}-pending")


async def main() -> None:
    store = await SQLiteStore.open(sys.argv[1])
    child = Child(store)
    print(json.dumps("open"), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        what, *arguments = json.loads(line)
        method: Callable[..., Any] = getattr(child, what)
        print(json.dumps(await method(*arguments)), flush=True)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main())
