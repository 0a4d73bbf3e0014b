"""The command line: `entracte`. One module per group of commands."""

import click

from entracte_server.app.cli.new import new
from entracte_server.app.cli.serve import migrate, serve


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Run agents that stop and wait for people."""


main.add_command(serve)
main.add_command(migrate)
main.add_command(new)
