"""What our own scenarios share: the agent, short ways to write scripts and expected lines."""

import pathlib
from typing import Any

from tests.scenarios import lines, own_tools
from tests.scenarios.play import Mode, Setup, Start, play
from tests.scenarios.recording import Course

PAY = {"account": "a", "cents": 500}
"""Arguments of a `pay` that needs approval."""

GO_ON = lines.step_finish("tool-calls", 1, goes_on=True)
"""The end of a first step that called tools."""

BEGIN = ["start", "step-start"]


def shop(**given: Any) -> Setup:
    """The agent with its tools, and options."""
    return Setup(own_tools.shop, given)


async def course(folder: pathlib.Path, setup: Setup, *script: Any, mode: Mode = "stream") -> Course:
    """What comes of one call."""
    return await play(setup, list(script), [Start()], mode, folder)


def events_of(course: Course, phase: int = 0) -> list[str]:
    """The lines of one phase."""
    events = course.phases[phase].events
    assert events is not None
    return events


def result_of(course: Course, phase: int = 0) -> lines.Result:
    """Its result."""
    result = course.phases[phase].result
    assert result is not None
    return result


def prompt_of(course: Course, index: int) -> list[str]:
    """What one model call saw after the first two messages."""
    assert course.prompts is not None
    return course.prompts[index].messages[2:]


def use(tool: str, call_id: str = "c1", /, **args: Any) -> dict[str, Any]:
    """A tool call in a script."""
    return {"tool": tool, "id": call_id, "args": args}


def ending(text: str, steps: int) -> list[str]:
    """A last step that says `text`."""
    return [
        "step-start",
        *lines.say(text),
        lines.step_finish("stop", steps),
        lines.finish("stop", steps),
    ]
