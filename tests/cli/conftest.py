"""What the tests of the command line share."""

from collections.abc import Iterator

import pytest
import structlog
from structlog.testing import ReturnLoggerFactory


@pytest.fixture(autouse=True)
def quiet_server() -> Iterator[None]:
    """The server's log does not go where the command's output is captured."""
    structlog.configure(logger_factory=ReturnLoggerFactory(), cache_logger_on_first_use=False)
    yield
    structlog.reset_defaults()
