"""Cursors of lists: where a page ended, sealed for one tenant and one kind of list.

The row ids within count all tenants' rows, so a caller must not be able to read them.
"""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from typing import Literal

Kind = Literal["runs", "pending", "decisions", "threads"]


class Cursors:
    """Makes and reads cursors under a secret of the database."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def seal(self, kind: Kind, tenant: str, seq: int) -> str:
        """The cursor of a page that ended with row `seq`."""
        plain = seq.to_bytes(8, "big")
        tag = self._tag(kind, tenant, plain)
        return urlsafe_b64encode(tag + _xor(plain, self._pad(tag))).decode().rstrip("=")

    def open(self, kind: Kind, tenant: str, cursor: str) -> int | None:
        """The row a page ended with; None for an empty cursor. Raises `ValueError`."""
        if not cursor:
            return None
        try:
            sealed = urlsafe_b64decode(cursor.encode("ascii") + b"==")
        except (binascii.Error, UnicodeEncodeError) as error:
            raise ValueError("not a cursor of this list") from error
        tag, plain = sealed[:8], _xor(sealed[8:], self._pad(sealed[:8]))
        if len(sealed) != 16 or self._tag(kind, tenant, plain) != tag:
            raise ValueError("not a cursor of this list")
        return int.from_bytes(plain, "big")

    def _tag(self, kind: Kind, tenant: str, plain: bytes) -> bytes:
        return blake2b(
            b"\0".join((kind.encode(), plain, tenant.encode())), key=self._key, digest_size=8
        ).digest()

    def _pad(self, tag: bytes) -> bytes:
        return blake2b(tag, key=self._key, digest_size=8, person=b"pad").digest()


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=False))
