"""Processes are killed, put to sleep and told that their store is away at every point of a run's life,
under load: whatever dies, nothing is lost and nothing happens twice.

`ENTRACTE_SEED` repeats what was dealt; `make chaos` deals more.
"""

import os
import random

import pytest

from tests.chaos.databases import sqlite
from tests.chaos.matrix import KILLS, deal
from tests.chaos.playing import play_all
from tests.chaos.stories import Story

SEED = int(os.environ.get("ENTRACTE_SEED") or random.randrange(1_000_000))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("sizes", [(1,), (2, 3)], ids=["one process", "several processes"])
async def test_kills_on_sqlite(sizes: tuple[int, ...], references: dict[str, Story]) -> None:
    """Each point of the matrix once for one process and once for several."""
    print(f"seed {SEED}")
    report = await play_all(deal(SEED, len(KILLS), sizes), sqlite, SEED, references)
    print(report)
    assert len(report.missed) <= 2, report
