"""Times that no clock can count are refused by name, before anything starts."""

import pytest
from pydantic import ValidationError

from entracte_server.app.settings import Settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lease", "inf"),
        ("lease", "1e30"),
        ("lease", "0.01"),
        ("lease", "nan"),
        ("grace", "1e30"),
        ("worker_hang_timeout", "inf"),
        ("worker_start_timeout", "1e30"),
        ("disconnect_grace", "inf"),
        ("keep_alive", "inf"),
        ("reader_timeout", "1e300"),
        ("connection_age", "0.0001"),
        ("connection_age", "2592000"),
        ("connection_age_grace", "1e12"),
        ("retain_runs", "99999999999999d"),
    ],
)
def test_times_that_cannot_be_kept_are_refused(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as those that gRPC, SQLite or the system would overflow with later."""
    monkeypatch.setenv(f"ENTRACTE_{name.upper()}", value)
    with pytest.raises(ValidationError) as refused:
        Settings()
    assert [error["loc"][0] for error in refused.value.errors()] == [name]


def test_the_longest_times_are_taken() -> None:
    """Three weeks for a connection, a century for the rest."""
    century = 36_500.0 * 86400
    values = Settings(connection_age=21 * 86400.0, lease=century, grace=0, worker_hang_timeout=0)
    assert (values.lease, values.grace) == (century, 0)
