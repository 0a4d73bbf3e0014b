"""How a run ends, and what is written then."""

from typing import TYPE_CHECKING

import msgspec
import structlog

from entracte_server.domain import chunks as c
from entracte_server.domain.data import Data
from entracte_server.domain.follow_ups import FollowUpRow
from entracte_server.domain.ids import new_id
from entracte_server.domain.results import RunError
from entracte_server.domain.runs import CallRow, DecisionRow, Outcome, Resolution, RunState
from entracte_server.engine import processed
from entracte_server.engine.follow_up_jobs import follow_ups_of
from entracte_server.engine.processor_calls import ProcessorFailed, Vetoed
from entracte_server.engine.runlog import now_ms

if TYPE_CHECKING:
    from entracte_server.engine.run import RunExecution

_log = structlog.get_logger(__name__)

QUEUED_TOO_LONG = "It waited for its thread longer than it may."
"""The reason for which a queued run is cancelled."""


class Ending(Data, frozen=True):
    """How a run ends."""

    state: RunState
    reason: c.FinishReason
    cause: c.StopCause
    error: RunError | None = None
    step_open: bool = False
    """Whether the last step still has to be finished, although it is not the model that failed."""


async def write(run: "RunExecution", ending: Ending) -> None:
    """Show how the run ends, and end it."""
    if run.steps and run.steps[-1].held:  # what did not pass is dropped
        run.remember(processed.withheld(run.steps[-1]))
    if ending.error is not None:
        run.log.emit(c.Error(ending.error))
        if ending.step_open or (run.steps and run.steps[-1].reason == "error"):
            run.finish_step(run.steps[-1], continued=False)
    if ending.reason == "aborted":
        run.log.emit(c.Abort(run.cancel_reason or ""))
    run.log.emit(c.Finish(ending.reason, ending.cause, run.total()))
    if run.memory is not None:
        run.memory.keep_all(ending.error)
    succeeded = ending.state == "succeeded" and ending.reason != "tripwire"
    untitled = run.memory is not None and run.memory.untitled
    # What a sub-agent says is no result of a run that somebody asked for.
    jobs: tuple[FollowUpRow, ...] = ()
    if not run.own_id:
        jobs = follow_ups_of(
            run.agent, run.spec.options, *run.log.key, succeeded=succeeded, untitled=untitled
        )
    await run.log.end(ending.state, ending.reason, ending.cause, run.executed_ms(), ending.error, jobs)
    run.has_follow_ups = bool(jobs)
    run.segment.rested(ending.state, ending.reason, ending.cause, ending.error)


def failed(run: "RunExecution", error: RunError) -> Ending:
    """The models failed."""
    run.asking.keep_partial("error")
    return Ending("failed", "error", "error", error)


def without_object(error: RunError) -> Ending:
    """The answer is no object that fits the schema."""
    return Ending("failed", "error", "error", error, step_open=True)


def tripped(run: "RunExecution", veto: Vetoed) -> Ending:
    """A processor stopped it."""
    record = run.steps[-1] if run.steps else None
    if record is None or record.step != run.step or record.again:
        record = run.asking.keep_vetoed(veto.tripwire)
    else:
        if record.held:  # else the answer itself has passed, and what came of it did not
            record = processed.withheld(record)
        record = msgspec.structs.replace(record, tripwire=veto.tripwire, reason="tripwire")
        run.remember(record)
    drop_calls(run, "A processor stopped the run before the call was settled.")
    run.log.emit(c.Tripwire(veto.tripwire))
    run.finish_step(record, continued=False)
    return Ending("succeeded", "tripwire", "tripwire")


def unprocessed(run: "RunExecution", failure: ProcessorFailed) -> Ending:
    """A processor of it failed."""
    record = run.steps[-1] if run.steps else None
    if record is None or record.step != run.step or record.again:
        run.asking.keep_partial("error", begun=False)
    else:
        run.remember(msgspec.structs.replace(record, reason="error"))
    drop_calls(run, "The run failed before the call was settled.")
    return Ending("failed", "error", "error", RunError("processor", str(failure)))


def cancelled(run: "RunExecution") -> Ending:
    """Somebody cancelled it, or it waited for too long."""
    if run.cancel_reason == QUEUED_TOO_LONG and not run.row.attempt:
        error = RunError("queue_timeout", "The thread was not free in time.", retryable=True)
        return Ending("failed", "error", "timeout", error)
    run.asking.keep_partial("aborted")
    drop_calls(run, "The run was cancelled before the call was settled.")
    return Ending("cancelled", "aborted", "cancelled")


def timed_out(run: "RunExecution", limit: float | None) -> Ending:
    """It executed for too long."""
    run.asking.keep_partial("error")
    drop_calls(run, "The run's time was over before the call was settled.")
    error = RunError("timeout", f"The run executed for longer than {limit:g} s.", retryable=True)
    return Ending("failed", "error", "timeout", error)


def expired(run: "RunExecution", call: CallRow) -> Ending:
    """Nobody decided a call whose expiry fails the run."""
    drop_calls(run, "The run failed before the call was settled: nobody decided another in time.")
    message = call.outcome.value if call.outcome is not None else ""
    return Ending("failed", "error", "error", RunError("expired", message))


def given_up_on(run: "RunExecution") -> Ending:
    """It killed one process after the other, or failed in them."""
    drop_calls(run, "The run was given up before the call was settled.")
    error = RunError(
        "recovery_exhausted",
        "Executing the run failed again and again, or the process did, without getting it any further.",
    )
    return Ending("failed", "error", "error", error)


def broken(run: "RunExecution") -> Ending:
    """The server failed."""
    _log.exception("run_failed", run_id=run.log.key[1])
    run.asking.keep_partial("error")
    drop_calls(run, "The run failed before the call was settled.")
    return Ending("failed", "error", "error", RunError("internal", "The server failed."))


def drop_calls(run: "RunExecution", message: str) -> None:
    """Every call gets a result, so that the history stays valid; every pending call is closed. Runs of
    sub-agents that have not ended end."""
    now = now_ms()
    for call in list(run.calls.values()):
        if call.state != "done":
            if call.child_run_id:
                run.family.enter(run, call).drop(message)
                call = run.family.leave(run, call)
            run.update(
                msgspec.structs.replace(
                    run.shown(call), state="done", outcome=Outcome("cancelled", message, "cancelled")
                )
            )
    run.log.stage(
        closed=[
            DecisionRow(
                tenant=row.tenant,
                decision_id=new_id(),
                pending_call_id=row.pending_call_id,
                run_id=row.run_id,
                call_id=row.call_id,
                tool_name=row.tool_name,
                verb="cancel",
                principal="system",
                decide_time=now,
                args=row.args,
                reason=message,
                sequence=run.log.last_sequence,
            )
            for row in run.pending.values()
        ]
    )
    for row in run.pending.values():
        dropped = Resolution(
            row.pending_call_id, "", "cancel", "system", kind=row.kind, opened=row.create_time, decided=now
        )
        run.segment.decided(row.call_id, row.tool_name, dropped)
    run.pending.clear()
