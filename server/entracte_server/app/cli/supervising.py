"""`entracte serve --workers N`: a supervisor instead of a server."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from entracte_server.app.cli.serve import say_started, say_stopping
from entracte_server.app.lifeline import Agents
from entracte_server.app.reserving import CannotListen, reserve
from entracte_server.app.supervisor import GaveUp, Supervisor

if TYPE_CHECKING:
    from entracte_server.app.settings import Settings


def supervise(
    target: str, settings: "Settings", given: Mapping[str, str | None], scripted: str | None
) -> int:
    """Serve `target` with several workers until told to stop; the exit code. `given` are the options of
    the command line that workers take as they are; other settings they read for themselves."""
    try:
        reservation = reserve(settings.address)
    except CannotListen as error:
        click.echo(f"error: {error}", err=True)
        return 1
    options = [f"--address={reservation.address}"]
    options += [f"{name}={value}" for name, value in given.items() if value is not None]
    if scripted is not None:
        options.append(f"--scripted={scripted}" if scripted else "--scripted")

    def command(number: int, descriptor: int) -> Sequence[str]:
        # -P: what lies in this folder must not shadow the modules of the interpreter.
        start = [sys.executable, "-P", "-m", "entracte_server.app.cli", "serve", target]
        return [*start, "--worker", str(number), str(descriptor), *options]

    def started(agents: Agents) -> None:
        with suppress(OSError):  # nobody reads it any more
            say_started(reservation.address, settings.shown_store, agents, settings.workers)

    def stopping() -> None:
        with suppress(OSError):
            say_stopping()

    try:
        supervisor = Supervisor(command, settings.supervisor(), started=started, stopping=stopping)
        return asyncio.run(supervisor.run())
    except GaveUp as error:
        if str(error):
            click.echo(f"error: {error}", err=True)
        return error.code
    finally:
        reservation.close()
