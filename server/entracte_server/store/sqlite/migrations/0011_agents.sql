-- Agents that are made of data, and their versions. Nothing of them is ever deleted.

-- `published` is the id of the version that runs use unless they say otherwise, empty for none; `shown` is the
-- number of the version whose name is shown, and `last_number` that of the newest one.
CREATE TABLE agents (
    tenant TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    last_number INTEGER NOT NULL,
    shown INTEGER NOT NULL,
    published TEXT NOT NULL,
    create_time INTEGER NOT NULL,
    update_time INTEGER NOT NULL
);
CREATE UNIQUE INDEX agents_key ON agents (tenant, agent_id);

CREATE TABLE agent_versions (
    tenant TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    version_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    status TEXT NOT NULL,
    name TEXT NOT NULL,
    description TEXT NOT NULL,
    creator TEXT NOT NULL,
    create_time INTEGER NOT NULL,
    publisher TEXT NOT NULL DEFAULT '',
    publish_time INTEGER NOT NULL DEFAULT 0,
    format INTEGER NOT NULL,
    definition BLOB NOT NULL,
    source BLOB NOT NULL
);
CREATE UNIQUE INDEX agent_versions_key ON agent_versions (tenant, version_id);
CREATE UNIQUE INDEX agent_versions_of_agent ON agent_versions (tenant, agent_id, number);
CREATE INDEX agent_drafts ON agent_versions (tenant, agent_id, number) WHERE status = 'draft';
