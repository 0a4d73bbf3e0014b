"""Agents made of data: their versions made, published, archived, read and listed."""

from entracte_server.domain.agents import AgentRow, AgentVersionRow
from entracte_server.store.agent_records import (
    AGENTS,
    NEW_VERSION_COLUMNS,
    SAID_COLUMNS,
    VERSION_COLUMNS,
    VERSIONS,
    agent_row,
    version_row,
    version_values,
)
from entracte_server.store.base import Made, NotFound, PublishedChanged, RequestKey
from entracte_server.store.catalog import ArchiveAgentVersion, CreateAgentVersion, PublishAgentVersion
from entracte_server.store.postgres import requests
from entracte_server.store.postgres.connection import Result, Statement
from entracte_server.store.postgres.programs import Attempt, Program
from entracte_server.store.postgres.values import Values

_AGENTS = AGENTS.format("entracte.", "$1")
_AGENT = f"{_AGENTS} = $2"
_LIST_AGENTS = f"{_AGENTS} > $2 ORDER BY a.agent_id LIMIT $3"
_OF_AGENT = VERSIONS.format("entracte.", "$1", "$2")
_VERSION = f"SELECT {VERSION_COLUMNS} {_OF_AGENT} v.version_id = $3"
_SAID = f"SELECT {SAID_COLUMNS} {_OF_AGENT} v.version_id = $3"
_LIST = f"SELECT {VERSION_COLUMNS} {_OF_AGENT} v.number < $3 ORDER BY v.number DESC LIMIT $4"
_LOCK = "SELECT published FROM entracte.agents WHERE tenant = $1 AND agent_id = $2 FOR UPDATE"
# Nothing is changed of one that is there, but it is locked.
_ENSURE = (
    "INSERT INTO entracte.agents AS a "
    "(tenant, agent_id, last_number, shown, published, create_time, update_time) "
    "VALUES ($1, $2, 0, 0, '', $3, $3) ON CONFLICT (tenant, agent_id) DO UPDATE SET tenant = a.tenant "
    "RETURNING a.last_number"
)
_GROW = (
    "UPDATE entracte.agents SET last_number = $3, update_time = $4, "
    "shown = CASE WHEN published = '' THEN $3 ELSE shown END WHERE tenant = $1 AND agent_id = $2"
)
_NEW_VALUES = ", ".join(f"${i + 1}" for i in range(11))
_INSERT = (
    f"INSERT INTO entracte.agent_versions ({NEW_VERSION_COLUMNS}, status) VALUES ({_NEW_VALUES}, 'draft')"
)
_PUBLISH = (
    "UPDATE entracte.agents SET published = $3, shown = $4, update_time = $5 "
    "WHERE tenant = $1 AND agent_id = $2"
)
_MARK_PUBLISHED = (
    "UPDATE entracte.agent_versions SET status = 'published', publisher = $3, publish_time = $4 "
    "WHERE tenant = $1 AND version_id = $2"
)
_WITHDRAW = (
    "UPDATE entracte.agents SET update_time = $4, "
    "shown = CASE WHEN published = $3 THEN last_number ELSE shown END, "
    "published = CASE WHEN published = $3 THEN '' ELSE published END WHERE tenant = $1 AND agent_id = $2"
)
_MARK_ARCHIVED = (
    "UPDATE entracte.agent_versions SET status = 'archived' WHERE tenant = $1 AND version_id = $2"
)

_MAX_NUMBER = 2**63 - 1


def create(op: CreateAgentVersion, at: Attempt) -> Program[tuple[AgentVersionRow, Made | None]]:
    """See `CatalogStore.create_agent_version`. In a transaction of its own."""
    new = op.version
    key = (new.tenant, new.agent_id)
    agent, *found, known = yield [
        (_ENSURE, (*key, new.create_time)),
        *requests.find(op.request),
        (_VERSION, (*key, new.version_id)),
    ]
    made = requests.made_by(op.request, found)
    if known.rows:  # the attempt before was committed
        return version_row(known.rows[0]), None
    if made is not None:
        return (yield from _version(*key, made.run_id)), made
    number = agent.rows[0][0] + 1
    *_, added = yield [
        (_GROW, (*key, number, new.create_time)),
        (_INSERT, (*version_values(new), number)),
        *_record(op.request, new.version_id, at),
        (_VERSION, (*key, new.version_id)),
    ]
    return _found(added, new.version_id), None


