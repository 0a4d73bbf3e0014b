"""`entracte chat` and `entracte generate`."""

import contextlib
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

import click

from entracte_server.app.cli.connecting import client_command, command_line, explain
from entracte_server.app.cli.deciding import at_terminal, converse
from entracte_server.app.cli.output import print_json
from entracte_server.app.cli.showing import Screen, exit_code, say_end, say_waiting

if TYPE_CHECKING:
    from entracte import GenerateOptions, Message, SyncClient


def _run_options(command: Any) -> Any:
    """The options of a run, for both commands."""
    options: list[Any] = [
        click.option("--max-steps", type=click.IntRange(1), help="The most model calls of a run."),
        click.option("--thread", metavar="ID", help="The conversation to belong to."),
        click.option("--resource", metavar="ID", help="Whose memory to use."),
        click.option("--approve-tools", metavar="PATTERN", multiple=True, help="Ask before these tools run."),
    ]
    for option in options:
        command = option(command)
    return command


def _options(
    max_steps: int | None, thread: str | None, resource: str | None, approve_tools: tuple[str, ...]
) -> "GenerateOptions":
    options: GenerateOptions = {"max_steps": max_steps}
    if bool(thread) != bool(resource):
        raise click.UsageError("--thread and --resource go together: whose conversation is it?")
    if thread and resource:
        options["memory"] = {"thread": thread, "resource": resource}
    if approve_tools:
        options["require_tool_approval"] = list(approve_tools)
    return options


@click.command()
@click.argument("agent_id", metavar="AGENT")
@click.argument("prompt", metavar="PROMPT")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
@click.option("--run-id", metavar="ID", help="The id of the run.")
@_run_options
@client_command
def generate(
    client: "SyncClient", agent_id: str, prompt: str, as_json: bool, run_id: str | None, **run_options: Any
) -> None:
    """Ask an agent once. PROMPT may be - to read it from standard input.

    The answer appears on stdout as it comes, everything else on stderr. At a terminal you are asked
    what the run waits for; elsewhere it stays parked, and how to go on is printed.
    """
    import entracte

    text = sys.stdin.read() if prompt == "-" else prompt
    agent = client.agent(agent_id)
    options = _options(**run_options)
    options["run_id"] = run_id
    if as_json:
        result = agent.generate(text, **options)
        print_json(entracte.to_dict(result))
        raise SystemExit(exit_code(result.finish_reason))
    stream = agent.stream(text, **options)
    try:
        result = converse(client, agent, stream, Screen(), ask=at_terminal() and prompt != "-")
    except KeyboardInterrupt:
        click.echo(
            f"\nThe run goes on. To follow it: {command_line('runs', 'watch', stream.run_id)}", err=True
        )
        raise SystemExit(130) from None
    if result.finish_reason == "suspended":
        say_waiting(result)
    else:
        say_end(result)
    raise SystemExit(exit_code(result.finish_reason))


@click.command()
@click.argument("agent_id", metavar="AGENT")
@_run_options
@client_command
def chat(client: "SyncClient", agent_id: str, **run_options: Any) -> None:
    """Talk with an agent. Ctrl-C stops an answer, Ctrl-D ends the conversation.

    Without --thread the conversation is kept here and sent along with each message. Messages are
    read from standard input, one to a line, if that is no terminal.
    """
    import entracte

    agent = client.agent(agent_id)
    options = _options(**run_options)
    history: list[Message] = []
    interactive = at_terminal()
    if interactive:
        if importlib.util.find_spec("readline"):
            importlib.import_module("readline")
        click.echo(f"You talk with {agent_id}. Ctrl-D ends the conversation.")
    code = 0
    while (text := _next_message(interactive)) is not None:
        message = {"role": "user", "content": text}
        stream = agent.stream([*history, message], **options)
        screen = Screen(events_to_stdout=interactive)
        try:
            result = converse(client, agent, stream, screen, ask=interactive)
        except KeyboardInterrupt:
            click.echo("\nStopped.")
            with contextlib.suppress(entracte.NotFound):  # it may not have begun
                client.runs.cancel(stream.run_id, reason="stopped at the terminal", wait=True)
            continue
        except (entracte.Unavailable, entracte.NotFound):
            raise
        except entracte.EntracteError as error:
            if not interactive:
                raise
            click.echo(f"error: {explain(error)}", err=True)
            continue
        if result.finish_reason == "suspended":
            say_waiting(result)
            continue
        say_end(result)
        code = exit_code(result.finish_reason)
        if not run_options["thread"] and code == 0:
            # The instructions are added by the server each time.
            history = [message for message in result.messages if message.role != "system"]
    raise SystemExit(0 if interactive else code)


def _next_message(interactive: bool) -> str | None:
    """The next message that is not blank; None at the end."""
    while True:
        if not interactive:
            line = sys.stdin.readline()
            if not line:
                return None
        else:
            try:
                line = input("> ")
            except (EOFError, KeyboardInterrupt):
                click.echo()
                return None
        if line.strip():
            return line.strip()
