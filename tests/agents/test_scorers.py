"""Scorers: how they are made, what counts as a score, and how a model's answer is read."""

import asyncio
import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from entracte_server import Agent, App, LlmScorer, Sampled, Score, ScorerInput, scorer
from entracte_server.agents.scorers import CodeScorer, read_score
from entracte_server.domain.messages import text_message
from entracte_server.domain.options import ScorerChoice
from entracte_server.engine.scoring import Scored, ScorerRunner
from entracte_server.engine.settings import EngineSettings
from entracte_server.models.base import Model
from entracte_server.testing import scripted

GIVEN = ScorerInput(
    "r1",
    "a1",
    "It is seven.",
    input_messages=(text_message("user", "How much?"),),
    output_messages=(text_message("assistant", "It is seven."),),
)


def runner(**settings: Any) -> ScorerRunner:
    """One whose scorers' models are objects."""

    def resolve(asker: LlmScorer) -> Sequence[Model]:
        return [model for model in asker.models if not isinstance(model, str)]

    return ScorerRunner(EngineSettings(**settings), resolve)


def returning(value: Any) -> CodeScorer:
    """A scorer that returns `value`, or raises it."""

    def body(given: ScorerInput) -> Any:
        if isinstance(value, BaseException):
            raise value
        return value

    return CodeScorer(name="code", function=body)


async def scored(value: Any) -> Scored:
    return await runner().run(returning(value), GIVEN)


class TestCode:
    @pytest.mark.parametrize(
        ("value", "score", "reason"),
        [(0.25, 0.25, ""), (1, 1.0, ""), (True, 1.0, ""), (Score(0.5, "so so"), 0.5, "so so")],
    )
    async def test_a_score_is_a_number_from_0_to_1(self, value: Any, score: float, reason: str) -> None:
        outcome = await scored(value)
        assert (outcome.score, outcome.reason, outcome.error) == (score, reason, "")

    @pytest.mark.parametrize("value", [1.01, -0.1, float("nan"), "0.5", None, [1]])
    async def test_what_is_none_is_an_error(self, value: Any) -> None:
        outcome = await scored(value)
        assert outcome.score is None
        assert "a score is a number from 0 to 1" in outcome.error

    @pytest.mark.parametrize(
        "error", [RuntimeError("broken"), SystemExit("broken"), KeyboardInterrupt("broken")]
    )
    async def test_whatever_it_raises_is_an_outcome(self, error: BaseException) -> None:
        assert (await scored(error)).error == "broken"

        @scorer
        async def raises(given: ScorerInput) -> float:
            raise error

        assert (await runner().run(raises, GIVEN)).error == "broken"

    async def test_details_can_be_kept_inside(self) -> None:
        outcome = await runner(tool_errors="generic").run(returning(RuntimeError("secret")), GIVEN)
        assert outcome.error == "the scorer failed"

    async def test_a_blocking_one_holds_nothing_up(self) -> None:
        go_on = threading.Event()

        @scorer(timeout=20)
        def blocks(given: ScorerInput) -> float:
            return float(go_on.wait(10))

        task = asyncio.create_task(runner().run(blocks, GIVEN))
        await asyncio.sleep(0.05)
        assert not task.done()
        go_on.set()
        assert (await task).score == 1.0

    async def test_its_time_is_bounded(self) -> None:
        cancelled = asyncio.Event()

        @scorer(timeout=0.05)
        async def endless(given: ScorerInput) -> float:
            try:
                await asyncio.sleep(3600)
            finally:
                cancelled.set()
            return 1

        assert (await runner().run(endless, GIVEN)).error == "no score within 0.05 s"
        assert cancelled.is_set()
        go_on = threading.Event()
        stuck = CodeScorer(name="stuck", function=lambda given: go_on.wait(10))
        assert (await runner(scorer_timeout=0.05).run(stuck, GIVEN)).error == "no score within 0.05 s"
        go_on.set()


