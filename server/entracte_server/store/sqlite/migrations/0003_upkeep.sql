-- What is found by its age: calls that have expired, runs and request ids that are old enough to go.

-- 1: the log of the run was deleted for its age. There are no chunks of such a run.
ALTER TABLE runs ADD COLUMN trimmed INTEGER NOT NULL DEFAULT 0;

-- Root runs that have ended; a tree goes with its root, and the log is the root's.
CREATE INDEX runs_ended ON runs (trimmed, finish_time) WHERE finish_time > 0 AND root_run_id IS NULL;

CREATE INDEX pending_calls_expiring ON pending_calls (agent_id, expire_time)
    WHERE state = 'open' AND expire_time > 0;

-- The request id of a decision is kept as long as the decision is: it names one for so long, and not
-- longer. What names none goes by its age.
UPDATE requests SET decision_id = '' WHERE decision_id <> '' AND NOT EXISTS (
    SELECT 1 FROM decisions d WHERE d.tenant = requests.tenant AND d.decision_id = requests.decision_id
);
CREATE INDEX requests_by_age ON requests (create_time) WHERE decision_id = '';
CREATE INDEX requests_of_decisions ON requests (decision_id) WHERE decision_id <> '';
