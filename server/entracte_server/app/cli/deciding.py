"""Asking a person to decide a waiting call, at a terminal."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from entracte_server.app.cli.connecting import explain
from entracte_server.app.cli.forms import ask_json, ask_question, ask_value, show_value
from entracte_server.app.cli.output import clean
from entracte_server.app.cli.showing import Screen

if TYPE_CHECKING:
    from entracte import GenerateResult, PendingCall, SyncAgentClient, SyncClient, SyncRunStream

Decide = Callable[[], "SyncRunStream"]


def at_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def converse(
    client: "SyncClient", agent: "SyncAgentClient", stream: "SyncRunStream", screen: Screen, *, ask: bool
) -> "GenerateResult":
    """Show a run to its end, asking for a decision whenever it parks. Calls that the person leaves
    stay as they are; when only those are left, the parked result is returned."""
    left: set[str] = set()
    screen.show(stream)
    while True:
        result = stream.result()
        waiting = [call for call in result.pending_calls if call.pending_call_id not in left]
        if result.finish_reason != "suspended" or not ask or not waiting:
            return result
        call = waiting[0]
        followed = decide(client, agent, call, screen)
        if followed is None:
            left.add(call.pending_call_id)
        else:
            stream = followed


def decide(
    client: "SyncClient", agent: "SyncAgentClient", call: "PendingCall", screen: Screen
) -> "SyncRunStream | None":
    """Ask until the call is decided, and show what comes of it. None if the person leaves it."""
    import entracte

    while True:
        try:
            ready = _asked(agent, call)
        except click.Abort:  # Ctrl-C or Ctrl-D at the question
            click.echo()
            ready = None
        if ready is None:
            return None
        stream = ready()
        try:
            stream.commit()
        except entracte.InvalidArgument as error:
            click.echo(f"That does not fit: {explain(error)}")
            continue
        except entracte.FailedPrecondition as error:
            # Somebody else was faster, or it expired: what came of that is shown.
            click.echo(explain(error))
            stream = client.runs.watch(call.run_id, after=client.runs.get(call.run_id).last_sequence)
        screen.show(stream)
        return stream


def _asked(agent: "SyncAgentClient", call: "PendingCall") -> Decide | None:
    """What the person decides, ready to be sent."""
    click.echo()
    if call.kind == "approval":
        return _ask_approval(agent, call)
    if call.kind == "suspension":
        return _ask_answer(agent, call)
    return _ask_result(agent, call)


def _ask_approval(agent: "SyncAgentClient", call: "PendingCall") -> Decide | None:
    click.echo(f"{click.style(clean(call.tool_name), bold=True)} asks for approval{_of_agent(call)}:")
    if call.tool_description:
        click.echo(f"  {clean(call.tool_description)}")
    show_value(call.args)
    match _letter("[a]pprove, [d]ecline, [e]dit or [l]eave", "adel", y="a", n="d"):
        case "a":
            return lambda: agent.approve_stream(call)
        case "e":
            edited = ask_json("Arguments", call.args_json)
            return lambda: agent.approve_stream(call, edited_args=edited)
        case "d":
            return _declined(agent, call)
        case _:
            return None


def _ask_answer(agent: "SyncAgentClient", call: "PendingCall") -> Decide | None:
    payload = call.suspend_payload
    click.echo(f"{click.style(clean(call.tool_name), bold=True)} asks{_of_agent(call)}:")
    if isinstance(payload, dict) and isinstance(payload.get("question"), str):
        rest = {key: value for key, value in payload.items() if key not in _QUESTION_FIELDS}
        if rest:
            show_value(rest)
        schema = call.resume_schema
        if rest or not _takes_labels_or_text(schema):
            click.echo(clean(payload["question"]))
            answer: Any = ask_value(schema)
        else:
            answer = ask_question(payload)
    else:
        if payload is not None:
            show_value(payload)
        answer = ask_value(call.resume_schema)
    return lambda: agent.resume_stream(call, answer)


_QUESTION_FIELDS = frozenset({"question", "options", "selection_mode", "allow_free_text"})


def _takes_labels_or_text(schema: Any) -> bool:
    """Whether a question's answer is a text or a list of texts."""
    return not isinstance(schema, dict) or schema.get("type") in (None, "string", "array")


def _ask_result(agent: "SyncAgentClient", call: "PendingCall") -> Decide | None:
    name = click.style(clean(call.tool_name), bold=True)
    if call.kind == "recovery":
        click.echo(f"The server stopped while {name} ran{_of_agent(call)}. Did it happen?")
        show_value(call.args)
        choice = _letter("[r]un it again, [h]and in what it returned, [d]ecline or [l]eave", "rhdl")
    else:
        click.echo(f"{name} is to be executed by a client{_of_agent(call)}:")
        show_value(call.args)
        choice = _letter("[h]and in its result, [d]ecline or [l]eave", "hdl")
    match choice:
        case "r":
            return lambda: agent.approve_stream(call)
        case "h":
            result = ask_json("Result as JSON")
            return lambda: agent.submit_tool_result_stream(call, result)
        case "d":
            return _declined(agent, call)
        case _:
            return None


def _declined(agent: "SyncAgentClient", call: "PendingCall") -> Decide:
    reason: str = click.prompt("Reason, for the model", default="", show_default=False)
    return lambda: agent.decline_stream(call, reason=reason)


def _of_agent(call: "PendingCall") -> str:
    path = " › ".join(clean(element.agent_id) for element in call.agent_path)
    return f" ({path})" if path else ""


def _letter(question: str, letters: str, **also: str) -> str:
    """Ask for one of the letters; words that begin with one will do. `also` has letters that mean
    another one."""
    while True:
        text: str = click.prompt(question, default="", show_default=False)
        letter = text.strip().lower()[:1]
        letter = also.get(letter, letter)
        if letter and letter in letters:
            return letter
        click.echo(f"Type {', '.join(letters[:-1])} or {letters[-1]}.")
