-- What is to be done when a run has ended, and what came of it.
--
-- `due_time` is from when on a job that waits may be done; while a process does it, when its time for it
-- is over. In milliseconds since the epoch.
CREATE TABLE follow_ups (
    run INTEGER NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    handler TEXT NOT NULL,
    state TEXT NOT NULL,
    create_time INTEGER NOT NULL,
    due_time INTEGER NOT NULL,
    owner TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    format INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE UNIQUE INDEX follow_ups_of_run ON follow_ups (run, kind, name);
-- Processes look every few seconds what there is to do: those that are done are not touched.
CREATE INDEX follow_ups_due ON follow_ups (due_time) WHERE state = 'waiting';
CREATE INDEX follow_ups_owned ON follow_ups (owner) WHERE state = 'waiting' AND owner <> '';
