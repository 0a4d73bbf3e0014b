-- Threads of sub-agents. `parent` is the row id of the thread that the root's run has, with which they go. Whoever
-- makes or deletes one has locked that run.
ALTER TABLE entracte.threads ADD COLUMN parent bigint;
CREATE INDEX threads_below ON entracte.threads (parent, thread_id) WHERE parent IS NOT NULL;
