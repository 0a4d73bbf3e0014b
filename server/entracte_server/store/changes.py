"""What is changed of a run's row, and of the runs of its sub-agents; see `RunWrite`."""

from entracte_server.domain.chunks import FinishReason, StopCause
from entracte_server.domain.data import Data
from entracte_server.domain.results import RunError, Usage
from entracte_server.domain.runs import Processing, Remembered, RunRow, RunSpec, RunState, StepRecord
from entracte_server.domain.threads import ThreadMessage, ThreadRow


class RunPatch(Data, frozen=True):
    """New values of a run's row; None leaves a value as it is."""

    step: int | None = None
    attempt: int | None = None
    usage: Usage | None = None


class Standing(Data, frozen=True):
    """Where a sub-agent's run stands from now on. An ended one gets its finish time."""

    state: RunState
    finish_reason: FinishReason | None = None
    stop_cause: StopCause | None = None
    error: RunError | None = None


class ChildWrite(Data, frozen=True):
    """What the owner of a root run writes of a sub-agent's run, under the root's fence. `run` and `spec`
    create it, unless it is there, and `thread` the thread it names, as one that goes with the thread that the
    root has; the rest is as in `RunWrite`. Its calls are the root's. While the root has no thread, what is
    said to that of a sub-agent is dropped."""

    run_id: str
    run: RunRow | None = None
    spec: RunSpec | None = None
    patch: RunPatch | None = None
    standing: Standing | None = None
    steps: tuple[StepRecord, ...] = ()
    processing: Processing | None = None
    thread: ThreadRow | None = None
    messages: tuple[ThreadMessage, ...] = ()
    remembered: Remembered | None = None
