"""For tests of agents: a real server in this process, and models that play a script.

async with serve(App(agents=[...])) as server:
    async with entracte.Client(server.address) as client:
        ...
"""

from entracte_server.models.scripted import ScriptedModel, scripted
from entracte_server.testing.server import TestServer, serve

__all__ = ["ScriptedModel", "TestServer", "scripted", "serve"]
