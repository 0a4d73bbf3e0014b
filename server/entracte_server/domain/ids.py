"""Identifiers: ULIDs, which sort by time and carry 80 random bits."""

import os
import time

from ulid import ULID


def new_id() -> str:
    """A fresh ULID: 26 characters, sorted by time to the millisecond.

    All of its 80 bits are random. `ULID()` would count up within a millisecond, so that who knows one
    id knows the next.
    """
    return str(ULID.from_bytes((time.time_ns() // 1_000_000).to_bytes(6, "big") + os.urandom(10)))
