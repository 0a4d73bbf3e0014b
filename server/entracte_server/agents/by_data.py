"""Agents made of data: what a definition says, with what an app has, is an `Agent` like any other."""

from collections.abc import Iterator, Mapping
from typing import Any

from entracte_server.agents.agent import Agent, App
from entracte_server.agents.approval import ApprovalPolicy
from entracte_server.agents.memory import Memory, SemanticRecall
from entracte_server.agents.remote import RemoteTool, remote_tool
from entracte_server.agents.scorers import Sampled
from entracte_server.agents.stopping import StopWhen, TaskCheck
from entracte_server.agents.structured import StructuredOutput
from entracte_server.agents.tools import Tool
from entracte_server.agents.working_memory import WorkingMemory
from entracte_server.domain import json_text
from entracte_server.domain import options as o
from entracte_server.domain.agents import AgentVersionRow, MemorySettings, RecallSettings
from entracte_server.domain.memory import DEFAULT_HISTORY_TOKENS, DEFAULT_LAST_MESSAGES

_CONDITIONS = {
    "steps": "step_count",
    "tokens": "total_tokens",
    "cost": "cost_micros",
    "tool": "tool_called",
    "text": "text_contains",
    "predicate": "predicate",
}


def tool_named(app: App, name: str) -> Tool | RemoteTool:
    """A tool that agents made of data can name: one that the app offers, or, as `toolset/name`, one that
    workers execute. Raises `ValueError`."""
    if "/" in name:
        return remote_tool(name)
    tool = app.tools.get(name)
    if tool is None:
        known = ", ".join(sorted(app.tools)) or "none"
        raise ValueError(f"there is no tool {name[:80]!r} for agents made of data; there are: {known}")
    return tool


def agent_from(app: App, version: AgentVersionRow, agents: Mapping[str, Agent]) -> Agent:
    """The agent that a version says, with `agents` for those that it can delegate to, by id. Raises
    `ValueError` when it names something that is not there, or cannot be."""
    said = version.definition
    if said is None:
        raise ValueError("the version was made by a newer server, in a form that this one does not know")
    defaults, expiry = said.defaults, said.defaults.pending_call_expiry
    hooks, delegation = defaults.hooks or o.ToolHooks(), defaults.delegation or o.DelegationHooks()
    rules = defaults.require_tool_approval
    agent = Agent(
        id=version.agent_id,
        name=version.name,
        description=version.description,
        model=said.models,
        instructions=said.instructions,
        tools=dict(_tool(app, name) for name in said.tools),
        toolsets=said.toolsets,
        agents={sub.name: agents[sub.agent_id] for sub in said.agents},
        max_steps=defaults.max_steps,
        require_tool_approval=False if rules is None else ApprovalPolicy.of(rules),
        tool_call_concurrency=defaults.tool_call_concurrency,
        model_settings=defaults.model_settings,
        tool_choice=defaults.tool_choice,
        provider_options=_json(defaults.provider_options),
        rate_limit_wait=defaults.rate_limit_wait or 0.0,
        version=version.version_id,
        scorers=_scorers(defaults.scorers or ()),
        telemetry=defaults.telemetry,
        tracing_options=defaults.tracing_options,
        stop_when=list(_conditions(defaults.stop_when)),
        is_task_complete=_check(defaults.is_task_complete),
        on_iteration_complete=defaults.on_iteration_complete,
        prepare_step=defaults.prepare_step,
        structured_output=_structured(defaults.structured_output),
        input_processors=defaults.input_processors or (),
        output_processors=defaults.output_processors or (),
        max_processor_retries=defaults.max_processor_retries,
        memory=None if said.memory is None else memory_from(said.memory),
        include_raw_chunks=defaults.include_raw_chunks,
        return_scorer_data=defaults.return_scorer_data,
        expires_after=None if expiry is None else expiry.after,
        on_expiry="fail" if expiry is not None and expiry.action == "fail" else "decline",
        before_tool_call=hooks.before_tool_call,
        after_tool_call=hooks.after_tool_call,
        on_delegation_start=delegation.on_start,
        on_delegation_complete=delegation.on_complete,
        message_filter=delegation.message_filter,
        hook_error_strategy=delegation.error_strategy,
    )
    app.check(agent)
    return agent


def _tool(app: App, name: str) -> tuple[str, Tool | RemoteTool]:
    """With what it is called in a run."""
    tool = tool_named(app, name)
    return (tool.name if isinstance(tool, RemoteTool) else name), tool


def memory_from(said: MemorySettings) -> Memory:
    """What an agent remembers. Raises `ValueError`."""
    working = said.working_memory
    return Memory(
        last_messages=DEFAULT_LAST_MESSAGES if said.last_messages is None else said.last_messages,
        max_history_tokens=(
            DEFAULT_HISTORY_TOKENS if said.max_history_tokens is None else said.max_history_tokens
        ),
        semantic_recall=None if said.semantic_recall is None else _recall(said.semantic_recall),
        working_memory=(
            None
            if working is None
            else WorkingMemory(working.template, schema=_json(working.schema), scope=working.scope)
        ),
        generate_title=said.generate_title,
        title_model=said.title_model,
        title_instructions=said.title_instructions,
    )


def _recall(said: RecallSettings) -> SemanticRecall:
    values = {name: getattr(said, name) for name in ("top_k", "message_range", "scope")}
    try:
        return SemanticRecall(said.embedder, **{k: v for k, v in values.items() if v is not None})
    except RuntimeError as error:
        raise ValueError(str(error)) from None


def _json(text: str | None) -> Any:
    return None if text is None else json_text.parse(text)


def _scorers(chosen: tuple[o.ScorerChoice, ...]) -> dict[str, Sampled | str]:
    return {one.key: one.scorer if one.ratio is None else Sampled(one.scorer, one.ratio) for one in chosen}


def _conditions(conditions: tuple[o.StopCondition, ...]) -> Iterator[StopWhen]:
    for one in conditions:
        given: dict[str, Any] = {_CONDITIONS[one.kind]: one.text or one.number}
        yield StopWhen(**given)


def _check(completion: o.TaskCompletion | None) -> TaskCheck | None:
    if completion is None:
        return None
    return TaskCheck(
        scorers=completion.scorers,
        strategy=completion.strategy,
        parallel=completion.parallel,
        timeout=completion.timeout,
        suppress_feedback=completion.suppress_feedback,
        on_complete=completion.on_complete or None,
    )


def _structured(said: o.StructuredOutput | None) -> StructuredOutput | None:
    if said is None:
        return None
    return StructuredOutput(
        json_text.parse(said.schema),
        model=said.model,
        error_strategy=said.error_strategy,
        fallback_value=None if said.fallback_value is None else json_text.parse_stored(said.fallback_value),
        instructions=said.instructions,
        json_prompt_injection=said.injection,
        provider_options=_json(said.provider_options),
    )
