-- What agents noted down, one text each: of a resource (`thread` is 0), or of a thread, by `threads.seq`
-- (`resource_id` is empty).
--
-- Its row is locked after those of threads and runs, and by a transaction that locks no other.
CREATE TABLE entracte.working_memory (
    tenant text COLLATE "C" NOT NULL,
    resource_id text COLLATE "C" NOT NULL,
    thread bigint NOT NULL,
    version bigint NOT NULL,
    update_time bigint NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (tenant, resource_id, thread)
)
WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
