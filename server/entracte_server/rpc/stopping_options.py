"""The options that end a run or steer it from step to step: conditions, checks and hooks by name."""

from entracte.v1 import options_pb2
from entracte_server.agents.agent import Agent, App
from entracte_server.agents.hooks import HookKind, find
from entracte_server.agents.stopping import MAX_CHECK_SECONDS
from entracte_server.domain.errors import invalid
from entracte_server.domain.options import RunOptions, StopCondition, TaskCompletion, ToolHooks
from entracte_server.rpc import checks

MAX_CONDITIONS = 32
MAX_TEXT = 4096

_KINDS = {
    "step_count": "steps",
    "tool_called": "tool",
    "total_tokens": "tokens",
    "cost_micros": "cost",
    "text_contains": "text",
    "predicate": "predicate",
}


def hook_name(app: App, field: str, name: str, kind: HookKind) -> str:
    """The name of a hook, empty for none. Raises `Refusal`."""
    if name:
        try:
            find(app.hooks, name, kind)
        except ValueError as error:
            raise invalid(field, str(error)) from None
    return name


def tool_hooks(app: App, options: options_pb2.GenerateOptions) -> ToolHooks | None:
    """Those of the run; None: the agent's."""
    if not options.HasField("hooks"):
        return None
    given = options.hooks
    return ToolHooks(
        hook_name(app, "options.hooks.before_tool_call", given.before_tool_call, "before_tool_call"),
        hook_name(app, "options.hooks.after_tool_call", given.after_tool_call, "after_tool_call"),
    )


def stop_when(app: App, options: options_pb2.GenerateOptions, tools: set[str]) -> tuple[StopCondition, ...]:
    """The conditions of a run that can call `tools`."""
    if len(options.stop_when) > MAX_CONDITIONS:
        raise invalid("options.stop_when", f"at most {MAX_CONDITIONS}")
    return tuple(
        _condition(app, f"options.stop_when[{i}]", given, tools) for i, given in enumerate(options.stop_when)
    )


def check_prices(app: App, agent: Agent, options: RunOptions) -> None:
    """Raises `Refusal` where what a run costs is limited, and a model of it has no price."""
    for i, condition in enumerate(options.stop_when or agent.stop_when):
        if condition.kind != "cost":
            continue
        try:
            app.check_prices(agent, options)
        except ValueError as error:
            given = bool(options.stop_when)
            field = f"options.stop_when[{i}].cost_micros" if given else "options.stop_when"
            raise invalid(field, str(error)) from None


def _condition(app: App, field: str, given: options_pb2.StopCondition, tools: set[str]) -> StopCondition:
    which = given.WhichOneof("condition")
    if which is None:
        raise invalid(field, "needs a condition: " + ", ".join(_KINDS))
    kind, value = _KINDS[which], getattr(given, which)
    field = f"{field}.{which}"
    if not isinstance(value, str):
        if value < 1:
            raise invalid(field, "must be at least 1")
        return StopCondition(kind, number=value)  # type: ignore[arg-type]
    if not 0 < len(value) <= MAX_TEXT:
        raise invalid(field, f"needs 1 to {MAX_TEXT} characters")
    if kind == "tool" and value not in tools:
        raise invalid(field, f"the agent has no tool {value[:80]!r}")
    if kind == "predicate":
        hook_name(app, field, value, "stop_when")
    return StopCondition(kind, text=value)  # type: ignore[arg-type]


def task_completion(app: App, options: options_pb2.GenerateOptions) -> TaskCompletion | None:
    """The checks of completion of a run; None: the agent's."""
    if not options.HasField("is_task_complete"):
        return None
    given, field = options.is_task_complete, "options.is_task_complete"
    if not given.scorers:
        raise invalid(f"{field}.scorers", "needs the name of a scorer at least")
    for i, name in enumerate(given.scorers):
        if name not in app.scorers:
            names = ", ".join(sorted(app.scorers)) or "none"
            raise invalid(f"{field}.scorers[{i}]", f"there is no scorer {name[:80]!r}; there are: {names}")
    kinds = options_pb2.TaskCompletion.Strategy
    if given.strategy not in kinds.values():
        raise invalid(f"{field}.strategy", "is not a strategy this server knows")
    seconds = 600.0
    if given.HasField("timeout"):
        seconds = checks.duration(f"{field}.timeout", given.timeout, 1e-3, MAX_CHECK_SECONDS)
    return TaskCompletion(
        scorers=tuple(given.scorers),
        strategy="any" if given.strategy == options_pb2.TaskCompletion.STRATEGY_ANY else "all",
        parallel=given.parallel if given.HasField("parallel") else True,
        timeout=seconds,
        suppress_feedback=given.suppress_feedback,
        on_complete=hook_name(app, f"{field}.on_complete", given.on_complete, "check_complete"),
    )
