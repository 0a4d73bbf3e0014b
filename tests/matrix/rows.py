"""All rows, and which of them cannot be set together, and why."""

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


def some_groups() -> list[list[Row]]:
    """A choice of rows to set together, always the same: each row that is not slow is in two of them.

    The rows are dealt out of the list in strides, so that those of a group are of different kinds. Those
    that end the run early or need its end exclude each other: they come first, and the others join them.
    """
    left = [row for stride in (7, 11) for row in _dealt(stride) if not row.slow]
    left.sort(key=lambda row: row.ending == "answer" and row.needs != "answer")
    groups: list[list[Row]] = []
    for row in left:
        fitting = [group for group in groups if all(_go_together(row, other) for other in group)]
        if fitting:
            min(fitting, key=len).append(row)
        else:
            groups.append([row])
    return groups


def _go_together(one: Row, other: Row) -> bool:
    return one is not other and not excluded(one, other)


def _dealt(stride: int) -> list[Row]:
    return [row for first in range(stride) for row in ROWS[first::stride]]
