"""What the chunks of a run add up to."""

from dataclasses import dataclass, field
from typing import Any

from entracte._chunk_base import value_of
from entracte._chunks import Chunk, FinishChunk, ToolCallChunk, ToolResultChunk
from entracte._enums import FinishReason
from entracte._outcomes import RunError, Tripwire, Usage
from entracte._results import StepResult


@dataclass(slots=True)
class _Step:
    number: int
    attempt: int
    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    tool_calls: list[ToolCallChunk] = field(default_factory=list)
    tool_results: list[ToolResultChunk] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    usage: Usage = field(default_factory=Usage)
    tripwire: Tripwire | None = None
    is_draft: bool = False
    object_json: str | None = None
    is_object_valid: bool = False

    def result(self) -> StepResult:
        return StepResult(
            step=self.number,
            text="".join(self.texts),
            tool_calls=tuple(self.tool_calls),
            tool_results=tuple(self.tool_results),
            finish_reason=self.finish_reason,
            usage=self.usage,
            reasoning_text="".join(self.thoughts),
            tripwire=self.tripwire,
            is_draft=self.is_draft,
        )


class Fold:
    """Folds chunks into text, steps and usage, for showing a run while it goes on.

    Feed it every chunk in order with `add`. It looks at the run's own agent only, and drops what a
    new attempt of a step made void. It knows what it was fed: of a run that is followed from its
    middle, only that part.
    """

    def __init__(self) -> None:
        self._steps: dict[int, _Step] = {}
        self.finish: FinishChunk | None = None
        """How the run parked or ended; None while it goes on."""
        self.error: RunError | None = None
        """Why the run failed."""

    @property
    def text(self) -> str:
        """The text of all steps so far, drafts left out."""
        return "".join("".join(step.texts) for step in self._steps.values() if not step.is_draft)

    @property
    def object_json(self) -> str | None:
        """The structured output as far as it has come, as JSON text: in part while the model writes it, at
        last validated. None where the last step has none."""
        last = next(reversed(self._steps.values()), None)
        return None if last is None or last.is_draft else last.object_json

    @property
    def object(self) -> Any:
        """The same as a value."""
        return value_of(self.object_json)

    @property
    def steps(self) -> tuple[StepResult, ...]:
        """The steps so far, the last one perhaps in progress."""
        return tuple(step.result() for step in self._steps.values())

    @property
    def usage(self) -> Usage:
        """Tokens of the run, as of its last `finish`."""
        return self.finish.usage if self.finish is not None else Usage()

    def add(self, chunk: Chunk) -> StepResult | None:
        """Take in the next chunk. Returns the step that it ended, if it ended one."""
        if chunk.agent_path:
            return None
        if chunk.type == "finish":
            self.finish = chunk
            if chunk.reason != "suspended":
                self._end()
            return None
        self.finish = None
        if chunk.type == "error":
            self.error = chunk.error
        if not chunk.step or chunk.type in ("error", "abort"):  # which begin no step
            return None
        step = self._steps.get(chunk.step)
        if step is None or chunk.attempt > step.attempt:
            step = self._steps[chunk.step] = _Step(chunk.step, chunk.attempt)
        elif chunk.attempt < step.attempt:
            return None
        return self._add_to(step, chunk)

    def _end(self) -> None:
        """What is left of an object in a step that was cut never was one."""
        for step in self._steps.values():
            if not step.is_object_valid:
                step.object_json = None

    def _add_to(self, step: _Step, chunk: Chunk) -> StepResult | None:
        match chunk.type:
            case "text-delta":
                step.texts.append(chunk.text)
            case "reasoning-delta":
                step.thoughts.append(chunk.text)
            case "tool-call":
                step.tool_calls.append(chunk)
            case "tool-result":
                step.tool_results.append(chunk)
            case "object":
                step.object_json = chunk.object_json
            case "object-result":
                step.object_json, step.is_object_valid = chunk.object_json, True
            case "tripwire":
                step.tripwire = chunk.tripwire
            case "is-task-complete":
                step.is_draft = not chunk.passed and not chunk.ends_run
            case "step-finish":
                step.finish_reason = chunk.reason
                step.usage = chunk.usage
                if not step.is_object_valid:
                    step.object_json = None
                return step.result()
        return None
