"""An app whose agent gives threads a title, for servers in processes of their own. Each attempt at one is a
line in the file `TITLED`; it comes to an end when the file `TITLED.go` is there."""

import os
from pathlib import Path
from typing import Any

from entracte_server import Agent, App, Memory
from entracte_server.models.base import ModelRequest
from entracte_server.testing import scripted

JOURNAL = "TITLED"


def name_it(request: ModelRequest) -> list[dict[str, Any]]:
    """A title, when it may be."""
    journal = Path(os.environ[JOURNAL])
    with journal.open("a") as file:
        file.write("asked\n")
    pause = 0 if journal.with_name(f"{journal.name}.go").exists() else 3_600_000
    return [{"delay": pause}, {"text": "Greetings"}]


memory = Memory(generate_title=True, title_model=scripted([name_it], name="scripted/namer"))
app = App(agents=[Agent(id="talk", model=scripted([[{"text": "good day"}]]), memory=memory)])
