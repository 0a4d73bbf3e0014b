"""A supervisor as a process, with workers that serve nothing but behave as a test wants.

`python -m tests.app.stubs supervisor FOLDER SETTINGS` runs `Supervisor` with workers that do what the
file FOLDER/behaviour says when they start, and write what happens to them to FOLDER/journal.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ORPHAN_SECONDS = 0.5
"""How long a worker without its supervisor may take to stop."""


def supervisor(folder: Path, values: str) -> int:
    import msgspec
    import structlog

    from entracte_server.app.supervisor import GaveUp, Supervisor, SupervisorSettings

    structlog.configure(
        processors=[structlog.processors.add_log_level, structlog.processors.JSONRenderer()],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )

    def command(number: int, descriptor: int) -> Sequence[str]:
        start = [sys.executable, "-m", "tests.app.stubs", "worker", str(folder)]
        return [*start, str(number), str(descriptor)]

    made = Supervisor(
        command,
        msgspec.json.decode(values, type=SupervisorSettings),
        started=lambda agents: print(f"started {agents}", flush=True),
        stopping=lambda: print("stopping", flush=True),
    )
    try:
        return asyncio.run(made.run())
    except GaveUp as error:
        print(f"gave up: {error}", flush=True)
        return error.code


def stuck_here() -> None:
    """Blocks; its name is what a dump must show."""
    while True:
        time.sleep(60)


async def worker(folder: Path, number: int, descriptor: int) -> int:
    import faulthandler

    from entracte_server.app.lifeline import Lifeline

    faulthandler.enable()
    lifeline = Lifeline(descriptor)
    behaviour = (folder / "behaviour").read_text().strip()

    def note(event: str) -> None:
        line = json.dumps({"event": event, "worker": number, "pid": os.getpid(), "as": behaviour})
        with (folder / "journal").open("a") as journal:
            journal.write(line + "\n")

    note("begins")
    if behaviour == "dies":
        return 3
    if behaviour == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if behaviour == "never-ready":
        stuck_here()
    while behaviour == "waits" and not (folder / "go").exists():  # noqa: ASYNC110 - a file of another process
        await asyncio.sleep(0.01)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    lifeline.attach(stop.set, ORPHAN_SECONDS)
    lifeline.ready(
        [("stub", behaviour)], lambda: f"process-{os.getpid()}", lambda dead: note(f"buries {dead}")
    )
    if behaviour == "stuck":
        loop.call_soon(note, "stuck")
        loop.call_soon(stuck_here)
    await stop.wait()
    note("told")
    if behaviour == "stubborn":
        await asyncio.sleep(3600)
    if behaviour == "patient":
        while not (folder / "go").exists():  # noqa: ASYNC110 - a file of another process
            await asyncio.sleep(0.01)
    note("stopped")
    return 0


if __name__ == "__main__":
    role, place, *rest = sys.argv[1:]
    if role == "supervisor":
        if os.isatty(0):  # the first terminal that a new session opens becomes its own
            os.close(os.open(os.ttyname(0), os.O_RDWR))
        sys.exit(supervisor(Path(place), rest[0]))
    sys.exit(asyncio.run(worker(Path(place), int(rest[0]), int(rest[1]))))
