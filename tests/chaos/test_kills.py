"""Processes are killed, put to sleep and told that their store is away at every point of a run's life,
under load: whatever dies, nothing is lost and nothing happens twice.

`ENTRACTE_SEED` repeats what was dealt; `make chaos` deals more.
"""

import os
import random
from collections.abc import Sequence

import pytest

from tests.chaos.databases import Databases, on_postgres, on_sqlite
from tests.chaos.matrix import deal
from tests.chaos.playing import play_all
from tests.chaos.stories import Story
from tests.postgres import Postgres

SEED = int(os.environ.get("ENTRACTE_SEED") or random.randrange(1_000_000))


async def strike(
    databases: Databases, kills: int, sizes: Sequence[int], references: dict[str, Story]
) -> None:
    print(f"seed {SEED}")
    report = await play_all(deal(SEED, kills, sizes), databases, SEED, references)
    print(report)
    assert report.deaths >= kills - len(report.missed)
    assert len(report.missed) <= kills // 20, report


@pytest.mark.timeout(300)
async def test_kills_on_sqlite(references: dict[str, Story]) -> None:
    """One, two and three processes on one file."""
    await strike(on_sqlite, 60, (1, 2, 3), references)


@pytest.mark.timeout(300)
async def test_kills_on_postgres(postgres: Postgres, references: dict[str, Story]) -> None:
    """Replicas on one database."""
    await strike(on_postgres(postgres), 40, (2,), references)
