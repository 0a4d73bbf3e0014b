-- Tools that workers execute, the workers' sessions, and the calls that they are given.
--
-- Times are in milliseconds since the epoch, `timeout`, `wait` and `queue` in milliseconds.
CREATE TABLE worker_tools (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    target TEXT NOT NULL,
    register_time INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE UNIQUE INDEX worker_tools_key ON worker_tools (tenant, name, version);

CREATE TABLE worker_sessions (
    tenant TEXT NOT NULL,
    principal TEXT NOT NULL,
    session_id TEXT NOT NULL,
    stream INTEGER NOT NULL,
    alive_until INTEGER NOT NULL,
    targets BLOB NOT NULL,
    PRIMARY KEY (tenant, principal, session_id)
) WITHOUT ROWID;
CREATE INDEX worker_sessions_ending ON worker_sessions (alive_until);

-- `due_time` is when open work is unavailable, given work expires and closed work is forgotten; 0 where
-- nothing happens by itself. `outputs` is the highest number of what its tool wrote since it was given out.
CREATE TABLE work (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    work_id TEXT NOT NULL,
    run INTEGER NOT NULL,
    call_id TEXT NOT NULL,
    target TEXT NOT NULL,
    state TEXT NOT NULL,
    principal TEXT NOT NULL,
    session_id TEXT NOT NULL,
    token TEXT NOT NULL,
    deliveries INTEGER NOT NULL,
    create_time INTEGER NOT NULL,
    due_time INTEGER NOT NULL,
    timeout INTEGER NOT NULL,
    wait INTEGER NOT NULL,
    queue INTEGER NOT NULL,
    idempotent INTEGER NOT NULL,
    outputs INTEGER NOT NULL,
    task BLOB NOT NULL,
    answer BLOB,
    digest BLOB
);
CREATE UNIQUE INDEX work_key ON work (tenant, work_id);
CREATE INDEX work_of_run ON work (run);
CREATE INDEX work_open ON work (tenant, target) WHERE state = 'open';
CREATE INDEX work_held ON work (tenant, principal, session_id) WHERE state = 'given';
CREATE INDEX work_due ON work (due_time) WHERE due_time > 0;

-- What tools wrote and their runs' owners have not written to the logs yet.
CREATE TABLE work_outputs (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    work INTEGER NOT NULL,
    size INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE INDEX work_outputs_of_work ON work_outputs (work);
