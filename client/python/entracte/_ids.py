"""Ids made by the SDK."""

from uuid import uuid4


def new_id() -> str:
    """An id for a run or a request that nobody has used: 32 hexadecimal digits."""
    return uuid4().hex
