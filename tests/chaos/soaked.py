"""The app that is soaked: a worker that serves it writes down how many tasks it has when it gets SIGUSR1."""

import asyncio
import json
import os
import signal
import threading
from collections import Counter
from pathlib import Path
from types import FrameType

from tests.chaos.world import app

COUNTS = "CHAOS_COUNTS"
"""Names the folder; the file is called as the process id."""

__all__ = ["app"]


def _count(number: int, frame: FrameType | None) -> None:
    tasks = asyncio.all_tasks()
    names = Counter(task.get_coro().__qualname__ for task in tasks)  # type: ignore[union-attr]
    counts = {"tasks": len(tasks), "threads": threading.active_count(), "names": names.most_common(20)}
    folder = Path(os.environ[COUNTS])
    draft = folder / f".{os.getpid()}"
    draft.write_text(json.dumps(counts))
    draft.rename(folder / str(os.getpid()))


if COUNTS in os.environ:
    signal.signal(signal.SIGUSR1, _count)
