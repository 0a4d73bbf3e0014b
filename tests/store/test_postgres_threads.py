"""Threads in PostgreSQL: who locks what, in which order."""

import asyncio

from entracte_server.store.base import LeaseLost, Refused, StoreError, ThreadBusy
from entracte_server.store.postgres import PostgresStore
from entracte_server.store.threads import DeleteThread, ThreadClaim
from entracte_server.testing.store_conformance.builders import (
    NOW,
    TENANT,
    a_cancel,
    a_message,
    a_write,
    an_end,
    chunks,
    claiming,
    created,
    unique,
)
from entracte_server.testing.store_conformance.turns import WAITS_ALWAYS, park
from tests.postgres import Postgres
from tests.store.test_postgres_plans import all_gone

ROUNDS = 6


async def a_scramble(one: PostgresStore, two: PostgresStore) -> list[StoreError]:
    """All that changes who has a thread, at the same time, on threads whose runs are in common groups;
    what was refused."""
    threads = [unique("thread") for _ in range(4)]
    runs = [[(await claiming(one, name, WAITS_ALWAYS))[0] for _ in range(3)] for name in threads]
    await park(one, runs[2][0])
    await park(one, runs[3][0])
    others = [await created(one) for _ in range(8)]
    outcomes = await asyncio.gather(
        *(one.submit(a_write(run, chunks=chunks(1, 1))) for run in others),
        *(two.submit(a_write(run, messages=(a_message(),))) for (run, *_) in runs[:2]),
        *(two.cancel(a_cancel(run)) for (_, run, _) in runs),
        *(one.submit(a_write(run, end=an_end())) for (run, *_) in runs[:2]),
        *(one.cancel(a_cancel(run)) for (run, *_) in runs[1:]),
        *(two.submit(a_write(run, end=an_end())) for run in others),
        *(claiming(two, name, ThreadClaim(replace="way")) for name in threads),
        one.delete_run(TENANT, runs[3][0].run_id, force=True, request=None),
        *(two.delete_thread(DeleteThread(TENANT, name, NOW, force=True)) for name in threads),
        return_exceptions=True,
    )
    refused = []
    for outcome in outcomes:
        if isinstance(outcome, StoreError):
            refused.append(outcome)
        elif isinstance(outcome, BaseException):
            raise outcome
    return refused


async def test_nobody_waits_for_each_other(postgres: Postgres) -> None:
    """A deadlock would be tried again, and nobody would see it but by the time it took."""
    database = postgres.create_database()
    one, two = [await PostgresStore.open(postgres.url(database)) for _ in range(2)]
    for _ in range(ROUNDS):
        refused = await a_scramble(one, two)
        assert {type(error) for error in refused} <= {LeaseLost, Refused, ThreadBusy}
    await one.close()
    await two.close()
    await all_gone(postgres, database)
    seen = f"SELECT xact_commit > 0, deadlocks FROM pg_stat_database WHERE datname = '{database}'"
    assert postgres.execute(seen) == [(True, 0)]
    postgres.drop_database(database)
