"""What the runs of these tests do, and what people answer: the same every time, so that two plays of
one plan end alike, whatever happened to the servers meanwhile."""

from dataclasses import dataclass
from typing import Any, Literal

from entracte import ToolCallApprovalChunk, ToolCallSuspendedChunk
from tests.invariants.world import plan

Announcement = ToolCallApprovalChunk | ToolCallSuspendedChunk

DECLINED = 13
EDITED = 7
FAILED_OUTSIDE = 9

Step = list[dict[str, Any]]


def _text(words: str, delay: int = 0) -> list[dict[str, Any]]:
    return [{"text": words}, {"delay": delay}] if delay else [{"text": words}]


def _call(tool: str, call_id: str, v: int, **args: Any) -> dict[str, Any]:
    return {"tool": tool, "id": call_id, "args": {"v": v, **args}}


_QUESTION = {
    "tool": "ask_user",
    "id": "q",
    "args": {"question": "Which?", "options": [{"label": "red"}, {"label": "green"}]},
}


@dataclass(frozen=True)
class Plan:
    """A run. `cancel`: somebody cancels it when it waits, or while its first tool runs. `expires`: nobody
    decides, for so many seconds that what waits is declined."""

    name: str
    steps: tuple[Step, ...]
    cancel: Literal["", "waiting", "running"] = ""
    expires: float | None = None

    def message(self, run_id: str) -> str:
        """The message that starts it."""
        return plan(*self.steps, name=run_id)


PLANS = (
    Plan(
        "text",
        ([*_text("A long answer. ", 15), *_text("It goes on, ", 15), *_text("and comes to its end. ", 10)],),
    ),
    Plan(
        "tools",
        (
            [*_text("First. ", 5), _call("once", "a", 1, ms=10), _call("again", "b", 2, ms=30)],
            [*_text("Then. "), _call("threaded", "c", 3, ms=20), _call("reports", "d", 4, lines=5)],
            [*_text("At last. "), _call("once", "e", 5), _call("fails", "f", 6)],
        ),
    ),
    Plan(
        "approvals",
        (
            [
                *_text("May I? ", 5),
                _call("gated", "a", 1, ms=10),
                _call("gated_again", "b", EDITED, ms=20),
                _call("gated", "c", DECLINED),
                _call("once", "d", 4, ms=60),
            ],
            [*_text("And this? "), _call("gated", "e", 5, ms=30)],
        ),
    ),
    Plan(
        "questions",
        (
            [*_text("Tell me. "), _call("asks", "a", 1, rounds=2), _QUESTION],
            [*_text("More. "), _call("asks_again", "b", 2, rounds=2), _call("again", "c", 3, ms=50)],
        ),
    ),
    Plan(
        "outside",
        (
            [*_text("Yours. "), _call("outside", "a", 1), _call("outside", "b", FAILED_OUTSIDE)],
            [
                *_text("Both. "),
                _call("outside", "c", 3),
                _call("gated", "d", 4),
                _call("threaded", "e", 5, ms=30),
            ],
        ),
    ),
    Plan(
        "mixed",
        (
            [
                *_text("All at once. ", 5),
                _call("gated", "a", 1),
                _call("asks", "b", 2),
                _call("outside", "c", 3),
                _call("once", "d", 4, ms=40),
                _call("again", "e", 5, ms=80),
                _call("reports", "f", 6),
            ],
            [*_text("Nearly. "), _call("once", "g", 7)],
        ),
    ),
    Plan(
        "cancelled", ([*_text("Stop me. "), _call("gated", "a", 1), _call("asks", "b", 2)],), cancel="waiting"
    ),
    Plan("cut", ([*_text("Stop me. "), _call("again", "a", 1, ms=20_000)],), cancel="running"),
    Plan("expiring", ([*_text("Anybody? "), _call("gated", "a", 1), _call("gated", "b", 2)],), expires=0.3),
)


def answer_to(call: Announcement) -> Any:
    """What people answer to a question."""
    if call.tool_name == "ask_user":
        return "green"
    return {"v": call.suspend_payload["asks"], "round": call.suspend_payload["round"]}  # type: ignore[union-attr]


def done_by_hand(call: Announcement) -> Any:
    """What a tool of this world returns, which somebody who saw it happen can tell."""
    return {call.tool_name: call.args["v"]}
