-- Runs and all that belongs to them, and the processes that execute them.
--
-- `run` in the other tables is `runs.seq`. It is never taken from a caller: each statement finds it by
-- tenant and run id. Records are MessagePack, in the form the row's `format` says. Texts compare by
-- their bytes, so that no index depends on the locales of the machine; NUL, which no text can hold
-- here, is written as two characters (see encoding.py).
--
-- The tenant leads every key that a caller's id can reach, and row ids are found with it as well: an index
-- of row ids alone would be taken for a quick way to a tenant's newest rows, which it is not.
--
-- Whoever changes what belongs to a run first locks the run's row, and rows of several runs in the
-- order of tenant and run id.

CREATE TABLE entracte.meta (
    name text COLLATE "C" PRIMARY KEY,
    value bytea NOT NULL
);

CREATE TABLE entracte.runs (
    seq bigint GENERATED ALWAYS AS IDENTITY,
    tenant text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    fence bigint NOT NULL,
    last_sequence bigint NOT NULL,
    update_time bigint NOT NULL,
    step bigint NOT NULL,
    attempt bigint NOT NULL,
    usage bytea,
    takeovers bigint NOT NULL,
    cancel_reason text COLLATE "C",
    executed_ms bigint NOT NULL,
    finish_time bigint NOT NULL,
    finish_reason text COLLATE "C",
    stop_cause text COLLATE "C",
    error bytea,
    agent_id text COLLATE "C" NOT NULL,
    agent_version text COLLATE "C" NOT NULL,
    principal text COLLATE "C" NOT NULL,
    create_time bigint NOT NULL,
    thread_id text COLLATE "C",
    resource_id text COLLATE "C",
    -- NULL for a run that is its own root, so that the tree's index holds sub-agents' runs only.
    root_run_id text COLLATE "C",
    parent_run_id text COLLATE "C",
    format bigint NOT NULL,
    -- By which operation the owner came to own the run. One whose acknowledgement was lost, and which
    -- is therefore repeated, recognises itself by it.
    taken_by bigint NOT NULL,
    -- False once the log of a run that has ended was trimmed to nothing.
    has_log boolean NOT NULL DEFAULT true,
    PRIMARY KEY (tenant, seq),
    UNIQUE (tenant, run_id)
)
-- Rewritten with every commit of a run: room for the versions of a row on its page, so that the
-- indexes need not change.
WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);

CREATE INDEX runs_live ON entracte.runs (tenant, state, seq) WHERE finish_time = 0;
CREATE INDEX runs_of_thread ON entracte.runs (tenant, thread_id, seq) WHERE thread_id IS NOT NULL;
CREATE INDEX runs_of_tree ON entracte.runs (tenant, root_run_id, run_id) WHERE root_run_id IS NOT NULL;
-- Each process looks once a second whose runs are whose, and which of its own somebody asked to cancel:
-- neither may touch the rows of those that wait or have ended.
CREATE INDEX runs_owned ON entracte.runs (owner, seq) WHERE state = 'running';
CREATE INDEX runs_to_cancel ON entracte.runs (owner) WHERE state = 'running' AND cancel_reason IS NOT NULL;
CREATE INDEX runs_ended ON entracte.runs (has_log, finish_time)
    WHERE finish_time > 0 AND root_run_id IS NULL;

-- Apart from `runs`, which is rewritten with every commit of a run.
CREATE TABLE entracte.run_specs (
    run bigint PRIMARY KEY,
    format bigint NOT NULL,
    data bytea NOT NULL
);

CREATE TABLE entracte.steps (
    run bigint NOT NULL,
    step bigint NOT NULL,
    format bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (run, step)
);

CREATE TABLE entracte.tool_calls (
    run bigint NOT NULL,
    call_id text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    format bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (run, call_id)
)
WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
-- What a run may not park over.
CREATE INDEX tool_calls_decided ON entracte.tool_calls (run) WHERE state = 'decided';

CREATE TABLE entracte.pending_calls (
    seq bigint GENERATED ALWAYS AS IDENTITY,
    tenant text COLLATE "C" NOT NULL,
    pending_call_id text COLLATE "C" NOT NULL,
    run bigint NOT NULL,
    call_id text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    create_time bigint NOT NULL,
    expire_time bigint NOT NULL,
    claimed_by text COLLATE "C" NOT NULL,
    claimed_until bigint NOT NULL,
    decision_id text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    resource_id text COLLATE "C" NOT NULL,
    format bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (tenant, seq),
    UNIQUE (tenant, pending_call_id)
)
WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX pending_calls_of_run ON entracte.pending_calls (run, seq);
CREATE INDEX pending_calls_open ON entracte.pending_calls (tenant, seq) WHERE state = 'open';
CREATE INDEX pending_calls_decided ON entracte.pending_calls (tenant, seq) WHERE state = 'decided';
CREATE INDEX pending_calls_expiring ON entracte.pending_calls (expire_time)
    WHERE state = 'open' AND expire_time > 0;

CREATE TABLE entracte.decisions (
    seq bigint GENERATED ALWAYS AS IDENTITY,
    tenant text COLLATE "C" NOT NULL,
    decision_id text COLLATE "C" NOT NULL,
    run bigint NOT NULL,
    call_id text COLLATE "C" NOT NULL,
    pending_call_id text COLLATE "C" NOT NULL,
    principal text COLLATE "C" NOT NULL,
    sequence bigint NOT NULL,
    format bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (tenant, seq),
    UNIQUE (tenant, decision_id)
);
CREATE INDEX decisions_of_run ON entracte.decisions (run, seq);

-- Outlives the run: a repeated request is recognised after it was deleted. `decision_id` is that of a
-- decision that is stored, as long as which the request is kept.
CREATE TABLE entracte.requests (
    tenant text COLLATE "C" NOT NULL,
    principal text COLLATE "C" NOT NULL,
    method text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    body_hash bytea NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    decision_id text COLLATE "C" NOT NULL,
    create_time bigint NOT NULL,
    PRIMARY KEY (tenant, principal, method, request_id)
);
CREATE INDEX requests_by_age ON entracte.requests (create_time) WHERE decision_id = '';
CREATE INDEX requests_of_decisions ON entracte.requests (tenant, decision_id) WHERE decision_id <> '';

-- `size` is that of the unpacked data; 0 where it is stored as it is.
CREATE TABLE entracte.chunks (
    run bigint NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    size bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (run, last)
)
WITH (autovacuum_vacuum_scale_factor = 0.05);

-- Leases, by this database's clock.
CREATE TABLE entracte.processes (
    process_id text COLLATE "C" PRIMARY KEY,
    lease_end timestamptz NOT NULL
)
WITH (fillfactor = 50);

-- What one process does at a time, and until when it may.
CREATE TABLE entracte.duties (
    duty text COLLATE "C" PRIMARY KEY,
    process_id text COLLATE "C" NOT NULL,
    lease_end timestamptz NOT NULL
)
WITH (fillfactor = 50);
