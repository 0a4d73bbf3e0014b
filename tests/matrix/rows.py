"""All rows, and which of them cannot be set together, and why."""

import itertools

from tests.matrix import loop_rows, memory_rows, processor_rows, prompt_rows, tool_rows
from tests.matrix.course import Course
from tests.matrix.row import Row

ROWS: list[Row] = [
    *prompt_rows.ROWS,
    *tool_rows.ROWS,
    *loop_rows.ROWS,
    *processor_rows.ROWS,
    *memory_rows.ROWS,
]
BY_NAME = {row.name: row for row in ROWS}

ELSEWHERE = {"versions": "tests/catalog/test_runs.py::test_a_run_keeps_the_version_it_began_with"}
"""Options that runs of the matrix cannot have, and the test that suspends and restarts a run with them: its
agent is written in Python, and only those made of data have versions to choose from."""

EXCLUDED = {
    ("telemetry:off", "tracing_options"): "a run that is not traced has no trace to look at",
    ("output_processors", "stop_when:text"): "the text that is looked for is rewritten",
    ("output_processors", "include_raw_chunks"): "raw chunks are left out where answers are rewritten",
    ("max_processor_retries", "include_raw_chunks"): "raw chunks are left out where answers may be vetoed",
    (
        "output_processors:tripwire",
        "include_raw_chunks",
    ): "raw chunks are left out where answers may be vetoed",
    ("max_processor_retries", "stop_when:tokens"): "the tokens of vetoed answers count, too",
    ("max_processor_retries", "stop_when:cost"): "the tokens of vetoed answers count, too",
}
"""Pairs that exclude each other for a reason of their own."""


def excluded(one: Row, other: Row) -> str:
    """Why the two cannot be set together; empty where they can."""
    for pair in ((one.name, other.name), (other.name, one.name)):
        if pair in EXCLUDED:
            return EXCLUDED[pair]
    if one.option == other.option or one.keywords & other.keywords:
        return "they set the same option"
    if {one.option, other.option} == {"output", "structured_output"}:
        return "they are one option"
    if one.ending != "answer" and other.ending != "answer":
        return "each ends the run before the other can"
    for ends, needs in ((one, other), (other, one)):
        if ends.ending != "answer" and needs.needs == "answer":
            return f"{ends.name} ends the run before the answer"
        if ends.ending in ("failed", "cancelled") and needs.needs == "success":
            return f"{ends.name} leaves no result"
        if _changes_the_end(ends) and _changes_the_end(needs):
            return "each has the model end in its own way"
    return ""


def _changes_the_end(row: Row) -> bool:
    course = Course()
    row.course(course)
    return [part for part in course.steps["end"] if "raw" not in part] != Course().steps["end"]


def all_pairs() -> list[tuple[Row, Row]]:
    """Every pair that can be set together."""
    return [(one, other) for i, one in enumerate(ROWS) for other in ROWS[i + 1 :] if not excluded(one, other)]


MAX_GROUP = 8
"""Rows that are set together; more of them make no fewer groups worth the name."""


def groups_of_pairs() -> list[list[Row]]:
    """Groups in which every two rows that can be set together are, slow ones apart: always the same.

    Each group begins with a pair that is in none yet, and is joined by whoever brings most of such pairs.
    """
    rows = [row for row in ROWS if not row.slow]
    fits = {(one.name, other.name) for one in rows for other in rows if _go_together(one, other)}
    left = {frozenset(pair) for pair in fits}
    groups: list[list[Row]] = []

    def gain(row: Row, group: list[Row]) -> int:
        return sum(frozenset((row.name, other.name)) in left for other in group)

    for one, other in itertools.combinations(rows, 2):
        if frozenset((one.name, other.name)) not in left:
            continue
        group = [one, other]
        while len(group) < MAX_GROUP:
            fitting = [row for row in rows if all((row.name, known.name) in fits for known in group)]
            best = max(fitting, key=lambda row: gain(row, group), default=None)
            if best is None or not gain(best, group):
                break
            group.append(best)
        left -= {frozenset((row.name, known.name)) for row, known in itertools.combinations(group, 2)}
        groups.append(group)
    return groups


def _go_together(one: Row, other: Row) -> bool:
    return one is not other and not excluded(one, other)
