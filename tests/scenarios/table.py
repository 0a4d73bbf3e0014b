"""What a row of the tables of scenarios is, and what rows have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from entracte.v1 import options_pb2 as options
from tests.scenarios import differences as d
from tests.scenarios.differences import Difference
from tests.scenarios.play import Decide, Setup, Start, Step, Verb

ALL = {"require_tool_approval": options.ToolApproval(all=True)}
"""Every call needs approval."""

ONCE = {"model_settings": options.ModelSettings(max_retries=0)}
"""No retries: the default of the reference, said explicitly because ours is 2."""


@dataclass(frozen=True)
class Scenario:
    """One recorded scenario that is due: how it is played here, and what differs.

    `script` is the model's where the recording does not have it. `ties` are the calls of a step that
    may end in any order (None: all of them).
    """

    name: str
    setup: Setup
    steps: Sequence[Step] = (Start(),)
    differences: Sequence[Difference] = ()
    script: Sequence[Sequence[Mapping[str, Any]]] | None = None
    ties: frozenset[str] | None = None


def approve(call: str = "", **more: Any) -> Decide:
    """Approve the call of this id, or the only one."""
    return Decide("approve", call=call, **more)


def decline(call: str = "", reason: str = "", **more: Any) -> Decide:
    """Decline it."""
    return Decide("decline", call=call, reason=reason, **more)


def resume(data: Any, call: str = "", **more: Any) -> Decide:
    """Answer it."""
    return Decide("resume", data=data, call=call, **more)


def parks(text: str, *decisions: str) -> tuple[Difference, ...]:
    """What differs wherever a run parks: `text` is what the parked step said, `decisions` are the
    decisions phase by phase, each `c1 confirm resume`; an empty one is a phase without."""
    made = [(index, line) for index, line in enumerate(decisions, start=1) if line]
    shown = (d.resolved(*made),) if made else ()
    return (d.kept(text), *shown, d.PARKING_ENDS_WITH_FINISH)


def approvals(text: str, *decisions: str) -> tuple[Difference, ...]:
    """The same, where it parks for approvals."""
    return (d.APPROVE_IS_A_VERB, *parks(text, *decisions))


def translated(script: Sequence[Sequence[Mapping[str, Any]]]) -> list[list[dict[str, Any]]]:
    """A recorded script for our scripted model: an error says itself whether the call may be tried
    again, which in the recordings any error before an answer may; the tool's arguments have our names."""
    return [[_translated(part) for part in step] for step in script]


def _translated(part: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(part)
    if "throwObj" in made:
        made["throw"] = made.pop("throwObj")["message"]
    if "throw" in made and "props" not in made:
        made["retryable"] = True
    if isinstance(made.get("args"), dict) and "selectionMode" in made["args"]:
        args = dict(made["args"])
        args["selection_mode"] = args.pop("selectionMode")
        made["args"] = args
    return made


__all__ = [
    "ALL",
    "ONCE",
    "Decide",
    "Difference",
    "Scenario",
    "Setup",
    "Start",
    "Verb",
    "approvals",
    "approve",
    "decline",
    "parks",
    "resume",
    "translated",
]
