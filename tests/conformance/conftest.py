"""The testees, and what they came to."""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.conformance import newer
from tests.conformance.lanes import Lane
from tests.conformance.servers import Players

TESTEES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "testees.json").read_text())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for a testee is run with each."""
    if "testee" in metafunc.fixturenames:
        metafunc.parametrize("testee", [made["name"] for made in TESTEES])


# For the module: what other folders test afterwards is not to share the machine with these processes.
@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def lanes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Mapping[str, Lane]]:
    """Every testee that is to be tried, playing what was selected, by name."""
    chosen: dict[str, list[dict[str, Any]]] = {}
    for item in request.session.items:
        callspec = getattr(item, "callspec", None)
        if callspec is not None and {"testee", "scenario"} <= callspec.params.keys():
            chosen.setdefault(callspec.params["testee"], []).append(callspec.params["scenario"])
    folder = tmp_path_factory.mktemp("conformance")
    newer.compile_into(folder / "newer")
    players = Players(folder / "newer" / "stubs")
    lanes = {
        made["name"]: Lane(made, chosen[made["name"]], folder / made["name"], players)
        for made in TESTEES
        if made["name"] in chosen
    }
    yield lanes
    for lane in lanes.values():
        await lane.close()
    await players.close()
