"""Checks of completion: who is asked, what the verdict does, what the model is told."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from entracte import IsTaskCompleteChunk, RequestInvalid
from entracte_server import CheckInfo, Hook, LlmScorer, Score, ScorerInput, StopWhen, TaskCheck, scorer
from entracte_server.testing import scripted
from tests.loop.support import call, serving, types

DRAFTS = [[{"text": "draft one"}], [{"text": "draft two"}], [{"text": "DONE"}], [{"text": "more"}]]


@scorer
async def done(given: ScorerInput) -> Score:
    """Whether the last answer says so."""
    return Score(1.0 if "DONE" in given.text else 0.9, "it does not say DONE")


@scorer
def never(given: ScorerInput) -> float:
    return 0.0


@scorer
def always(given: ScorerInput) -> float:
    return 1.0


@scorer
def broken(given: ScorerInput) -> float:
    raise RuntimeError("the judge is ill")


SCORERS = [done, never, always, broken]
TOLD = (
    "<completion-check>\n"
    "The task is not complete yet. These checks were made of the answer:\n"
    "- done: not passed (score 0.9): it does not say DONE\n"
    "Go on until all of it is done.\n"
    "</completion-check>"
)


async def test_goes_on_until_it_is_complete() -> None:
    """Drafts are in the steps, not in the text; the model is told what was missing, in the same words."""
    async with serving(DRAFTS, app={"scorers": SCORERS}) as it:
        result = await it.both(is_task_complete={"scorers": ["done"]})
        assert (result.text, result.finish_reason, result.stop_cause) == ("DONE", "stop", "model-finished")
        assert [(step.text, step.is_draft) for step in result.steps] == [
            ("draft one", True),
            ("draft two", True),
            ("DONE", False),
        ]
        assert it.prompts[1][-2:] == [("assistant", "draft one"), ("user", TOLD)]
        assert it.prompts[2][-1] == ("user", TOLD)


async def test_the_chunks_and_the_fold() -> None:
    async with serving(DRAFTS, app={"scorers": SCORERS}) as it:
        async with it.agent.stream("hi", is_task_complete={"scorers": ["done"]}) as stream:
            chunks = [chunk async for chunk in stream]
            assert stream.text == "DONE"
            assert (await stream.result()).text == "DONE"
        verdicts = [chunk for chunk in chunks if isinstance(chunk, IsTaskCompleteChunk)]
        assert [(v.iteration, v.passed, v.ends_run) for v in verdicts] == [
            (1, False, False),
            (2, False, False),
            (3, True, True),
        ]
        [result] = verdicts[0].results
        assert (result.scorer, result.score, result.passed) == ("done", 0.9, False)
        names = types(chunks)
        assert names[names.index("is-task-complete") + 1] == "step-finish"


async def test_a_run_that_ends_unfinished_says_so() -> None:
    """The last answer is what there is: it is no draft."""
    async with serving(DRAFTS, app={"scorers": SCORERS}) as it:
        for limit in ({"max_steps": 2}, {"stop_when": {"step_count": 2}}):
            result = await it.both(is_task_complete={"scorers": ["never"]}, **limit)
            assert (result.stop_cause, result.finish_reason) == ("task-incomplete", "stop")
            assert [step.is_draft for step in result.steps] == [True, False]
        # Five steps unless told otherwise.
        assert len((await it.both(is_task_complete={"scorers": ["never"]})).steps) == 5


async def test_feedback_that_is_suppressed_is_suppressed() -> None:
    async with serving(DRAFTS, app={"scorers": SCORERS}) as it:
        await it.both(is_task_complete={"scorers": ["done"], "suppress_feedback": True})
        assert it.prompts[2] == [("user", "hi"), ("assistant", "draft one"), ("assistant", "draft two")]


@pytest.mark.parametrize("parallel", [True, False])
async def test_strategies(parallel: bool) -> None:
    """A check that could not be made is not the same as one that did not pass."""
    async with serving([[{"text": "x"}]], app={"scorers": SCORERS}) as it:
        for names, strategy, cause in (
            (["always", "never"], "all", "task-incomplete"),
            (["never", "always"], "any", "model-finished"),
            (["never", "never"], "any", "task-incomplete"),
            (["always", "broken"], "all", "check-unavailable"),
            (["broken", "never"], "all", "task-incomplete"),
            (["broken", "always"], "any", "model-finished"),
            (["broken", "never"], "any", "check-unavailable"),
        ):
            check = {"scorers": names, "strategy": strategy, "parallel": parallel}
            result = await it.both(is_task_complete=check, max_steps=1)
            assert result.stop_cause == cause, (names, strategy)


async def test_a_check_that_fails_is_made_once_more() -> None:
    tries = []

    @scorer
    async def shaky(given: ScorerInput) -> float:
        tries.append(given.text)
        if len(tries) == 1:
            raise RuntimeError("not yet")
        return 1.0

    async with serving([[{"text": "x"}]], app={"scorers": [shaky, broken]}) as it:
        assert (await it.both(is_task_complete={"scorers": ["shaky"]})).stop_cause == "model-finished"
        assert tries == ["x", "x"]


@pytest.mark.parametrize("parallel", [True, False])
async def test_time(parallel: bool) -> None:
    """One that takes too long is not made; the next still gets its share of the time."""

    @scorer
    async def slow(given: ScorerInput) -> float:
        await asyncio.sleep(60)
        return 1.0

    async with serving([[{"text": "x"}]], app={"scorers": [slow, always]}) as it:
        check = {"scorers": ["slow", "always"], "timeout": 0.4, "parallel": parallel}
        any_of_them = await it.both(is_task_complete=check | {"strategy": "any"})
        assert any_of_them.stop_cause == "model-finished"
        async with it.agent.stream("hi", is_task_complete=check) as stream:
            chunks = [chunk async for chunk in stream]
        [verdict] = [chunk for chunk in chunks if isinstance(chunk, IsTaskCompleteChunk)]
        assert (verdict.timed_out, verdict.passed, verdict.ends_run) == (True, False, True)
        assert {(r.scorer, r.score) for r in verdict.results} == {("slow", None), ("always", 1.0)}


async def test_only_an_answer_that_ends_by_itself_is_checked() -> None:
    """Not one with tool calls, and not one that was cut."""
    script = [call("s1 ", 1), [{"text": "cut"}, {"finish": "length"}]]
    async with serving(script, app={"scorers": SCORERS}) as it:
        async with it.agent.stream("hi", is_task_complete={"scorers": ["never"]}) as stream:
            chunks = [chunk async for chunk in stream]
            assert (await stream.result()).finish_reason == "length"
        assert "is-task-complete" not in types(chunks)


async def test_a_model_as_judge_counts_in_the_usage() -> None:
    judge = scripted([[{"text": '{"score": 0, "reason": "thin"}'}], [{"text": '{"score": 1}'}]])
    check = TaskCheck(scorers=[LlmScorer(name="judge", model=judge, criteria="It is thorough.")])
    async with serving([[{"text": "a"}], [{"text": "b"}]], is_task_complete=check) as it:
        result = await it.both()
        assert (result.text, judge.calls) == ("b", 2)
        assert "score 0): thin" in it.prompts[1][-1][1]
        assert [step.usage.total_tokens for step in result.steps] == [30, 30]  # two calls in each
        assert result.usage.total_tokens == 60


async def test_an_observer_sees_every_score() -> None:
    seen: list[CheckInfo] = []

    def look(info: CheckInfo) -> None:
        seen.append(info)
        raise RuntimeError("an observer's error means nothing")

    observer = Hook(kind="check_complete", name="look", function=look)
    async with serving(DRAFTS, app={"scorers": SCORERS, "hooks": [observer]}) as it:
        check = {"scorers": ["done", "always"], "on_complete": "look"}
        assert (await it.both(is_task_complete=check)).text == "DONE"
        assert [info.verdict for info in seen] == ["failed", "failed", "passed"]
        assert {r.name for r in seen[-1].results} == {"done", "always"}


async def test_the_agents_own_and_held_over_a_restart(tmp_path: Path) -> None:
    """The checks are in force after a suspension, in another process."""
    agent: dict[str, Any] = {
        "is_task_complete": TaskCheck(scorers=[never]),
        "stop_when": StopWhen(step_count=3),
    }
    script = [call("s1 ", 1, "gated"), [{"text": "draft"}], [{"text": "DONE"}]]
    async with serving(script, store=tmp_path / "db", app={"scorers": [done]}, **agent) as it:
        own = await it.agent.generate("hi", is_task_complete={"scorers": ["done"]})
    async with serving(script[1:], store=tmp_path / "db", app={"scorers": [done]}, **agent) as it:
        result = await it.agent.approve(own.pending_calls[0])
        assert (result.text, result.stop_cause) == ("s1 DONE", "model-finished")
        assert (await it.both()).stop_cause == "task-incomplete"


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "scorers": ({"scorers": []}, "needs the name of a scorer"),
    "scorers[1]": ({"scorers": ["done", "nobody"]}, "there is no scorer 'nobody'; there are: "),
    "timeout": ({"scorers": ["done"], "timeout": 0}, "must be from"),
    "on_complete": ({"scorers": ["done"], "on_complete": "nobody"}, "no check_complete hook 'nobody'"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_what_is_refused(case: str) -> None:
    check, words = WRONG[case]
    async with serving(DRAFTS, app={"scorers": SCORERS}) as it:
        with pytest.raises(RequestInvalid) as refusal:
            await it.agent.generate("hi", is_task_complete=check)
        [violation] = refusal.value.violations
        assert violation.field == f"options.is_task_complete.{case}"
        assert words in violation.description
