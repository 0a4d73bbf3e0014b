"""Random histories, with graceful restarts and with crashes, and what must hold after each.

`ENTRACTE_EXAMPLES` sets how many are played; then they are new ones each time, without it the same.
"""

import asyncio
import os
import tempfile
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, example, given, note, settings

from tests.invariants.checks import check
from tests.invariants.harness import Harness, graceful, killed
from tests.invariants.histories import History, Op, Planned, PlannedRun, Round, histories
from tests.invariants.playing import Player

EXAMPLES = int(os.environ.get("ENTRACTE_EXAMPLES", "0"))

profile = settings(
    deadline=None,
    database=None,
    derandomize=not EXAMPLES,
    suppress_health_check=list(HealthCheck),
    # What runs at once differs from time to time, so a smaller example may well pass.
    phases=(Phase.explicit, Phase.generate),
    print_blob=True,
)


def one(tool: str, size: int = 0) -> Planned:
    return Planned(tool, v=1, size=size)


EVERYTHING = History(
    runs=(
        PlannedRun(
            tenant="a",
            started_by="stream",
            steps=(
                (one("gated"), one("asks", 1), one("ask_user", 1), one("outside"), one("plain")),
                (one("gated_asks"), one("fails"), one("malformed"), one("misfit"), one("slow_safe", 5)),
            ),
        ),
        PlannedRun(tenant="b", started_by="generate", steps=((one("gated"), one("asks")),), pause=30),
    ),
    rounds=(
        Round(
            ops=(Op("twice", 0, 0, 1), Op("rivals", 0, 1, 2), Op("stranger", 0, 0, 0)), restart=3, settle=True
        ),
        Round(
            ops=(Op("answer", 0, 0, 4), Op("attach", 0, 5, 0), Op("claim", 0, 1, 0)),
            restart=None,
            settle=False,
        ),
        Round(
            ops=(Op("decline", 1, 0, 1), Op("edit", 0, 0, 3), Op("stale", 0, 0, 3)), restart=0, settle=False
        ),
    ),
)
"""Every kind of call, and most actions."""

CANCELLED = History(
    runs=(
        PlannedRun("a", "generate", ((one("gated_slow", 30), one("asks"), one("slow", 30), one("gated")),)),
        PlannedRun("a", "stream", ((one("gated"), one("gated"), one("outside")),), gates=True),
    ),
    rounds=(
        Round(
            ops=(Op("answer", 0, 0, 0), Op("answer", 1, 1, 1), Op("cancel", 0, 0, 0), Op("cancel", 1, 0, 3)),
            restart=5,
            settle=False,
        ),
    ),
)
"""Cancelled while tools run and others wait."""


async def play(start: Callable[[Path], AbstractAsyncContextManager[Harness]], history: History) -> None:
    """Play a history on a fresh database, and check it."""
    with tempfile.TemporaryDirectory() as folder:
        async with start(Path(folder)) as harness:
            player = Player(harness, history)
            async with asyncio.timeout(50):
                await player.play()
            await check(player, harness)


@settings(profile, max_examples=EXAMPLES or 25)
@example(EVERYTHING)
@example(CANCELLED)
@given(histories(longest=20, restarts=25))
def test_invariants_over_graceful_restarts(history: History) -> None:
    """Whatever people do and in whatever order, over graceful restarts: tools run once for each decision,
    declined ones never, every reader sees the same bytes, and every history is whole."""
    note(str(history))
    asyncio.run(play(graceful, history))


@settings(profile, max_examples=max(1, EXAMPLES // 3) if EXAMPLES else 8)
@example(EVERYTHING)
@example(CANCELLED)
@given(histories(longest=40, restarts=60))
def test_invariants_over_crashes(history: History) -> None:
    """The same with a server that is killed at random moments: what was announced, acknowledged or shown
    before a crash is there after it, and nothing is done twice for one decision."""
    note(str(history))
    asyncio.run(play(killed, history))


pytestmark = pytest.mark.timeout(3600 if EXAMPLES else 120)
