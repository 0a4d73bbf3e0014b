"""Options hold over servers that are killed: while the run is suspended, while the model answers, while
a tool runs. Each run has as many of them as go together."""

from pathlib import Path

import pytest

from tests.matrix.playing import check, play_killed
from tests.matrix.rows import BY_NAME

pytestmark = pytest.mark.timeout(180)

RUNS: dict[str, tuple[str, list[str]]] = {
    "what the model is sent, killed in an answer": (
        "answer",
        [
            "context",
            "instructions",
            "system",
            "model_settings",
            "provider_options",
            "prepare_step",
            "tool_choice:every_step",
            "include_raw_chunks",
            "include_request_body",
            "structured_output",
            "return_scorer_data",
        ],
    ),
    "tools and checks, killed in a tool": (
        "tool",
        [
            "active_tools",
            "toolsets",
            "client_tools",
            "hooks",
            "request_context",
            "require_tool_approval:expressions",
            "pending_call_expiry",
            "on_iteration_complete",
            "is_task_complete",
            "scorers",
            "rate_limit_wait",
        ],
    ),
    "a limit, killed in an answer": ("answer", ["max_steps", "tool_choice:tool", "run_id"]),
    "what is sent back and a second model, killed in a tool": (
        "tool",
        [
            "input_processors",
            "max_processor_retries",
            "structured_output:second_model",
            "tool_call_concurrency",
        ],
    ),
    "a veto, killed in a tool": ("tool", ["output_processors:tripwire", "require_tool_approval:patterns"]),
    "a condition, killed while suspended": (
        "",
        ["stop_when:tokens", "require_tool_approval:predicates", "is_task_complete:suppressed"],
    ),
}


@pytest.mark.parametrize("name", RUNS)
async def test_killed(name: str, tmp_path: Path) -> None:
    trouble, names = RUNS[name]
    rows = [BY_NAME[each] for each in names]
    check(rows, await play_killed(rows, tmp_path, trouble))
