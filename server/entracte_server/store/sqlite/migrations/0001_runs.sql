-- Runs and all that belongs to them.
--
-- `run` in the other tables is `runs.seq`: eight bytes at most where tenant and run id would take
-- fifty, in every row and every index. It is never taken from a caller: each statement finds it by
-- tenant and run id. Records are MessagePack, in the form the row's `format` says. The tables whose
-- rows may be large have row ids and a narrow index, so that rows fill their pages in the order they
-- come and none needs a page of its own.

CREATE TABLE meta (
    name TEXT NOT NULL PRIMARY KEY,
    value BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE runs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    run_id TEXT NOT NULL,
    state TEXT NOT NULL,
    owner TEXT NOT NULL,
    fence INTEGER NOT NULL,
    last_sequence INTEGER NOT NULL,
    update_time INTEGER NOT NULL,
    step INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    usage BLOB,
    takeovers INTEGER NOT NULL,
    cancel_reason TEXT,
    executed_ms INTEGER NOT NULL,
    finish_time INTEGER NOT NULL,
    finish_reason TEXT,
    stop_cause TEXT,
    error BLOB,
    agent_id TEXT NOT NULL,
    agent_version TEXT NOT NULL,
    principal TEXT NOT NULL,
    create_time INTEGER NOT NULL,
    thread_id TEXT,
    resource_id TEXT,
    -- NULL for a run that is its own root, so that the tree's index holds sub-agents' runs only.
    root_run_id TEXT,
    parent_run_id TEXT,
    format INTEGER NOT NULL,
    UNIQUE (tenant, run_id)
);

-- Row ids end every index entry: the entries of one key are in the order the rows were made.
CREATE INDEX runs_of_tenant ON runs (tenant);
CREATE INDEX runs_live ON runs (state, tenant) WHERE finish_time = 0;
CREATE INDEX runs_of_thread ON runs (tenant, thread_id) WHERE thread_id IS NOT NULL;
CREATE INDEX runs_of_tree ON runs (tenant, root_run_id) WHERE root_run_id IS NOT NULL;

-- Apart from `runs`, which is rewritten with every commit of a run.
CREATE TABLE run_specs (
    run INTEGER PRIMARY KEY,
    format INTEGER NOT NULL,
    data BLOB NOT NULL
);

CREATE TABLE steps (
    run INTEGER NOT NULL,
    step INTEGER NOT NULL,
    format INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE UNIQUE INDEX steps_of_run ON steps (run, step);

CREATE TABLE tool_calls (
    run INTEGER NOT NULL,
    call_id TEXT NOT NULL,
    state TEXT NOT NULL,
    format INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE UNIQUE INDEX tool_calls_of_run ON tool_calls (run, call_id);
-- What a run may not park over.
CREATE INDEX tool_calls_decided ON tool_calls (run) WHERE state = 'decided';

CREATE TABLE pending_calls (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    pending_call_id TEXT NOT NULL,
    run INTEGER NOT NULL,
    call_id TEXT NOT NULL,
    state TEXT NOT NULL,
    create_time INTEGER NOT NULL,
    expire_time INTEGER NOT NULL,
    claimed_by TEXT NOT NULL,
    claimed_until INTEGER NOT NULL,
    decision_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    thread_id TEXT NOT NULL,
    resource_id TEXT NOT NULL,
    format INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE UNIQUE INDEX pending_calls_key ON pending_calls (tenant, pending_call_id);
CREATE INDEX pending_calls_of_run ON pending_calls (run);
CREATE INDEX pending_calls_of_tenant ON pending_calls (tenant, state);

CREATE TABLE decisions (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    decision_id TEXT NOT NULL,
    run INTEGER NOT NULL,
    call_id TEXT NOT NULL,
    pending_call_id TEXT NOT NULL,
    principal TEXT NOT NULL,
    format INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE UNIQUE INDEX decisions_key ON decisions (tenant, decision_id);
CREATE INDEX decisions_of_run ON decisions (run);
CREATE INDEX decisions_of_tenant ON decisions (tenant);

-- Outlives the run: a repeated request is recognised after it was deleted.
CREATE TABLE requests (
    tenant TEXT NOT NULL,
    principal TEXT NOT NULL,
    method TEXT NOT NULL,
    request_id TEXT NOT NULL,
    body_hash BLOB NOT NULL,
    run_id TEXT NOT NULL,
    decision_id TEXT NOT NULL,
    create_time INTEGER NOT NULL,
    PRIMARY KEY (tenant, principal, method, request_id)
) WITHOUT ROWID;

-- `size` is that of the unpacked data; 0 where it is stored as it is.
CREATE TABLE chunks (
    run INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    size INTEGER NOT NULL,
    data BLOB NOT NULL
);
-- Not declared unique, which costs a second search: appending checks the run's last sequence.
CREATE INDEX chunks_of_run ON chunks (run, last);
