"""Values to the wire and back.

Bytes and arrays go out in PostgreSQL's binary format, everything else as text; everything comes back
in the binary format. A text column cannot hold the character NUL, which ids and texts may contain: it
is written as U+0001 and `0`, and U+0001 itself as U+0001 and `1`.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any

Value = None | bool | int | str | bytes | Sequence[int] | Sequence[str] | Sequence[bytes]

_BOOL, _BYTEA, _INT8, _INT2, _INT4, _TEXT, _VOID = 16, 17, 20, 21, 23, 25, 2278
"""Object ids of types, the same in every server."""

_ARRAY = struct.Struct(">iiIii")
_SIZE = struct.Struct(">i")
_EIGHT = struct.Struct(">q")

TEXT_FORMAT, BINARY_FORMAT = 0, 1


def encode(value: Value) -> tuple[bytes | None, int]:
    """A parameter's bytes and their format. Raises `UnicodeEncodeError`, `TypeError`."""
    if type(value) is str:
        return _encode_text(value), TEXT_FORMAT
    if type(value) is int:
        return b"%d" % value, TEXT_FORMAT
    if type(value) is bytes:
        return value, BINARY_FORMAT
    if value is None:
        return None, TEXT_FORMAT
    if isinstance(value, bool):
        return (b"t" if value else b"f"), TEXT_FORMAT
    if isinstance(value, str):
        return _encode_text(value), TEXT_FORMAT
    if isinstance(value, (list, tuple)):
        # In the binary format an array names its element type, which an empty one does not know.
        return (_encode_array(value), BINARY_FORMAT) if value else (b"{}", TEXT_FORMAT)
    raise TypeError(f"no parameter: {type(value).__name__}")


def _encode_text(text: str) -> bytes:
    data = text.encode()
    if b"\0" in data or b"\1" in data:
        data = data.replace(b"\1", b"\1" + b"1").replace(b"\0", b"\1" + b"0")
    return data


def _encode_array(items: Sequence[Any]) -> bytes:
    """An array of one dimension."""
    kind = type(items[0])
    encoded: Sequence[bytes]
    if kind is int:
        oid, encoded = _INT8, [_EIGHT.pack(item) for item in items]
    elif kind is str:
        oid, encoded = _TEXT, [_encode_text(item) for item in items]
    elif kind is bytes:
        oid, encoded = _BYTEA, items
    else:
        raise TypeError(f"no array of {kind.__name__}")
    parts = [_ARRAY.pack(1, 0, oid, len(encoded), 1)]
    for data in encoded:
        parts.append(_SIZE.pack(len(data)))
        parts.append(data)
    return b"".join(parts)


def _decode_text(data: bytes) -> str:
    if b"\1" in data:
        data = data.replace(b"\1" + b"0", b"\0").replace(b"\1" + b"1", b"\1")
    return data.decode()


def _decode_int(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def _decode_bool(data: bytes) -> bool:
    return data != b"\0"


def _decode_bytes(data: bytes) -> bytes:
    return data


def _decode_nothing(data: bytes) -> None:
    return None


_DECODERS: dict[int, Callable[[bytes], Any]] = {
    _BOOL: _decode_bool,
    _BYTEA: _decode_bytes,
    _INT8: _decode_int,
    _INT2: _decode_int,
    _INT4: _decode_int,
    _TEXT: _decode_text,
    _VOID: _decode_nothing,
}


def decoder(oid: int) -> Callable[[bytes], Any]:
    """How a column of this type is read. Raises `LookupError` for a type the store does not use."""
    return _DECODERS[oid]
