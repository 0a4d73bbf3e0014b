"""For tests of agents: a real server in this process, and models that play a script.

async with serve(App(agents=[...])) as server:
    async with entracte.Client(server.address) as client:
        ...

`store_conformance`, below, is for tests of stores. Names are loaded when they are first used: the
processes of such tests need no server.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from entracte_server.models.scripted import ScriptedModel, scripted
    from entracte_server.testing.server import TestServer, serve

__all__ = ["ScriptedModel", "TestServer", "scripted", "serve"]

_MODELS = ("ScriptedModel", "scripted")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "entracte_server.models.scripted" if name in _MODELS else "entracte_server.testing.server"
    value = globals()[name] = getattr(importlib.import_module(home), name)
    return value
