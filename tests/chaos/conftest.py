"""What the tests of this folder share."""

import asyncio
import sys
import tempfile
from pathlib import Path

import pytest

from tests.chaos.playing import play_quietly
from tests.chaos.stories import Story

if sys.platform != "linux":  # they look into /proc
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def references() -> dict[str, Story]:
    """What each plan comes to when nothing interrupts it."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(play_quietly(Path(folder), f"sqlite:///{folder}/db"))
