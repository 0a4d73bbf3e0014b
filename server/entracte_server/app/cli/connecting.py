"""What all client commands have in common: where the server is, and how commands fail."""

import functools
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource

from entracte_server.app.cli.output import clean

if TYPE_CHECKING:
    from entracte import EntracteError

FAILED = 1
UNREACHABLE = 3

DEFAULT_ADDRESS = "127.0.0.1:50051"
_ADDRESS = f"{__name__}.address"


def client_command(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the options of a client and, as its first argument, a connected SyncClient.

    An EntracteError ends the command with exit code 1, or 3 where no server could be reached.
    """

    @click.option(
        "--address",
        envvar="ENTRACTE_ADDRESS",
        default=DEFAULT_ADDRESS,
        show_default=True,
        help="The server, host:port. Also: ENTRACTE_ADDRESS.",
    )
    @click.option(
        "--api-key", envvar="ENTRACTE_API_KEY", metavar="KEY", help="The API key. Also: ENTRACTE_API_KEY."
    )
    @click.option("--tls", is_flag=True, envvar="ENTRACTE_TLS", help="Connect over TLS.")
    @functools.wraps(function)
    def command(address: str, api_key: str | None, tls: bool, **arguments: Any) -> None:
        # gRPC's own notices about connections; it reads this when it is first imported.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        import entracte

        context = click.get_current_context()
        if context.get_parameter_source("address") is ParameterSource.COMMANDLINE:
            context.meta[_ADDRESS] = address
        try:
            with entracte.SyncClient(address, api_key=api_key or None, tls=tls) as client:
                function(client, **arguments)
        except entracte.EntracteError as error:
            fail(error, address)

    return command


def command_line(*words: str) -> str:
    """A command to try next, for the same server."""
    address = click.get_current_context().meta.get(_ADDRESS)
    return " ".join(["entracte", *words, *(["--address", address] if address else [])])


def fail(error: "EntracteError", address: str) -> NoReturn:
    """Say what went wrong and exit."""
    import entracte

    if isinstance(error, entracte.ServerUnreachable):
        click.echo(f"error: no server answers at {address}: {clean(error.message)}", err=True)
        raise SystemExit(UNREACHABLE)
    click.echo(f"error: {explain(error)}", err=True)
    raise SystemExit(UNREACHABLE if isinstance(error, entracte.Unavailable) else FAILED)


def explain(error: "EntracteError") -> str:
    """An error in words, with the fields it is about and what else the server said."""
    lines = [error.message or error.reason or error.code]
    told = [f"{violation.field}: {violation.description}" for violation in error.violations]
    lines += [f"  {line}" for line in told if line != lines[0]]
    if error.reason == "VERB_MISMATCH" and (fitting := _fitting_commands(error.metadata)):
        lines += ["This fits:", *(f"  {command}" for command in fitting)]
    else:
        lines += [f"  {name}: {value}" for name, value in error.metadata.items()]
    return clean("\n".join(lines))


def command_for(verb: str) -> str:
    """The command of `entracte inbox` that decides with a verb."""
    return "answer" if verb == "resume" else verb


def _fitting_commands(metadata: Mapping[str, str]) -> list[str]:
    call, verbs = metadata.get("pending_call_id", ""), metadata.get("verbs", "")
    return [command_line("inbox", command_for(verb), call) for verb in verbs.split(",") if verb and call]
