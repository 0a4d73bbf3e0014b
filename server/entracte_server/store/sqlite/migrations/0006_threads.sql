-- Conversations that outlive their runs, and which run has one.

-- `doom` is 0. A deleted thread stays, and nobody sees it, until all that it left behind is gone: `doom` is
-- then the row id of the last run that may be one of its own (-1: there were none), since its id may be
-- another thread's by now.
CREATE TABLE threads (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    thread_id TEXT NOT NULL,
    resource_id TEXT NOT NULL,
    title TEXT NOT NULL,
    metadata TEXT,
    create_time INTEGER NOT NULL,
    update_time INTEGER NOT NULL,
    doom INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX threads_key ON threads (tenant, thread_id) WHERE doom = 0;
CREATE INDEX threads_of_tenant ON threads (tenant) WHERE doom = 0;
CREATE INDEX threads_of_resource ON threads (tenant, resource_id) WHERE doom = 0;
CREATE INDEX threads_doomed ON threads (doom) WHERE doom <> 0;

-- `thread` is `threads.seq`, found by tenant and thread id as `run` is elsewhere.
CREATE TABLE messages (
    thread INTEGER NOT NULL,
    position INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    role TEXT NOT NULL,
    run_id TEXT NOT NULL,
    create_time INTEGER NOT NULL,
    format INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE UNIQUE INDEX messages_of_thread ON messages (thread, position);
CREATE UNIQUE INDEX messages_key ON messages (thread, message_id);
CREATE INDEX messages_of_run ON messages (thread, run_id, position);

-- The runs that have a thread or wait for it, in the order they came: the first one has it. `deadline` is
-- how long a run waits at most, in milliseconds since the epoch; 0 when it need not wait any more.
CREATE TABLE thread_turns (
    run INTEGER PRIMARY KEY,
    thread INTEGER NOT NULL,
    deadline INTEGER NOT NULL
);
CREATE INDEX thread_turns_of_thread ON thread_turns (thread);
CREATE INDEX thread_turns_overdue ON thread_turns (deadline) WHERE deadline > 0;

-- What a run knows of its thread; NULL for runs without.
ALTER TABLE run_specs ADD COLUMN remembered BLOB;
