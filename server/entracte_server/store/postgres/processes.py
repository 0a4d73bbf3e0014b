"""Processes and what they own: leases, duties, orphans, and what is wanted of an owner.

Leases are compared with the clock of the database, which is the same for all.
"""

from collections.abc import Sequence

from entracte_server.domain.runs import SNAPSHOT_FORMAT, RunRow
from entracte_server.store.base import Sighting
from entracte_server.store.postgres.programs import Program
from entracte_server.store.records import RUN_COLUMNS, run_row

_FORGET_ENDED = "DELETE FROM entracte.processes WHERE lease_end < clock_timestamp() - interval '1 hour'"
_ENTER = (
    "INSERT INTO entracte.processes (process_id, lease_end) "
    "VALUES ($1, clock_timestamp() + make_interval(secs => $2::float8)) "
    "ON CONFLICT (process_id) DO UPDATE SET lease_end = excluded.lease_end"
)
_RENEW = (
    "UPDATE entracte.processes SET lease_end = clock_timestamp() + make_interval(secs => $2::float8) "
    "WHERE process_id = $1 AND lease_end > clock_timestamp()"
)
_LEAVE = "DELETE FROM entracte.processes WHERE process_id = $1"
_LEAVE_DUTIES = "DELETE FROM entracte.duties WHERE process_id = $1"
_LEAD = (
    "INSERT INTO entracte.duties AS d (duty, process_id, lease_end) "
    "VALUES ($1, $2, clock_timestamp() + make_interval(secs => $3::float8)) "
    "ON CONFLICT (duty) DO UPDATE SET process_id = excluded.process_id, lease_end = excluded.lease_end "
    "WHERE d.process_id = excluded.process_id OR d.lease_end <= clock_timestamp()"
)
_ALIVE = (
    "EXISTS (SELECT 1 FROM entracte.processes p "
    "WHERE p.process_id = r.owner AND p.lease_end > clock_timestamp())"
)
_ORPHANS = (
    f"SELECT {RUN_COLUMNS} FROM entracte.runs r WHERE r.state = 'running' AND r.root_run_id IS NULL "
    "AND r.format <= $1 "
    "AND (r.agent_id = ANY($2::text[]) OR r.cancel_reason IS NOT NULL OR EXISTS (SELECT 1 "
    "FROM entracte.agents a WHERE a.tenant = r.tenant AND a.agent_id = r.agent_id)) "
    f"AND NOT {_ALIVE} "
    "ORDER BY r.seq LIMIT $3"
)
_OWNED = f"SELECT {RUN_COLUMNS} FROM entracte.runs WHERE state = 'running' AND owner = $1 ORDER BY seq"
_COMMANDS = (
    "SELECT tenant, run_id FROM entracte.runs "
    "WHERE owner = $1 AND state = 'running' AND cancel_reason IS NOT NULL "
    "UNION SELECT tenant, run_id FROM entracte.runs WHERE owner = $1 AND state = 'running' "
    "AND seq IN (SELECT run FROM entracte.tool_calls WHERE state = 'decided')"
)
_PEEK = (
    f"SELECT r.tenant, r.run_id, r.state, r.fence, r.owner, r.last_sequence, {_ALIVE} "
    "FROM entracte.runs r WHERE r.tenant = $1 AND r.run_id = $2"
)


def enter(process_id: str, seconds: float) -> Program[None]:
    """See `Store.enter`. Rows of processes whose leases ended long ago go."""
    yield [(_FORGET_ENDED, ()), (_ENTER, (process_id, str(seconds)))]


def renew(process_id: str, seconds: float) -> Program[bool]:
    """See `Store.renew`."""
    (renewed,) = yield [(_RENEW, (process_id, str(seconds)))]
    return renewed.count > 0


def leave(process_id: str) -> Program[None]:
    """See `Store.leave`. Its duties end as well."""
    yield [(_LEAVE, (process_id,)), (_LEAVE_DUTIES, (process_id,))]


def lead(duty: str, process_id: str, seconds: float) -> Program[bool]:
    """See `Store.lead`."""
    (led,) = yield [(_LEAD, (duty, process_id, str(seconds)))]
    return led.count > 0


def orphans(agents: frozenset[str], limit: int) -> Program[list[RunRow]]:
    """See `Store.orphans`."""
    (found,) = yield [(_ORPHANS, (SNAPSHOT_FORMAT, sorted(agents), limit))]
    return [run_row(row) for row in found.rows]


def owned(process_id: str) -> Program[list[RunRow]]:
    """See `Store.owned`."""
    (found,) = yield [(_OWNED, (process_id,))]
    return [run_row(row) for row in found.rows]


def commands(process_id: str) -> Program[list[tuple[str, str]]]:
    """See `Store.commands`."""
    (found,) = yield [(_COMMANDS, (process_id,))]
    return [(tenant, run_id) for tenant, run_id in found.rows]


def peek(keys: Sequence[tuple[str, str]]) -> Program[list[Sighting]]:
    """See `Store.peek`."""
    found = yield [(_PEEK, key) for key in keys]
    return [Sighting(*row) for result in found for row in result.rows]