def publish(op: PublishAgentVersion, at: Attempt) -> Program[tuple[AgentVersionRow, Made | None]]:
    """See `CatalogStore.publish_agent_version`. In a transaction of its own."""
    key = (op.tenant, op.agent_id)
    agent, *found, seen = yield [
        (_LOCK, key),
        *requests.find(op.request),
        (_VERSION, (*key, op.version_id)),
    ]
    made = requests.made_by(op.request, found)
    version = _found(seen, op.version_id)
    if made is not None:
        return version, None if at.again else made
    published = agent.rows[0][0]
    if at.again and published == op.version_id:  # what the attempt before did
        return version, None
    if op.if_published is not None and published != op.if_published:
        raise PublishedChanged(published)
    *_, changed = yield [
        (_PUBLISH, (*key, op.version_id, version.number, op.now)),
        (_MARK_PUBLISHED, (op.tenant, op.version_id, op.principal, op.now)),
        *_record(op.request, op.version_id, at),
        (_VERSION, (*key, op.version_id)),
    ]
    return _found(changed, op.version_id), None


def archive(op: ArchiveAgentVersion, at: Attempt) -> Program[tuple[AgentVersionRow, Made | None]]:
    """See `CatalogStore.archive_agent_version`. In a transaction of its own."""
    key = (op.tenant, op.agent_id)
    _, *found, seen = yield [
        (_LOCK, key),
        *requests.find(op.request),
        (_VERSION, (*key, op.version_id)),
    ]
    made = requests.made_by(op.request, found)
    version = _found(seen, op.version_id)
    if made is not None:
        return version, None if at.again else made
    *_, changed = yield [
        (_WITHDRAW, (*key, op.version_id, op.now)),
        (_MARK_ARCHIVED, (op.tenant, op.version_id)),
        *_record(op.request, op.version_id, at),
        (_VERSION, (*key, op.version_id)),
    ]
    return _found(changed, op.version_id), None


def _record(request: RequestKey | None, version_id: str, at: Attempt) -> list[Statement]:
    if request is None:
        return []
    value = Values()
    return [(requests.record(request, version_id, at, value), value.bound)]


def _version(tenant: str, agent_id: str, version_id: str) -> Program[AgentVersionRow]:
    (found,) = yield [(_VERSION, (tenant, agent_id, version_id))]
    return _found(found, version_id)


def _found(found: Result, version_id: str) -> AgentVersionRow:
    if not found.rows:
        raise NotFound(f"no version {version_id}")
    return version_row(found.rows[0])


def get_agent(tenant: str, agent_id: str) -> Program[AgentRow]:
    """See `CatalogStore.get_agent`."""
    (found,) = yield [(_AGENT, (tenant, agent_id))]
    if not found.rows:
        raise NotFound(f"no agent {agent_id}")
    return agent_row(found.rows[0])


def get_version(tenant: str, agent_id: str, version_id: str) -> Program[AgentVersionRow]:
    """See `CatalogStore.get_agent_version`."""
    (found,) = yield [(_SAID, (tenant, agent_id, version_id))]
    return _found(found, version_id)


def list_agents(tenant: str, after: str, limit: int) -> Program[list[AgentRow]]:
    """See `CatalogStore.list_agents`."""
    (found,) = yield [(_LIST_AGENTS, (tenant, after, limit))]
    return [agent_row(row) for row in found.rows]


def list_versions(tenant: str, agent_id: str, before: int, limit: int) -> Program[list[AgentVersionRow]]:
    """See `CatalogStore.list_agent_versions`."""
    (found,) = yield [(_LIST, (tenant, agent_id, before or _MAX_NUMBER, limit))]
    return [version_row(row) for row in found.rows]
