"""Every option holds over suspensions and restarts: before it takes effect, and after.

Each alone, and each with every other in groups; with `MATRIX=all` in the environment, each with every other
and nothing else, and each alone on both stores.
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
from tests.matrix.rows import BY_NAME, ELSEWHERE, EXCLUDED, ROWS, all_pairs, excluded, groups_of_pairs
from tests.telemetry.collector import Collector

ROOT = Path(__file__).resolve().parents[2]
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
    "+".join(row.name for row in group): group for group in (all_pairs() if ALL else groups_of_pairs())
}


@pytest.mark.parametrize("names", GROUPS)
async def test_together(names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await played(GROUPS[names], tmp_path / "db", monkeypatch)


def test_every_option_has_a_row() -> None:
    """Or a test of its own, for a reason that is told."""
    assert {row.option for row in ROWS} == SUPPORTED - ELSEWHERE.keys()
    assert ELSEWHERE.keys() <= SUPPORTED
    for place in ELSEWHERE.values():
        file, _, name = place.partition("::")
        assert f"\nasync def {name}(" in (ROOT / file).read_text()


def test_what_is_paired() -> None:
    """Every two rows that can be set together are, and none that exclude each other."""
    assert len(BY_NAME) == len(ROWS)
    assert {name for pair in EXCLUDED for name in pair} <= BY_NAME.keys()
    together = set()
    for group in groups_of_pairs():
        assert len(group) > 1
        for one, other in itertools.combinations(group, 2):
            assert not excluded(one, other)
            together.add(frozenset((one.name, other.name)))
    wanted = {frozenset((one.name, other.name)) for one, other in all_pairs() if not (one.slow or other.slow)}
    assert together == wanted
