"""Identifiers: ULIDs, which sort by time and carry 80 random bits."""

from ulid import ULID


def new_id() -> str:
    """A fresh ULID: 26 characters, sorted by time to the millisecond."""
    return str(ULID())
