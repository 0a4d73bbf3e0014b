"""Testees that are built once and serve all scenarios, and the servers of these."""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.cases.process import ROOT
from tests.conformance import newer
from tests.conformance.playing import Place
from tests.conformance.servers import Players
from tests.conformance.testee import Testee

HERE = Path(__file__).parent
BUILD_SECONDS = 240.0
TESTEES: list[dict[str, Any]] = json.loads((HERE / "testees.json").read_text())


def _filled(words: list[str]) -> list[str]:
    return [sys.executable if word == "{python}" else word for word in words]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """The servers of all scenarios."""
    folder = tmp_path_factory.mktemp("conformance")
    newer.compile_into(folder / "newer")
    place = Place(folder, Players(folder / "newer" / "stubs"))
    yield place
    await place.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=TESTEES, ids=lambda made: made["name"])
async def testee(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Testee]:
    """A testee that runs."""
    made = request.param
    missing = [tool for tool in _filled(made["tools"]) if shutil.which(tool) is None]
    if missing:
        if os.environ.get("CI"):
            pytest.fail(f"{' and '.join(missing)} cannot be found, so {made['name']} cannot be tested")
        pytest.skip(f"{' and '.join(missing)} cannot be found")
    folder = ROOT / made["folder"]
    for words in made["build"]:
        await _build(made["name"], _filled(words), folder)
    testee = Testee(
        made["name"], _filled(made["run"]), folder, tmp_path_factory.mktemp(made["name"]) / "stderr"
    )
    await testee.start()
    yield testee
    code = await testee.close()
    assert code == 0, f"at the end of its input the testee exits with {code}: {testee.errors}"


async def _build(name: str, words: list[str], folder: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *words, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await asyncio.wait_for(process.communicate(), BUILD_SECONDS)
    assert process.returncode == 0, (
        f"{name}: {' '.join(words)} fails: {output.decode(errors='replace')[-4000:]}"
    )
