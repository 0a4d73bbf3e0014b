"""Agents made of data to the columns of tables and back, as `records` does for runs."""

import msgspec

from entracte_server.domain.agents import DEFINITION_FORMAT, AgentDefinition, AgentRow, AgentVersionRow
from entracte_server.store.records import Row, encode

_decode = msgspec.msgpack.Decoder(AgentDefinition).decode

_SHOWN = (
    "(SELECT v.{} FROM {{0}}agent_versions v WHERE v.tenant = a.tenant AND v.agent_id = a.agent_id "
    "AND v.number = a.shown)"
)

AGENTS = (
    f"SELECT a.tenant, a.agent_id, {_SHOWN.format('name')}, {_SHOWN.format('description')}, a.published, "
    "(SELECT d.version_id FROM {0}agent_versions d WHERE d.tenant = a.tenant AND d.agent_id = a.agent_id "
    "AND d.status = 'draft' ORDER BY d.number DESC LIMIT 1), a.create_time, a.update_time "
    "FROM {0}agents a WHERE a.tenant = {1} AND a.agent_id "
)
"""Begins the statement that reads agents `a`: {0} is the tables' schema, {1} the tenant. Not with a join, for
which PostgreSQL might read all versions of an agent that has many."""

VERSIONS = (
    "FROM {0}agent_versions v JOIN {0}agents a ON a.tenant = v.tenant AND a.agent_id = v.agent_id "
    "WHERE v.tenant = {1} AND v.agent_id = {2} AND "
)
"""Goes on after the columns of versions."""

VERSION_COLUMNS = (
    "a.tenant, a.agent_id, v.version_id, v.name, v.description, v.creator, v.create_time, v.number, "
    "v.status, v.publisher, v.publish_time, a.published = v.version_id, v.format"
)
"""Of an agent `a` and its version `v`."""

SAID_COLUMNS = VERSION_COLUMNS + ", v.definition, v.source"
"""With what the version says."""


NEW_VERSION_COLUMNS = (
    "tenant, agent_id, version_id, name, description, creator, create_time, format, definition, source, "
    "number"
)


def agent_row(row: Row) -> AgentRow:
    """From what `AGENTS` reads."""
    tenant, agent_id, name, description, published, draft, create_time, update_time = row
    return AgentRow(
        tenant=tenant,
        agent_id=agent_id,
        name=name or agent_id,
        description=description,
        published=published,
        draft=draft or "",
        create_time=create_time,
        update_time=update_time,
    )


def version_row(row: Row) -> AgentVersionRow:
    """From `VERSION_COLUMNS` or `SAID_COLUMNS`. A definition of a format that this code does not know is
    left out."""
    tenant, agent_id, version_id, name, description, creator, create_time, number, *state = row
    status, publisher, publish_time, is_published, form, *said = state
    definition, source = said or (None, b"")
    return AgentVersionRow(
        tenant=tenant,
        agent_id=agent_id,
        version_id=version_id,
        name=name,
        description=description,
        creator=creator,
        create_time=create_time,
        definition=_decode(definition) if definition is not None and form <= DEFINITION_FORMAT else None,
        source=bytes(source),
        number=number,
        status=status,
        publisher=publisher,
        publish_time=publish_time,
        is_published=bool(is_published),
        format=form,
    )


def version_values(version: AgentVersionRow) -> Row:
    """What a version is inserted with, beside its number, in the order of `NEW_VERSION_COLUMNS`."""
    return (
        version.tenant,
        version.agent_id,
        version.version_id,
        version.name,
        version.description,
        version.creator,
        version.create_time,
        version.format,
        encode(version.definition),
        version.source,
    )
