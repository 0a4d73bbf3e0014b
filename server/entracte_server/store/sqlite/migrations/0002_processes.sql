-- The processes that work on this file, and which runs are whose.
--
-- `lease_end` is in milliseconds of the machine's clock since it was booted, or of the wall clock where
-- `boot_id` is empty (see clock.py). Of another boot, every lease has ended.
CREATE TABLE processes (
    process_id TEXT NOT NULL PRIMARY KEY,
    boot_id TEXT NOT NULL,
    lease_end INTEGER NOT NULL
) WITHOUT ROWID;

-- What one process does at a time, and until when it may.
CREATE TABLE duties (
    duty TEXT NOT NULL PRIMARY KEY,
    process_id TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    lease_end INTEGER NOT NULL
) WITHOUT ROWID;

-- Each process looks once a second whose runs are whose, and which of its own somebody asked to cancel:
-- neither may touch the rows of those that wait or have ended.
CREATE INDEX runs_owned ON runs (owner) WHERE state = 'running';
CREATE INDEX runs_to_cancel ON runs (owner) WHERE state = 'running' AND cancel_reason IS NOT NULL;
