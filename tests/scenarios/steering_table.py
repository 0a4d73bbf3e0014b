"""The due scenarios about what ends a run and what steers it."""

import json
from typing import Any

from entracte.v1 import options_pb2 as options
from entracte_server import Hook, Skip, StepInfo, StepOverrides, StopInfo, ToolCallInfo, ToolChoice
from tests.scenarios import differences as d
from tests.scenarios import tools
from tests.scenarios.play import Setup
from tests.scenarios.table import Scenario


async def _called_with_b(info: StopInfo) -> bool:
    return any(use.args == {"msg": "b"} for use in info.steps[-1].tool_uses)


async def _no_tools_in_the_second(info: StepInfo) -> StepOverrides | None:
    return StepOverrides(active_tools=(), tool_choice=ToolChoice("none")) if info.number == 2 else None


async def _block_b(info: ToolCallInfo) -> Skip | None:
    return Skip("BLOCKED") if info.args == {"msg": "b"} else None


async def _look(info: Any) -> None:
    json.dumps(info.run.run_id)


SCENARIOS = [
    Scenario(
        "stopwhen_stepcount", Setup(tools.looping, {"stop_when": [options.StopCondition(step_count=2)]})
    ),
    Scenario(
        "stopwhen_array_with_maxsteps",
        Setup(
            tools.looping,
            {"stop_when": [options.StopCondition(predicate="b")], "max_steps": 5},
            hooks=[Hook(kind="stop_when", name="b", function=_called_with_b)],
        ),
    ),
    Scenario(
        "prepareStep",
        Setup(
            tools.looping,
            {"prepare_step": "prepare"},
            hooks=[Hook(kind="prepare_step", name="prepare", function=_no_tools_in_the_second)],
        ),
        differences=(
            d.TOTALS,
            d.rewritten("where no tool may be called, none is looked for", "unknown-tool", "not-executed"),
        ),
    ),
    Scenario(
        "hooks_before_after",
        Setup(
            tools.looping,
            {"hooks": options.ToolHooks(before_tool_call="before", after_tool_call="after")},
            hooks=[
                Hook(kind="before_tool_call", name="before", function=_block_b),
                Hook(kind="after_tool_call", name="after", function=_look),
            ],
        ),
        differences=(
            d.rewritten(
                "what a hook gives is a result like a tool's", 'echo text "BLOCKED"', 'echo json "BLOCKED"'
            ),
        ),
    ),
    # What the reference's hooks say in vain, they cannot say here.
    Scenario(
        "hooks_modify_input_output",
        Setup(
            tools.looping,
            {"hooks": options.ToolHooks(before_tool_call="before", after_tool_call="after")},
            hooks=[
                Hook(kind="before_tool_call", name="before", function=_look),
                Hook(kind="after_tool_call", name="after", function=_look),
            ],
        ),
    ),
]
