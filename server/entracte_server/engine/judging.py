"""What follows a step: whether the run ends with it, and what the model is told if it goes on."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from entracte_server.agents.hooks import (
    CheckInfo,
    Iteration,
    IterationInfo,
    StopInfo,
)
from entracte_server.domain import chunks as c
from entracte_server.domain.options import StopCondition
from entracte_server.domain.results import RunError
from entracte_server.domain.runs import CheckRecord, Feedback, StepRecord
from entracte_server.engine import checking, prompt
from entracte_server.engine.endings import Ending
from entracte_server.engine.hooking import HookFailed
from entracte_server.engine.questions import step_text
from entracte_server.engine.scoring import scorer_input, tool_use
from entracte_server.engine.views import run_view, step_views

if TYPE_CHECKING:
    from entracte_server.engine.run import RunExecution

Budget: TypeAlias = "tuple[RunExecution, StopCondition]"
"""A limit of tokens or cost, and the run that has it."""

UNCHECKED = frozenset({"length", "content-filter", "error"})
"""Reasons with which an answer ends that the model did not choose to end."""


class Judging:
    """Judges the steps of one run."""

    def __init__(self, run: "RunExecution") -> None:
        options, agent, app = run.spec.options, run.agent, run.services.app
        self._run = run
        self._max_steps = options.max_steps or agent.max_steps
        self._conditions = options.stop_when or agent.stop_when
        self.budgets_above: Sequence[Budget] = run.budgets_above
        self._completion = options.is_task_complete or agent.is_task_complete
        name = options.on_iteration_complete or agent.on_iteration_complete
        self._hook = app.hooks[name] if name else None
        self._observer = None
        if self._completion is not None and self._completion.on_complete:
            self._observer = app.hooks[self._completion.on_complete]
        self._faulty_steps = 0

    @property
    def budgets(self) -> Sequence[Budget]:
        """The limits of tokens and cost that hold for what the run delegates, too."""
        own = [(self._run, item) for item in self._conditions if item.kind in ("tokens", "cost")]
        return [*self.budgets_above, *own]

    def settled(self, *, faulty: bool) -> None:
        """The calls of a step were settled; `faulty`: none of them could be used."""
        self._faulty_steps = self._faulty_steps + 1 if faulty else 0

    async def judge(self, record: StepRecord) -> tuple[StepRecord, Ending | None]:
        """The step as it is to be remembered, and how the run ends with it, if it does. Shows what the
        checks said. Cut when the run is to be handed over."""
        run = self._run
        if self._faulty_steps >= run.services.settings.max_faulty_steps:
            error = RunError(
                "tool_limit", f"The model made no usable tool call in {self._faulty_steps} steps in a row."
            )
            return record, Ending("failed", "error", "error", error)
        if any(call.bail and call.step == record.step for call in run.calls.values()):
            return record, Ending("succeeded", "tool-calls", "bail")
        try:
            if not (self._conditions or self._completion or self._hook or self.budgets_above):
                return record, self._plain(record)
            async with run.until_leaving():
                return await self._judged(record)
        except HookFailed as failure:
            return record, Ending("failed", "error", "error", RunError("hook", str(failure)))

    def _plain(self, record: StepRecord) -> Ending | None:
        if self._would_stop(record):
            return Ending("succeeded", record.reason, "model-finished")
        if self._run.step >= self._run.max_steps:
            return Ending("succeeded", "tool-calls", "max-steps")
        return None

    async def _judged(self, record: StepRecord) -> tuple[StepRecord, Ending | None]:
        stops = self._would_stop(record)
        if stops and self._completion is not None and record.reason not in UNCHECKED and record.check is None:
            record = await self._checked(record)
        check = record.check
        limit = await self._limit(record)
        incomplete = check is not None and check.verdict == "failed"
        said = await self._iteration(record, is_final=bool(limit) or (stops and not incomplete))
        ending: Ending | None = None
        reason = record.reason if stops else "tool-calls"
        if check is not None and check.verdict == "unavailable":
            ending = Ending("succeeded", reason, "check-unavailable")
        elif said.go_on is False:
            ending = Ending("succeeded", reason, "hook")
        elif stops and not incomplete and not said.go_on:
            ending = Ending("succeeded", reason, "model-finished")
        elif limit is not None:
            ending = Ending("succeeded", reason, "task-incomplete" if incomplete else limit)
        if check is not None:
            self._show(record, check, ends=ending is not None)
        if ending is None:
            record = self._with_feedback(record, incomplete, said.feedback)
        return record, ending

    def _would_stop(self, record: StepRecord) -> bool:
        calls = self._run.calls_of(record.step)
        return not record.requested_tools or all(call.provider_executed for call in calls)

    def _with_feedback(self, record: StepRecord, incomplete: bool, said: str) -> StepRecord:
        feedback = []
        if incomplete and self._completion is not None and not self._completion.suppress_feedback:
            assert record.check is not None
            feedback.append(Feedback("completion-check", checking.feedback_of(record.check)))
        if said:
            feedback.append(Feedback("iteration", said))
        if not feedback and not incomplete:
            return record
        record = msgspec.structs.replace(record, feedback=tuple(feedback), is_draft=incomplete)
        self._run.remember(record)
        return record

    # ---- completion ----

    async def _checked(self, record: StepRecord) -> StepRecord:
        run, options = self._run, self._completion
        assert options is not None
        done = [step for step in run.steps if not step.is_draft]
        given = scorer_input(run.row, run.spec, done, run.calls.values())
        given = msgspec.structs.replace(given, text=step_text(record), step=record.step)
        scorers = [run.services.app.scorers[name] for name in options.scorers]
        verdict = await checking.check(run.services.scorers, scorers, given, options)
        record = msgspec.structs.replace(record, check=verdict)
        run.remember(record)
        if self._observer is not None:
            info = CheckInfo(run_view(run), record.step, verdict.verdict, verdict.results, verdict.timed_out)
            await run.services.hooks.call(self._observer, info)
        return record

    def _show(self, record: StepRecord, check: CheckRecord, *, ends: bool) -> None:
        options = self._completion
        # What a check says may quote the answer.
        self._run.show(
            c.IsTaskComplete(
                iteration=record.step,
                passed=check.verdict == "passed",
                results=check.results,
                timed_out=check.timed_out,
                reason="" if check.verdict != "unavailable" else "A check could not be made.",
                max_iteration_reached=self._max_steps is not None and record.step >= self._max_steps,
                suppress_feedback=options is not None and options.suppress_feedback,
                ends_run=ends,
            )
        )

    # ---- limits ----

    async def _limit(self, record: StepRecord) -> c.StopCause | None:
        """What keeps the run from another step."""
        run = self._run
        if run.step >= run.max_steps:
            return "max-steps"
        for above, condition in self.budgets_above:
            spent = above.total().total if condition.kind == "tokens" else above.cost()
            if spent >= condition.number:
                return "stop-when"
        for condition in self._conditions:
            match condition.kind:
                case "steps":
                    holds = run.step >= condition.number
                case "tokens":
                    holds = run.total().total >= condition.number
                case "cost":
                    holds = run.cost() >= condition.number
                case "tool":
                    holds = any(call.tool_name == condition.text for call in run.calls_of(record.step))
                case "text":
                    holds = condition.text in step_text(record)
                case "predicate":
                    holds = await self._predicate(condition.text)
            if holds:
                return "stop-when"
        return None

    async def _predicate(self, name: str) -> bool:
        run = self._run
        info = StopInfo(run_view(run), step_views(run), run.total())
        answer: Any = await run.services.hooks.call(run.services.app.hooks[name], info, bool)
        return bool(answer)

    # ---- iterations ----

    async def _iteration(self, record: StepRecord, *, is_final: bool) -> Iteration:
        run = self._run
        if self._hook is None:
            return Iteration()
        info = IterationInfo(
            run=run_view(run),
            iteration=record.step,
            max_iterations=self._max_steps,
            text=step_text(record),
            tool_uses=tuple(tool_use(call) for call in run.calls_of(record.step)),
            finish_reason=record.reason,
            is_final=is_final,
            messages=tuple(prompt.conversation(run.spec, run.steps, run.calls.values())),
        )
        return await run.services.hooks.call(self._hook, info, Iteration) or Iteration()
