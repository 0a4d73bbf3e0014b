"""The tools of a run: the agent's, those of toolsets, and the client's, by the name the model uses.

Tools of MCP servers are listed when a run starts, those of workers looked up, and stored with it. What is
stored is what the model is told for as long as the run lasts, in whichever process.
"""

import asyncio
from collections.abc import Callable, Container, Iterable
from typing import TYPE_CHECKING, Any, get_args

from entracte_server.agents.agent import Agent, App
from entracte_server.agents.context import ToolContext
from entracte_server.agents.hooks import HookKind
from entracte_server.agents.mcp import McpToolset
from entracte_server.agents.remote import RemoteTool, WorkerTool
from entracte_server.agents.tools import Tool
from entracte_server.domain import json_text
from entracte_server.domain.errors import Refusal, invalid
from entracte_server.domain.options import ClientTool, PinnedTool, RunOptions
from entracte_server.engine import working_memory
from entracte_server.store.base import Store

if TYPE_CHECKING:
    from entracte_server.engine.mcp_connection import McpConnection

_HOOK_KINDS = frozenset(get_args(HookKind))

MAX_KEPT = 2048
"""Tools made from stored definitions that are kept for the next run."""


class Toolsets:
    """The toolsets of an app, for the runs of one process. Owns the sessions with MCP servers."""

    def __init__(self, app: App, store: Store) -> None:
        self._registered = app.toolsets
        self._store = store
        self._connections: dict[str, McpConnection] = {}
        self._made: dict[PinnedTool, Tool] = {}

    # ---- what a run has ----

    def server_tools(
        self, agent: Agent, asked: Iterable[str], pinned: Iterable[PinnedTool] = ()
    ) -> dict[str, Tool]:
        """The tools that the server executes: the agent's, then those of its toolsets and of those that
        are asked for. A toolset that is not registered has none."""
        tools = dict(agent.tools)
        for name in _chosen(agent, asked):
            if (toolset := self._registered.get(name)) is not None:
                tools.update(toolset.tools)
        tools.update((item.name, tool) for item in pinned if (tool := self.remote(item)) is not None)
        return tools

    def tools_of(self, agent: Agent, options: RunOptions) -> dict[str, Tool | ClientTool]:
        """The tools of a run, as far as they are active."""
        server_tools = self.server_tools(agent, options.toolsets, options.pinned_tools)
        tools: dict[str, Tool | ClientTool] = {**server_tools}
        tools.update(working_memory.tools_in(agent, options.memory))
        tools.update((tool.name, tool) for tool in options.client_tools)
        if options.active_tools is None:
            return tools
        return {name: tool for name, tool in tools.items() if name in options.active_tools}

    # ---- MCP servers and workers ----

    async def pin(self, agent: Agent, asked: Iterable[str], tenant: str) -> tuple[PinnedTool, ...]:
        """The tools of MCP servers and of workers that a new run has. Raises `Refusal` TOOLSET_UNAVAILABLE
        for a server that does not list its tools, REQUEST_INVALID where one is called as another tool is,
        WORKER_TOOL_UNKNOWN for a tool that no worker has registered, and what the store raises."""
        workers = [await self._offered(tool, tenant) for tool in agent.remote_tools.values()]
        return (*await self._pin_servers(agent, asked), *workers)

    async def _offered(self, tool: RemoteTool, tenant: str) -> PinnedTool:
        offered = await self._store.worker_tools(tenant, tool.remote, tool.version)
        if offered is None:
            which = f" in version {tool.version}" if tool.version else ""
            refusal = Refusal(
                "WORKER_TOOL_UNKNOWN",
                f"No worker has registered the tool {tool.remote!r}{which} yet: start one that does.",
                tool=tool.remote,
            )
            if tool.version:
                refusal.metadata["version"] = tool.version
            raise refusal
        return offered.pinned()

    async def _pin_servers(self, agent: Agent, asked: Iterable[str]) -> tuple[PinnedTool, ...]:
        names = [name for name in _chosen(agent, asked) if isinstance(self._registered[name], McpToolset)]
        if not names:
            return ()
        lists = await asyncio.gather(*(self._list(name) for name in names), return_exceptions=True)
        pinned: dict[str, PinnedTool] = {}
        others = self.server_tools(agent, asked)
        for listed in lists:
            if isinstance(listed, BaseException):
                raise listed
            for item in listed:
                if item.name in others:
                    raise invalid(
                        "options.toolsets",
                        f"the toolset {item.toolset!r} has a tool {item.name!r}, and so has the agent",
                    )
                pinned[item.name] = item
        return tuple(pinned.values())

    async def _list(self, name: str) -> Iterable[PinnedTool]:
        from entracte_server.engine.mcp_connection import McpUnavailable

        try:
            return (await self._connection(name).definitions()).values()
        except McpUnavailable as error:
            raise Refusal(
                "TOOLSET_UNAVAILABLE",
                f"The tools of the toolset {name!r} cannot be listed: {error}.",
                toolset=name,
            ) from None

    def remote(self, definition: PinnedTool) -> Tool | None:
        """The tool of an MCP server, as it was when it was listed, or of workers, as it was registered;
        None where the server's toolset is not registered any more."""
        toolset = self._registered.get(definition.toolset)
        if definition.worker is None and not isinstance(toolset, McpToolset):
            return None
        tool = self._made.get(definition)
        if tool is None:
            if len(self._made) >= MAX_KEPT:
                self._made.clear()
            made = (
                self._make(toolset, definition) if isinstance(toolset, McpToolset) else WorkerTool(definition)
            )
            tool = self._made[definition] = made
        return tool

    def _make(self, toolset: McpToolset, definition: PinnedTool) -> Tool:
        async def execute(args: dict[str, Any], ctx: ToolContext[Any]) -> Any:
            connection = self._connection(toolset.name)
            # What a person approved is compared with what the server has now.
            return await connection.call(definition, args, key=ctx.idempotency_key, fresh=ctx._approved)

        return Tool(
            name=definition.name,
            description=definition.description,
            input_schema=json_text.parse(definition.input_schema),
            execute=execute,
            requires_approval=toolset.demand(definition.remote),
            idempotent=toolset.is_idempotent(definition.remote),
            timeout=toolset.timeout,
        )

    def _connection(self, name: str) -> "McpConnection":
        from entracte_server.engine.mcp_connection import McpConnection

        connection = self._connections.get(name)
        if connection is None:
            toolset = self._registered[name]
            assert isinstance(toolset, McpToolset)
            connection = self._connections[name] = McpConnection(toolset)
        return connection

    async def close(self) -> None:
        """End all sessions; bounded."""
        await asyncio.gather(*(connection.close() for connection in self._connections.values()))


