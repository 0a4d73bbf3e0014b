"""What the tests of expiry, retention and limits share."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from entracte_server.engine import keeper, upkeep


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The server's log is not the test's output."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers look around twenty times a second rather than once."""
    monkeypatch.setattr(keeper, "ROUND", 0.05)
    monkeypatch.setattr(upkeep, "ASK_SECONDS", 0.1)
    monkeypatch.setattr(upkeep, "TRIM_PAUSE", 0.1)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each kind, for `serve`."""
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    url: Any = request.getfixturevalue("postgres_url")
    return str(url)
