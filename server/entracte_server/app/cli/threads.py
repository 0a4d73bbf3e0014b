"""`entracte threads`."""

from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from entracte_server.app.cli.connecting import client_command
from entracte_server.app.cli.output import (
    age_text,
    clean,
    one_line,
    print_fields,
    print_json,
    print_table,
    time_text,
)
from entracte_server.app.cli.showing import WIDTH

if TYPE_CHECKING:
    from entracte import SyncClient, ThreadInfo, ThreadMessage, ThreadPart, ToolInvocationPart

ROLES = ("user", "assistant", "system")


@click.group()
def threads() -> None:
    """Look at conversations, and delete them."""


@threads.command("list")
@click.option("--resource", "resource_id", metavar="ID", default="", help="Only of this resource.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="The most to list.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@client_command
def list_threads(client: "SyncClient", resource_id: str, limit: int, as_json: bool) -> None:
    """List threads, newest first."""
    import entracte

    found = list(islice(client.threads.list(resource_id=resource_id, page_size=min(limit, 1000)), limit))
    if as_json:
        print_json(entracte.to_dict(found))
        return
    print_table(
        ["THREAD", "RESOURCE", "MESSAGES", "AGE", "RUN", "TITLE"],
        [
            [
                thread.thread_id,
                thread.resource_id,
                str(thread.message_count),
                age_text(thread.update_time),
                thread.active_run_state or "",
                thread.title,
            ]
            for thread in found
        ],
        "No threads.",
    )


@threads.command()
@click.argument("thread_id", metavar="THREAD")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@client_command
def show(client: "SyncClient", thread_id: str, as_json: bool) -> None:
    """Show a thread, and which run has it."""
    import entracte

    thread = client.threads.get(thread_id)
    if as_json:
        print_json(entracte.to_dict(thread))
        return
    print_fields(
        [
            ("thread", thread.thread_id),
            ("resource", thread.resource_id),
            ("title", thread.title),
            ("metadata", "" if thread.metadata is None else one_line(thread.metadata, WIDTH)),
            ("messages", thread.message_count),
            ("created", time_text(thread.create_time)),
            ("changed", time_text(thread.update_time)),
            ("run", _holder(thread)),
            ("waiting", thread.queued_runs),
        ]
    )


def _holder(thread: "ThreadInfo") -> str:
    """The run that has it."""
    return f"{thread.active_run_id} ({thread.active_run_state})" if thread.active_run_id else ""


@threads.command()
@click.argument("thread_id", metavar="THREAD")
@click.option("--role", "roles", type=click.Choice(ROLES), multiple=True, help="Only of this role.")
@click.option("--run", "run_id", metavar="ID", default="", help="Only of this run.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="The most to show.")
@click.option("--first", is_flag=True, help="The first ones rather than the last.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@client_command
def messages(
    client: "SyncClient", thread_id: str, limit: int, first: bool, as_json: bool, **filters: Any
) -> None:
    """Show the last messages of a thread, in the order they were said."""
    import entracte

    listed = client.threads.messages(thread_id, newest_first=not first, page_size=min(limit, 1000), **filters)
    found = list(islice(listed, limit))
    if not first:
        found.reverse()
    if as_json:
        print_json(entracte.to_dict(found))
        return
    if not found:
        click.echo("No messages.")
    for message in found:
        _show(message)


def _show(message: "ThreadMessage") -> None:
    author = f" {clean(message.author)}" if message.author else ""
    click.echo(click.style(f"{message.position}. {message.role}{author}", bold=True), nl=False)
    click.echo(f"  {time_text(message.create_time)}{'  (cut off)' if message.aborted else ''}")
    for part in message.parts:
        if line := _line_about(part):
            click.echo("\n".join(f"  {text}" for text in line.splitlines()))
    if message.omitted_parts:
        click.echo(f"  ({message.omitted_parts} large parts are left out; see run {clean(message.run_id)})")


def _line_about(part: "ThreadPart") -> str:
    """What is shown of a part; empty where nothing is."""
    match part.type:
        case "text":
            return clean(part.text)
        case "reasoning":
            return f"(thinks) {one_line(part.text, WIDTH)}" if part.text else ""
        case "tool-invocation":
            return f"→ {clean(part.tool_name)} {one_line(part.args, WIDTH)}\n{_outcome(part)}"
        case "image" | "file":
            return f"[{part.type} {clean(part.media_type)}, {len(part.data)} bytes] {clean(part.url)}"
        case "source":
            return f"[{clean(part.title or part.url)}] {clean(part.url)}"
        case "error":
            return f"(failed: {one_line(part.message, WIDTH)})"
        case "data":
            return f"· {clean(part.name)} {one_line(part.data, WIDTH)}"


def _outcome(part: "ToolInvocationPart") -> str:
    match part.state:
        case "pending":
            return "← waits"
        case "result":
            return f"← {one_line(part.result, WIDTH)}"
        case "denied":
            return f"← declined: {one_line(part.error, WIDTH)}"
        case _:
            return f"← failed: {one_line(part.error, WIDTH)}"


@threads.command()
@click.argument("thread_id", metavar="[THREAD]", required=False, default="")
@click.option("--resource", "resource_id", metavar="ID", default="", help="That of this resource.")
@click.option("--clear", is_flag=True, help="Take it away, and show what is left: nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@client_command
def memory(client: "SyncClient", thread_id: str, resource_id: str, clear: bool, as_json: bool) -> None:
    """Show what agents noted down, of a thread or of a resource."""
    import entracte

    if bool(thread_id) == bool(resource_id):
        raise click.UsageError("give a thread, or a resource with --resource")
    if clear:
        noted = client.threads.update_working_memory("", thread_id=thread_id, resource_id=resource_id)
    else:
        noted = client.threads.working_memory(thread_id=thread_id, resource_id=resource_id)
    if as_json:
        print_json(entracte.to_dict(noted))
        return
    click.echo(clean(noted.content) or "Nothing is noted.")


@threads.command()
@click.argument("thread_id", metavar="THREAD")
@click.option("--force", is_flag=True, help="Even if runs have it or wait for it: they are cancelled.")
@client_command
def delete(client: "SyncClient", thread_id: str, force: bool) -> None:
    """Delete a thread with its messages and its runs."""
    cancelled = client.threads.delete(thread_id, force=force)
    click.echo(f"{clean(thread_id)} is deleted.")
    for run_id in cancelled:
        click.echo(f"run {run_id} is cancelled.")
