"""`entracte version`."""

import platform
from importlib.metadata import version as version_of

import click

from entracte_server.app.cli.output import print_json


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def version(as_json: bool) -> None:
    """Print the versions of what is installed."""
    versions = {name: version_of(name) for name in ("entracte-server", "entracte", "grpcio")}
    versions["python"] = platform.python_version()
    if as_json:
        print_json(versions)
        return
    for name, number in versions.items():
        click.echo(f"{name} {number}")
