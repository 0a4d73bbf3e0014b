-- What is to be done when a run has ended, and what came of it.
--
-- `due_time` is from when on a job that waits may be done; while a process does it, when its time for it
-- is over. In milliseconds since the epoch.
CREATE TABLE entracte.follow_ups (
    tenant text COLLATE "C" NOT NULL,
    run bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    handler text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    create_time bigint NOT NULL,
    due_time bigint NOT NULL,
    owner text COLLATE "C" NOT NULL,
    attempts bigint NOT NULL,
    format bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (run, kind, name)
)
WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
-- Processes look every few seconds what there is to do: those that are done are not touched.
CREATE INDEX follow_ups_due ON entracte.follow_ups (due_time) WHERE state = 'waiting';
CREATE INDEX follow_ups_owned ON entracte.follow_ups (owner) WHERE state = 'waiting' AND owner <> '';
