"""Which versions of agents made of data a request chooses."""

from entracte.v1 import options_pb2
from entracte_server.domain.errors import invalid
from entracte_server.engine.stored_agents import MAX_AGENTS, VersionChoice
from entracte_server.rpc import checks


def version_choices(options: options_pb2.GenerateOptions) -> dict[str, VersionChoice]:
    """By the agents' ids. Raises `Refusal`."""
    if len(options.versions) > MAX_AGENTS:
        raise invalid("options.versions", f"at most {MAX_AGENTS}: a run has no more agents made of data")
    return {
        agent_id: choice_from(f"options.versions.{agent_id[:80]}", selector)
        for agent_id, selector in options.versions.items()
    }


def choice_from(field: str, selector: options_pb2.VersionSelector) -> VersionChoice:
    """Which version is meant. Raises `Refusal`."""
    which = selector.WhichOneof("selector")
    if which == "version_id":
        return VersionChoice(version_id=checks.identifier(f"{field}.version_id", selector.version_id))
    if which == "published":
        return VersionChoice(status="published" if selector.published else "draft")
    raise invalid(field, "name a version by version_id, or say whether the published one or the newest draft")
