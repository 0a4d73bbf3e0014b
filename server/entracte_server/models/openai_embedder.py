"""An embedder behind an OpenAI-style interface."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from entracte_server.models.embedding import EmbeddingError, Vector
from entracte_server.models.openai_model import load_openai
from entracte_server.models.provider_errors import clean
from entracte_server.models.providers import MissingApiKey, ProviderSettings

if TYPE_CHECKING:
    from entracte_server.models.provider_client import ProviderClient

MAX_ERROR = 300
"""Bytes of an error's message."""


class OpenAIEmbedder:
    """One embedding model of one provider. `client` gives the provider's client; it is asked for at each
    call, so that the `openai` package is imported at the first.

    A call is tried again as the provider's `max_retries` says. A provider may be silent for its
    `idle_timeout` at most.
    """

    def __init__(
        self, model: str, provider: ProviderSettings, client: "Callable[[], ProviderClient]"
    ) -> None:
        self._model = model
        self._provider = provider
        self._client = client

    @property
    def name(self) -> str:
        """`provider/model`."""
        return f"{self._provider.name}/{self._model}"

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """See `Embedder.embed`."""
        await load_openai()
        import openai

        try:
            client = self._client()
        except MissingApiKey as error:
            raise EmbeddingError(str(error)) from None
        try:
            vectors = await client.embeddings(self._model, texts)
        # The package takes an answer apart without looking at it first.
        except (openai.OpenAIError, ValueError, TypeError, AttributeError) as error:
            said = clean(str(error), MAX_ERROR, (client.key,))
            raise EmbeddingError(f"{self.name}: {said}") from None
        if len(vectors) != len(texts):
            raise EmbeddingError(f"{self.name} gave {len(vectors)} vectors for {len(texts)} texts")
        if not all(map(_is_vector, vectors)) or len(set(map(len, vectors))) != 1:
            raise EmbeddingError(f"{self.name} gave what are no vectors")
        return vectors


def _is_vector(given: object) -> bool:
    return (
        isinstance(given, list)
        and bool(given)
        and all(isinstance(value, (int, float)) and math.isfinite(value) for value in given)
    )
