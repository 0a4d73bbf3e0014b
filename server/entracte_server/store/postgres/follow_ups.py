"""Follow-up jobs: added with the end of a run, claimed by processes, settled."""

from collections.abc import Sequence

from entracte_server.domain.follow_ups import FollowUpRow
from entracte_server.domain.runs import SNAPSHOT_FORMAT
from entracte_server.store.base import ClaimFollowUps
from entracte_server.store.follow_up_records import FOLLOW_UP_COLUMNS, follow_up_data, follow_up_row
from entracte_server.store.postgres.programs import Attempt, Program
from entracte_server.store.postgres.values import Values

_COLUMNS = ("kind", "name", "handler", "state", "create_time", "due_time", "owner", "attempts")
_TYPES = ("text",) * 4 + ("bigint",) * 2 + ("text", "bigint")

# Not of a join, for which all runs of a tenant might be read.
_FOLLOW_UP = FOLLOW_UP_COLUMNS.replace(
    "r.tenant, r.run_id",
    "f.tenant, (SELECT r.run_id FROM entracte.runs r WHERE r.tenant = f.tenant AND r.seq = f.run)",
)
_FREE = (
    "UPDATE entracte.follow_ups f SET owner = '', due_time = $1 "
    "WHERE f.state = 'waiting' AND f.owner <> '' AND NOT EXISTS (SELECT 1 FROM entracte.processes p "
    "WHERE p.process_id = f.owner AND p.lease_end > clock_timestamp())"
)
# Those that somebody else claims now, or deletes, are passed over.
_CLAIM = (
    "WITH due AS (SELECT tenant, run, kind, name FROM entracte.follow_ups "
    "WHERE state = 'waiting' AND due_time <= $1 AND format <= $2 "
    "AND (create_time < $3 OR handler = ANY($4::text[])) ORDER BY due_time LIMIT $5 FOR UPDATE SKIP LOCKED) "
    "UPDATE entracte.follow_ups f SET owner = $6, attempts = f.attempts + 1, due_time = $7 "
    "FROM due d WHERE f.run = d.run AND f.kind = d.kind AND f.name = d.name "
    f"RETURNING {_FOLLOW_UP}"
)
_SETTLE = (
    "UPDATE entracte.follow_ups SET state = $1, due_time = $2, owner = '', data = $3 "
    "WHERE run = (SELECT seq FROM entracte.runs WHERE tenant = $4 AND run_id = $5) "
    "AND kind = $6 AND name = $7 AND attempts = $8 AND (state = 'waiting') IS TRUE"
)
_RELEASE = (
    "UPDATE entracte.follow_ups SET owner = '', attempts = attempts - 1, due_time = $1 "
    "WHERE state = 'waiting' AND owner <> '' AND owner = $2"
)
_OF_RUNS = (
    f"SELECT {_FOLLOW_UP} FROM entracte.follow_ups f WHERE f.run = ANY(ARRAY("
    "SELECT seq FROM entracte.runs WHERE tenant = $1 AND run_id = ANY($2::text[]))) "
    "ORDER BY f.run, f.kind, f.name"
)


def inserted(rows: Sequence[FollowUpRow], value: Values) -> str:
    """The part of a statement that adds jobs to the run `target`."""
    arrays = [
        f"{value([getattr(row, name) for row in rows])}::{kind}[]"
        for name, kind in zip(_COLUMNS, _TYPES, strict=True)
    ]
    arrays.append(f"{value([follow_up_data(row) for row in rows])}::bytea[]")
    names = ", ".join(_COLUMNS)
    return (
        f"follow_ups AS (INSERT INTO entracte.follow_ups (tenant, run, format, {names}, data) "
        f"SELECT t.tenant, t.seq, t.format, {', '.join(f'f.{name}' for name in _COLUMNS)}, f.data "
        f"FROM target t, unnest({', '.join(arrays)}) AS f ({names}, data) "
        "ON CONFLICT (run, kind, name) DO NOTHING)"
    )


def claim(op: ClaimFollowUps) -> Program[list[FollowUpRow]]:
    """See `Store.claim_follow_ups`."""
    due = (op.now, SNAPSHOT_FORMAT, op.given_up, sorted(op.handlers), op.limit)
    _, found = yield [(_FREE, (op.now,)), (_CLAIM, (*due, op.process_id, op.until))]
    return [follow_up_row(row) for row in found.rows]


def settle(row: FollowUpRow) -> Program[bool]:
    """See `Store.settle_follow_up`."""
    values = (row.state, row.due_time, follow_up_data(row))
    key = (row.tenant, row.run_id, row.kind, row.name, row.attempts)
    (settled,) = yield [(_SETTLE, (*values, *key))]
    return settled.count > 0


def release(process_id: str, at: Attempt) -> Program[None]:
    """See `Store.release_follow_ups`."""
    yield [(_RELEASE, (at.now, process_id))]


def of_runs(tenant: str, run_ids: Sequence[str]) -> Program[list[FollowUpRow]]:
    """See `Store.follow_ups`."""
    (found,) = yield [(_OF_RUNS, (tenant, list(run_ids)))]
    return [follow_up_row(row) for row in found.rows]
