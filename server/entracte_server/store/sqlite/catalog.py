"""Agents made of data: their versions made, published, archived, read and listed.

Operations of a transaction take a `Transaction`, as in `owner` and `commands`; the others are reads on a
connection of a reader.
"""

import sqlite3

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
from entracte_server.store.base import Made, NotFound, PublishedChanged
from entracte_server.store.catalog import ArchiveAgentVersion, CreateAgentVersion, PublishAgentVersion
from entracte_server.store.sqlite.requests import made_by, record
from entracte_server.store.sqlite.writer import Transaction

_AGENTS = AGENTS.format("", "?")
_OF_AGENT = VERSIONS.format("", "?", "?")
_VERSION = f"SELECT {VERSION_COLUMNS} {_OF_AGENT} v.version_id = ?"
_SAID = f"SELECT {SAID_COLUMNS} {_OF_AGENT} v.version_id = ?"
_LIST = f"SELECT {VERSION_COLUMNS} {_OF_AGENT} v.number < ? ORDER BY v.number DESC LIMIT ?"
_ENSURE = (
    "INSERT INTO agents (tenant, agent_id, last_number, shown, published, create_time, update_time) "
    "VALUES (?, ?, 1, 1, '', ?, ?) ON CONFLICT (tenant, agent_id) DO UPDATE SET "
    "last_number = last_number + 1, update_time = excluded.update_time, "
    "shown = CASE WHEN published = '' THEN last_number + 1 ELSE shown END RETURNING last_number"
)
_INSERT = f"INSERT INTO agent_versions ({NEW_VERSION_COLUMNS}, status) VALUES ({'?, ' * 11}'draft')"
_PUBLISHED = "SELECT published FROM agents WHERE tenant = ? AND agent_id = ?"
_PUBLISH = "UPDATE agents SET published = ?, shown = ?, update_time = ? WHERE tenant = ? AND agent_id = ?"
_MARK_PUBLISHED = (
    "UPDATE agent_versions SET status = 'published', publisher = ?, publish_time = ? "
    "WHERE tenant = ? AND version_id = ?"
)
_WITHDRAW = (
    "UPDATE agents SET update_time = ?, shown = CASE WHEN published = ? THEN last_number ELSE shown END, "
    "published = CASE WHEN published = ? THEN '' ELSE published END WHERE tenant = ? AND agent_id = ?"
)
_MARK_ARCHIVED = "UPDATE agent_versions SET status = 'archived' WHERE tenant = ? AND version_id = ?"

_MAX_NUMBER = 2**63 - 1


def create(op: CreateAgentVersion, transaction: Transaction) -> tuple[AgentVersionRow, Made | None]:
    """See `CatalogStore.create_agent_version`."""
    new = op.version
    key = (new.tenant, new.agent_id)
    if (made := made_by(transaction.cursor, op.request)) is not None:
        return _version(transaction.cursor, *key, made.run_id), made
    (number,) = transaction.execute(_ENSURE, (*key, new.create_time, new.create_time)).fetchone()
    transaction.execute(_INSERT, (*version_values(new), number))
    record(transaction, op.request, new.version_id)
    return _version(transaction.cursor, *key, new.version_id), None


def publish(op: PublishAgentVersion, transaction: Transaction) -> tuple[AgentVersionRow, Made | None]:
    """See `CatalogStore.publish_agent_version`."""
    key = (op.tenant, op.agent_id)
    made = made_by(transaction.cursor, op.request)
    version = _version(transaction.cursor, *key, op.version_id)
    if made is not None:
        return version, made
    (published,) = transaction.execute(_PUBLISHED, key).fetchone()
    if op.if_published is not None and published != op.if_published:
        raise PublishedChanged(published)
    transaction.execute(_PUBLISH, (op.version_id, version.number, op.now, *key))
    transaction.execute(_MARK_PUBLISHED, (op.principal, op.now, op.tenant, op.version_id))
    record(transaction, op.request, op.version_id)
    return _version(transaction.cursor, *key, op.version_id), None


def archive(op: ArchiveAgentVersion, transaction: Transaction) -> tuple[AgentVersionRow, Made | None]:
    """See `CatalogStore.archive_agent_version`."""
    key = (op.tenant, op.agent_id)
    made = made_by(transaction.cursor, op.request)
    version = _version(transaction.cursor, *key, op.version_id)
    if made is not None:
        return version, made
    transaction.execute(_WITHDRAW, (op.now, op.version_id, op.version_id, *key))
    transaction.execute(_MARK_ARCHIVED, (op.tenant, op.version_id))
    record(transaction, op.request, op.version_id)
    return _version(transaction.cursor, *key, op.version_id), None


def _version(cursor: sqlite3.Cursor, tenant: str, agent_id: str, version_id: str) -> AgentVersionRow:
    row = cursor.execute(_VERSION, (tenant, agent_id, version_id)).fetchone()
    if row is None:
        raise NotFound(f"no version {version_id}")
    return version_row(row)


def get_agent(connection: sqlite3.Connection, tenant: str, agent_id: str) -> AgentRow:
    """See `CatalogStore.get_agent`."""
    row = connection.execute(f"{_AGENTS} = ?", (tenant, agent_id)).fetchone()
    if row is None:
        raise NotFound(f"no agent {agent_id}")
    return agent_row(row)


def get_version(
    connection: sqlite3.Connection, tenant: str, agent_id: str, version_id: str
) -> AgentVersionRow:
    """See `CatalogStore.get_agent_version`."""
    row = connection.execute(_SAID, (tenant, agent_id, version_id)).fetchone()
    if row is None:
        raise NotFound(f"no version {version_id}")
    return version_row(row)


def list_agents(connection: sqlite3.Connection, tenant: str, after: str, limit: int) -> list[AgentRow]:
    """See `CatalogStore.list_agents`."""
    sql = f"{_AGENTS} > ? ORDER BY a.agent_id LIMIT ?"
    return [agent_row(row) for row in connection.execute(sql, (tenant, after, limit))]


def list_versions(
    connection: sqlite3.Connection, tenant: str, agent_id: str, before: int, limit: int
) -> list[AgentVersionRow]:
    """See `CatalogStore.list_agent_versions`."""
    values = (tenant, agent_id, before or _MAX_NUMBER, limit)
    return [version_row(row) for row in connection.execute(_LIST, values)]
