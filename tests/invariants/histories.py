"""Random histories: what runs do, and what people do to them meanwhile."""

import json
from dataclasses import dataclass
from typing import Any, Literal

from hypothesis import strategies as st

from tests.invariants.world import plan

Action = Literal[
    "answer",  # the verb that fits, with an answer that fits
    "edit",  # approve with edited arguments
    "decline",
    "wrong",  # a verb, an answer or a digest that does not fit
    "twice",  # one request sent twice at once
    "rivals",  # an answer and a decline at once
    "stale",  # a decision on a call that was decided before, by its run and call
    "claim",
    "release",
    "cancel",
    "look",  # read the run and its result
    "attach",  # another reader, from some position
    "stranger",  # somebody of another tenant tries all of it
]

ACTIONS: tuple[Action, ...] = (
    *("answer",) * 5,
    *("twice", "rivals", "decline", "attach") * 2,
    "edit",
    "wrong",
    "stale",
    "claim",
    "release",
    "cancel",
    "look",
    "stranger",
)
"""How often each comes up."""


@dataclass(frozen=True)
class Planned:
    """One call of a step. `size` is a number of rounds or of milliseconds, as the tool has it."""

    tool: str
    v: int
    size: int

    def part(self, call_id: str) -> dict[str, Any]:
        """The call as a part of a model's answer."""
        args: dict[str, Any] = {"v": self.v}
        if self.tool == "asks":
            args["rounds"] = 1 + self.size % 2
        elif self.tool in ("slow", "slow_safe", "gated_slow"):
            args["ms"] = self.size
        elif self.tool == "ask_user":
            labels = [{"label": "red"}, {"label": "green"}]
            mode = "multi_select" if self.size % 2 else "single_select"
            args = {"question": f"{self.v}?", "options": labels, "selection_mode": mode}
        elif self.tool == "malformed":
            return {"tool": "plain", "id": call_id, "rawArgs": '{"v":'}
        elif self.tool == "misfit":
            return {"tool": "gated", "id": call_id, "args": {"v": "one"}}
        return {"tool": self.tool, "id": call_id, "args": args}


@dataclass(frozen=True)
class PlannedRun:
    """A run. `tenant` is `a` or `b`; `pause` are the milliseconds the model stops in each answer;
    `gates` says whether client tools need approval, too."""

    tenant: str
    started_by: Literal["stream", "generate"]
    steps: tuple[tuple[Planned, ...], ...]
    pause: int = 0
    gates: bool = False

    def message(self, name: str) -> str:
        """The first message, which tells the model what to do."""
        steps = []
        for number, calls in enumerate(self.steps):
            parts: list[dict[str, Any]] = [{"text": f"Step {number} "}, {"delay": self.pause}]
            parts.append({"text": "is this. "})
            parts += [call.part(f"s{number}c{i}") for i, call in enumerate(calls)]
            steps.append(parts)
        return plan(*steps, name=name)


@dataclass(frozen=True)
class Op:
    """One action on one run; `pick` chooses the call or the position, `value` the answer."""

    action: Action
    run: int
    pick: int
    value: int


@dataclass(frozen=True)
class Round:
    """Actions done at once. With `restart`, the server is restarted so many milliseconds into them;
    with `settle`, what they started comes to rest before the next round."""

    ops: tuple[Op, ...]
    restart: int | None
    settle: bool


@dataclass(frozen=True)
class History:
    """Runs started at once, then rounds of actions."""

    runs: tuple[PlannedRun, ...]
    rounds: tuple[Round, ...]

    def __str__(self) -> str:
        return json.dumps([[str(run) for run in self.runs], [str(r) for r in self.rounds]], indent=1)


WAITING_TOOLS = ("gated", "asks", "ask_user", "outside", "gated_asks", "gated_slow")
OTHER_TOOLS = ("plain", "threaded", "fails", "slow", "slow_safe", "malformed", "misfit")


def calls(longest: int) -> st.SearchStrategy[Planned]:
    """A call whose tool takes up to `longest` milliseconds."""
    return st.builds(
        Planned,
        tool=st.one_of(
            st.sampled_from(WAITING_TOOLS), st.sampled_from(WAITING_TOOLS), st.sampled_from(OTHER_TOOLS)
        ),
        v=st.integers(0, 9),
        size=st.integers(0, longest),
    )


def histories(*, longest: int, restarts: int) -> st.SearchStrategy[History]:
    """Histories; of a hundred rounds about `restarts` restart the server."""
    steps = st.lists(st.lists(calls(longest), min_size=1, max_size=4).map(tuple), min_size=1, max_size=2)
    runs = st.builds(
        PlannedRun,
        tenant=st.sampled_from("aab"),
        started_by=st.sampled_from(("stream", "generate")),
        steps=steps.map(tuple),
        pause=st.sampled_from((0, 0, longest)),
        gates=st.booleans(),
    )
    ops = st.builds(
        Op,
        action=st.sampled_from(ACTIONS),
        run=st.integers(0, 2),
        pick=st.integers(0, 30),
        value=st.integers(0, 9),
    )
    restart = st.integers(0, 99).flatmap(lambda n: st.integers(0, 2 * longest) if n < restarts else st.none())
    rounds = st.builds(
        Round,
        ops=st.lists(ops, min_size=1, max_size=6).map(tuple),
        restart=restart,
        settle=st.booleans(),
    )
    return st.builds(
        History,
        runs=st.lists(runs, min_size=1, max_size=3).map(tuple),
        rounds=st.lists(rounds, min_size=1, max_size=6).map(tuple),
    )
