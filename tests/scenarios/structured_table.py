"""The due scenarios about structured output."""

from typing import Any

from entracte.v1 import options_pb2 as options
from entracte.v1.json_pb2 import Json
from tests.scenarios import lines, tools
from tests.scenarios.recording import Course
from tests.scenarios.table import Difference, Scenario, Setup, parks

SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"answer": {"type": "number"}},
    "required": ["answer"],
    "additionalProperties": False,
}

ANSWER = '{"answer": 42}'

Output = options.StructuredOutput


def _setup(make: tools.Make, **more: Any) -> Setup:
    schema = Json(text=lines.compact(SCHEMA))
    return Setup(make, {"structured_output": Output(schema=schema, **more)})


def _shown(*events: str) -> Difference:
    """What is between the start and the end of the last text."""

    def change(course: Course) -> None:
        for phase in course.phases:
            if phase.events is not None:
                end = len(phase.events) - 1 - phase.events[::-1].index("text-end")
                start = end - phase.events[:end][::-1].index("text-start")
                phase.events[start:end] = events

    return Difference(
        "objects by growth",
        "`object` chunks come when the text has grown by a quarter since the last one, not per delta.",
        change,
    )


SCENARIOS = [
    Scenario(
        "structured_with_tools",
        _setup(tools.looping),
        script=[[{"tool": "echo", "id": "c1", "args": {"msg": "a"}}], [{"text": ANSWER}]],
        differences=(_shown('object {"answer":42}', lines.say(ANSWER)[1]),),
    ),
    Scenario("structured_invalid_warn", _setup(tools.looping, error_strategy=Output.ERROR_STRATEGY_WARN)),
    Scenario(
        "structured_invalid_fallback",
        _setup(
            tools.looping,
            error_strategy=Output.ERROR_STRATEGY_FALLBACK,
            fallback_value=Json(text='{"answer":-1}'),
        ),
    ),
    Scenario("structured_suspend", _setup(tools.asking_once), differences=parks("")),
]
