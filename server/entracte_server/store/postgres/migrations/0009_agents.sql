-- Agents that are made of data, and their versions. Nothing of them is ever deleted.
--
-- Whoever adds or changes a version first locks the row of its agent, in a transaction that locks no other.

-- `published` is the id of the version that runs use unless they say otherwise, empty for none; `shown` is the
-- number of the version whose name is shown, and `last_number` that of the newest one.
CREATE TABLE entracte.agents (
    tenant text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    last_number bigint NOT NULL,
    shown bigint NOT NULL,
    published text COLLATE "C" NOT NULL,
    create_time bigint NOT NULL,
    update_time bigint NOT NULL,
    PRIMARY KEY (tenant, agent_id)
);

CREATE TABLE entracte.agent_versions (
    tenant text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    version_id text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    status text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    description text COLLATE "C" NOT NULL,
    creator text COLLATE "C" NOT NULL,
    create_time bigint NOT NULL,
    publisher text COLLATE "C" NOT NULL DEFAULT '',
    publish_time bigint NOT NULL DEFAULT 0,
    format bigint NOT NULL,
    definition bytea NOT NULL,
    source bytea NOT NULL,
    PRIMARY KEY (tenant, agent_id, number)
);
CREATE UNIQUE INDEX agent_versions_key ON entracte.agent_versions (tenant, version_id);
CREATE INDEX agent_drafts ON entracte.agent_versions (tenant, agent_id, number) WHERE status = 'draft';
