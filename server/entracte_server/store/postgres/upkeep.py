"""Finding what has expired, and deleting: runs that somebody wants gone, and what is old."""

from entracte_server.domain.runs import SNAPSHOT_FORMAT, PendingRow
from entracte_server.store.base import Backlog, Retention
from entracte_server.store.postgres.connection import Statement
from entracte_server.store.postgres.programs import Program
from entracte_server.store.postgres.rows import PENDING_WITH_RUN
from entracte_server.store.records import PENDING_COLUMNS, pending_row

LOG_BYTES = 8 * 1024 * 1024
LOG_ROWS = 4096
"""How much of logs is deleted in one transaction."""

_EXPIRED = (
    f"SELECT {PENDING_COLUMNS} FROM {PENDING_WITH_RUN} "
    "WHERE p.state = 'open' AND p.expire_time > 0 AND p.expire_time < $1 AND p.format <= $2 "
    "AND (p.agent_id = ANY($3::text[]) OR EXISTS (SELECT 1 FROM entracte.agents a "
    "WHERE a.tenant = p.tenant AND a.agent_id = p.agent_id)) ORDER BY p.expire_time, p.seq LIMIT $4"
)

_BACKLOG = (
    "SELECT agent_id, count(*), min(create_time) FROM entracte.pending_calls WHERE state = 'open' "
    "GROUP BY agent_id ORDER BY agent_id"
)

_TREE = (
    "SELECT seq FROM entracte.runs WHERE tenant = $1 AND run_id = $2 "
    "UNION ALL SELECT seq FROM entracte.runs WHERE tenant = $1 AND root_run_id = $2"
)
_LOCK_TREE = "SELECT 1 FROM entracte.runs WHERE tenant = $1 AND root_run_id = $2 ORDER BY run_id FOR UPDATE"
_DELETE_TREE = (
    "UPDATE entracte.requests q SET decision_id = '' FROM entracte.decisions d "
    f"WHERE d.run IN ({_TREE}) AND q.tenant = d.tenant AND q.decision_id = d.decision_id "
    "AND q.decision_id <> ''",
    f"DELETE FROM entracte.work_outputs WHERE work IN (SELECT seq FROM entracte.work WHERE run IN ({_TREE}))",
    *(
        f"DELETE FROM entracte.{table} WHERE run IN ({_TREE})"
        for table in (
            "chunks",
            "steps",
            "tool_calls",
            "pending_calls",
            "decisions",
            "follow_ups",
            "work",
            "run_specs",
        )
    ),
    "DELETE FROM entracte.runs WHERE tenant = $1 AND root_run_id = $2",
    "DELETE FROM entracte.runs WHERE tenant = $1 AND run_id = $2",
)

# Runs that somebody else works on are left for the next time.
_ENDED = (
    "SELECT seq, tenant, run_id FROM entracte.runs "
    "WHERE has_log = $1 AND finish_time > 0 AND root_run_id IS NULL AND finish_time < $2 "
    "ORDER BY finish_time LIMIT $3 FOR UPDATE SKIP LOCKED"
)
_LOG = "SELECT last, octet_length(data) FROM entracte.chunks WHERE run = $1 ORDER BY last LIMIT $2"
_DELETE_LOG = "DELETE FROM entracte.chunks WHERE run = $1 AND last <= $2"
_TRIMMED = "UPDATE entracte.runs SET has_log = false WHERE tenant = $1 AND seq = $2"
_DELETE_REQUESTS = (
    # An array, because that is made once: a join might look again, and find others every time.
    "DELETE FROM entracte.requests WHERE ctid = ANY(ARRAY(SELECT ctid FROM entracte.requests "
    "WHERE decision_id = '' AND create_time < $1 ORDER BY create_time LIMIT $2 FOR UPDATE SKIP LOCKED))"
)


def expired(now: int, agents: frozenset[str], limit: int) -> Program[list[PendingRow]]:
    """See `Store.expired`."""
    (found,) = yield [(_EXPIRED, (now, SNAPSHOT_FORMAT, sorted(agents), limit))]
    return [pending_row(row) for row in found.rows]


def backlog() -> Program[list[Backlog]]:
    """See `Store.backlog`."""
    (found,) = yield [(_BACKLOG, ())]
    return [Backlog(*row) for row in found.rows]


def delete_tree(tenant: str, run_id: str) -> list[Statement]:
    """Delete all of a run that is locked, and of its sub-agents' runs."""
    key = (tenant, run_id)
    return [(_LOCK_TREE, key), *((sql, key) for sql in _DELETE_TREE)]


def trim(old: Retention, limit: int) -> Program[int]:
    """See `Store.trim`. In a transaction of its own."""
    logs = Logs()
    runs = yield from logs.of_runs(old.runs, limit)
    if runs < limit:
        runs += yield from logs.alone(old.chunks, limit - runs)
    requests = 0
    if old.requests:
        (deleted,) = yield [(_DELETE_REQUESTS, (old.requests, limit))]
        requests = deleted.count
    return runs + requests


class Logs:
    """Deletes logs, and what else may be large, up to a limit of one transaction."""

    def __init__(self) -> None:
        self._bytes = LOG_BYTES
        self._rows = LOG_ROWS

    def of_runs(self, before: int, limit: int) -> Program[int]:
        """With all else of the runs that ended before: how many were touched."""
        touched = 0
        for has_log in (False, True):
            for seq, tenant, run_id in (yield from self._ended(has_log, before, limit - touched)):
                touched += 1
                if not has_log or (yield from self._delete(seq)):
                    yield delete_tree(tenant, run_id)
                if self.used_up():
                    return touched
        return touched

    def alone(self, before: int, limit: int) -> Program[int]:
        """And nothing else of the runs that ended before: how many were touched."""
        touched = 0
        if self.used_up():
            return touched
        for seq, tenant, _ in (yield from self._ended(True, before, limit)):
            touched += 1
            if (yield from self._delete(seq)):
                yield [(_TRIMMED, (tenant, seq))]
            if self.used_up():
                break
        return touched

    def _ended(self, has_log: bool, before: int, limit: int) -> Program[list[tuple[int, str, str]]]:
        if not before or limit <= 0:
            return []
        (found,) = yield [(_ENDED, (has_log, before, limit))]
        return [(seq, tenant, run_id) for seq, tenant, run_id in found.rows]

    def used_up(self) -> bool:
        """Whether the limit is reached."""
        return self._bytes <= 0 or self._rows <= 0

    def spend(self, size: int) -> None:
        """Count a row of something else that is deleted in the same transaction."""
        self._bytes -= size
        self._rows -= 1

    def delete_run(self, seq: int, tenant: str, run_id: str) -> Program[None]:
        """As much as may be of the log of a run that is locked, and all else of it once that is gone."""
        if (yield from self._delete(seq)):
            yield delete_tree(tenant, run_id)

    def _delete(self, seq: int) -> Program[bool]:
        """From the beginning of a log, as much as may be; whether that is all of it."""
        last = 0
        (rows,) = yield [(_LOG, (seq, self._rows + 1))]
        for position, size in rows.rows:
            last = position
            self.spend(size)
            if self.used_up():
                break
        if last:
            yield [(_DELETE_LOG, (seq, last))]
        return not rows.rows or last == rows.rows[-1][0]
