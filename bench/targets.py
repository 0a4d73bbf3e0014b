"""What the generator says to a system, and how it checks what came back.

A target turns a model's name into request bytes and knows what a whole answer looks like. The generator
counts deltas by their mark and never decodes on the way; whole answers of a sample are checked here once
the measurement is over.
"""

from __future__ import annotations

from typing import Protocol

from bench import proxies
from bench.mock_backend import DELTA_TEXT


class BadAnswerError(Exception):
    """An answer is not what the model said."""


class Target(Protocol):
    """One system under load."""

    method: str

    def request(self, model: str) -> bytes:
        """The serialised request of one run with the behaviour that a model name stands for."""

    def check(self, messages: list[bytes], deltas: int) -> None:
        """Check one whole stream; raises BadAnswerError."""


class ProxyTarget:
    """A bare proxy."""

    method = proxies.METHOD

    def request(self, model: str) -> bytes:
        """The model's name."""
        return model.encode()

    def check(self, messages: list[bytes], deltas: int) -> None:
        """Every delta once, none changed."""
        texts = [text for message in messages for text in proxies.decode(message)]
        if texts != [DELTA_TEXT] * deltas:
            raise BadAnswerError(f"expected {deltas} deltas, got {len(texts)}: {texts[:3]}")


def target(kind: str) -> Target:
    """The target of a kind of system: `proxy` or `entracte`."""
    if kind == "proxy":
        return ProxyTarget()
    from bench.entracte_target import EntracteTarget

    return EntracteTarget()
