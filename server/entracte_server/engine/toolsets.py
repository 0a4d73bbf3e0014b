"""The tools of a run: the agent's, those of toolsets, and the client's, by the name the model uses."""

from collections.abc import Container, Iterable

from entracte_server.agents.agent import Agent, App
from entracte_server.agents.tools import Tool
from entracte_server.domain.options import ClientTool, RunOptions


class Toolsets:
    """The toolsets of an app, for the runs of one process."""

    def __init__(self, app: App) -> None:
        self._registered = app.toolsets

    def server_tools(self, agent: Agent, asked: Iterable[str]) -> dict[str, Tool]:
        """The tools that the server executes: the agent's, then those of its toolsets and of those that
        are asked for. A toolset that is not registered has none."""
        tools = dict(agent.tools)
        for name in dict.fromkeys((*agent.toolsets, *asked)):
            if (toolset := self._registered.get(name)) is not None:
                tools.update(toolset.tools)
        return tools

    def tools_of(self, agent: Agent, options: RunOptions) -> dict[str, Tool | ClientTool]:
        """The tools of a run, as far as they are active."""
        tools: dict[str, Tool | ClientTool] = {**self.server_tools(agent, options.toolsets)}
        tools.update((tool.name, tool) for tool in options.client_tools)
        if options.active_tools is None:
            return tools
        return {name: tool for name, tool in tools.items() if name in options.active_tools}


def needs_of(options: RunOptions) -> tuple[str, ...]:
    """What must be registered in a process that goes on with a run, beside its agent."""
    needs = [f"toolset {name}" for name in options.toolsets]
    hooks = [options.on_iteration_complete, options.prepare_step]
    if (around := options.hooks) is not None:
        hooks += [around.before_tool_call, around.after_tool_call]
    hooks += [condition.text for condition in options.stop_when if condition.kind == "predicate"]
    if (completion := options.is_task_complete) is not None:
        hooks.append(completion.on_complete)
        needs += [f"scorer {name}" for name in completion.scorers]
    return (*needs, *(f"hook {name}" for name in hooks if name))


def missing(app: App, needs: Iterable[str]) -> str | None:
    """The first of `needs` that an app does not have."""
    registered: dict[str, Container[str]] = {
        "toolset": app.toolsets,
        "scorer": app.scorers,
        "hook": app.hooks,
    }
    for need in needs:
        kind, _, name = need.partition(" ")
        if name not in registered.get(kind, ()):
            return need
    return None
