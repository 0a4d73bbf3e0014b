"""The command line: `entracte`. One module per group of commands."""

import click

from entracte_server.app.cli.agents import agents
from entracte_server.app.cli.inbox import inbox
from entracte_server.app.cli.new import new
from entracte_server.app.cli.runs import runs
from entracte_server.app.cli.serve import migrate, serve
from entracte_server.app.cli.talking import chat, generate
from entracte_server.app.cli.threads import threads
from entracte_server.app.cli.version import version


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Run agents that stop and wait for people."""


main.add_command(serve)
main.add_command(migrate)
main.add_command(new)
main.add_command(chat)
main.add_command(generate)
main.add_command(runs)
main.add_command(inbox)
main.add_command(threads)
main.add_command(agents)
main.add_command(version)
