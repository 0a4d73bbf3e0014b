"""`entracte runs`."""

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
from entracte_server.app.cli.showing import (
    Screen,
    describe,
    exit_code,
    expiry,
    print_chunks,
    say_end,
    say_waiting,
)

if TYPE_CHECKING:
    from entracte import FollowUp, GenerateResult, Run, SyncClient

STATES = ("queued", "running", "suspended", "succeeded", "failed", "cancelled")


@click.group()
def runs() -> None:
    """Look at runs, follow them, end them."""


@runs.command("list")
@click.option("--state", "states", type=click.Choice(STATES), multiple=True, help="Only in this state.")
@click.option("--agent", "agent_id", metavar="ID", help="Only of this agent.")
@click.option("--thread", "thread_id", metavar="ID", help="Only on this thread.")
@click.option("--children", "include_children", is_flag=True, help="Runs of sub-agents too.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="The most to list.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@client_command
def list_runs(client: "SyncClient", limit: int, as_json: bool, **filters: Any) -> None:
    """List runs, newest first."""
    import entracte

    given = {name: value for name, value in filters.items() if value}
    found = list(islice(client.runs.list(page_size=min(limit, 1000), **given), limit))
    if as_json:
        print_json(entracte.to_dict(found))
        return
    print_table(
        ["RUN", "AGENT", "STATE", "STEP", "AGE", "TOKENS", "ENDED BY"],
        [
            [
                run.run_id,
                run.agent_id,
                run.state,
                str(run.step),
                age_text(run.create_time),
                str(run.usage.total_tokens),
                run.stop_cause or "",
            ]
            for run in found
        ],
        "No runs.",
    )


@runs.command()
@click.argument("run_id", metavar="RUN")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@client_command
def show(client: "SyncClient", run_id: str, as_json: bool) -> None:
    """Show a run and what it has come to."""
    import entracte

    run = client.runs.get(run_id)
    if as_json:
        print_json(entracte.to_dict(run))
        return
    _show_run(run)


def _show_run(run: "Run") -> None:
    error = "" if run.error is None else f"{run.error.message} ({run.error.kind})"
    print_fields(
        [
            ("run", run.run_id),
            ("agent", run.agent_id),
            ("state", run.state),
            ("ended by", run.stop_cause),
            ("error", error),
            ("step", run.step),
            ("chunks", run.last_sequence),
            ("tokens", run.usage.total_tokens),
            ("created", time_text(run.create_time)),
            ("ended", time_text(run.finish_time)),
            ("started by", run.principal),
            ("thread", run.thread_id),
            ("resource", run.resource_id),
            ("parent", run.parent_run_id),
        ]
    )
    for call in run.pending_calls:
        click.echo(f"\nwaits: {call.pending_call_id}  {describe(call)}")
        if end := expiry(call):
            click.echo(f"  {end}")
    for job in run.follow_ups:
        click.echo(f"\n{job.kind}: {job.name} {_outcome(job)}")
    if run.result is not None and run.result.text:
        click.echo(f"\n{clean(_in_paragraphs(run.result))}")


def _outcome(job: "FollowUp") -> str:
    """What came of something that is done after the end of a run, in a line."""
    came = job.title or job.state if job.score is None else f"{job.score:g}"
    return one_line(f"{came} {job.reason or job.error}".rstrip())


def _in_paragraphs(result: "GenerateResult") -> str:
    """The text of a result, a paragraph for what each step said."""
    said = [step.text for step in result.steps if step.text and not step.is_draft]
    if "".join(said) != result.text:
        return result.text
    return "\n\n".join(text.strip("\n") for text in said)


@runs.command()
@click.argument("run_id", metavar="RUN")
@click.option("--after", type=click.IntRange(0), default=0, help="Begin after this chunk.")
@click.option("--until-finished", is_flag=True, help="Wait through suspensions.")
@click.option("--json", "as_json", is_flag=True, help="Print each chunk as a line of JSON.")
@client_command
def watch(client: "SyncClient", run_id: str, after: int, until_finished: bool, as_json: bool) -> None:
    """Follow a run: what it did, then what it does, until it parks or ends."""
    stream = client.runs.watch(run_id, after=after, until_finished=until_finished)
    if as_json:
        print_chunks(stream)
    else:
        Screen().show(stream)
    finish = stream.fold.finish
    if finish is None:  # nothing came: the run was at rest there
        raise SystemExit(exit_code(client.runs.get(run_id, omit_result=True).finish_reason))
    if not as_json:
        result = stream.result()
        if result.finish_reason == "suspended":
            say_waiting(result)
        else:
            say_end(result)
    raise SystemExit(exit_code(finish.reason))


@runs.command()
@click.argument("run_id", metavar="RUN")
@click.option("--reason", default="", help="Why; part of the run's record.")
@click.option("--no-wait", is_flag=True, help="Return before the run has ended.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@client_command
def cancel(client: "SyncClient", run_id: str, reason: str, no_wait: bool, as_json: bool) -> None:
    """Cancel a run, whatever it is doing."""
    import entracte

    run = client.runs.cancel(run_id, reason=reason, wait=not no_wait)
    if as_json:
        print_json(entracte.to_dict(run))
    else:
        click.echo(f"{run.run_id} is {run.state}.")


@runs.command()
@click.argument("run_id", metavar="RUN")
@click.option("--force", is_flag=True, help="Even if it is parked.")
@client_command
def delete(client: "SyncClient", run_id: str, force: bool) -> None:
    """Delete all that is stored of a run that has ended."""
    client.runs.delete(run_id, force=force)
    click.echo(f"{clean(run_id)} is deleted.")
