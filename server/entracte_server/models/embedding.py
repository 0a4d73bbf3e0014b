"""What an embedder is: texts go in, and vectors come out, close together where texts mean the same."""

from collections.abc import Sequence
from typing import Protocol

Vector = Sequence[float]


class EmbeddingError(Exception):
    """There are no vectors. The message is for people who run the server: short, without secrets."""


class Embedder(Protocol):
    """Makes vectors of texts.

    `embed` gives one vector for each text, in their order, all of the same length; what they are compared
    by is the angle between them. It may be called many times at once, is never given an empty list or an
    empty text, and raises `EmbeddingError` when it fails. It must not hold up the event loop.
    """

    @property
    def name(self) -> str:
        """Says which vectors can be compared: those that were made under the same name. It is stored with
        each of them, so another model, or other settings of one, need another name."""
        ...

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """The vectors of some texts."""
        ...
