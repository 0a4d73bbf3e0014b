"""The app of a server that is a process of its own. Its environment says what it is to be."""

import asyncio
import os
from pathlib import Path

from entracte import Client
from entracte_server import App
from tests.matrix.course import FOREVER, Course, World, app_of
from tests.matrix.row import Row
from tests.matrix.rows import BY_NAME

ROWS = "MATRIX_ROWS"
TROUBLE = "MATRIX_TROUBLE"
LOG = "MATRIX_LOG"
SERVER = "MATRIX_SERVER"
"""Names of rows with commas between them, one of `TROUBLES` or nothing, a file, a number."""

TROUBLES = ("answer", "tool")
"""In what the process is killed: an answer of the model, or a tool."""


def troubled(course: Course, trouble: str) -> None:
    """A place for the kill in a course, between its two suspensions."""
    if trouble == "answer":
        course.insert("second", "lost", {"text": "lost "}, {"delay": FOREVER}, counts=False)
    elif trouble == "tool":
        course.insert("second", "stuck", {"tool": "stuck", "id": "t1", "args": {"id": "t1"}})
        course.tools.add("stuck")


async def comes_to(client: Client, run_id: str, world: World, trouble: str) -> None:
    """Returns once a run has come to where it is killed, with all that it did before stored: a tool whose
    result is not would be entered again, which is right but not what is asked here."""
    if trouble == "answer":
        async for chunk in client.runs.watch(run_id, until_finished=True):
            if chunk.type == "text-delta" and chunk.text == "lost ":
                return
    for _ in range(3000):
        if any(call_id == "t1" for call_id, _ in world.of("entered")):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{run_id} does not come to its {trouble}")


def set_up() -> tuple[list[Row], World]:
    """What the environment says."""
    rows = [BY_NAME[name] for name in os.environ[ROWS].split(",")]
    course = Course()
    troubled(course, os.environ[TROUBLE])
    for row in rows:
        row.course(course)
    return rows, World(course, Path(os.environ[LOG]), int(os.environ[SERVER]))


def __getattr__(name: str) -> App:
    # Made when it is asked for: tests import this module as well.
    if name != "app":
        raise AttributeError(name)
    return app_of(*set_up())
