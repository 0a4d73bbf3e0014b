"""The agents that tests of several workers serve: they tell which process executes what.

A tool that takes its time does so until a file in the folder `WORKERS_TEST` appears.
"""

import asyncio
import os
from pathlib import Path

from entracte_server import Agent, App, Tool, tool
from entracte_server.testing import scripted


@tool
async def where() -> int:
    """Tells which process this is."""
    return os.getpid()


@tool(requires_approval=True)
async def gated() -> int:
    """Tells the same, once somebody approves."""
    return os.getpid()


@tool(idempotent=True)
async def patient() -> int:
    """Waits to be let go; says in a file that it began."""
    folder = Path(os.environ["WORKERS_TEST"])
    (folder / f"began-{os.getpid()}").touch()
    while not (folder / "go").exists():  # noqa: ASYNC110 - a file, for another process
        await asyncio.sleep(0.01)
    return os.getpid()


def agent(made: Tool) -> Agent:
    """An agent that calls a tool and then says so."""
    script = [[{"text": "I look. "}, {"tool": made.name}], [{"text": "Done."}]]
    return Agent(id=made.name, model=scripted(script, position="transcript"), tools=[made])


app = App(agents=[agent(where), agent(gated), agent(patient)])
