"""The jobs of a run that ends: what is still to be done about it, decided when it ends."""

import hashlib

from entracte_server.agents.agent import Agent
from entracte_server.domain.follow_ups import FollowUpRow
from entracte_server.domain.options import RunOptions
from entracte_server.engine.runlog import now_ms

TITLE = "title"
"""What the job that makes a title is called."""


def scorer_handler(name: str) -> str:
    """What a process must have to run a scorer."""
    return f"score {name}"


def title_handler(agent_id: str) -> str:
    """What a process must have to make a title of what an agent was asked: the agent. Empty: one made of
    data."""
    return f"title {agent_id}"


def sampled(run_id: str, key: str, ratio: float | None) -> bool:
    """Whether a run is among the share that a scorer runs on. Always the same for a run, whoever asks
    and however often."""
    if ratio is None:
        return True
    drawn = hashlib.sha256(f"{run_id}\0{key}".encode()).digest()
    return int.from_bytes(drawn[:8]) < ratio * 2**64


def follow_ups_of(
    agent: Agent, options: RunOptions, tenant: str, run_id: str, *, succeeded: bool, untitled: bool
) -> tuple[FollowUpRow, ...]:
    """The jobs of a run that ends now. Only of results: what failed or was cancelled is neither scored nor
    named. `untitled`: its thread is to have a title, and had none when the run started."""
    if not succeeded:
        return ()
    rows = _scores(agent, options, tenant, run_id)
    if untitled:
        now = now_ms()
        rows.append(
            FollowUpRow(
                tenant=tenant,
                run_id=run_id,
                kind="title",
                name=TITLE,
                handler=title_handler(
                    "" if any(pin.agent_id == agent.id for pin in options.versions) else agent.id
                ),
                state="waiting",
                create_time=now,
                due_time=now,
            )
        )
    return tuple(rows)


def _scores(agent: Agent, options: RunOptions, tenant: str, run_id: str) -> list[FollowUpRow]:
    now = now_ms()
    rows = []
    for choice in agent.scorers if options.scorers is None else options.scorers:
        drawn = sampled(run_id, choice.key, choice.ratio)
        rows.append(
            FollowUpRow(
                tenant=tenant,
                run_id=run_id,
                kind="score",
                name=choice.key,
                handler=scorer_handler(choice.scorer),
                state="waiting" if drawn else "skipped",
                create_time=now,
                due_time=now if drawn else 0,
                subject=choice.scorer,
                ratio=choice.ratio,
                finish_time=0 if drawn else now,
            )
        )
    return rows
