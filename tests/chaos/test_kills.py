"""Processes are killed, put to sleep and told that their store is away at every point of a run's life,
under load: whatever dies, nothing is lost and nothing happens twice.

`ENTRACTE_SEED` deals otherwise; `make chaos` deals more, and otherwise each time.
"""

import os

import pytest

from tests.chaos.databases import on_postgres, on_sqlite
from tests.chaos.kills import strike
from tests.chaos.playing import Report
from tests.chaos.stories import Story
from tests.postgres import Postgres

SEED = int(os.environ.get("ENTRACTE_SEED", "1"))


def judge(report: Report, kills: int) -> None:
    """The matrix was played, and not just a part of it."""
    print(report)
    assert report.deaths >= kills - len(report.missed)
    assert len(report.missed) <= kills // 20, report


@pytest.mark.timeout(300)
async def test_kills_on_sqlite(references: dict[str, Story]) -> None:
    """One, two and three processes on one file."""
    print(f"seed {SEED}")
    judge(await strike("sqlite", on_sqlite, references, seed=SEED, kills=60), 60)


@pytest.mark.timeout(300)
async def test_kills_on_postgres(postgres: Postgres, references: dict[str, Story]) -> None:
    """Two replicas on one database."""
    print(f"seed {SEED}")
    databases = on_postgres(postgres)
    judge(await strike("postgres", databases, references, seed=SEED, kills=40, sizes=(2,)), 40)
