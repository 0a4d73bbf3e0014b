"""What the agent says and what the caller says, put together for one run."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from entracte_server.agents.agent import Agent
from entracte_server.agents.tools import Tool
from entracte_server.domain import json_text
from entracte_server.domain.data import Data
from entracte_server.domain.messages import Message, ToolCallPart, text_message
from entracte_server.domain.options import ClientTool, ModelSettings, RunOptions, StepOverrides, ToolChoice
from entracte_server.domain.runs import CallRow, Snapshot
from entracte_server.engine import prompt
from entracte_server.models.base import ModelRequest, ToolSpec


class Merged(Data, frozen=True):
    """The tool choice and provider options of a run."""

    tool_choice: ToolChoice
    provider_options: Mapping[str, Any]


def model_settings(agent: Agent, options: RunOptions) -> ModelSettings:
    """The caller's settings over the agent's, value by value."""
    return _settings_over(agent.model_settings, options.model_settings)


def _settings_over(own: ModelSettings, asked: ModelSettings) -> ModelSettings:
    if asked == ModelSettings():
        return own
    values = {
        name: getattr(asked, name)
        for name in ModelSettings.__struct_fields__
        if getattr(asked, name) not in (None, (), {})
    }
    if "headers" in values:
        values["headers"] = {**own.headers, **values["headers"]}
    return msgspec.structs.replace(own, **values)


def merge_options(agent: Agent, options: RunOptions) -> Merged:
    """The caller's choice, else the agent's; the caller's provider options over the agent's, key by
    key within a provider."""
    choice = options.tool_choice or agent.tool_choice or ToolChoice()
    provider = dict(agent.provider_options)
    if options.provider_options is not None:
        provider = _providers_over(provider, json_text.parse(options.provider_options))
    return Merged(tool_choice=choice, provider_options=provider)


def rate_limit_wait(agent: Agent, options: RunOptions) -> float:
    """How many seconds a model call may wait for a rate limit: as the caller says, else the agent."""
    asked = options.rate_limit_wait
    return agent.rate_limit_wait if asked is None else asked


def choice_now(
    choice: ToolChoice, tools: Mapping[str, Tool | ClientTool], calls: Iterable[CallRow]
) -> ToolChoice:
    """The choice for the next model call, `calls` being those made so far. What forces a call is satisfied
    by the first, and where there is nothing to call it forces nothing: providers refuse that."""
    name = choice.tool_name
    match choice.mode:
        case "required" if tools:
            satisfied = any(True for _ in calls)
        case "tool" if name in tools:
            satisfied = any(call.tool_name == name for call in calls)
        case "required" | "tool":
            return ToolChoice()
        case _:
            return choice
    return ToolChoice() if satisfied and not choice.every_step else choice


def _providers_over(own: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    return {**own, **{name: {**own.get(name, {}), **values} for name, values in asked.items()}}


def tools_in(
    tools: Mapping[str, Tool | ClientTool], overrides: StepOverrides | None
) -> Mapping[str, Tool | ClientTool]:
    """Those of a run's tools that may be called in a step."""
    if overrides is None or overrides.active_tools is None:
        return tools
    return {name: tool for name, tool in tools.items() if name in overrides.active_tools}


def model_request(
    agent: Agent,
    options: RunOptions,
    tools: Mapping[str, Tool | ClientTool],
    messages: Sequence[Message],
    calls: Collection[CallRow],
    overrides: StepOverrides | None = None,
    *,
    may_wait: bool = True,
) -> ModelRequest:
    """The request of one model call, `calls` being those of the run so far. Where no tool may be called,
    none is offered. `may_wait`: a rate limit may be waited for, as long as the run allows."""
    merged = merge_options(agent, options)
    settings = model_settings(agent, options)
    chosen_now = overrides is not None and overrides.tool_choice is not None
    if overrides is not None:
        merged = _with_overrides(merged, overrides)
        messages = _messages_over(messages, overrides)
        settings = _settings_over(settings, overrides.model_settings or ModelSettings())
    tools = {} if merged.tool_choice.mode == "none" else tools_in(tools, overrides)
    return ModelRequest(
        messages=messages,
        tools=[ToolSpec(name, tool.description, tool.input_schema) for name, tool in tools.items()],
        # What is chosen for this very step is not satisfied by an earlier one.
        tool_choice=choice_now(merged.tool_choice, tools, () if chosen_now else calls),
        settings=settings,
        provider_options=merged.provider_options,
        include_raw=options.include_raw_chunks,
        reserved_ids=frozenset(_call_ids(messages)).union(call.call_id for call in calls),
        rate_limit_wait=rate_limit_wait(agent, options) if may_wait else 0.0,
    )


def _call_ids(messages: Iterable[Message]) -> Iterator[str]:
    for message in messages:
        if message.role == "assistant":
            yield from (part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart))


def _with_overrides(merged: Merged, overrides: StepOverrides) -> Merged:
    return Merged(
        tool_choice=overrides.tool_choice or merged.tool_choice,
        provider_options=_providers_over(merged.provider_options, overrides.provider_options or {}),
    )


def _messages_over(messages: Sequence[Message], overrides: StepOverrides) -> Sequence[Message]:
    if overrides.messages is None and overrides.system is None:
        return messages
    system = [message for message in messages if message.role == "system"]
    turns: Sequence[Message] = [message for message in messages if message.role != "system"]
    if overrides.system is not None:
        system = [text_message("system", text) for text in overrides.system]
    if overrides.messages is not None:
        turns = overrides.messages
    return [*system, *turns]


def last_request(
    agent: Agent, snapshot: Snapshot, tools: Mapping[str, Tool | ClientTool]
) -> ModelRequest | None:
    """The request that brought the last answer of a run, made again from what is stored; None
    before the first answer."""
    if not snapshot.steps:
        return None
    last = snapshot.steps[-1].step
    earlier = [call for call in snapshot.calls if call.step < last]
    return model_request(
        agent,
        snapshot.spec.options,
        tools,
        [
            *prompt.conversation(
                prompt.processed(snapshot.spec, snapshot.processing), snapshot.steps[:-1], earlier
            ),
            *prompt.rejected_messages(snapshot.steps[-1]),
        ],
        earlier,
        snapshot.steps[-1].overrides,
    )