def _chosen(agent: Agent, asked: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys((*agent.toolsets, *asked))


VERSION = "version"
"""The kind of need that is an agent's version; see `stored_agents`."""


def agent_need(agent_id: str, options: RunOptions) -> tuple[str, ...]:
    """The need for an agent itself; of one made of data, what its version names is what is needed."""
    return () if any(pin.agent_id == agent_id for pin in options.versions) else (f"agent {agent_id}",)


def needs_of(options: RunOptions) -> tuple[str, ...]:
    """What must be registered in a process that goes on with a run, beside its agent."""
    servers = (tool.toolset for tool in options.pinned_tools if tool.worker is None)
    names = (*options.toolsets, *servers)
    needs = [f"toolset {name}" for name in dict.fromkeys(names)]
    needs += [f"{VERSION} {pin.agent_id} {pin.version_id}" for pin in options.versions]
    processors = (*(options.input_processors or ()), *(options.output_processors or ()))
    needs += [f"processor {processor.name}" for processor in processors]
    if (structured := options.structured_output) is not None and structured.model:
        needs.append(f"model {structured.model}")
    hooks: list[tuple[HookKind, str]] = [
        ("iteration_complete", options.on_iteration_complete),
        ("prepare_step", options.prepare_step),
    ]
    if (around := options.hooks) is not None:
        hooks += [("before_tool_call", around.before_tool_call), ("after_tool_call", around.after_tool_call)]
    if (delegation := options.delegation) is not None:
        hooks.append(("delegation_start", delegation.on_start))
        hooks.append(("delegation_complete", delegation.on_complete))
        hooks.append(("message_filter", delegation.message_filter))
    hooks += [("stop_when", one.text) for one in options.stop_when if one.kind == "predicate"]
    if (completion := options.is_task_complete) is not None:
        hooks.append(("check_complete", completion.on_complete))
        needs += [f"scorer {name}" for name in completion.scorers]
    return (*needs, *(f"{kind} {name}" for kind, name in hooks if name))


def missing(app: App, needs: Iterable[str], resolve: Callable[[str], object]) -> str | None:
    """The first of `needs` that an app lacks, in words; `resolve` finds a model by its name, or raises
    `ValueError`."""
    registered: dict[str, Container[str]] = {
        "agent": app.every_agent,
        "toolset": app.toolsets,
        "scorer": app.scorers,
        "hook": app.hooks,  # as an older version wrote it, without its kind
        "processor": app.processors,
    }
    for need in needs:
        kind, _, name = need.partition(" ")
        if kind == VERSION:  # whether it can be used is seen when its agent is made
            continue
        if kind == "model":
            try:
                resolve(name)
            except ValueError:
                return need
        elif kind in _HOOK_KINDS:
            if name not in app.hooks or app.hooks[name].kind != kind:
                return f"{kind} hook {name}"
        elif name not in registered.get(kind, ()):
            return need
    return None
