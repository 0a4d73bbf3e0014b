"""One agent for each answer in a folder of recordings; see `examples.recordings`."""

import os
from pathlib import Path

from entracte_server import Agent, App
from examples.recordings import recorded_answers

app = App(
    agents=[
        Agent(id=answer.agent_id, model=answer.model, max_steps=1)
        for answer in recorded_answers(Path(os.environ["ENTRACTE_RECORDINGS"]))
    ]
)
