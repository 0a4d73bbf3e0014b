"""Agents and their versions, to and from the wire."""

from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format

from entracte import _agent_records as r
from entracte._enums import AGENT_ORIGINS, VERSION_STATUSES
from entracte._json import to_json
from entracte._options_codec import ENCODERS, check_names, to_options, to_recall
from entracte._outcomes import time_of
from entracte.v1 import agent_pb2 as pb
from entracte.v1 import catalog_service_pb2

_SCOPES: Mapping[str | None, Any] = {
    None: pb.AgentWorkingMemory.SCOPE_UNSPECIFIED,
    "resource": pb.AgentWorkingMemory.SCOPE_RESOURCE,
    "thread": pb.AgentWorkingMemory.SCOPE_THREAD,
}


def to_definition(value: r.AgentDefinition | Mapping[str, Any]) -> pb.AgentDefinition:
    """Writes a definition, given as such or in the contract's JSON form. Raises TypeError, ValueError."""
    if isinstance(value, r.AgentDefinition):
        return _definition(value)
    if not isinstance(value, Mapping):
        raise TypeError(f"expected an AgentDefinition or a dict, not {type(value).__name__}")
    try:
        return json_format.ParseDict(dict(value), pb.AgentDefinition())
    except json_format.ParseError as error:
        raise ValueError(f"this is no definition of an agent: {error}") from None


def _definition(value: r.AgentDefinition) -> pb.AgentDefinition:
    said = value.instructions
    check_names(value.defaults, ENCODERS, "AgentDefinition.defaults")
    pairs = value.agents.items() if isinstance(value.agents, Mapping) else (("", one) for one in value.agents)
    for name in ("models", "tools", "toolsets", "agents"):
        if isinstance(getattr(value, name), str):
            raise TypeError(f"{name} is a list of names, not a text")
    return pb.AgentDefinition(
        name=value.name,
        description=value.description,
        instructions=[said] if isinstance(said, str) else said,
        models=value.models,
        tools=value.tools,
        toolsets=value.toolsets,
        agents=[pb.SubAgent(agent_id=agent_id, name=name) for name, agent_id in pairs],
        defaults=to_options(value.defaults) if value.defaults else None,
        memory=None if value.memory is None else _memory(value.memory),
    )


def _memory(value: r.AgentMemory) -> pb.AgentMemory:
    working, recall = value.working_memory, value.semantic_recall
    return pb.AgentMemory(
        last_messages=value.last_messages,
        max_history_tokens=value.max_history_tokens,
        generate_title=value.generate_title,
        title_model=value.title_model,
        title_instructions=value.title_instructions,
        working_memory=None if working is None else _working(working),
        semantic_recall=(
            None
            if recall is None
            else pb.AgentRecall(
                embedder=recall.embedder, search=None if recall.search is None else to_recall(recall.search)
            )
        ),
    )


def _working(value: r.AgentWorkingMemory) -> pb.AgentWorkingMemory:
    if value.scope not in _SCOPES:
        raise ValueError(f"the scope of a working memory is resource or thread, not {value.scope!r}")
    if value.template is not None and value.schema is not None:
        raise ValueError("a working memory has a template or a schema, not both")
    written = pb.AgentWorkingMemory(scope=_SCOPES[value.scope])
    if value.template is not None:
        written.template = value.template
    if value.schema is not None:
        written.schema.CopyFrom(to_json(value.schema))
    return written


def agent_of(message: pb.Agent) -> r.AgentInfo:
    """Reads an agent."""
    return r.AgentInfo(
        agent_id=message.agent_id,
        name=message.name,
        description=message.description,
        origin=AGENT_ORIGINS.get(message.origin, "unknown"),
        published_version_id=message.published_version_id,
        draft_version_id=message.draft_version_id,
        create_time=time_of(message.create_time) if message.HasField("create_time") else None,
        update_time=time_of(message.update_time) if message.HasField("update_time") else None,
    )


def version_of(message: pb.AgentVersion) -> r.AgentVersion:
    """Reads a version."""
    said = None
    if message.HasField("definition"):
        said = json_format.MessageToJson(message.definition, preserving_proto_field_name=True, indent=None)
    return r.AgentVersion(
        agent_id=message.agent_id,
        version_id=message.version_id,
        number=message.number,
        status=VERSION_STATUSES.get(message.status, "unknown"),
        is_published=message.is_published,
        creator=message.creator,
        create_time=time_of(message.create_time) if message.HasField("create_time") else None,
        publisher=message.publisher,
        publish_time=time_of(message.publish_time) if message.HasField("publish_time") else None,
        definition_json=said,
    )


def details_of(response: catalog_service_pb2.GetAgentResponse) -> r.AgentDetails:
    """Reads an agent with what it works with."""
    return r.AgentDetails(
        agent=agent_of(response.agent),
        version=version_of(response.version) if response.HasField("version") else None,
        models=tuple(response.parts.models),
        tools=tuple(response.parts.tools),
        toolsets=tuple(response.parts.toolsets),
        agents=tuple(response.parts.agents),
        versions=tuple(map(version_of, response.versions)),
    )
