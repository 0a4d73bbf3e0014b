"""`entracte inbox`."""

import json
import sys
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn

import click

from entracte_server.app.cli.connecting import client_command
from entracte_server.app.cli.deciding import at_terminal, decide
from entracte_server.app.cli.output import age_text, clean, print_json, print_table
from entracte_server.app.cli.showing import Screen, describe, exit_code, print_chunks, say_end, say_waiting

if TYPE_CHECKING:
    from entracte import InboxChange, PendingCall, SyncClient, SyncRunStream


@click.group()
def inbox() -> None:
    """See what waits for people, and decide it."""


@inbox.command("list")
@click.option("--run", "run_id", metavar="ID", help="Only of this run.")
@click.option("--agent", "agent_id", metavar="ID", help="Only of this agent's runs.")
@click.option("--thread", "thread_id", metavar="ID", help="Only of runs on this thread.")
@click.option("--resource", "resource_id", metavar="ID", help="Only of runs with this memory.")
@click.option("--decided", "include_decided", is_flag=True, help="Decided calls too.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="The most to list.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@client_command
def list_calls(client: "SyncClient", limit: int, as_json: bool, **filters: Any) -> None:
    """List waiting calls, oldest first."""
    import entracte

    given = {name: value for name, value in filters.items() if value}
    found = list(islice(client.inbox.list(page_size=min(limit, 1000), **given), limit))
    if as_json:
        print_json(entracte.to_dict(found))
        return
    print_table(
        ["CALL", "KIND", "AGENT", "AGE", "STATE", "WHAT"],
        [
            [
                call.pending_call_id,
                call.kind,
                call.agent_id,
                age_text(call.create_time),
                _state(call),
                describe(call),
            ]
            for call in found
        ],
        "Nothing waits.",
    )


def _state(call: "PendingCall") -> str:
    if call.decision is not None:
        return f"{call.decision.verb} by {call.decision.principal}"
    return f"claimed by {call.claim.principal}" if call.claim is not None else call.state


@inbox.command("watch")
@click.option("--run", "run_id", metavar="ID", help="Only of this run.")
@click.option("--agent", "agent_id", metavar="ID", help="Only of this agent's runs.")
@click.option("--resource", "resource_id", metavar="ID", help="Only of runs with this memory.")
@click.option("--json", "as_json", is_flag=True, help="Print each change as a line of JSON.")
@client_command
def watch_calls(client: "SyncClient", as_json: bool, **filters: Any) -> None:
    """Show waiting calls, then every change, until Ctrl-C."""
    import entracte

    given = {name: value for name, value in filters.items() if value}
    try:
        for change in client.inbox.watch(**given):
            if as_json:
                print_json(entracte.to_dict(change), indent=None)
            else:
                _show_change(change)
    except KeyboardInterrupt:
        raise SystemExit(0) from None


def _show_change(change: "InboxChange") -> None:
    for call in change.opened:
        held = f" (claimed by {clean(call.claim.principal)})" if call.claim is not None else ""
        click.echo(f"+ {call.pending_call_id}  {describe(call)}{held}")
    for pending_call_id in change.closed:
        click.echo(f"- {pending_call_id}")
    if change.snapshot_complete:
        click.echo(click.style("That is all for now; changes follow.", dim=True))


def _decision_options(command: Any) -> Any:
    """The options that all verbs have."""
    options: list[Any] = [
        click.option("--json", "as_json", is_flag=True, help="Print the decision as a JSON document."),
        click.option("--follow", is_flag=True, help="Show what comes of it, until the run parks or ends."),
        click.option("--on-behalf-of", default="", metavar="NAME", help="For whom; kept in the audit."),
        click.option("--comment", default="", help="A note for the audit; the model does not see it."),
    ]
    for option in options:
        command = option(command)
    return command


@inbox.command()
@click.argument("pending_call_id", metavar="CALL")
@click.option("--edit", "edited", metavar="JSON", help="Arguments to use instead of those shown.")
@_decision_options
@client_command
def approve(
    client: "SyncClient", pending_call_id: str, edited: str | None, as_json: bool, follow: bool, **audit: str
) -> None:
    """Approve a call, with its arguments as they are or edited."""
    call = client.inbox.get(pending_call_id)
    args = None if edited is None else _json(edited, "--edit")
    stream = client.agent(call.agent_id).approve_stream(call, edited_args=args, **_audit(audit))
    _finish(client, stream, as_json, follow)


@inbox.command()
@click.argument("pending_call_id", metavar="CALL")
@click.option("--reason", default="", help="Why; the model is told.")
@click.option("--reason-data", metavar="JSON", help="Why, as data; the model is told.")
@_decision_options
@client_command
def decline(
    client: "SyncClient",
    pending_call_id: str,
    reason: str,
    reason_data: str | None,
    as_json: bool,
    follow: bool,
    **audit: str,
) -> None:
    """Decline a call of any kind."""
    import entracte

    data = entracte.UNSET if reason_data is None else _json(reason_data, "--reason-data")
    agent = client.agent("")
    stream = agent.decline_stream(pending_call_id, reason=reason, reason_data=data, **_audit(audit))
    _finish(client, stream, as_json, follow)


@inbox.command()
@click.argument("pending_call_id", metavar="CALL")
@click.argument("answers", metavar="[ANSWER]...", nargs=-1)
@click.option("--value", metavar="JSON", help="The answer as JSON, where it is not a text or a choice.")
@_decision_options
@client_command
def answer(
    client: "SyncClient",
    pending_call_id: str,
    answers: tuple[str, ...],
    value: str | None,
    as_json: bool,
    follow: bool,
    **audit: str,
) -> None:
    """Answer a tool that asks something; give several answers where several may be chosen.

    Without ANSWER, at a terminal, you are asked.
    """
    if answers and value is not None:
        raise click.UsageError("give answers or --value, not both")
    call = client.inbox.get(pending_call_id)
    if not answers and value is None:
        if not at_terminal():
            raise click.UsageError("an answer is missing")
        decided = decide(client, client.agent(call.agent_id), call, Screen(events_to_stdout=True))
        if decided is not None:
            _end(decided)
        return
    given = _json(value, "--value") if value is not None else _answer_for(call, answers)
    stream = client.agent(call.agent_id).resume_stream(call, given, **_audit(audit))
    _finish(client, stream, as_json, follow)


def _answer_for(call: "PendingCall", answers: tuple[str, ...]) -> Any:
    """A list where the question takes one, a text where it takes a text, else what the JSON says."""
    schema = call.resume_schema if isinstance(call.resume_schema, dict) else {}
    payload = call.suspend_payload if isinstance(call.suspend_payload, dict) else {}
    if schema.get("type") == "array" or payload.get("selection_mode") == "multi_select":
        return list(answers)
    if len(answers) > 1:
        raise click.UsageError("this call takes one answer")
    if schema.get("type") == "string" or ("question" in payload and "type" not in schema):
        return answers[0]
    try:
        return json.loads(answers[0])
    except ValueError:
        return answers[0]


@inbox.command()
@click.argument("pending_call_id", metavar="CALL")
@click.argument("result", metavar="[JSON]", required=False)
@click.option("--error", help="It failed, and why, in place of a result.")
@_decision_options
@client_command
def submit(
    client: "SyncClient",
    pending_call_id: str,
    result: str | None,
    error: str | None,
    as_json: bool,
    follow: bool,
    **audit: str,
) -> None:
    """Hand in what a client tool returned, or what an interrupted call had come to.

    The result is JSON text, or - to read it from standard input.
    """
    if (result is None) == (error is None):
        raise click.UsageError("give a result or --error")
    agent = client.agent("")
    if error is not None:
        stream = agent.submit_tool_result_stream(pending_call_id, error=error, **_audit(audit))
    else:
        text = sys.stdin.read() if result == "-" else result
        stream = agent.submit_tool_result_stream(pending_call_id, _json(text, "the result"), **_audit(audit))
    _finish(client, stream, as_json, follow)


def _finish(client: "SyncClient", stream: "SyncRunStream", as_json: bool, follow: bool) -> None:
    """Make the decision, say so, and show what comes of it if that is wanted."""
    import entracte

    decision = stream.commit()
    if as_json:
        print_json(entracte.to_dict(decision), indent=None if follow else 2)
    else:
        done = {"approve": "Approved", "decline": "Declined", "resume": "Answered", "submit": "Handed in"}
        click.echo(
            f"{done.get(decision.verb, decision.verb)}: {clean(decision.tool_name)} of run {decision.run_id}."
        )
    if not follow:
        return
    if as_json:
        print_chunks(stream)
    else:
        Screen().show(stream)
    _end(stream, quiet=as_json)


def _end(stream: "SyncRunStream", *, quiet: bool = False) -> NoReturn:
    """Say how the run parked or ended, and exit accordingly."""
    result = stream.result()
    if not quiet and result.finish_reason == "suspended":
        say_waiting(result)
    elif not quiet:
        say_end(result)
    raise SystemExit(exit_code(result.finish_reason))


def _audit(given: dict[str, str]) -> Any:
    """What is kept in the audit."""
    return {"on_behalf_of": given["on_behalf_of"], "comment": given["comment"]}


def _json(text: str | None, what: str) -> Any:
    import entracte

    try:
        json.loads(text or "")
    except ValueError as error:
        raise click.UsageError(f"{what} is not JSON: {error}") from None
    return entracte.RawJson(text or "")
