"""The soak, for a minute; `make soak` takes longer."""

import pytest

from tests.chaos.databases import on_sqlite
from tests.chaos.soak import soak
from tests.chaos.stories import Story
from tests.chaos.test_kills import SEED


@pytest.mark.timeout(240)
async def test_a_minute_of_everything(references: dict[str, Story]) -> None:
    """Mixed traffic on two workers that are killed now and then: nothing is lost, stuck or leaked."""
    print(f"seed {SEED}")
    print(await soak(on_sqlite, references, seconds=60.0, workers=2, seed=SEED))
