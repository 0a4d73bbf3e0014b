-- Threads of sub-agents. `parent` is the row id of the thread that the root's run has, with which they go.
ALTER TABLE threads ADD COLUMN parent INTEGER;
CREATE INDEX threads_below ON threads (parent, thread_id) WHERE parent IS NOT NULL AND doom = 0;
