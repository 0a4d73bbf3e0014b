-- Tools that workers execute, the workers' sessions, and the calls that they are given.
--
-- Times are in milliseconds since the epoch, `timeout`, `wait` and `queue` in milliseconds.
CREATE TABLE entracte.worker_tools (
    seq bigint GENERATED ALWAYS AS IDENTITY,
    tenant text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    version text COLLATE "C" NOT NULL,
    target text COLLATE "C" NOT NULL,
    register_time bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (tenant, name, version)
);
CREATE INDEX worker_tools_newest ON entracte.worker_tools (tenant, name, register_time, seq);
CREATE INDEX worker_tools_by_age ON entracte.worker_tools (tenant, register_time, seq);

CREATE TABLE entracte.worker_sessions (
    tenant text COLLATE "C" NOT NULL,
    principal text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    stream bigint NOT NULL,
    alive_until bigint NOT NULL,
    targets bytea NOT NULL,
    PRIMARY KEY (tenant, principal, session_id)
)
WITH (fillfactor = 60);
CREATE INDEX worker_sessions_ending ON entracte.worker_sessions (alive_until);

-- `due_time` is when open work is unavailable, given work expires and closed work is forgotten; 0 where
-- nothing happens by itself. `outputs` is the highest number of what its tool wrote since it was given out.
CREATE TABLE entracte.work (
    seq bigint GENERATED ALWAYS AS IDENTITY,
    tenant text COLLATE "C" NOT NULL,
    work_id text COLLATE "C" NOT NULL,
    run bigint NOT NULL,
    call_id text COLLATE "C" NOT NULL,
    target text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    principal text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    token text COLLATE "C" NOT NULL,
    deliveries bigint NOT NULL,
    create_time bigint NOT NULL,
    due_time bigint NOT NULL,
    timeout bigint NOT NULL,
    wait bigint NOT NULL,
    queue bigint NOT NULL,
    idempotent bigint NOT NULL,
    outputs bigint NOT NULL,
    task bytea NOT NULL,
    answer bytea,
    digest bytea,
    PRIMARY KEY (tenant, seq),
    UNIQUE (tenant, work_id)
)
WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX work_of_run ON entracte.work (run);
CREATE INDEX work_open ON entracte.work (tenant, target, seq) WHERE state = 'open';
CREATE INDEX work_held ON entracte.work (tenant, principal, session_id, seq) WHERE state = 'given';
CREATE INDEX work_due ON entracte.work (due_time) WHERE due_time > 0;

-- What tools wrote and their runs' owners have not written to the logs yet.
CREATE TABLE entracte.work_outputs (
    work bigint NOT NULL,
    position bigint GENERATED ALWAYS AS IDENTITY,
    size bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (work, position)
);
