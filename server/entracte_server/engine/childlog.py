"""The log of a sub-agent's run: a part of its root's. Its chunks are the root's, with a path; its calls, and
what waits, are the root's, too. Of its own are where it stands, its steps and what its processors keep.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from entracte_server.domain.chunks import AgentPath, FinishReason, Payload, StopCause
from entracte_server.domain.follow_ups import FollowUpRow
from entracte_server.domain.results import RunError
from entracte_server.domain.runs import (
    CallRow,
    DecisionRow,
    PendingRow,
    Processing,
    Remembered,
    RunRow,
    RunSpec,
    RunState,
    StepRecord,
)
from entracte_server.domain.threads import ThreadMessage, ThreadRow
from entracte_server.domain.work import CloseWork, NewWork
from entracte_server.engine.runlog import RunLog, patched
from entracte_server.store.base import ChildWrite, RunPatch, Standing
from entracte_server.wire.codec import ChunkEncoder


class ChildLog:
    """See the module. What it is told is written with the root's next write."""

    def __init__(self, root: RunLog, row: RunRow, path: AgentPath) -> None:
        self.root = root
        self._path = path
        self._run_id = row.run_id
        self.key = root.key
        self.encoder = ChunkEncoder(root.key[1], row.step, max(1, row.attempt), path)

    def begin(self, step: int, attempt: int) -> None:
        """See `RunLog`."""
        self.encoder = ChunkEncoder(self.root.key[1], step, attempt, self._path)

    def create(self, row: RunRow, spec: RunSpec, thread: ThreadRow | None, start: Payload) -> None:
        """The run begins, with its first chunk; and its thread, where it is to have one."""
        self.root.stage_child(self._run_id, lambda write: replace(write, run=row, spec=spec, thread=thread))
        self.root.append(ChunkEncoder(self.root.key[1], 0, 0, self._path), (start,))

    def stand(
        self,
        state: RunState,
        finish_reason: FinishReason | None = None,
        stop_cause: StopCause | None = None,
        error: RunError | None = None,
    ) -> None:
        """Where the run stands from now on."""
        standing = Standing(state, finish_reason, stop_cause, error)
        self.root.stage_child(self._run_id, lambda write: replace(write, standing=standing))

    async def end(
        self,
        state: RunState,
        finish_reason: FinishReason,
        stop_cause: StopCause,
        executed_ms: int,
        error: RunError | None = None,
        follow_ups: tuple[FollowUpRow, ...] = (),
    ) -> None:
        """The run has ended, once the root's next write is done."""
        self.stand(state, finish_reason, stop_cause, error)

    @property
    def fence(self) -> int:
        """See `RunLog`."""
        return self.root.fence

    @property
    def freed(self) -> bool:
        """See `RunLog`."""
        return self.root.freed

    @property
    def owner(self) -> str:
        """See `RunLog`."""
        return self.root.owner

    def abandon(self) -> None:
        """See `RunLog`."""
        self.root.abandon()

    @property
    def last_sequence(self) -> int:
        """See `RunLog`."""
        return self.root.last_sequence

    @property
    def unwritten(self) -> int:
        """See `RunLog`."""
        return self.root.unwritten

    @property
    def failed(self) -> bool:
        """See `RunLog`."""
        return self.root.failed

    def emit(self, *payloads: Payload) -> None:
        """See `RunLog`."""
        self.root.append(self.encoder, payloads)

    def extend(self, payloads: Sequence[Payload] | Iterable[Payload]) -> None:
        """See `RunLog`."""
        self.root.append(self.encoder, payloads)

    def stage(
        self,
        *,
        patch: RunPatch | None = None,
        steps: Iterable[StepRecord] = (),
        calls: Iterable[CallRow] = (),
        opened: Iterable[PendingRow] = (),
        closed: Iterable[DecisionRow] = (),
        processing: Processing | None = None,
        messages: Iterable[ThreadMessage] = (),
        remembered: Remembered | None = None,
        work: Iterable[NewWork] = (),
        closed_work: Iterable[CloseWork] = (),
        taken_output: Iterable[tuple[str, int]] = (),
    ) -> None:
        """See `RunLog`."""
        self.root.stage(
            calls=calls,
            opened=opened,
            closed=closed,
            work=work,
            closed_work=closed_work,
            taken_output=taken_output,
        )
        added, said = tuple(steps), tuple(messages)
        if patch is None and not added and processing is None and not said and remembered is None:
            return

        def change(write: ChildWrite) -> ChildWrite:
            return replace(
                write,
                patch=write.patch if patch is None else patched(write.patch, patch),
                steps=write.steps + added,
                processing=processing or write.processing,
                messages=write.messages + said,
                remembered=remembered or write.remembered,
            )

        self.root.stage_child(self._run_id, change)

    def flush(self) -> None:
        """See `RunLog`."""
        self.root.flush()

    async def room(self) -> None:
        """See `RunLog`."""
        await self.root.room()

    async def commit(self) -> None:
        """See `RunLog`."""
        await self.root.commit()

    def check(self) -> None:
        """See `RunLog`."""
        self.root.check()


Log = RunLog | ChildLog
"""What a run writes to."""


def root_log(log: Log) -> RunLog:
    """The log that `log` is a part of."""
    return log if isinstance(log, RunLog) else log.root
