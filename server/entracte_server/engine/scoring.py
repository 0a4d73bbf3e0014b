"""Running scorers: within their time, with their errors caught."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import structlog

from entracte_server.agents.scorers import (
    CodeScorer,
    LlmScorer,
    Score,
    Scorer,
    ScorerInput,
    ToolUse,
    read_score,
    to_score,
)
from entracte_server.domain import json_text
from entracte_server.domain.data import Data
from entracte_server.domain.results import Usage
from entracte_server.domain.runs import CallRow, RunRow, RunSpec, StepRecord
from entracte_server.engine import history, prompt
from entracte_server.engine.authored import AuthoredCode, message_of
from entracte_server.engine.questions import ask, step_text
from entracte_server.engine.settings import EngineSettings
from entracte_server.models.base import Model, ModelError
from entracte_server.telemetry.base import NOTHING, Telemetry

_log = structlog.get_logger(__name__)

MAX_MESSAGE = 4096
"""Longest text of an error, in characters."""


class Scored(Data, frozen=True):
    """What came of a scorer: a score with its reason, or an error. `spent` is what models used, by
    their names."""

    name: str
    score: float | None = None
    reason: str = ""
    error: str = ""
    spent: Mapping[str, Usage] = {}
    duration_ms: int = 0

    @property
    def usage(self) -> Usage:
        """What all models used."""
        return sum(self.spent.values(), Usage())


class ScorerRunner:
    """Runs scorers, for a process. `resolve` gives the models of one that asks models."""

    def __init__(
        self,
        settings: EngineSettings,
        resolve: Callable[[LlmScorer], Sequence[Model]],
        telemetry: Telemetry = NOTHING,
    ) -> None:
        self._settings = settings
        self._telemetry = telemetry
        self._resolve = resolve
        self._authored = AuthoredCode(settings.sync_tool_threads, settings.cancel_grace)

    async def run(self, scorer: Scorer, given: ScorerInput) -> Scored:
        """Score once. Never raises but for cancellation of the caller, which reaches the scorer."""
        with self._telemetry.scorer(scorer.name) as scoring:
            scored = await self._run(scorer, given)
            scoring.came_to(scored.score, scored.reason, scored.error)
            return scored

    async def _run(self, scorer: Scorer, given: ScorerInput) -> Scored:
        loop = asyncio.get_running_loop()
        started = loop.time()
        limit = scorer.timeout if scorer.timeout is not None else self._settings.scorer_timeout
        score: Score | None = None
        error = ""
        spent: dict[str, Usage] = {}
        task = asyncio.current_task()
        clock = asyncio.timeout(limit)
        try:
            async with clock:
                if isinstance(scorer, LlmScorer):
                    score = read_score(await ask(self._resolve(scorer), scorer.request(given), spent))
                else:
                    score = to_score(await self._call(scorer, given))
        except asyncio.CancelledError:
            if task is not None and task.cancelling():
                raise
            error = "the scorer cancelled itself"
        except TimeoutError as raised:
            error = f"no score within {limit:g} s" if clock.expired() else self._told(raised)
        except ModelError as raised:
            error = raised.error.message
        except BaseException as raised:  # an author's code may raise anything
            error = self._told(raised)
        if error:
            _log.info("scorer_failed", run_id=given.run_id, scorer=scorer.name, error=error[:300])
        return Scored(
            name=scorer.name,
            score=None if score is None else score.score,
            reason="" if score is None else score.reason,
            error=json_text.scrub(error)[:MAX_MESSAGE],
            spent=spent,
            duration_ms=int((loop.time() - started) * 1000),
        )

    async def _call(self, scorer: CodeScorer, given: ScorerInput) -> Any:
        if scorer.is_async:
            return await self._authored.in_task(lambda: scorer(given), f"scorer:{scorer.name}")
        return await self._authored.in_thread(lambda: scorer(given), "entracte-scorer")

    def _told(self, error: BaseException) -> str:
        if self._settings.tool_errors == "generic" and not isinstance(error, ValueError):
            return "the scorer failed"
        return message_of(error)


def scorer_input(
    run: RunRow, spec: RunSpec, steps: Sequence[StepRecord], calls: Iterable[CallRow]
) -> ScorerInput:
    """What scorers see of a run as it stands."""
    calls = sorted(calls, key=lambda call: (call.step, call.index))
    steps = [record for record in steps if not record.again]
    made = steps[-1].structured if steps and not steps[-1].is_draft else None
    asked = prompt.opening(msgspec.structs.replace(spec, history=()))
    context = spec.options.request_context
    return ScorerInput(
        run_id=run.run_id,
        agent_id=run.agent_id,
        text="".join(step_text(record) for record in steps if not record.is_draft),
        input_messages=tuple(message for message in asked if message.role != "system"),
        remembered_messages=tuple(message for message in spec.history if not history.is_note(message)),
        system_messages=tuple(message for message in asked if message.role == "system"),
        output_messages=tuple(prompt.answers(steps, calls)),
        tool_uses=tuple(tool_use(call) for call in calls if not call.provider_executed),
        request_context=json_text.parse(context) if context else {},
        object=json_text.parse_stored(made.object) if made is not None and made.object is not None else None,
        thread_id=run.thread_id,
        resource_id=run.resource_id,
        step=len(steps),
    )


def scoring_data(given: ScorerInput) -> tuple[str, str]:
    """Input and output of a run as JSON texts."""
    asked = {
        "input_messages": given.input_messages,
        "remembered_messages": given.remembered_messages,
        "system_messages": given.system_messages,
    }
    return msgspec.json.encode(asked).decode(), msgspec.json.encode(given.output_messages).decode()


def tool_use(call: CallRow) -> ToolUse:
    # What the model wrote may be no JSON at all.
    text = call.run_args or call.args
    args = json_text.parse_stored(text) if text is not None else call.invalid_args
    outcome = call.outcome
    if outcome is None:
        return ToolUse(call.call_id, call.tool_name, args, "waiting")
    if outcome.kind == "result":
        return ToolUse(
            call.call_id, call.tool_name, args, "result", result=json_text.parse_stored(outcome.value)
        )
    return ToolUse(call.call_id, call.tool_name, args, outcome.kind, error=outcome.value)
