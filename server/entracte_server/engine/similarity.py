"""Vectors as they are stored, and which of them are closest to another. Needs numpy."""

import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING

from entracte_server.models.embedding import EmbeddingError, Vector
from entracte_server.store.vectors import StoredVector

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FLOAT = "<f4"


def packed(vectors: Sequence[Vector]) -> list[bytes]:
    """Vectors of length 1 as bytes. Raises `EmbeddingError` for what is no vector or has no direction."""
    import numpy as np

    found = []
    for vector in vectors:
        try:
            array = np.asarray(vector, np.float64)
        except (TypeError, ValueError):
            raise EmbeddingError("what the embedder gave are no vectors") from None
        length = float(np.linalg.norm(array)) if array.ndim == 1 and array.size else 0.0
        if not 0.0 < length < float("inf"):
            raise EmbeddingError("what the embedder gave are no vectors")
        found.append((array / length).astype(FLOAT).tobytes())
    return found


class Closest:
    """Finds those of any number of vectors that are closest to `wanted`, `count` of them."""

    def __init__(self, wanted: bytes, count: int) -> None:
        self._wanted: NDArray[np.float32] = _array([wanted])[0]
        self._size = len(wanted)
        self._count = count
        self._found: list[tuple[float, StoredVector]] = []

    def look_at(self, page: Sequence[StoredVector]) -> None:
        """Some more of them. Those of another length are not of this embedder, whatever its name."""
        import numpy as np

        page = [row for row in page if len(row.data) == self._size]
        if not page:
            return
        likeness = _array([row.data for row in page]) @ self._wanted
        best = range(len(page))
        if len(page) > self._count:
            best = np.argpartition(-likeness, self._count - 1)[: self._count].tolist()
        self._found += [(float(likeness[index]), page[index]) for index in best]
        self._found = heapq.nlargest(self._count, self._found, key=lambda one: one[0])

    @property
    def found(self) -> list[StoredVector]:
        """The closest first."""
        return [row for _, row in self._found]


def _array(rows: Sequence[bytes]) -> "NDArray[np.float32]":
    import numpy as np

    return np.frombuffer(b"".join(rows), FLOAT).reshape(len(rows), -1)
