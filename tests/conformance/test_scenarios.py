"""Every scenario with every testee."""

from typing import Any

import pytest

from tests.conformance.playing import Place, Playing
from tests.conformance.scenario import scenarios
from tests.conformance.testee import Testee


@pytest.mark.timeout(300)
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario["name"])
async def test_scenario(scenario: dict[str, Any], testee: Testee, place: Place) -> None:
    if not testee.is_running:
        await testee.start()
    await Playing(scenario, testee, place).play()
