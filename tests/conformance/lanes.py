"""All testees at the same time, each with one scenario after the other: most of a scenario is waiting."""

import asyncio
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.cases.process import ROOT
from tests.conformance.playing import Place, Playing
from tests.conformance.servers import Missing, Players
from tests.conformance.testee import Testee

BUILD_SECONDS = 240.0


def _filled(words: Sequence[str]) -> list[str]:
    return [sys.executable if word == "{python}" else word for word in words]


class Lane:
    """One testee and what it is to play. It has servers of its own, since it kills them."""

    def __init__(
        self, made: dict[str, Any], scenarios: Sequence[dict[str, Any]], folder: Path, players: Players
    ) -> None:
        folder.mkdir()
        self._made = made
        self._scenarios = scenarios
        self._place = Place(folder, players)
        self._testee = Testee(made["name"], _filled(made["run"]), ROOT / made["folder"], folder / "stderr")
        loop = asyncio.get_running_loop()
        self._outcomes: dict[str, asyncio.Future[None]] = {
            scenario["name"]: loop.create_future() for scenario in scenarios
        }
        self._task = asyncio.create_task(self._run(), name=f"conformance of {made['name']}")

    async def outcome(self, scenario: str) -> None:
        """What a scenario came to. Raises what it raised."""
        await self._outcomes[scenario]

    async def _run(self) -> None:
        try:
            await self._prepare()
        except (Missing, AssertionError, TimeoutError, OSError) as error:
            for outcome in self._outcomes.values():
                outcome.set_exception(error)
            return
        for scenario in self._scenarios:
            outcome = self._outcomes[scenario["name"]]
            try:
                if not self._testee.is_running:
                    await self._testee.start()
                await Playing(scenario, self._testee, self._place).play()
                outcome.set_result(None)
            except Exception as error:
                outcome.set_exception(error)

    async def _prepare(self) -> None:
        missing = [tool for tool in _filled(self._made["tools"]) if shutil.which(tool) is None]
        if missing:
            raise Missing(f"{self._made['name']} is not tried: there is no {' and no '.join(missing)}")
        for words in self._made["build"]:
            process = await asyncio.create_subprocess_exec(
                *_filled(words),
                cwd=ROOT / self._made["folder"],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            output, _ = await asyncio.wait_for(process.communicate(), BUILD_SECONDS)
            said = output.decode(errors="replace")[-4000:]
            assert process.returncode == 0, f"{self._made['name']}: {' '.join(words)} fails: {said}"
        await self._testee.start()

    async def close(self) -> None:
        """End testee and servers. Raises AssertionError when the testee does not end as it should."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        for outcome in self._outcomes.values():
            if outcome.done() and not outcome.cancelled():
                outcome.exception()  # it was told, or nobody asked
        code = await self._testee.close() if self._testee.is_running else 0
        await self._place.close()
        assert code == 0, (
            f"at the end of its input {self._testee.name} exits with {code}: {self._testee.errors}"
        )


def in_ci() -> bool:
    """Whether a testee that cannot be tried is a failure."""
    return bool(os.environ.get("CI"))
