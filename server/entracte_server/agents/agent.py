"""Agents and the application that holds them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

from entracte_server.agents.approval import ApprovalPolicy, ApprovalPredicate, checked_predicates
from entracte_server.agents.delegating import agent_tools, with_sub_agents
from entracte_server.agents.expiry import WhatThen, expiry_from
from entracte_server.agents.hooks import Hook, HookKind, by_name, find
from entracte_server.agents.mcp import McpToolset
from entracte_server.agents.memory import Memory
from entracte_server.agents.processors import chains as processor_chains
from entracte_server.agents.processors.base import Processor, Processors
from entracte_server.agents.processors.base import registered as registered_processors
from entracte_server.agents.remote import RemoteTool
from entracte_server.agents.scorers import LlmScorer, Scorer, Scorers, choices, registered
from entracte_server.agents.stopping import Price, StopWhen, TaskCheck
from entracte_server.agents.structured import StructuredOutputLike, structured_from
from entracte_server.agents.tools import NAME, Tool
from entracte_server.agents.toolsets import SEPARATOR, Toolset
from entracte_server.agents.working_memory import TOOL_NAME
from entracte_server.domain import json_text
from entracte_server.domain.options import (
    ApprovalRules,
    DelegationHooks,
    ModelSettings,
    RunOptions,
    StructuredOutput,
    TaskCompletion,
    ToolChoice,
    ToolHooks,
)
from entracte_server.domain.tracing import TelemetryOptions, TracingOptions
from entracte_server.models.base import Model

Instructions = str | Sequence[str] | Callable[[Mapping[str, Any]], "str | Sequence[str]"]


class Agent:
    """A model with instructions and tools. Immutable once made; every run has state of its own.

    Args:
        id: What callers name it by.
        model: `provider/model`, a model object, or a list of these: each is tried when the one
            before it fails.
        instructions: System text, several of them, or a function of the run's `request_context`
            that gives either, called once when a run starts.
        tools: The tools, those of workers (`remote_tool`) among them; or a mapping that renames them, but
            for those of workers, which are called `toolset__name`.
        name: For people; the id unless given.
        description: What it is good for.
        agents: Sub-agents that its model can delegate tasks to, each by a tool `agent-ID`; or a mapping that
            renames them. What a sub-agent does is its own: model, instructions, tools and limits.
        max_steps: The most model calls of a run, unless the caller says otherwise. Default 5.
        toolsets: Names of the app's toolsets whose tools it has as well.
        require_tool_approval: Whether every call needs approval, or the names and patterns of those
            that do, or an `ApprovalPolicy`. Callers can add to it.
        tool_call_concurrency: The most tools of a step that run at once. Default 10.
        model_settings, tool_choice, provider_options: As callers give them; a caller's replace them
            value by value (settings), or as a whole (choice), or provider by provider (options).
        rate_limit_wait: How long, in seconds, a model call may wait in all for its provider's rate limit
            before its answer begins; a chunk shows each wait. Default 0: it is not waited for.
        version: Stored with each run.
        memory: What its runs remember of their threads, where their callers do not say.
        scorers: What judges the results of runs that succeed: scorers, names of those of the `App`, or a
            mapping from what they are called to these; each may be `Sampled`. A caller's replace them.
        telemetry, tracing_options: As callers give them, but the ids of a trace. A caller's replace them
            value by value (telemetry), or are added to them (tracing options).
        stop_when: Conditions that end a run after a step; a caller's replace them.
        is_task_complete: Checks made when the model would stop; a caller's replace them.
        on_iteration_complete, prepare_step, before_tool_call, after_tool_call: Hooks, or names of those of
            the `App`; see `hook`. A caller's replace them, those around tool calls together.
        on_delegation_start, on_delegation_complete, message_filter: Hooks around what it delegates to its
            sub-agents, or names of those of the `App`. A caller's replace them together.
        hook_error_strategy: What an error of one of these means: `warn` logs it, `throw` fails the call that
            delegates. Default: as each of them declares.
        structured_output: What answers must look like: a pydantic model, a JSON Schema, or a
            `StructuredOutput` with more to say. A caller's replaces it.
        input_processors, output_processors: What looks at, changes or stops what goes into the model and
            what comes out of it: processors, or names of those of the `App`. A caller's replace them.
        max_processor_retries: How often processors may send an answer back for another try. Default 0.
        include_raw_chunks, return_scorer_data: Whether runs show what the provider sent, and whether results
            have what scorers see, unless the caller says otherwise. Default: they do not.
        expires_after, on_expiry: As tools have them, for the calls of tools that have none of their own
            and of client tools. A default answer answers what tools ask; other calls are declined.

    Raises `ValueError` for an empty id, two tools of one name, limits under 1, metadata that are no
    JSON, and a default answer that is not one for each tool it would be given to.
    """

    def __init__(
        self,
        *,
        id: str,
        model: str | Model | Sequence[str | Model],
        instructions: Instructions = (),
        tools: Iterable[Tool | RemoteTool] | Mapping[str, Tool | RemoteTool] = (),
        toolsets: Iterable[str] = (),
        agents: "Iterable[Agent] | Mapping[str, Agent]" = (),
        name: str = "",
        description: str = "",
        max_steps: int | None = None,
        require_tool_approval: bool | Sequence[str] | ApprovalPolicy = False,
        tool_call_concurrency: int | None = None,
        model_settings: ModelSettings | None = None,
        tool_choice: ToolChoice | None = None,
        provider_options: Mapping[str, Any] | None = None,
        rate_limit_wait: float | timedelta = 0.0,
        version: str = "",
        scorers: Scorers = (),
        telemetry: TelemetryOptions | None = None,
        tracing_options: TracingOptions | None = None,
        stop_when: StopWhen | Sequence[StopWhen] = (),
        is_task_complete: TaskCheck | None = None,
        on_iteration_complete: Hook | str | None = None,
        prepare_step: Hook | str | None = None,
        before_tool_call: Hook | str | None = None,
        after_tool_call: Hook | str | None = None,
        on_delegation_start: Hook | str | None = None,
        on_delegation_complete: Hook | str | None = None,
        message_filter: Hook | str | None = None,
        hook_error_strategy: Literal["", "warn", "throw"] = "",
        structured_output: StructuredOutputLike | None = None,
        input_processors: Processors = (),
        output_processors: Processors = (),
        max_processor_retries: int | None = None,
        memory: Memory | None = None,
        include_raw_chunks: bool = False,
        return_scorer_data: bool = False,
        expires_after: float | timedelta | None = None,
        on_expiry: WhatThen = "decline",
    ) -> None:
        if not id:
            raise ValueError("an agent needs an id")
        if max_steps is not None and max_steps < 1:
            raise ValueError("max_steps must be at least 1")
        if tool_call_concurrency is not None and tool_call_concurrency < 1:
            raise ValueError("tool_call_concurrency must be at least 1")
        self.id = id
        self.name = name or id
        self.description = description
        self.models: tuple[str | Model, ...] = (
            tuple(model) if isinstance(model, Sequence) and not isinstance(model, str) else (model,)
        )
        if not self.models:
            raise ValueError(f"agent {id}: give it a model")
        self.instructions = instructions
        pairs = tools.items() if isinstance(tools, Mapping) else [(t.name, t) for t in tools]
        self.tools: dict[str, Tool] = {}
        self.remote_tools: dict[str, RemoteTool] = {}
        for key, item in pairs:
            if key in self.tools or key in self.remote_tools:
                raise ValueError(f"agent {id}: two tools are called {key!r}")
            if isinstance(item, Tool):
                self.tools[key] = item
            elif key == item.name:
                self.remote_tools[key] = item
            else:
                raise ValueError(f"agent {id}: the tool {item.remote!r} of workers is called {item.name!r}")
        try:
            delegates = agent_tools(agents)
        except ValueError as error:
            raise ValueError(f"agent {id}: {error}") from None
        self.agents = {name: item.agent for name, item in delegates.items()}
        for key, delegate in delegates.items():
            if self.tools.setdefault(key, delegate) is not delegate:
                raise ValueError(f"agent {id}: its tool {key!r} is called as the one for a sub-agent")
        if isinstance(toolsets, str):
            raise ValueError(f"agent {id}: toolsets is a list of names, not the text {toolsets!r}")
        self.toolsets = tuple(dict.fromkeys(toolsets))
        self.max_steps = max_steps
        if isinstance(require_tool_approval, ApprovalPolicy):
            self.approval = require_tool_approval.rules
        elif isinstance(require_tool_approval, bool):
            self.approval = ApprovalRules(all=require_tool_approval)
        else:
            self.approval = ApprovalRules(patterns=tuple(require_tool_approval))
        self.tool_call_concurrency = tool_call_concurrency
        self.model_settings = model_settings or ModelSettings()
        self.tool_choice = tool_choice
        self.provider_options = dict(provider_options or {})
        if isinstance(rate_limit_wait, timedelta):
            rate_limit_wait = rate_limit_wait.total_seconds()
        if not 0 <= rate_limit_wait <= 86400:
            raise ValueError("rate_limit_wait must be from 0 to 86400 seconds")
        self.rate_limit_wait = rate_limit_wait
        self.version = version
        self.telemetry = telemetry or TelemetryOptions()
        self.tracing_options = tracing_options or TracingOptions()
        if max_processor_retries is not None and max_processor_retries < 0:
            raise ValueError("max_processor_retries must be at least 0")
        self.input_processors = tuple(input_processors)
        self.output_processors = tuple(output_processors)
        self.max_processor_retries = max_processor_retries
        self.memory = memory
        self.include_raw_chunks = include_raw_chunks
        self.return_scorer_data = return_scorer_data
        if memory is not None and memory.working_memory is not None and TOOL_NAME in self.tools:
            raise ValueError(f"agent {id}: {TOOL_NAME!r} is the tool of its working memory")
        self.own_hooks: list[Hook] = []
        self.on_iteration_complete = self._hook(on_iteration_complete)
        self.prepare_step = self._hook(prepare_step)
        self.hooks = ToolHooks(self._hook(before_tool_call), self._hook(after_tool_call))
        self.delegation = DelegationHooks(
            self._hook(on_delegation_start),
            self._hook(on_delegation_complete),
            self._hook(message_filter),
            hook_error_strategy,
        )
        self.structured_output = structured_from(structured_output)
        try:
            self.scorers, self.own_scorers = choices(scorers)
            conditions = (stop_when,) if isinstance(stop_when, StopWhen) else stop_when
            self.stop_when = tuple(condition.condition() for condition in conditions)
            self.is_task_complete = is_task_complete.completion() if is_task_complete is not None else None
            for condition in conditions:
                self._hook(condition.predicate)
            if is_task_complete is not None:
                self._hook(is_task_complete.on_complete)
                own = [item for item in is_task_complete.scorers if not isinstance(item, str)]
                self.own_scorers = registered((*self.own_scorers.values(), *own))
            self.tracing_options.attributes({})
            self.expiry = expiry_from(expires_after, on_expiry)
            self._check_default(self.tools)
        except ValueError as error:
            raise ValueError(f"agent {id}: {error}") from None

    def _hook(self, given: Hook | str | None) -> str:
        if isinstance(given, Hook):
            self.own_hooks.append(given)
            return given.name
        return given or ""

    def _check_default(self, tools: Mapping[str, Tool]) -> None:
        if self.expiry is None or self.expiry.answer is None:
            return
        if self.approval != ApprovalRules():
            raise ValueError(
                "it requires approval, and an expiry approves nothing: give the tools that ask something "
                "a default answer of their own"
            )
        for name, tool in tools.items():
            if tool.expiry is None:
                try:
                    tool.check_default(self.expiry.answer)
                except ValueError as error:
                    raise ValueError(f"tool {name}: {error}") from None

    def check(
        self, toolsets: Mapping[str, Toolset | McpToolset], predicates: Mapping[str, ApprovalPredicate]
    ) -> None:
        """Raises `ValueError` when the agent names something that an app with these does not have, and
        when one of its tools is called as one of a toolset."""
        for name in (*self.toolsets, *self.approval.toolsets):
            if name not in toolsets:
                raise ValueError(f"agent {self.id}: there is no toolset {name!r}; {_there_are(toolsets)}")
        for name in self.approval.predicates:
            if name not in predicates:
                raise ValueError(
                    f"agent {self.id}: there is no approval predicate {name!r}; {_there_are(predicates)}"
                )
        for remote in self.remote_tools.values():
            if remote.toolset in toolsets:
                raise ValueError(
                    f"agent {self.id}: its tool {remote.remote!r} of workers is called as one of the toolset "
                    f"{remote.toolset!r} of the app"
                )
        for name in self.toolsets:
            for qualified in toolsets[name].tools:
                if qualified in self.tools:
                    raise ValueError(
                        f"agent {self.id}: its tool {qualified!r} is called as one of the toolset {name!r}"
                    )
            try:
                self._check_default(toolsets[name].tools)
            except ValueError as error:
                raise ValueError(f"agent {self.id}: {error}") from None

    def system_texts(self, request_context: Mapping[str, Any]) -> tuple[str, ...]:
        """The instructions of a run."""
        given = self.instructions
        if callable(given):
            try:
                given = given(request_context)
            except (SystemExit, KeyboardInterrupt) as error:  # must not end the server
                raise RuntimeError(f"the instructions of {self.id} raised {error!r}") from error
        texts = (given,) if isinstance(given, str) and given else tuple(given)
        if not all(isinstance(text, str) for text in texts):
            raise TypeError(f"the instructions of {self.id} are no texts")
        return tuple(json_text.scrub(text) for text in texts)

    def __repr__(self) -> str:
        return f"<Agent {self.id}>"


def _there_are(names: Iterable[str]) -> str:
    known = ", ".join(sorted(names))
    return f"registered are: {known}" if known else "none is registered"


class App:
    """What a server serves: agents, found by id, and what they and callers name.

    Args:
        agents: The agents that can be called. Their sub-agents come with them; one that is to be called by
            itself as well is given here, too.
        scorers: Judges of results, found by name like those of the agents.
        hooks: Functions that runs call at their turning points, found by name like those of the agents.
        processors: What looks at, changes or stops what goes into models and what comes out of them, found
            by name. Those given to an agent as objects are the agent's own.
        prices: What models cost, by `provider/model`.
        toolsets: Tools, those of MCP servers among them, for agents and callers to choose by the
            toolset's name.
        tools: What is offered to agents made of data, which name a tool by its name, or by its key in a
            mapping.
        models: Model objects that agents made of data, and whoever else names a model, find by their names.
        approval_predicates: Functions for approval policies, by name. Each gets an `ApprovalRequest`
            and says whether a person must approve the call; one that raises says yes. It runs on the
            event loop, so it decides by what it is given, without waiting for anything.

    Raises `ValueError` for two agents, toolsets, tools, models, scorers or hooks of one name (those of agents
    included), and for an agent that names what is not there.
    """

    def __init__(
        self,
        *,
        agents: Iterable[Agent],
        scorers: Iterable[Scorer] = (),
        hooks: Iterable[Hook] = (),
        processors: Iterable[Processor] = (),
        prices: Mapping[str, Price] | None = None,
        toolsets: Iterable[Toolset | McpToolset] = (),
        approval_predicates: Mapping[str, ApprovalPredicate] | None = None,
        tools: Iterable[Tool] | Mapping[str, Tool] = (),
        models: Iterable[Model] = (),
    ) -> None:
        self.approval_predicates = checked_predicates(approval_predicates)
        self.tools: dict[str, Tool] = {}
        for key, item in tools.items() if isinstance(tools, Mapping) else [(t.name, t) for t in tools]:
            if not NAME.fullmatch(key):
                raise ValueError(f"{key!r} is no name for a tool: use 1 to 64 letters, digits, '_' and '-'")
            if key in self.tools:
                raise ValueError(f"two tools are called {key!r}")
            self.tools[key] = item
        self.models: dict[str, Model] = {}
        for model in models:
            if self.models.setdefault(model.name, model) is not model:
                raise ValueError(f"two models are called {model.name!r}")
        self.toolsets: dict[str, Toolset | McpToolset] = {}
        for toolset in toolsets:
            if toolset.name in self.toolsets:
                raise ValueError(f"two toolsets are called {toolset.name!r}")
            self.toolsets[toolset.name] = toolset
        self.agents: dict[str, Agent] = {}
        for agent in agents:
            if agent.id in self.agents:
                raise ValueError(f"two agents are called {agent.id!r}")
            self.agents[agent.id] = agent
        self.every_agent = with_sub_agents(self.agents.values())
        own = [item for agent in self.every_agent.values() for item in agent.own_scorers.values()]
        self.scorers = registered((*scorers, *own))
        own_hooks = [item for agent in self.every_agent.values() for item in agent.own_hooks]
        self.hooks = by_name((*hooks, *own_hooks))
        self.processors = registered_processors(processors)
        self.prices = dict(prices or {})
        for agent in self.every_agent.values():
            self.check(agent)

    def check(self, agent: Agent) -> None:
        """Raises `ValueError` when an agent names something that is not here."""
        agent.check(self.toolsets, self.approval_predicates)
        for choice in agent.scorers:
            if choice.scorer not in self.scorers:
                raise ValueError(f"agent {agent.id}: there is no scorer {choice.scorer!r}")
        try:
            self._check(agent)
        except ValueError as error:
            raise ValueError(f"agent {agent.id}: {error}") from None

    def _check(self, agent: Agent) -> None:
        processor_chains.check(self.processors, (*agent.input_processors, *agent.output_processors))
        named: list[tuple[str, HookKind]] = [
            (agent.on_iteration_complete, "iteration_complete"),
            (agent.prepare_step, "prepare_step"),
            (agent.hooks.before_tool_call, "before_tool_call"),
            (agent.hooks.after_tool_call, "after_tool_call"),
            (agent.delegation.on_start, "delegation_start"),
            (agent.delegation.on_complete, "delegation_complete"),
            (agent.delegation.message_filter, "message_filter"),
        ]
        for condition in agent.stop_when:
            if condition.kind == "predicate":
                named.append((condition.text, "stop_when"))
            elif condition.kind == "tool":
                sets = [self.toolsets[name] for name in agent.toolsets]
                # What the servers have is not known yet.
                remote = tuple(s.name + SEPARATOR for s in sets if isinstance(s, McpToolset))
                known = any(condition.text in tools for tools in (agent.tools, *(s.tools for s in sets)))
                known = known or condition.text in agent.remote_tools
                if agent.memory is not None and agent.memory.working_memory is not None:
                    known = known or condition.text == TOOL_NAME
                if not known and not condition.text.startswith(remote):
                    raise ValueError(f"stop_when: there is no tool {condition.text!r}")
        completion = agent.is_task_complete
        if completion is not None:
            named.append((completion.on_complete, "check_complete"))
            for name in completion.scorers:
                if name not in self.scorers:
                    raise ValueError(f"is_task_complete: there is no scorer {name!r}")
        for name, kind in named:
            if name:
                find(self.hooks, name, kind)
        if any(condition.kind == "cost" for condition in agent.stop_when):
            structured = agent.structured_output.options if agent.structured_output is not None else None
            self.check_prices(agent, RunOptions(structured_output=structured))

    def processors_of(self, agent: Agent, options: RunOptions) -> tuple[list[Processor], list[Processor]]:
        """The input and the output processors of a run, made for it."""
        inputs = agent.input_processors if options.input_processors is None else options.input_processors
        outputs = agent.output_processors if options.output_processors is None else options.output_processors
        return processor_chains.chains(self.processors, inputs, outputs)

    def every_processor(self) -> list[Processor]:
        """The processors there are, those of agents included."""
        chains = ((*agent.input_processors, *agent.output_processors) for agent in self.every_agent.values())
        own = (item for chain in chains for item in chain if isinstance(item, Processor))
        return list({id(item): item for item in (*self.processors.values(), *own)}.values())

    def check_prices(self, agent: Agent, options: RunOptions) -> None:
        """Raises `ValueError` unless there is a price for all models of a run of an agent: its own, those
        that judge whether the task is complete, and the one that structures its answers; and for those of
        the agents that it can delegate to."""
        made = options.structured_output
        models = self._asked(agent, options.is_task_complete or agent.is_task_complete, made)
        for one in with_sub_agents([agent]).values():
            if one is not agent:
                structured = one.structured_output
                made = None if structured is None else structured.options
                models += self._asked(one, one.is_task_complete, made)
        for model in models:
            name = model if isinstance(model, str) else model.name
            if name not in self.prices:
                raise ValueError(f"what {name} costs is not known: give the app a price for it")

    def _asked(
        self, agent: Agent, completion: TaskCompletion | None, structured: StructuredOutput | None
    ) -> list[str | Model]:
        models = list(agent.models)
        if completion is not None:
            judges = [self.scorers[name] for name in completion.scorers]
            models += (model for judge in judges if isinstance(judge, LlmScorer) for model in judge.models)
        if structured is not None and structured.model:
            models.append(structured.model)
        return models
