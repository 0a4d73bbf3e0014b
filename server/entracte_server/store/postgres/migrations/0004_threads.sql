-- Conversations that outlive their runs, and which run has one.
--
-- Whoever adds or removes a turn first locks the row of the thread, and after that those of the runs that
-- it changes, in the order of their ids. It does so in a transaction of its own: none locks a thread while
-- it holds runs. The messages of a thread are guarded by the row of the run that has it.

-- `deleted` is 0. A deleted thread stays, and nobody sees it, until all that it left behind is gone: `deleted`
-- is then its own row id, so that its name is free, and `doom` the row id of the last run that may be one
-- of its own (-1: there were none), since another thread may have the name by now.
CREATE TABLE entracte.threads (
    seq bigint GENERATED ALWAYS AS IDENTITY,
    tenant text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    resource_id text COLLATE "C" NOT NULL,
    title text COLLATE "C" NOT NULL,
    metadata text COLLATE "C",
    create_time bigint NOT NULL,
    update_time bigint NOT NULL,
    deleted bigint NOT NULL DEFAULT 0,
    doom bigint NOT NULL DEFAULT 0,
    -- By which operation it was deleted. One whose acknowledgement was lost, and which is therefore
    -- repeated, recognises itself by it, and leaves alone a thread that has the id by then.
    deleted_by bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, seq),
    -- Not a partial one: without statistics it would not be preferred to others.
    UNIQUE (tenant, thread_id, deleted)
);
CREATE INDEX threads_of_resource ON entracte.threads (tenant, resource_id, seq);
CREATE INDEX threads_doomed ON entracte.threads (seq) WHERE deleted <> 0;

-- `thread` is `threads.seq`, found by tenant and thread id as `run` is elsewhere.
CREATE TABLE entracte.messages (
    thread bigint NOT NULL,
    position bigint NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    role text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    create_time bigint NOT NULL,
    format bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (thread, position)
);
CREATE UNIQUE INDEX messages_key ON entracte.messages (thread, message_id);
CREATE INDEX messages_of_run ON entracte.messages (thread, run_id, position);

-- The runs that have a thread or wait for it, in the order they came: the first one has it. `deadline` is
-- how long a run waits at most, in milliseconds since the epoch; 0 when it need not wait any more.
CREATE TABLE entracte.thread_turns (
    tenant text COLLATE "C" NOT NULL,
    run bigint PRIMARY KEY,
    thread bigint NOT NULL,
    deadline bigint NOT NULL
)
WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX thread_turns_of_thread ON entracte.thread_turns (thread, run);
CREATE INDEX thread_turns_overdue ON entracte.thread_turns (deadline) WHERE deadline > 0;

-- What a run knows of its thread; NULL for runs without.
ALTER TABLE entracte.run_specs ADD COLUMN remembered bytea;
