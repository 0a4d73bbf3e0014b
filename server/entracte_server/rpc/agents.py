"""Agents and their versions as the messages of responses."""

from entracte.v1 import agent_pb2
from entracte_server.agents.agent import Agent
from entracte_server.agents.delegating import AgentTool
from entracte_server.domain.agents import AgentRow, AgentVersionRow
from entracte_server.wire import values

_STATUS = values.EnumTexts(agent_pb2.AgentVersion.Status.DESCRIPTOR)


def code_message(agent: Agent) -> agent_pb2.Agent:
    """An agent that is written in Python."""
    return agent_pb2.Agent(
        agent_id=agent.id,
        name=agent.name,
        description=agent.description,
        origin=agent_pb2.Agent.ORIGIN_CODE,
        published_version_id=agent.version,
    )


def code_parts(agent: Agent) -> agent_pb2.AgentParts:
    """What an agent that is written in Python works with."""
    return agent_pb2.AgentParts(
        models=[model if isinstance(model, str) else model.name for model in agent.models],
        tools=[name for name, tool in agent.tools.items() if not isinstance(tool, AgentTool)],
        toolsets=agent.toolsets,
        agents=[below.id for below in agent.agents.values()],
    )


def agent_message(row: AgentRow) -> agent_pb2.Agent:
    """An agent that is made of data."""
    return agent_pb2.Agent(
        agent_id=row.agent_id,
        name=row.name,
        description=row.description,
        origin=agent_pb2.Agent.ORIGIN_DATA,
        published_version_id=row.published,
        draft_version_id=row.draft,
        create_time=values.timestamp(row.create_time),
        update_time=values.timestamp(row.update_time),
    )


def version_message(row: AgentVersionRow) -> agent_pb2.AgentVersion:
    """A version, with what it says where the row has that."""
    message = agent_pb2.AgentVersion(
        agent_id=row.agent_id,
        version_id=row.version_id,
        number=row.number,
        status=_STATUS.number(row.status),
        creator=row.creator,
        create_time=values.timestamp(row.create_time),
        publisher=row.publisher,
        is_published=row.is_published,
    )
    if row.publish_time:
        message.publish_time.CopyFrom(values.timestamp(row.publish_time))
    if row.source:
        message.definition.ParseFromString(row.source)
    return message


def parts(row: AgentVersionRow) -> agent_pb2.AgentParts:
    """What a version works with."""
    said = row.definition
    if said is None:
        return agent_pb2.AgentParts()
    return agent_pb2.AgentParts(
        models=said.models,
        tools=said.tools,
        toolsets=said.toolsets,
        agents=[sub.agent_id for sub in said.agents],
    )
