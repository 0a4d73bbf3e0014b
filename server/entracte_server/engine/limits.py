"""How many runs a process executes before it refuses to start more.

What counts are the runs that execute here: parked ones cost nothing, and those of other processes are
theirs. Only a new run is ever refused. One that goes on because somebody decided, or that was taken
over, goes on: so there may be more than the limit for a while, and then no new ones start.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from entracte_server.domain.errors import Refusal
from entracte_server.domain.runs import RunRow

RETRY_AFTER = 1.0
"""Seconds after which it is worth trying again."""


class RunLimits:
    """Counts the runs that execute, all of them and those of each principal who started them."""

    def __init__(self, runs: int, per_principal: int) -> None:
        self._runs = runs
        self._per_principal = per_principal
        self._total = 0
        self._of: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def starting(self, tenant: str, principal: str) -> Iterator[None]:
        """Room for a run that is about to start. Raises `Refusal` TOO_MANY_RUNS."""
        who = (tenant, principal)
        if self._total >= self._runs:
            raise _refusal(f"This server executes {self._runs} runs already.", self._runs, "server")
        if self._of[who] >= self._per_principal:
            raise _refusal(
                f"{self._per_principal} runs of this principal execute on this server already.",
                self._per_principal,
                "principal",
            )
        self._add(who)
        try:
            yield
        finally:
            self._take(who)

    def enter(self, run: RunRow) -> None:
        """A run begins to execute, however many there are."""
        self._add((run.tenant, run.principal))

    def leave(self, run: RunRow) -> None:
        """A run does not execute any more."""
        self._take((run.tenant, run.principal))

    def _add(self, who: tuple[str, str]) -> None:
        self._total += 1
        self._of[who] += 1

    def _take(self, who: tuple[str, str]) -> None:
        self._total -= 1
        self._of[who] -= 1
        if not self._of[who]:
            del self._of[who]


def _refusal(message: str, limit: int, scope: str) -> Refusal:
    return Refusal("TOO_MANY_RUNS", message, retry_after=RETRY_AFTER, limit=str(limit), scope=scope)
