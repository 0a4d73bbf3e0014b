"""Every recorded scenario that is due, played here: the same chunks in the same order, the same results,
the same prompts, the same tools entered, except for what each scenario names."""

import copy
import pathlib
from collections import Counter
from collections.abc import Sequence

import pytest

from tests.scenarios import approval_table, loop_table, steering_table, structured_table, waiting_table
from tests.scenarios.not_due import NOT_DUE, NOT_OURS, OF_THEIR_OWN
from tests.scenarios.play import Mode, play
from tests.scenarios.recording import FILE, Course, load
from tests.scenarios.table import Scenario, translated

RECORDINGS = load()
TABLES = (loop_table, approval_table, steering_table, structured_table, waiting_table)
DUE = {one.name: one for table in TABLES for one in table.SCENARIOS}

pytestmark = pytest.mark.skipif(not RECORDINGS, reason=f"the recordings are not here: {FILE}")

MODES: tuple[Mode, ...] = ("stream", "generate")
PLAYS: list[tuple[str, Mode]] = [
    (name, mode)
    for name, recording in RECORDINGS.items()
    for mode in MODES
    if name in DUE and mode in recording.plays
]


def expected_of(scenario: Scenario) -> dict[str, Course]:
    """What is right here, play by play. Each difference must change something."""
    plays = copy.deepcopy(RECORDINGS[scenario.name].plays)
    for difference in scenario.differences:
        changed = {mode: difference.apply(course) for mode, course in plays.items()}
        assert changed != plays, f"the difference {difference.name!r} changes nothing: leave it out"
        plays = changed
    return plays


_OUTCOMES = ("tool-result ", "tool-error ", "tool-call-suspended ")


def settled(events: Sequence[str], ties: frozenset[str] | None) -> list[str]:
    """Events in which the outcomes of calls that may end in any order stand in the order of the calls.
    `ties` are those calls; None: all."""
    order = [line.split()[1] for line in events if line.startswith("tool-call-input-streaming-start ")]
    made: list[str] = []
    group: list[str] = []
    for line in [*events, ""]:
        if line.startswith(_OUTCOMES) and (ties is None or line.split()[1] in ties):
            group.append(line)
            continue
        made += sorted(group, key=lambda one: (order.index(i) if (i := one.split()[1]) in order else -1, i))
        group = []
        made.append(line)
    return made[:-1]


@pytest.mark.parametrize(("name", "mode"), PLAYS, ids=[f"{name}-{mode}" for name, mode in PLAYS])
async def test_recorded(name: str, mode: Mode, tmp_path: pathlib.Path) -> None:
    """The scenario's course is the recorded one, but for the differences it names."""
    scenario = DUE[name]
    expected = expected_of(scenario)[mode]
    script = translated(scenario.script or RECORDINGS[name].script)

    actual = await play(scenario.setup, script, scenario.steps, mode, tmp_path)

    assert len(actual.phases) == len(expected.phases)
    for ours, theirs in zip(actual.phases, expected.phases, strict=True):
        assert ours.refusal == theirs.refusal, theirs.call
        if theirs.events is not None:
            assert ours.events is not None, theirs.call
            told, expected_told = (settled(one, scenario.ties) for one in (ours.events, theirs.events))
            assert told == expected_told, theirs.call
        if theirs.result is not None:
            assert ours.result == theirs.result, theirs.call
    if expected.prompts is not None:
        assert actual.prompts is not None
        assert [prompt.messages for prompt in actual.prompts] == [p.messages for p in expected.prompts]
        assert [prompt.schema for prompt in actual.prompts] == [p.schema for p in expected.prompts]
        for ours_seen, theirs_seen in zip(actual.prompts, expected.prompts, strict=True):
            if theirs_seen.tools is not None:
                assert ours_seen.tools == theirs_seen.tools
                assert ours_seen.choice == theirs_seen.choice
    if expected.entered is not None:
        assert actual.entered is not None
        if scenario.ties:
            assert Counter(actual.entered) == Counter(expected.entered)
        else:
            assert actual.entered == expected.entered


def test_every_scenario_is_listed() -> None:
    """Each scenario of the file is due, or not due for a reason, and none is listed twice."""
    listed = [*DUE, *NOT_DUE, *NOT_OURS, *OF_THEIR_OWN]
    assert sorted(listed) == sorted(RECORDINGS)
