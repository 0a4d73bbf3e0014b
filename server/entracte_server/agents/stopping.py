"""What ends a run, as agents are given it: conditions after a step, checks of completion, prices."""

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

from entracte_server.agents.hooks import Hook
from entracte_server.agents.scorers import Scorer
from entracte_server.domain.data import Data
from entracte_server.domain.options import StopCondition, TaskCompletion
from entracte_server.domain.results import Usage

MAX_CHECK_SECONDS = 86400.0


class Price(Data, frozen=True):
    """What a model costs, in units of the account's currency for a million tokens: what it reads, what it
    writes, and what it reads from its cache (None: as what it reads). Raises `ValueError` for what is no
    price."""

    input: float
    output: float
    cached_input: float | None = None

    def __post_init__(self) -> None:
        for price in (self.input, self.output, self.cached_input or 0):
            if not 0 <= price < math.inf:  # with NaN no limit would ever hold
                raise ValueError(f"a price is a number of at least 0, not {price!r}")

    def micros(self, usage: Usage) -> float:
        """What `usage` costs, in millionths of the currency."""
        cached = self.input if self.cached_input is None else self.cached_input
        return (
            (usage.input - usage.cached_input) * self.input
            + usage.cached_input * cached
            + usage.output * self.output
        )


class StopWhen(Data, frozen=True):
    """A condition that ends a run after a step; give exactly one of the fields.

    `step_count` steps were made; a tool named `tool_called` was called in the step; `total_tokens` were
    used; `cost_micros` millionths of the currency were spent (the app needs `prices`); the step's text
    contains `text_contains`; a `stop_when` hook, or the one of this name, says so.
    """

    step_count: int | None = None
    tool_called: str | None = None
    total_tokens: int | None = None
    cost_micros: int | None = None
    text_contains: str | None = None
    predicate: Hook | str | None = None

    def condition(self) -> StopCondition:
        """As it is stored. Raises `ValueError`."""
        given = [name for name in self.__struct_fields__ if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"a condition has exactly one of {', '.join(self.__struct_fields__)}")
        value = getattr(self, given[0])
        if given[0] == "predicate":
            return StopCondition("predicate", text=value if isinstance(value, str) else value.name)
        kind: Literal["steps", "tokens", "cost", "tool", "text"]
        match given[0]:
            case "step_count":
                kind = "steps"
            case "total_tokens":
                kind = "tokens"
            case "cost_micros":
                kind = "cost"
            case "tool_called":
                kind = "tool"
            case _:
                kind = "text"
        if isinstance(value, str):
            if not value:
                raise ValueError(f"{given[0]} must not be empty")
            return StopCondition(kind, text=value)
        if value < 1:
            raise ValueError(f"{given[0]} must be at least 1")
        return StopCondition(kind, number=value)


class TaskCheck(Data, frozen=True):
    """Checks made when the model wants to stop: a score of 1 passes.

    `scorers` are scorers or names of those of the app; `strategy`: `all` must pass, or `any` is enough;
    `parallel`: at the same time, or one after the other; `timeout` bounds all of them, in seconds;
    `suppress_feedback`: the model is told nothing of a failed check; `on_complete`: a `check_complete`
    hook, or the name of one, that is shown every score.
    """

    scorers: Sequence[Scorer | str]
    strategy: Literal["all", "any"] = "all"
    parallel: bool = True
    timeout: float | timedelta = 600.0
    suppress_feedback: bool = False
    on_complete: Hook | str | None = None

    def completion(self) -> TaskCompletion:
        """As it is stored. Raises `ValueError`."""
        if not self.scorers:
            raise ValueError("a task check needs scorers")
        if self.strategy not in ("all", "any"):
            raise ValueError(f"a strategy is 'all' or 'any', not {self.strategy!r}")
        seconds = self.timeout.total_seconds() if isinstance(self.timeout, timedelta) else self.timeout
        if not 0 < seconds <= MAX_CHECK_SECONDS:
            raise ValueError(f"timeout must be over 0 and at most {MAX_CHECK_SECONDS:g} s")
        observer = self.on_complete
        return TaskCompletion(
            scorers=tuple(item if isinstance(item, str) else item.name for item in self.scorers),
            strategy=self.strategy,
            parallel=self.parallel,
            timeout=seconds,
            suppress_feedback=self.suppress_feedback,
            on_complete=observer if isinstance(observer, str) else observer.name if observer else "",
        )
