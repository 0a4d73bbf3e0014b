"""What the tests of telemetry share."""

import logging
from collections.abc import Iterator

import pytest
import structlog

from tests.telemetry.collector import Collector


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The server's log is not the test's output."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield
    structlog.reset_defaults()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that servers of the test send to, if they send at all."""
    with Collector() as it:
        for name, value in it.environment.items():
            monkeypatch.setenv(name, value)
        yield it
