"""An agent with tools of workers, for servers in processes of their own; and a worker that is one."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from entracte import Client, Worker, worker_tool
from entracte_server import Agent, App, remote_tool
from entracte_server.testing import scripted

JOURNAL = "WORKERS_JOURNAL"

CALLS = 6

SCRIPT: list[Any] = [[{"tool": "w__note", "args": {"n": n}} for n in range(CALLS)], [{"text": "end"}]]


TOOLS = [remote_tool("w/note"), remote_tool("w/once")]

ONCE: list[Any] = [[{"tool": "w__once", "args": {}}], [{"text": "end"}]]

app = App(
    agents=[
        Agent(id="many", model=scripted(SCRIPT, position="transcript"), tools=TOOLS),
        Agent(id="once", model=scripted(ONCE, position="transcript"), tools=TOOLS),
    ]
)


def note(text: str) -> None:
    """Add a line to the journal."""
    with Path(os.environ[JOURNAL]).open("a") as journal:
        journal.write(text + "\n")


def allowed() -> bool:
    """Whether tools may end."""
    return Path(os.environ[JOURNAL] + ".go").exists()


async def may_end() -> None:
    """Until tools may end."""
    for _ in range(6000):
        if allowed():
            return
        await asyncio.sleep(0.01)


def ready() -> None:
    """Say that this process is registered."""
    Path(f"{os.environ[JOURNAL]}.ready-{os.getpid()}").touch()


@worker_tool("w/note", idempotent=True)
async def noting(n: int) -> int:
    """Notes that it was executed, and waits until it may end."""
    note(f"note {n}")
    await may_end()
    return n


@worker_tool("w/once")
async def once() -> str:
    """As `w/note`, but not idempotent."""
    note("once")
    await may_end()
    return "done"


async def main(address: str) -> None:
    async with Client(address) as client:
        worker = Worker(client, tools=[noting, once], concurrency=2, drain_timeout=20.0)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(worker.run())
            await worker.registered()
            ready()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
