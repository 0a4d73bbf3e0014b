"""Waiting for what processes do."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

SECONDS = 20.0
"""How long what must come true may take."""


def environment() -> dict[str, str]:
    """What processes of a test find: no keys of models, and bytecode is kept, since half of a start is
    compiling."""
    found = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    return {**found, "PYTHONDONTWRITEBYTECODE": ""}


async def until(condition: Callable[[], object], seen: Callable[[], object]) -> None:
    """Until `condition` holds; `seen` says in the failure what there was instead."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, seen()
        await asyncio.sleep(0.01)


def gone(*pids: int) -> bool:
    """Whether these processes have ended (what only waits to be collected has)."""
    return all(_state(pid) in ("", "Z", "X") for pid in pids)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
