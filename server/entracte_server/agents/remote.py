"""Tools that workers execute: what an agent says of one, and what a run has of it."""

import re
from typing import Any

from entracte_server.agents.context import ToolContext
from entracte_server.agents.tools import NAME, Tool
from entracte_server.domain import json_text
from entracte_server.domain.options import PinnedTool
from entracte_server.domain.work import run_name

_NAME = re.compile(r"[A-Za-z0-9-](?:[A-Za-z0-9-]|_(?!_|/)){0,31}/[A-Za-z0-9_-]{1,64}")


def fault_of_name(name: str) -> str | None:
    """What is wrong with `toolset/name` as the name of a tool that workers execute."""
    if not _NAME.fullmatch(name):
        return (
            "use toolset/name: 1 to 32 letters, digits, '-' and single '_' within it, then 1 to 64 letters, "
            "digits, '_' and '-'"
        )
    if not NAME.fullmatch(run_name(name)):
        return f"{run_name(name)!r}, as the model calls it, is longer than 64 characters"
    return None


class RemoteTool:
    """A tool of workers that an agent has; made by `remote_tool`."""

    def __init__(self, remote: str, version: str) -> None:
        if fault := fault_of_name(remote):
            raise ValueError(f"remote tool {remote!r}: {fault}")
        self.remote = remote
        self.version = version
        self.toolset = remote.partition("/")[0]
        self.name = run_name(remote)

    def __repr__(self) -> str:
        return f"<RemoteTool {self.remote}>"


def remote_tool(name: str, *, version: str = "") -> RemoteTool:
    """A tool that workers execute, by the `toolset/name` that they register it under; for an agent's `tools`.

    In a run it is called `toolset__name`. Its description, schemas and policies are those that a worker
    registered; a run keeps what they were when it started. `version` is the only one that will do; empty:
    the one that was registered last. Raises `ValueError` for a bad name.
    """
    return RemoteTool(name, version)


class WorkerTool(Tool):
    """A tool of workers as a run has it. The engine gives its calls to workers; it has no body here."""

    def __init__(self, pinned: PinnedTool) -> None:
        worker = pinned.worker
        assert worker is not None
        super().__init__(
            name=pinned.name,
            description=pinned.description,
            input_schema=json_text.parse(pinned.input_schema),
            execute=_nobody,
            requires_approval=worker.requires_approval,
            idempotent=worker.idempotent,
            timeout=worker.timeout,
            suspend_schema=json_text.parse(worker.suspend_schema) if worker.suspend_schema else None,
            resume_schema=json_text.parse(worker.resume_schema) if worker.resume_schema else None,
        )
        self.remote = f"{pinned.toolset}/{pinned.remote}"
        self.worker = worker


async def _nobody(args: Any, ctx: ToolContext[Any]) -> Any:
    raise RuntimeError(f"{ctx.tool_name} is executed by workers")
