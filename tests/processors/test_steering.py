"""Processors of results beside what steers a run: checks of completion, hooks, limits, client tools."""

import pytest

from entracte_server import Processor, Score, ScorerInput, TaskCheck, hook, scorer
from entracte_server.processors import Input, Result, StepInfo
from tests.processors.support import ADD, kinds, served, shown
from tests.processors.test_flow import Changes


async def test_a_draft_that_was_held_is_shown_and_the_result_is_processed_once() -> None:
    @scorer
    async def long(given: ScorerInput) -> float:
        return float(len(given.text) > 5)

    seen: list[str] = []

    class Looks(Processor):
        name = "looks"
        can_veto = True

        async def process_output_result(self, result: Result) -> None:
            seen.append(result.text)
            self.attach(looked=True)

    model = [[{"text": "no"}], [{"text": "long enough"}]]
    checked = TaskCheck(scorers=[long])
    async with served(model, output_processors=[Looks()], is_task_complete=checked) as it:
        result, chunks = await it.told()
        assert seen == ["long enough"]
        assert (result.text, result.stop_cause) == ("long enough", "model-finished")
        assert shown(chunks) == "nolong enough"
        assert [step.is_draft for step in result.steps] == [True, False]
        assert result.response.ui_messages[-1].metadata == {"looked": True}


@pytest.mark.parametrize("how", ["stops", "rewrites"])
async def test_what_a_check_says_of_an_answer_is_held_with_it(how: str) -> None:
    @scorer
    async def quotes(given: ScorerInput) -> Score:
        return Score(1.0, f"It says: {given.text}")

    class Looks(Processor):
        name = "looks"
        can_veto = can_rewrite = True

        async def process_output_result(self, result: Result) -> Result:
            if how == "stops":
                self.abort("not that")
            return result.replace(final_text="nothing")

    checked = TaskCheck(scorers=[quotes])
    async with served([[{"text": "a secret"}]], output_processors=[Looks()], is_task_complete=checked) as it:
        result, chunks = await it.told()
        if how == "stops":
            assert "secret" not in repr(chunks) + repr(result)
        else:
            assert shown(chunks) == "nothing"
            assert kinds(chunks) == ["start", "step-start", "is-task-complete", "step-finish", "finish"]


async def test_a_veto_before_the_first_step_was_begun() -> None:
    """Where a hook prepares steps, the stream says nothing of a step before that."""

    @hook("prepare_step")
    async def prepare(info: StepInfo) -> None:
        raise AssertionError("it is too late for that")

    class Never(Processor):
        name = "never"

        async def process_input(self, given: Input) -> None:
            self.abort("never")

    async with served([[{"text": "x"}]], input_processors=[Never()], prepare_step=prepare) as it:
        result, chunks = await it.told()
        assert result.finish_reason == "tripwire"
        assert kinds(chunks) == ["start", "step-start", "tripwire", "step-finish", "finish"]


async def test_the_limit_of_steps_and_a_result_that_is_stopped() -> None:
    """The answer with the calls was shown before; it stays, and the run is stopped all the same."""

    class Never(Processor):
        name = "never"
        can_veto = True

        async def process_output_result(self, result: Result) -> None:
            assert result.finish_reason == "tool-calls"
            self.abort("never")

    async with served([[{"text": "adding"}, ADD]], output_processors=[Never()]) as it:
        result, chunks = await it.told(max_steps=1)
        assert (result.finish_reason, result.text) == ("tripwire", "adding")
        assert shown(chunks) == "adding"
        assert [r.result for r in result.tool_results] == [3]


async def test_an_answer_that_was_shown_is_not_rewritten_behind_its_readers() -> None:
    """One with calls, with which the run ends: it stays what it was for everybody, and a warning says so."""

    class Adds(Processor):
        name = "adds"
        can_rewrite = True

        async def process_output_result(self, result: Result) -> Result:
            return result.replace(final_text=result.final_text + "!")

    async with served([[{"text": "adding"}, ADD], [{"text": "done"}]], output_processors=[Adds()]) as it:
        result, chunks = await it.told(max_steps=1)
        assert result.text == shown(chunks) == "adding"
        assert result.warnings == ("adds: the last answer had been shown, so it was not changed.",)
        assert result.stop_cause == "max-steps"
        result, _ = await it.told()
        assert (result.text, result.warnings) == ("done!", ())


async def test_a_result_that_a_client_tool_brings_is_processed() -> None:
    theirs = {"name": "theirs", "input_schema": {"type": "object"}}
    model = [[{"tool": "theirs", "id": "t", "args": {}}], [{"text": "done"}]]
    async with served(model, output_processors=[Changes()]) as it:
        result = await it.agent.generate("hi", client_tools=[theirs])
        result = await it.agent.submit_tool_result(result.pending_calls[0], 7)
        assert [r.result for r in result.tool_results] == [{"sum": 7}]
        [given] = it.model.requests[1].messages[-1].parts
        assert given.output == '{"sum":7}'
