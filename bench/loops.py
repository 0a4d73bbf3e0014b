"""The event loop of every process of the benchmark: uvloop where it is installed, as the server does it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

_run: Any = asyncio.run
with suppress(ImportError):
    import uvloop

    _run = uvloop.run


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end."""
    _run(main)
