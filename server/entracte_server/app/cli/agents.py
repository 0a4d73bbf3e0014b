"""`entracte agents`."""

import json
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

import click

from entracte_server.app.cli.connecting import client_command, command_line
from entracte_server.app.cli.output import (
    age_text,
    clean,
    pretty,
    print_fields,
    print_json,
    print_table,
    time_text,
)

if TYPE_CHECKING:
    from entracte import AgentVersion, SyncClient


@click.group()
def agents() -> None:
    """Look at agents, and make and publish those that are made of data."""


@agents.command("list")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="The most to list.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@client_command
def list_agents(client: "SyncClient", limit: int, as_json: bool) -> None:
    """List the agents that can be called."""
    import entracte

    found = list(islice(client.agents.list(page_size=min(limit, 1000)), limit))
    if as_json:
        print_json(entracte.to_dict(found))
        return
    print_table(
        ["AGENT", "MADE OF", "PUBLISHED", "DRAFT", "DESCRIPTION"],
        [
            [
                agent.agent_id,
                agent.origin,
                agent.published_version_id,
                agent.draft_version_id,
                agent.description,
            ]
            for agent in found
        ],
        "No agents.",
    )


@agents.command()
@click.argument("agent_id", metavar="AGENT")
@click.option("--version", "version_id", metavar="ID", default="", help="This version of it.")
@click.option("--draft", is_flag=True, help="The newest draft of it.")
@click.option("--definition", "definition_only", is_flag=True, help="Only what the version says, as JSON.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@client_command
def show(
    client: "SyncClient", agent_id: str, version_id: str, draft: bool, definition_only: bool, as_json: bool
) -> None:
    """Show an agent, and what a version of it says."""
    import entracte

    if version_id and draft:
        raise click.UsageError("give --version or --draft, not both")
    chosen: Any = {"version_id": version_id} if version_id else "draft" if draft else None
    details = client.agents.get(agent_id, version=chosen)
    version = details.version
    if definition_only:
        if version is None:
            raise click.UsageError(f"{clean(agent_id)} has no version to show")
        print_json(version.definition)
        return
    if as_json:
        print_json(entracte.to_dict(details))
        return
    print_fields(
        [
            ("agent", details.agent.agent_id),
            ("name", details.agent.name),
            ("description", details.agent.description),
            ("made of", details.agent.origin),
            ("published", details.agent.published_version_id),
            ("draft", details.agent.draft_version_id),
            ("models", ", ".join(details.models)),
            ("tools", ", ".join(details.tools)),
            ("toolsets", ", ".join(details.toolsets)),
            ("delegates to", ", ".join(details.agents)),
        ]
    )
    if version is not None:
        click.echo(f"\nVersion {clean(version.version_id)} ({version.status}) says:")
        click.echo(pretty(version.definition))


@agents.command()
@click.argument("agent_id", metavar="AGENT")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="The most to list.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@client_command
def versions(client: "SyncClient", agent_id: str, limit: int, as_json: bool) -> None:
    """List the versions of an agent, newest first."""
    import entracte

    found = list(islice(client.agents.versions(agent_id, page_size=min(limit, 1000)), limit))
    if as_json:
        print_json(entracte.to_dict(found))
        return
    print_table(
        ["NUMBER", "VERSION", "STATUS", "AGE", "BY", "PUBLISHED"],
        [
            [
                str(version.number),
                version.version_id,
                f"{version.status}, in use" if version.is_published else version.status,
                age_text(version.create_time),
                version.creator,
                time_text(version.publish_time),
            ]
            for version in found
        ],
        "No versions.",
    )


@agents.command()
@click.argument("agent_id", metavar="AGENT")
@click.argument("file", type=click.File("r", encoding="utf-8"))
@click.option("--publish", "at_once", is_flag=True, help="Publish it as well.")
@client_command
def create(client: "SyncClient", agent_id: str, file: IO[str], at_once: bool) -> None:
    """Make a version of an agent from a JSON file (- for standard input)."""
    try:
        definition = json.load(file)
        version = client.agents.create_version(agent_id, definition)
    except (ValueError, TypeError) as error:
        raise click.UsageError(f"{file.name}: {error}") from None
    if at_once:
        version = client.agents.publish(agent_id, version.version_id)
    _say(version)
    if not at_once:
        click.echo(f"Next: {command_line('agents', 'publish', version.agent_id, version.version_id)}")


@agents.command()
@click.argument("agent_id", metavar="AGENT")
@click.argument("version_id", metavar="VERSION")
@click.option("--if-published", metavar="ID", help="Only if this version is published now.")
@client_command
def publish(client: "SyncClient", agent_id: str, version_id: str, if_published: str | None) -> None:
    """Have runs that begin from now on use a version."""
    _say(client.agents.publish(agent_id, version_id, if_published=if_published))


@agents.command()
@click.argument("agent_id", metavar="AGENT")
@click.argument("version_id", metavar="VERSION")
@client_command
def archive(client: "SyncClient", agent_id: str, version_id: str) -> None:
    """Have no run that begins from now on use a version."""
    _say(client.agents.archive(agent_id, version_id))


def _say(version: "AgentVersion") -> None:
    state = version.status if version.status != "published" or version.is_published else "no longer published"
    click.echo(
        f"{clean(version.agent_id)}: version {version.number}, {clean(version.version_id)}, is now: {state}."
    )
