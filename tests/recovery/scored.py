"""An app whose agent is scored, for servers in processes of their own. Each attempt at scoring is a line in
the file `SCORED`; it ends when the file `SCORED.go` is there. With `SCORED_LATER` the process leaves what
it could score to others."""

import os
import time
from pathlib import Path

from entracte_server import Agent, App, ScorerInput, scorer
from entracte_server.engine import follow_ups
from entracte_server.testing import scripted

JOURNAL = "SCORED"
LATER = "SCORED_LATER"


@scorer(name="tone")
def tone(given: ScorerInput) -> float:
    """Judges when it may."""
    journal = os.environ[JOURNAL]
    with Path(journal).open("a") as file:
        file.write(f"{given.run_id}\n")
    while not Path(f"{journal}.go").exists():
        time.sleep(0.01)
    return 0.5


if os.environ.get(LATER):
    follow_ups.LOOK_SECONDS = 3600.0
    follow_ups.FollowUps.look = lambda self: None  # type: ignore[method-assign]

app = App(agents=[Agent(id="talk", model=scripted([[{"text": "good day"}]]), scorers=[tone])])
