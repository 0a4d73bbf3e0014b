"""The toolsets of a request, checked."""

from entracte.v1 import options_pb2
from entracte_server.agents.agent import Agent, App
from entracte_server.domain.errors import invalid
from entracte_server.rpc.registered import check_registered

_FIELD = "options.toolsets"


def toolsets_from(app: App, agent: Agent, options: options_pb2.GenerateOptions) -> tuple[str, ...]:
    """The toolsets that a request adds to those of the agent. Raises `Refusal` for one that is not
    registered, and for one with a tool that is called as one of the agent's."""
    check_registered(_FIELD, "toolset", options.toolsets, app.toolsets)
    for i, name in enumerate(options.toolsets):
        for qualified in app.toolsets[name].tools:
            if qualified in agent.tools:
                raise invalid(
                    f"{_FIELD}[{i}]",
                    f"the toolset {name!r} and the agent {agent.id!r} both have a tool {qualified!r}",
                )
    return tuple(dict.fromkeys(options.toolsets))
