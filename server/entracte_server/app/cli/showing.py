"""A run on the screen, as it goes on."""

from typing import TYPE_CHECKING, Any

import click

from entracte_server.app.cli.connecting import command_for, command_line
from entracte_server.app.cli.output import clean, one_line, pretty, print_json, time_text

if TYPE_CHECKING:
    from entracte import Chunk, FinishReason, GenerateResult, PendingCall, SyncRunStream

WIDTH = 160
"""How much of arguments and results is shown in a line about them."""


class Screen:
    """Shows chunks as they come: the agent's text to stdout, everything else to stderr, so that
    a pipe gets the text alone."""

    def __init__(self, *, events_to_stdout: bool = False) -> None:
        self._err = not events_to_stdout
        self._in_text = False

    def show(self, stream: "SyncRunStream") -> None:
        """Show a stream to its end."""
        try:
            for chunk in stream:
                self.chunk(chunk)
        finally:
            self.end_line()

    def chunk(self, chunk: "Chunk") -> None:
        """Show one chunk."""
        if chunk.type == "text-delta":
            if not chunk.agent_path:
                click.echo(clean(chunk.text), nl=False)
                self._in_text = not chunk.text.endswith("\n")
            return
        line = _line_about(chunk)
        if line:
            path = "".join(f"{element.agent_id} › " for element in chunk.agent_path)
            self.event(f"{path}{line}")
        elif chunk.type == "object-result":
            self.end_line()
            click.echo(pretty(chunk.object))

    def event(self, text: str) -> None:
        """Show a line about something."""
        self.end_line()
        click.echo(click.style(text, dim=True), err=self._err)

    def end_line(self) -> None:
        """End the line of text, if there is one."""
        if self._in_text:
            click.echo()
        self._in_text = False


def print_chunks(stream: "SyncRunStream") -> None:
    """A stream as JSON lines."""
    import entracte

    for chunk in stream:
        print_json(entracte.to_dict(chunk), indent=None)


def exit_code(reason: "FinishReason | None") -> int:
    """The exit code for how a run ended."""
    return 1 if reason in ("error", "aborted") else 0


def say_end(result: "GenerateResult") -> None:
    """Say how a run ended, where that was not simply well."""
    if result.finish_reason == "error" and result.error is not None:
        click.echo(f"error: {clean(result.error.message)} ({result.error.kind})", err=True)
    elif result.finish_reason == "tripwire" and result.tripwire is not None:
        click.echo(f"stopped by a processor: {clean(result.tripwire.reason)}", err=True)
    elif result.finish_reason in ("length", "content-filter"):
        click.echo(f"the answer was cut off: {result.finish_reason}", err=True)
    elif result.finish_reason == "tool-calls":
        click.echo(f"ended after a tool call: {result.stop_cause}", err=True)
    for warning in result.warnings:
        click.echo(f"warning: {clean(warning)}", err=True)


def say_waiting(result: "GenerateResult") -> None:
    """Say what a parked run waits for, and how to go on."""
    click.echo(f"Run {result.run_id} waits:", err=True)
    for call in result.pending_calls:
        click.echo(f"  {call.pending_call_id}  {describe(call)}", err=True)
        if end := expiry(call):
            click.echo(f"    {end}", err=True)
        click.echo(f"    {_next_command(call)}", err=True)


def describe(call: "PendingCall") -> str:
    """A waiting call in one line."""
    asked = call.suspend_payload
    if isinstance(asked, dict) and isinstance(asked.get("question"), str):
        return f"{call.tool_name} asks: {one_line(asked['question'], WIDTH)}"
    words = {"approval": "asks for approval", "client-tool": "is to be executed by a client"}
    if call.kind == "recovery":
        words["recovery"] = "was interrupted by a crash"
    return f"{call.tool_name} {words.get(call.kind, 'waits')}: {one_line(call.args, WIDTH)}"


def expiry(call: "PendingCall") -> str:
    """Until when a call can be decided, and what happens then; empty where it waits for ever."""
    if call.expire_time is None:
        return ""
    then = {"decline": "it is declined", "fail": "its run fails"}.get(call.on_expiry or "", "it ends")
    if call.on_expiry == "answer":
        then = f"the answer is {one_line(call.default_answer, WIDTH)}"
    return f"until {time_text(call.expire_time)}; then {then}"


def _next_command(call: "PendingCall") -> str:
    verb = {"approval": "approve", "suspension": "resume"}.get(call.kind, "submit")
    return command_line("inbox", command_for(verb), call.pending_call_id)


def _line_about(chunk: Any) -> str:
    """What is shown of a chunk that is no text; empty where nothing is."""
    match chunk.type:
        case "step-start" if chunk.attempt > 1:
            return "(the answer broke off and starts over)"
        case "tool-call":
            given = chunk.args if chunk.invalid_args is None else chunk.invalid_args
            return f"→ {chunk.tool_name} {one_line(given, WIDTH)}"
        case "tool-result":
            return f"← {chunk.tool_name} {one_line(chunk.result, WIDTH)}"
        case "tool-error":
            return f"← {chunk.tool_name} failed: {one_line(chunk.message, WIDTH)}"
        case "tool-output":
            return f"· {chunk.tool_name} {one_line(chunk.output, WIDTH)}"
        case "tool-output-denied":
            return f"← {chunk.tool_name} declined: {one_line(chunk.reason, WIDTH)}"
        case "tool-call-resolved":
            done = {"approve": "approved", "decline": "declined", "resume": "answered"}
            done |= {"submit": "result handed in", "cancel": "cancelled", "expire": "expired"}
            return f"✓ {chunk.tool_name} {done.get(chunk.verb, chunk.verb)} by {clean(chunk.principal)}"
        case "custom":
            return f"· {clean(chunk.name)} {one_line(chunk.data, WIDTH)}"
        case "source":
            return f"[{clean(chunk.title or chunk.url)}] {clean(chunk.url)}"
        case "file":
            return f"[file {clean(chunk.media_type)}, {len(chunk.data)} bytes] {clean(chunk.url)}"
        case "is-task-complete" if not chunk.passed:
            return f"(the completion check failed: {one_line(chunk.reason, WIDTH)})"
        case "tripwire":
            return f"(stopped by a processor: {one_line(chunk.tripwire.reason, WIDTH)})"
        case "abort":
            return f"(cancelled: {one_line(chunk.reason, WIDTH)})" if chunk.reason else "(cancelled)"
        case _:
            return ""
