"""Checks of completion: whether a task is done, asked of scorers when the model would stop."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from entracte_server.agents.scorers import Scorer, ScorerInput
from entracte_server.domain.options import TaskCompletion
from entracte_server.domain.results import CheckResult, Usage
from entracte_server.domain.runs import CheckRecord
from entracte_server.engine.scoring import Scored, ScorerRunner

PASSING = 1.0
"""The score that passes."""

TRIES = 2
"""How often a check that fails to give a score is made."""

LATE = "not made in time"


async def check(
    runner: ScorerRunner, scorers: Sequence[Scorer], given: ScorerInput, options: TaskCompletion
) -> CheckRecord:
    """Make the checks. A check that gives no score is made once more; what could not be made is told
    apart from what did not pass. One after the other, each gets its share of the time that is left."""
    results: dict[int, Scored] = {}
    loop = asyncio.get_running_loop()
    end = loop.time() + options.timeout
    timed_out = False
    if options.parallel:
        tasks = {asyncio.create_task(_score(runner, scorer, given)): i for i, scorer in enumerate(scorers)}
        try:
            while tasks and not _is_decided(results.values(), options):
                done, _ = await asyncio.wait(
                    tasks, timeout=max(0.0, end - loop.time()), return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    timed_out = True
                    break
                for task in done:
                    results[tasks.pop(task)] = task.result()
        finally:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
    else:
        for i, scorer in enumerate(scorers):
            share = max(0.0, end - loop.time()) / (len(scorers) - i)
            try:
                async with asyncio.timeout(share):
                    results[i] = await _score(runner, scorer, given)
            except TimeoutError:
                timed_out = True
            if _is_decided(results.values(), options):
                break
    return _record(scorers, results, options, timed_out)


async def _score(runner: ScorerRunner, scorer: Scorer, given: ScorerInput) -> Scored:
    spent: dict[str, Usage] = {}
    for _ in range(TRIES):
        scored = await runner.run(scorer, given)
        _add(spent, scored.spent)
        if not scored.error:
            break
    return msgspec.structs.replace(scored, spent=spent)


def _add(spent: dict[str, Usage], more: Mapping[str, Usage]) -> None:
    for model, usage in more.items():
        spent[model] = spent.get(model, Usage()) + usage


def _passes(scored: Scored) -> bool:
    return scored.score is not None and scored.score >= PASSING


def _is_decided(results: Iterable[Scored], options: TaskCompletion) -> bool:
    """Whether what is still to come cannot change the verdict."""
    if options.strategy == "any":
        return any(_passes(scored) for scored in results)
    return any(scored.score is not None and not _passes(scored) for scored in results)


def _record(
    scorers: Sequence[Scorer], results: dict[int, Scored], options: TaskCompletion, timed_out: bool
) -> CheckRecord:
    made = [results[i] for i in sorted(results)]
    spent: dict[str, Usage] = {}
    for scored in made:
        _add(spent, scored.spent)
    usage = sum(spent.values(), Usage())
    shown = tuple(
        CheckResult(scored.name, scored.score, _passes(scored), scored.reason or scored.error)
        for scored in made
    )
    if timed_out:
        shown += tuple(
            CheckResult(scorer.name, reason=LATE) for i, scorer in enumerate(scorers) if i not in results
        )
    if _is_decided(made, options):
        verdict = options.strategy == "any"
    elif timed_out or any(scored.score is None for scored in made):
        return CheckRecord("unavailable", shown, timed_out, usage, spent)
    else:
        verdict = options.strategy == "all"
    return CheckRecord("passed" if verdict else "failed", shown, timed_out, usage, spent)


def feedback_of(record: CheckRecord) -> str:
    """What the model is told of a check that failed. The same words for the same results."""
    lines = ["The task is not complete yet. These checks were made of the answer:"]
    for result in record.results:
        score = "no score" if result.score is None else f"score {result.score:g}"
        verdict = "passed" if result.passed else "not passed"
        reason = f": {result.reason}" if result.reason else ""
        lines.append(f"- {result.name}: {verdict} ({score}){reason}")
    lines.append("Go on until all of it is done.")
    return "\n".join(lines)
