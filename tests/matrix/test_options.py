"""Every option holds over suspensions and restarts: before it takes effect, and after.

Each alone, and some of them together; with `MATRIX=all` in the environment, all pairs and both stores.
"""

import itertools
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog

from entracte_server.rpc.options import SUPPORTED
from tests.matrix.playing import check, play
from tests.matrix.row import Row
from tests.matrix.rows import BY_NAME, EXCLUDED, ROWS, all_pairs, excluded, some_groups
from tests.telemetry.collector import Collector

ALL = os.environ.get("MATRIX") == "all"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The servers' log is not the test's output."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


async def played(rows: Sequence[Row], store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plays and checks."""
    if not any("telemetry" in row.settings for row in rows):
        check(rows, await play(rows, store))
        return
    with Collector() as collector:
        for name, value in collector.environment.items():
            monkeypatch.setenv(name, value)
        seen = await play(rows, store)
        seen.spans = collector.spans
        check(rows, seen)


@pytest.mark.parametrize("name", BY_NAME)
async def test_alone(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await played([BY_NAME[name]], tmp_path / "db", monkeypatch)


@pytest.mark.skipif(not ALL, reason="the whole of it is `make matrix`")
@pytest.mark.parametrize("name", BY_NAME)
async def test_alone_on_postgres(name: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await played([BY_NAME[name]], postgres_url, monkeypatch)


GROUPS: dict[str, Sequence[Row]] = {
    "+".join(row.name for row in group): group for group in (all_pairs() if ALL else some_groups())
}


@pytest.mark.parametrize("names", GROUPS)
async def test_together(names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await played(GROUPS[names], tmp_path / "db", monkeypatch)


def test_every_option_has_a_row() -> None:
    assert {row.option for row in ROWS} == SUPPORTED


def test_what_is_paired() -> None:
    """The choice has each row twice, and nothing in it that excludes each other."""
    assert len(BY_NAME) == len(ROWS)
    assert {name for pair in EXCLUDED for name in pair} <= BY_NAME.keys()
    chosen = some_groups()
    for row in ROWS:
        assert sum(row in group for group in chosen) == (0 if row.slow else 2)
    for group in chosen:
        assert len(group) > 1
        assert not any(excluded(*pair) for pair in itertools.combinations(group, 2))
