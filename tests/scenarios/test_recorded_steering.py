"""Recorded scenarios in which feedback and checks are another thing here, by design: the recorded script and
options, and what is right."""

import pathlib
from collections.abc import Sequence

import pytest

from entracte.v1 import generate_result_pb2
from entracte.v1 import options_pb2 as o
from entracte.v1 import result_pb2 as r
from entracte_server import Hook, Iteration, IterationInfo, Score, ScorerInput, scorer
from tests.scenarios import tools
from tests.scenarios.play import Setup, Start, conversation
from tests.scenarios.recording import FILE, load
from tests.scenarios.table import translated

RECORDINGS = load()

pytestmark = pytest.mark.skipif(not RECORDINGS, reason=f"the recordings are not here: {FILE}")


@scorer
async def failing(given: ScorerInput) -> Score:
    return Score(0.0, "not yet")


def look(iteration: int, answer: Iteration) -> Hook:
    async def at(info: IterationInfo) -> Iteration | None:
        return answer if info.iteration == iteration else None

    return Hook(kind="iteration_complete", name="look", function=at)


class Played:
    """What a scenario came to."""

    def __init__(self, result: generate_result_pb2.GenerateResult, prompts: Sequence[Sequence[str]]) -> None:
        self.result = result
        self.prompts = prompts


async def play(name: str, setup: Setup, folder: pathlib.Path) -> Played:
    script = translated(RECORDINGS[name].script)
    async with conversation(setup, script, folder) as it:
        answered = await it.take(Start(), "generate")
        assert answered.result is not None
        prompts = [[f"{m.role}: {m.text}" for m in request.messages] for request in it.requests]
        return Played(answered.result, prompts)


async def test_feedback_is_no_word_of_the_assistant(tmp_path: pathlib.Path) -> None:
    """The reference adds it as the assistant's own message; here it is a tagged one of the user."""
    name = "onIterationComplete_feedback"
    options = {"max_steps": 5, "on_iteration_complete": "look"}
    hook = look(1, Iteration(feedback="FB: try harder"))
    played = await play(name, Setup(tools.looping, options, hooks=[hook]), tmp_path)
    assert played.prompts[1][-1] == "user: <iteration>\nFB: try harder\n</iteration>"
    assert played.prompts[2][4] == played.prompts[1][-1]
    assert (len(played.prompts), played.result.text) == (4, "s1 s2 s3 end")


async def test_a_run_that_is_stopped_stops(tmp_path: pathlib.Path) -> None:
    """The reference makes one more step where there is feedback."""
    name = "onIterationComplete_feedback_stop"
    options = {"max_steps": 5, "on_iteration_complete": "look"}
    hook = look(1, Iteration(go_on=False, feedback="FB: wrap up"))
    played = await play(name, Setup(tools.looping, options, hooks=[hook]), tmp_path)
    assert len(played.prompts) == 1
    assert played.result.stop_cause == r.STOP_CAUSE_HOOK
    assert played.result.finish_reason == r.FINISH_REASON_TOOL_CALLS


async def test_a_run_that_is_to_go_on_goes_on(tmp_path: pathlib.Path) -> None:
    """The reference drops the feedback of a final step, and ends."""
    name = "onIterationComplete_continue_after_final"
    options = {"max_steps": 5, "on_iteration_complete": "look"}
    hook = look(1, Iteration(go_on=True, feedback="more please"))
    played = await play(name, Setup(tools.looping, options, hooks=[hook]), tmp_path)
    assert played.prompts[1][-2:] == ["assistant: first", "user: <iteration>\nmore please\n</iteration>"]
    assert played.result.text == "firstsecond"


async def test_a_task_that_is_never_complete(tmp_path: pathlib.Path) -> None:
    """The reference ends it as a success, with the drafts in its text and the time of day in its prompts."""
    name = "isTaskComplete_never"
    options = {"max_steps": 3, "is_task_complete": o.TaskCompletion(scorers=["failing"])}
    played = await play(name, Setup(tools.looping, options, scorers=[failing]), tmp_path)
    result = played.result
    assert (result.text, result.stop_cause) == ("try2", r.STOP_CAUSE_TASK_INCOMPLETE)
    assert [step.is_draft for step in result.steps] == [True, True, False]
    told = [line for line in played.prompts[2] if line.startswith("user: <completion-check>")]
    assert len(told) == 2
    assert told[0] == told[1]


async def test_suppressed_feedback_is_suppressed(tmp_path: pathlib.Path) -> None:
    """The reference tells the model all the same."""
    name = "isTaskComplete_suppressFeedback"
    check = o.TaskCompletion(scorers=["failing"], suppress_feedback=True)
    options = {"max_steps": 2, "is_task_complete": check}
    played = await play(name, Setup(tools.looping, options, scorers=[failing]), tmp_path)
    assert played.prompts[1] == ["system: SYS", "user: hi", "assistant: try0"]
