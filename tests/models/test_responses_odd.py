"""Streams of the Responses API in which something is missing, twice, out of order, or not what it should be:
the answer is read as far as it goes, or is a `ModelError`; nothing else is raised, and nothing ill-formed is
shown."""

import copy
import random
from typing import Any

import pytest

from entracte_server.domain.results import RunError
from entracte_server.models import ModelError
from entracte_server.models.response_body import BodyReader
from entracte_server.models.responses_assembler import ResponsesAssembler
from tests.models.responses_wire import begin, calls, end, item, says, stream, thinks
from tests.models.support import Outcome, check_shape

PAGE = {"type": "url_citation", "url": "https://a.example/x", "title": "X"}
EVENTS = [
    *begin(),
    *thinks(0, "First.", "Then."),
    *says(1, "Hel", "lo", annotations=[PAGE], phase="commentary"),
    *calls(2, "find", "c1", '{"key"', ':"oak"}'),
    *item(
        3, "code_interpreter_call", {"code": "1", "outputs": [{"type": "image", "url": "https://a.example"}]}
    ),
    *item(4, "image_generation_call", {"result": "aGk=", "output_format": "png"}),
    *says(5, "Bye", annotations=[PAGE]),
    *end(),
]
VALUES: list[Any] = [None, 0, -1, 7, 1.5, True, "", "x", [], [1], ["x", None], {}, {"a": [{}]}, "\ud800"]


def outcome_of(events: list[Any]) -> Outcome:
    answer = ResponsesAssembler("test")
    reader = BodyReader(answer)
    error: RunError | None = None
    try:
        reader.feed(stream(events))
        reader.end()
        answer.end()
    except ModelError as failure:
        error = failure.error
        answer.close()
    outcome = Outcome([answer.take()], error)
    check_shape(outcome)
    return outcome


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something could be something else."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [inner for key in keys for inner in ((*path, key), *paths(value[key], (*path, key)))]


@pytest.mark.parametrize("seed", range(10))
def test_streams_with_events_missing_twice_or_elsewhere(seed: int) -> None:
    random_ = random.Random(seed)
    for _ in range(25):
        events = list(EVENTS)
        for _ in range(random_.randint(1, 6)):
            at = random_.randrange(len(events))
            match random_.randrange(3):
                case 0 if len(events) > 1:
                    del events[at]
                case 1:
                    events.insert(random_.randrange(len(events)), events[at])
                case _:
                    events.insert(random_.randrange(len(events)), events.pop(at))
        outcome_of(events)


@pytest.mark.parametrize("seed", range(4))
def test_fields_that_are_something_else(seed: int) -> None:
    random_ = random.Random(seed)
    for number, event in enumerate(EVENTS):
        for path in paths(event):
            changed = copy.deepcopy(event)
            holder: Any = changed
            for key in path[:-1]:
                holder = holder[key]
            holder[path[-1]] = random_.choice(VALUES)
            if str(changed.get("type")).isascii():
                outcome_of([*EVENTS[:number], changed, *EVENTS[number + 1 :]])


@pytest.mark.parametrize("number", range(len(EVENTS) - 1))
def test_nothing_is_lost_with_one_event(number: int) -> None:
    """What one event would have said, the others say, apart from what only it had."""
    events = [*EVENTS[:number], *EVENTS[number + 1 :]]
    outcome = outcome_of(events)
    assert outcome.error is None
    if EVENTS[number]["type"] == "response.output_item.done":
        return
    assert [call.tool_name for call in outcome.calls][-1] == "find"
    assert len(outcome.calls) == 3
