"""Toolsets: tools registered with the app under a name, for agents and callers to choose."""

import re
from collections.abc import Iterable, Mapping

from entracte_server.agents.tools import NAME, Tool

SEPARATOR = "__"
"""Between the name of a toolset and that of a tool in it."""

_NAME = re.compile(r"[A-Za-z0-9-](?:[A-Za-z0-9-]|_(?!_|$)){0,31}")


def check_name(name: str) -> str:
    """The name of a toolset. Raises `ValueError`."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"toolset name {name!r}: use 1 to 32 characters of letters, digits, '-' and single '_' within it"
        )
    return name


class Toolset:
    """Tools that agents and callers choose together, by the toolset's name.

    In a run the tool `refund` of the toolset `billing` is called `billing__refund`: by the model, in
    chunks, in `active_tools` and in approval policies.

    Args:
        name: What it is chosen by: at most 32 letters, digits, `-` and single `_`.
        tools: The tools, or a mapping that renames them.

    Raises `ValueError` for a bad name, two tools of one name, and names that are too long together.
    """

    def __init__(self, name: str, *, tools: Iterable[Tool] | Mapping[str, Tool]) -> None:
        self.name = check_name(name)
        self.tools: dict[str, Tool] = {}
        for key, tool in tools.items() if isinstance(tools, Mapping) else [(t.name, t) for t in tools]:
            qualified = f"{name}{SEPARATOR}{key}"
            if qualified in self.tools:
                raise ValueError(f"toolset {name}: two tools are called {key!r}")
            if not NAME.fullmatch(qualified):
                raise ValueError(
                    f"toolset {name}: {qualified!r} is no name for a tool: use letters, digits, '_' and "
                    "'-', at most 64 in all"
                )
            self.tools[qualified] = tool

    def __repr__(self) -> str:
        return f"<Toolset {self.name}>"
