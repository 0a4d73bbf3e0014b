"""Every scenario with every testee."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.conformance.lanes import Lane, in_ci
from tests.conformance.scenario import scenarios
from tests.conformance.servers import Missing


@pytest.mark.timeout(300)
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario["name"])
async def test_scenario(testee: str, scenario: dict[str, Any], lanes: Mapping[str, Lane]) -> None:
    try:
        await lanes[testee].outcome(scenario["name"])
    except Missing as error:
        if in_ci():
            raise
        pytest.skip(str(error))
