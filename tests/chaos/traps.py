"""Traps: points of a process where a test has it die, stop, wait, or be told that its store is away.

A trap is a file in the folder that `CHAOS_TRAPS` names. It is called `POINT.WHEN`, where WHEN is
`before`, `during` or `after`; `@RUN` added to that restricts it to a run, `#MEMBER` to a process of
this name (`CHAOS_MEMBER`). It holds an `Action`. The process that comes to the point renames the file,
so that of several processes one is caught; then it does what the file says. Those who set the trap see
by the new name that it was sprung.
"""

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from entracte_server.store.base import StoreUnavailable

FOLDER = "CHAOS_TRAPS"
MEMBER = "CHAOS_MEMBER"

SPRUNG = ".sprung"
POLL = 0.002

When = Literal["before", "during", "after"]
Deed = Literal["kill", "stop", "hold", "fail"]


@dataclass(frozen=True)
class Action:
    """What happens at the `count`th time that a process comes to the point. `delay` are seconds between
    the beginning of what is done there and the deed, for traps `during`.

    kill: SIGKILL. stop: SIGSTOP, for the whole process. hold: only what has come to the point waits,
    until the file is removed. fail: `StoreUnavailable`, `after` when the deed is done all the same.
    """

    deed: Deed = "kill"
    count: int = 1
    delay: float = 0.0


@dataclass(frozen=True)
class Trap:
    """Where. Empty fields mean any run, any process."""

    point: str
    when: When
    run: str = ""
    member: str = ""

    @property
    def name(self) -> str:
        """The name of its file."""
        run = f"@{self.run}" if self.run else ""
        member = f"#{self.member}" if self.member else ""
        return f"{self.point}.{self.when}{run}{member}"


# ---- for those who set traps ----


class Trapper:
    """Sets traps in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def set(self, trap: Trap, action: Action) -> None:
        """Set a trap."""
        draft = self.folder / f".{trap.name}"
        draft.write_text(json.dumps(asdict(action)))
        draft.rename(self.folder / trap.name)

    def is_set(self, trap: Trap) -> bool:
        """Whether nobody was caught so far."""
        return (self.folder / trap.name).exists()

    def has_sprung(self, trap: Trap) -> bool:
        """Whether somebody was caught."""
        return (self.folder / (trap.name + SPRUNG)).exists()

    def clear(self, trap: Trap) -> None:
        """Take it away; whoever is held there goes on."""
        (self.folder / trap.name).unlink(missing_ok=True)
        (self.folder / (trap.name + SPRUNG)).unlink(missing_ok=True)

    async def caught(self, trap: Trap, seconds: float) -> bool:
        """Until somebody was caught; False when nobody was for so long."""
        end = time.monotonic() + seconds
        while not self.has_sprung(trap):
            if time.monotonic() > end:
                return False
            await asyncio.sleep(POLL)
        return True


# ---- for those who are caught ----


class Traps:
    """The traps of this process. Nothing is ever caught without `CHAOS_TRAPS`."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    @property
    def _folder(self) -> str:
        return os.environ.get(FOLDER, "")

    def any(self) -> bool:
        """Whether there is a trap at all."""
        return bool(self._names())

    def _names(self) -> list[str]:
        return os.listdir(self._folder) if self._folder else []

    def _caught(self, points: Iterable[str], when: When, run: str) -> tuple[Path, Action] | None:
        """The trap that this process is caught in now."""
        names = set(self._names())
        if not names:
            return None
        for point in points:
            for trap_run in ("", run):
                for member in ("", os.environ.get(MEMBER, "")):
                    name = Trap(point, when, trap_run, member).name
                    if name in names and (caught := self._step_into(name)) is not None:
                        return caught
        return None

    def _step_into(self, name: str) -> tuple[Path, Action] | None:
        file = Path(self._folder, name)
        try:
            action = Action(**json.loads(file.read_text()))
            left = self._counts.get(name, action.count) - 1
            if left > 0:
                self._counts[name] = left
                return None
            self._counts.pop(name, None)
            sprung = Path(self._folder, name + SPRUNG)
            file.rename(sprung)
        except FileNotFoundError:  # somebody else was caught, or it was taken away
            return None
        return sprung, action

    async def at(self, points: Iterable[str], when: When, run: str = "") -> None:
        """Something comes to these points."""
        if (caught := self._caught(points, when, run)) is None:
            return
        sprung, action = caught
        if action.deed == "hold":
            while sprung.exists():  # noqa: ASYNC110 - it is another process that removes it
                await asyncio.sleep(POLL)
        else:
            _do(action)

    def at_now(self, points: Iterable[str], when: When, run: str = "") -> None:
        """As `at`, for a thread."""
        if (caught := self._caught(points, when, run)) is None:
            return
        sprung, action = caught
        if action.deed == "hold":
            while sprung.exists():
                time.sleep(POLL)
        else:
            _do(action)

    def during(self, points: Iterable[str], run: str = "") -> None:
        """Something has begun at these points."""
        if (caught := self._caught(points, "during", run)) is not None:
            asyncio.get_running_loop().call_later(caught[1].delay, _do, caught[1])


def _do(action: Action) -> None:
    if action.deed == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action.deed == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        raise StoreUnavailable("a test says so")


traps = Traps()
"""Those of this process."""
