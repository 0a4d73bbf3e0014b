"""Agents and the application that holds them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from entracte_server.agents.expiry import WhatThen, expiry_from
from entracte_server.agents.scorers import Scorer, Scorers, choices, registered
from entracte_server.agents.tools import Tool
from entracte_server.domain.options import ApprovalRules, ModelSettings, ToolChoice
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
        tools: The tools, or a mapping that renames them.
        name: For people; the id unless given.
        description: What it is good for.
        max_steps: The most model calls of a run, unless the caller says otherwise. Default 5.
        require_tool_approval: Whether every call needs approval, or the names and patterns of those
            that do. Callers can add to it.
        tool_call_concurrency: The most tools of a step that run at once. Default 10.
        model_settings, tool_choice, provider_options: As callers give them; a caller's replace them
            value by value (settings), or as a whole (choice), or provider by provider (options).
        version: Stored with each run.
        scorers: What judges the results of runs that succeed: scorers, names of those of the `App`, or a
            mapping from what they are called to these; each may be `Sampled`. A caller's replace them.
        expires_after, on_expiry: As tools have them, for the calls of tools that have none of their own
            and of client tools. A default answer answers what tools ask; other calls are declined.

    Raises `ValueError` for an empty id, two tools of one name, limits under 1, and a default answer
    that is not one for each tool it would be given to.
    """

    def __init__(
        self,
        *,
        id: str,
        model: str | Model | Sequence[str | Model],
        instructions: Instructions = (),
        tools: Iterable[Tool] | Mapping[str, Tool] = (),
        name: str = "",
        description: str = "",
        max_steps: int | None = None,
        require_tool_approval: bool | Sequence[str] = False,
        tool_call_concurrency: int | None = None,
        model_settings: ModelSettings | None = None,
        tool_choice: ToolChoice | None = None,
        provider_options: Mapping[str, Any] | None = None,
        version: str = "",
        scorers: Scorers = (),
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
        for key, item in pairs:
            if key in self.tools:
                raise ValueError(f"agent {id}: two tools are called {key!r}")
            self.tools[key] = item
        self.max_steps = max_steps
        self.approval = (
            ApprovalRules(all=require_tool_approval)
            if isinstance(require_tool_approval, bool)
            else ApprovalRules(patterns=tuple(require_tool_approval))
        )
        self.tool_call_concurrency = tool_call_concurrency
        self.model_settings = model_settings or ModelSettings()
        self.tool_choice = tool_choice
        self.provider_options = dict(provider_options or {})
        self.version = version
        try:
            self.scorers, self.own_scorers = choices(scorers)
            self.expiry = expiry_from(expires_after, on_expiry)
            if self.expiry is not None and self.expiry.answer is not None:
                self._check_default(self.expiry.answer)
        except ValueError as error:
            raise ValueError(f"agent {id}: {error}") from None

    def _check_default(self, answer: str) -> None:
        if self.approval != ApprovalRules():
            raise ValueError(
                "it requires approval, and an expiry approves nothing: give the tools that ask something "
                "a default answer of their own"
            )
        for name, tool in self.tools.items():
            if tool.expiry is None:
                try:
                    tool.check_default(answer)
                except ValueError as error:
                    raise ValueError(f"tool {name}: {error}") from None

    def system_texts(self, request_context: Mapping[str, Any]) -> tuple[str, ...]:
        """The instructions of a run."""
        given = self.instructions
        if callable(given):
            try:
                given = given(request_context)
            except (SystemExit, KeyboardInterrupt) as error:  # must not end the server
                raise RuntimeError(f"the instructions of {self.id} raised {error!r}") from error
        return (given,) if isinstance(given, str) and given else tuple(given)

    def __repr__(self) -> str:
        return f"<Agent {self.id}>"


class App:
    """What a server serves: agents, found by id, and scorers, found by name.

    Raises `ValueError` for two agents of one id, two scorers of one name (those of agents included), and
    an agent's scorer that is not there.
    """

    def __init__(self, *, agents: Iterable[Agent], scorers: Iterable[Scorer] = ()) -> None:
        self.agents: dict[str, Agent] = {}
        for agent in agents:
            if agent.id in self.agents:
                raise ValueError(f"two agents are called {agent.id!r}")
            self.agents[agent.id] = agent
        own = [item for agent in self.agents.values() for item in agent.own_scorers.values()]
        self.scorers = registered((*scorers, *own))
        for agent in self.agents.values():
            for choice in agent.scorers:
                if choice.scorer not in self.scorers:
                    raise ValueError(f"agent {agent.id}: there is no scorer {choice.scorer!r}")
