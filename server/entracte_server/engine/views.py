"""What hooks are shown of a run."""

from typing import TYPE_CHECKING

from entracte_server.agents.hooks import RunView, StepView
from entracte_server.engine.questions import step_text
from entracte_server.engine.scoring import tool_use

if TYPE_CHECKING:
    from entracte_server.engine.run import RunExecution


def run_view(run: "RunExecution") -> RunView:
    """What every hook is told of its run."""
    return RunView(
        run_id=run.log.key[1],
        agent_id=run.agent.id,
        request_context=run.request_context,
        thread_id=run.row.thread_id,
        resource_id=run.row.resource_id,
    )


def step_views(run: "RunExecution") -> tuple[StepView, ...]:
    """The steps that were made."""
    return tuple(
        StepView(
            number=record.step,
            text=step_text(record),
            finish_reason=record.reason,
            usage=record.usage,
            tool_uses=tuple(tool_use(call) for call in run.calls_of(record.step)),
        )
        for record in run.steps
    )
