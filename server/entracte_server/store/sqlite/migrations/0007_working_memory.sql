-- What agents noted down, one text each: of a resource (`thread` is 0), or of a thread, by `threads.seq`
-- (`resource_id` is empty).
CREATE TABLE working_memory (
    tenant TEXT NOT NULL,
    resource_id TEXT NOT NULL,
    thread INTEGER NOT NULL,
    version INTEGER NOT NULL,
    update_time INTEGER NOT NULL,
    content BLOB NOT NULL
);
CREATE UNIQUE INDEX working_memory_key ON working_memory (tenant, resource_id, thread);
