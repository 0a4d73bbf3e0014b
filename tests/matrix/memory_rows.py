"""Options of the thread of a run."""

from collections.abc import Mapping
from typing import Any

from entracte import Memory
from tests.matrix.course import INPUT
from tests.matrix.row import Row, Seen

THREAD = "the-thread"


def _on_thread(**more: Any) -> Any:
    def sets(_: Any) -> Mapping[str, Any]:
        return {"memory": Memory(THREAD, "ada"), **more}

    return sets


def _said(seen: Seen) -> None:
    """The input and every call are on the thread, once, with what came of them, whichever server it was."""
    asked, *answers = seen.said
    assert (asked.role, asked.text) == ("user", INPUT)
    assert all(message.role == "assistant" and message.run_id == seen.result.run_id for message in answers)
    calls = [call for message in answers for call in message.tool_invocations]
    states = {call.tool_call_id: call.state for call in calls}
    assert len(states) == len(calls)
    assert states["c1"] == "result"
    assert "pending" not in states.values()
    assert set(seen.entered()) <= set(states)
    assert [message.position for message in seen.said] == list(range(1, len(seen.said) + 1))


ROWS = [
    Row("memory", _said, sets=_on_thread()),
    Row("save_per_step", _said, sets=_on_thread(save_per_step=True)),
    # The thread is free, so that the message starts a run.
    Row("auto_resume_suspended_tools", _said, sets=_on_thread(auto_resume_suspended_tools=True)),
]