class TestJudge:
    async def test_the_model_is_asked_by_the_criterion(self) -> None:
        model = scripted([[{"text": '{"score": 0.75, "reason": "mostly"}'}]])
        judge = LlmScorer(name="judge", model=model, criteria="Is the amount named?")
        outcome = await runner().run(judge, GIVEN)
        assert (outcome.score, outcome.reason, outcome.error) == (0.75, "mostly", "")
        assert outcome.usage.total == 15
        [request] = model.requests
        assert [message.role for message in request.messages] == ["system", "user"]
        assert "Is the amount named?" in request.messages[0].text
        assert json.loads(request.messages[1].text) == {
            "input": [{"role": "user", "text": "How much?"}],
            "output": "It is seven.",
        }
        assert not request.tools

    @pytest.mark.parametrize(
        "text",
        [
            '{"score":0.5,"reason":"r"}',
            '```json\n{"score": 0.5, "reason": "r"}\n```',
            'Let me see {this}. {"score": 0.1} at first, but: {"reason": "r", "score": "0.5"} I think.',
            '{"verdict": {"a": 1}} {"score": 0.5, "reason": "r", "extra": [1]}',
        ],
    )
    def test_what_stands_around_it_is_passed_over(self, text: str) -> None:
        assert read_score(text) == Score(0.5, "r")

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "no",
            '{"score": 7}',
            '{"score": null}',
            '{"score": NaN}',
            '{"scor',
            "{" * 100_000,
            '{"score":[]}',
        ],
    )
    def test_what_is_no_score_is_an_error(self, text: str) -> None:
        with pytest.raises(ValueError, match="the model's"):
            read_score(text)

    async def test_a_model_that_fails_is_an_outcome(self) -> None:
        broken = scripted([[{"throw": "out of order"}]])
        outcome = await runner().run(LlmScorer(name="judge", model=broken, criteria="c"), GIVEN)
        assert (outcome.score, outcome.error) == (None, "out of order")
        next_one = scripted([[{"text": '{"score": 1}'}]])
        outcome = await runner().run(LlmScorer(name="judge", model=[broken, next_one], criteria="c"), GIVEN)
        assert outcome.score == 1.0


class TestRegistry:
    def test_names_are_of_one_scorer_each(self) -> None:
        one, two = returning(1), returning(2)
        assert list(App(agents=[], scorers=[one, one]).scorers) == ["code"]
        with pytest.raises(ValueError, match="two scorers are called 'code'"):
            App(agents=[], scorers=[one, two])
        model = scripted([[{"text": "x"}]])
        with pytest.raises(ValueError, match="two scorers are called 'code'"):
            App(agents=[Agent(id="a", model=model, scorers=[two])], scorers=[one])

    def test_agents_name_them_or_bring_them(self) -> None:
        model = scripted([[{"text": "x"}]])
        one = returning(1)
        agent = Agent(id="a", model=model, scorers={"mine": Sampled(one, 0.1), "theirs": "other"})
        assert agent.scorers == (ScorerChoice("mine", "code", 0.1), ScorerChoice("theirs", "other"))
        other = CodeScorer(name="other", function=lambda given: 1)
        assert App(agents=[agent], scorers=[other]).scorers == {"other": other, "code": one}
        with pytest.raises(ValueError, match="agent a: there is no scorer 'other'"):
            App(agents=[agent])

    def test_what_cannot_be_meant_is_refused(self) -> None:
        with pytest.raises(ValueError, match="a sampling ratio is a number from 0 to 1"):
            Sampled("x", 1.5)
        with pytest.raises(ValueError, match="cannot name a scorer"):
            LlmScorer(name="a b", model="p/m", criteria="c")
        with pytest.raises(ValueError, match="say what it judges"):
            LlmScorer(name="judge", model="p/m", criteria=" ")
        with pytest.raises(ValueError, match="timeout must be over 0"):
            scorer(name="x", timeout=0)(lambda given: 1)
