"""What the agent says and what the caller says, put together for one run."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from entracte_server.agents.agent import Agent
from entracte_server.agents.tools import Tool
from entracte_server.domain import json_text
from entracte_server.domain.data import Data
from entracte_server.domain.messages import Message
from entracte_server.domain.options import ClientTool, ModelSettings, RunOptions, ToolChoice
from entracte_server.domain.runs import Snapshot
from entracte_server.engine import prompt
from entracte_server.models.base import ModelRequest, ToolSpec


class Merged(Data, frozen=True):
    """The tool choice and provider options of a run."""

    tool_choice: ToolChoice
    provider_options: Mapping[str, Any]


def tools_of(agent: Agent, options: RunOptions) -> dict[str, Tool | ClientTool]:
    """The tools of a run, by the name the model uses: the agent's and the client's, as far as they
    are active."""
    tools: dict[str, Tool | ClientTool] = dict(agent.tools)
    tools.update((tool.name, tool) for tool in options.client_tools)
    if options.active_tools is None:
        return tools
    return {name: tool for name, tool in tools.items() if name in options.active_tools}


def model_settings(agent: Agent, options: RunOptions) -> ModelSettings:
    """The caller's settings over the agent's, value by value."""
    own, asked = agent.model_settings, options.model_settings
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
    choice = options.tool_choice
    if choice == ToolChoice() and agent.tool_choice is not None:
        choice = agent.tool_choice
    provider = dict(agent.provider_options)
    if options.provider_options is not None:
        for name, values in json_text.parse(options.provider_options).items():
            provider[name] = {**provider.get(name, {}), **values}
    return Merged(tool_choice=choice, provider_options=provider)


def model_request(
    agent: Agent,
    options: RunOptions,
    tools: Mapping[str, Tool | ClientTool],
    messages: Sequence[Message],
    used_ids: Iterable[str],
) -> ModelRequest:
    """The request of one model call. Where no tool may be called, none is offered."""
    merged = merge_options(agent, options)
    if merged.tool_choice.mode == "none":
        tools = {}
    return ModelRequest(
        messages=messages,
        tools=[ToolSpec(name, tool.description, tool.input_schema) for name, tool in tools.items()],
        tool_choice=merged.tool_choice,
        settings=model_settings(agent, options),
        provider_options=merged.provider_options,
        include_raw=options.include_raw_chunks,
        reserved_ids=frozenset(used_ids),
    )


def last_request(agent: Agent, snapshot: Snapshot) -> ModelRequest | None:
    """The request that brought the last answer of a run, made again from what is stored; None
    before the first answer."""
    if not snapshot.steps:
        return None
    last = snapshot.steps[-1].step
    earlier = [call for call in snapshot.calls if call.step < last]
    return model_request(
        agent,
        snapshot.spec.options,
        tools_of(agent, snapshot.spec.options),
        prompt.conversation(snapshot.spec, snapshot.steps[:-1], earlier),
        (call.call_id for call in earlier),
    )
