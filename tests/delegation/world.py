"""An app whose sub-agent has a tool that ends the process, the first time it is entered."""

import os
import signal
from pathlib import Path
from typing import Any

from entracte_server import Agent, App, tool
from entracte_server.testing import scripted
from tests.delegation.support import call, counting, delegate, says

DIED = "ENTRACTE_TEST_DIED"
"""Names the file in which the tools note that they were entered."""


def _note(name: str) -> bool:
    """Whether it is the first time."""
    file = Path(os.environ[DIED])
    known = file.read_text().split() if file.exists() else []
    with file.open("a") as journal:
        journal.write(f"{name}\n")
    return name not in known


@tool
async def plain() -> str:
    """Does something."""
    _note("plain")
    return "plain done"


@tool
async def deadly() -> str:
    """Ends the process the first time."""
    if _note("deadly"):
        os.kill(os.getpid(), signal.SIGKILL)
    return "deadly done"


def _model(name: str, script: Any) -> Any:
    return scripted(script, position="transcript", name=f"scripted/{name}")


helper = Agent(
    id="helper",
    model=_model("helper", [[call("plain")], [call("deadly")], says("helped")]),
    tools=[plain, deadly],
)
other = Agent(
    id="other",
    model=_model("other", [[call("gated")], says("other done")]),
    tools=[counting("gated", [], gated=True)],
)
root = Agent(
    id="root",
    model=_model("root", [[delegate("helper"), delegate("other")], says("end")]),
    agents=[helper, other],
)
app = App(agents=[root])
