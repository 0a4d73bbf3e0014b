"""What the engine tells of runs. These classes record nothing: they are what a server without telemetry
has, and the interface of those that record."""

import contextlib
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self, TypeVar

from entracte_server.agents.agent import Agent
from entracte_server.agents.context import ToolContext
from entracte_server.agents.tools import Arguments, Tool
from entracte_server.domain.chunks import FinishReason, StopCause
from entracte_server.domain.results import RunError
from entracte_server.domain.runs import PendingRow, Resolution, RunState, Snapshot, StepRecord
from entracte_server.domain.tracing import Trace
from entracte_server.models.base import Model

T = TypeVar("T")


class Segment:
    """A run in this process: from its start, its resumption or its recovery until it parks, ends, or is
    given up. Entered once, in the task that executes the run. `trace` is where the run stands in traces,
    None where it is not traced."""

    trace: Trace | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The run is executed here no more."""

    def opened(self, pending: PendingRow) -> None:
        """A call waits."""

    def decided(self, call_id: str, tool_name: str, resolution: Resolution) -> None:
        """A waiting call was decided."""

    def step_ended(self, record: StepRecord) -> None:
        """A step is over."""

    def rested(
        self, state: RunState, reason: FinishReason, cause: StopCause, error: RunError | None = None
    ) -> None:
        """The run has parked or ended, and this is stored."""


class ToolExecution:
    """The body of a tool while it executes, as a context."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The body was left."""

    def came_to(self, outcome: T) -> T:
        """What came of it, given back: an `Outcome`, or anything else where the tool suspended."""
        return outcome


class Scoring:
    """A scorer while it works, as a context."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """It is done."""

    def came_to(self, score: float | None, reason: str, error: str) -> None:
        """What came of it: a score with its reason, or an error."""


_SEGMENT = Segment()
_TOOL = ToolExecution()
_SCORING = Scoring()
_NOTHING_NEW = contextlib.nullcontext()


class Telemetry:
    """What a process records. `reads_callers`: whether `caller` is to be called for each RPC,
    `reads_backlog`: whether `backlog` is to be called now and then."""

    reads_callers = False
    reads_backlog = False

    def caller(self, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        """Who makes the RPC that this task handles, from its metadata."""

    def backlog(self, waiting: Mapping[str, tuple[int, int]] | None) -> None:
        """How many calls wait, by the name of the agent, and since when the oldest does (ms); None: another
        process tells."""

    def begin(self, snapshot: Snapshot, agent: Agent) -> Segment:
        """The first segment of a run that is about to be stored."""
        return _SEGMENT

    def resume(self, snapshot: Snapshot, agent: Agent) -> Segment:
        """Another segment of a stored run."""
        return _SEGMENT

    def model(self, model: Model, *, content: bool = True) -> Model:
        """The model to ask in place of `model`. Without `content` nothing of what is said is recorded."""
        return model

    def tool(self, tool: Tool, arguments: Arguments, context: ToolContext[Any]) -> ToolExecution:
        """The body of a tool is about to be entered."""
        return _TOOL

    def scorer(self, name: str) -> Scoring:
        """A scorer is about to be asked."""
        return _SCORING

    def below(self, snapshot: Snapshot, agent: Agent) -> AbstractContextManager[None]:
        """The run of a sub-agent while it executes, in the task that enters this, which is one of the run
        that delegated."""
        return _NOTHING_NEW

    def afterwards(self, snapshot: Snapshot, agent: Agent | None) -> AbstractContextManager[None]:
        """What is done for a run after its end, in the task that enters this."""
        return _NOTHING_NEW

    def make_global(self) -> None:
        """What authors record by themselves, with the library that is used here, goes the same way."""

    async def close(self) -> None:
        """Send what was recorded and not sent yet, within a bound."""


NOTHING = Telemetry()
"""Records nothing."""
