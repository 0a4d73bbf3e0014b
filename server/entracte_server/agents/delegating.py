"""Sub-agents: agents that another agent's model can delegate tasks to, each by a tool called `agent-NAME`."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from entracte_server.agents.tools import NAME, Tool

if TYPE_CHECKING:
    from entracte_server.agents.agent import Agent

PREFIX = "agent-"

MAX_DEPTH = 5
"""How many delegations there may be on the way from a run's own agent to a sub-agent."""

_INPUT: Mapping[str, Any] = {
    "type": "object",
    "properties": {"prompt": {"type": "string", "minLength": 1, "description": "The task, in full."}},
    "required": ["prompt"],
    "additionalProperties": False,
}


class AgentTool(Tool):
    """A sub-agent as its parent's model sees it. The model chooses the prompt and nothing else."""

    def __init__(self, key: str, agent: "Agent") -> None:
        super().__init__(
            name=PREFIX + key,
            description=agent.description or f"Delegates a task to the agent {agent.name}.",
            input_schema=_INPUT,
            execute=_never_entered,
        )
        self.agent = agent


async def _never_entered(args: Any, ctx: Any) -> NoReturn:
    raise RuntimeError("a sub-agent is a run, not a body to enter")


def agent_tools(agents: "Iterable[Agent] | Mapping[str, Agent]") -> dict[str, AgentTool]:
    """The tools for an agent's sub-agents, by the tool's name. Raises `ValueError`."""
    pairs = agents.items() if isinstance(agents, Mapping) else [(agent.id, agent) for agent in agents]
    tools: dict[str, AgentTool] = {}
    for key, agent in pairs:
        name = PREFIX + key
        if not NAME.fullmatch(name):
            raise ValueError(
                f"the sub-agent {key!r} cannot be called as the tool {name!r}: give it a name of letters, "
                "digits, '_' and '-', at most 58, with agents={name: agent}"
            )
        if name in tools:
            raise ValueError(f"two sub-agents are called {key!r}")
        tools[name] = AgentTool(key, agent)
    return tools


def with_sub_agents(agents: "Iterable[Agent]") -> "dict[str, Agent]":
    """These agents and those they can delegate to, at any depth, by id. Raises `ValueError` for two agents
    of one id."""
    found: dict[str, Agent] = {}
    waiting = list(agents)
    while waiting:
        agent = waiting.pop(0)
        known = found.setdefault(agent.id, agent)
        if known is not agent:
            raise ValueError(f"two agents are called {agent.id!r}")
        waiting += [
            item for item in agent.agents.values() if item.id not in found or found[item.id] is not item
        ]
    return found
