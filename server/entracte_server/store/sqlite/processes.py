"""Processes and what they own: leases, duties, orphans, takeovers, and what is wanted of an owner.

Operations of a transaction take a `Transaction`, as in `owner` and `commands`; the others are reads on a
connection of a reader.
"""

import sqlite3
from collections.abc import Collection, Sequence

from entracte_server.domain.runs import SNAPSHOT_FORMAT, RunRow
from entracte_server.store.base import Sighting
from entracte_server.store.records import RUN_COLUMNS, run_row
from entracte_server.store.sqlite.clock import boot_id, now_ms
from entracte_server.store.sqlite.reads import one_moment
from entracte_server.store.sqlite.sockets import file_name
from entracte_server.store.sqlite.writer import Transaction

_ENTER = (
    "INSERT INTO processes (process_id, boot_id, lease_end) VALUES (?, ?, ?) "
    "ON CONFLICT (process_id) DO UPDATE SET boot_id = excluded.boot_id, lease_end = excluded.lease_end"
)
_RENEW = "UPDATE processes SET lease_end = ? WHERE process_id = ? AND boot_id = ? AND lease_end > ?"
_PROCESSES = "SELECT process_id FROM processes"
_FORGET = "DELETE FROM processes WHERE process_id = ?"
_FORGET_ENDED = "DELETE FROM processes WHERE boot_id <> ? OR lease_end <= ?"
_LEAVE_DUTIES = "DELETE FROM duties WHERE process_id = ?"

_HOLDER = "SELECT process_id FROM duties WHERE duty = ? AND boot_id = ? AND lease_end > ?"
_LEAD = (
    "INSERT INTO duties (duty, process_id, boot_id, lease_end) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (duty) DO UPDATE SET "
    "process_id = excluded.process_id, boot_id = excluded.boot_id, lease_end = excluded.lease_end "
    "WHERE duties.process_id = excluded.process_id OR duties.boot_id <> excluded.boot_id "
    "OR duties.lease_end <= ?"
)

_OWNERS = "SELECT DISTINCT owner FROM runs INDEXED BY runs_owned WHERE state = 'running'"
_ALIVE = "SELECT process_id FROM processes WHERE boot_id = ? AND lease_end > ?"
_OWNED_BY = f"SELECT {RUN_COLUMNS} FROM runs INDEXED BY runs_owned WHERE state = 'running' AND owner"
_SIGHTING = "SELECT state, fence, owner, last_sequence FROM runs WHERE tenant = ? AND run_id = ?"
_COMMANDS = (
    "SELECT tenant, run_id FROM runs INDEXED BY runs_to_cancel "
    "WHERE owner = ? AND state = 'running' AND cancel_reason IS NOT NULL "
    "UNION "
    "SELECT r.tenant, r.run_id FROM tool_calls c INDEXED BY tool_calls_decided "
    "CROSS JOIN runs r ON r.seq = c.run "
    "WHERE c.state = 'decided' AND r.owner = ? AND r.state = 'running'"
)
_TAKE_OVER = (
    "UPDATE runs SET owner = ?, fence = fence + 1, takeovers = takeovers + (? AND owner <> ''), "
    "update_time = ? WHERE tenant = ? AND run_id = ? AND fence = ? AND state = 'running' "
    f"RETURNING {RUN_COLUMNS}"
)

# ---- leases ----


def enter(process_id: str, seconds: float, transaction: Transaction) -> None:
    """See `Store.enter`. Rows of processes whose leases have ended go."""
    now = now_ms()
    transaction.execute(_FORGET_ENDED, (boot_id(), now))
    transaction.execute(_ENTER, (process_id, boot_id(), now + _ms(seconds)))


def renew(process_id: str, seconds: float, transaction: Transaction) -> bool:
    """See `Store.renew`."""
    now = now_ms()
    return transaction.execute(_RENEW, (now + _ms(seconds), process_id, boot_id(), now)).rowcount > 0


def leave(process_id: str, transaction: Transaction) -> None:
    """See `Store.leave`. Its duties end as well."""
    transaction.execute(_FORGET, (process_id,))
    transaction.execute(_LEAVE_DUTIES, (process_id,))


def bury(sockets: Collection[str], transaction: Transaction) -> None:
    """The processes with these sockets are dead."""
    for (process_id,) in transaction.execute(_PROCESSES).fetchall():
        if file_name(process_id) in sockets:
            leave(process_id, transaction)


def holder(connection: sqlite3.Connection, duty: str) -> str:
    """Which process holds a duty now; empty: none."""
    row = connection.execute(_HOLDER, (duty, boot_id(), now_ms())).fetchone()
    return "" if row is None else str(row[0])


def lead(duty: str, process_id: str, seconds: float, transaction: Transaction) -> bool:
    """See `Store.lead`."""
    now = now_ms()
    values = (duty, process_id, boot_id(), now + _ms(seconds), now)
    return transaction.execute(_LEAD, values).rowcount > 0


def _ms(seconds: float) -> int:
    return int(seconds * 1000)


# ---- who owns what ----


def alive(connection: sqlite3.Connection) -> set[str]:
    """The processes whose leases last."""
    return {row[0] for row in connection.execute(_ALIVE, (boot_id(), now_ms()))}


def owners(connection: sqlite3.Connection) -> tuple[set[str], set[str]]:
    """The owners of running runs, '' when some have none: those whose leases last, and the others."""
    with one_moment(connection) as cursor:
        found = {row[0] for row in cursor.execute(_OWNERS)}
        lasting = alive(connection) if found else set()
    return found & lasting, found - lasting


_OF_DATA = "EXISTS (SELECT 1 FROM agents a WHERE a.tenant = runs.tenant AND a.agent_id = runs.agent_id)"


def orphans(
    connection: sqlite3.Connection, dead: Collection[str], agents: Collection[str], limit: int
) -> list[RunRow]:
    """See `Store.orphans`: of what `dead` own."""
    marks, names = ", ".join("?" * len(dead)), ", ".join("?" * len(agents))
    rows = connection.execute(
        f"{_OWNED_BY} IN ({marks}) AND root_run_id IS NULL AND format <= ? "
        f"AND (cancel_reason IS NOT NULL OR agent_id IN ({names}) OR {_OF_DATA}) "
        "ORDER BY seq LIMIT ?",
        (*dead, SNAPSHOT_FORMAT, *agents, limit),
    )
    return [run_row(row) for row in rows]


def owned(connection: sqlite3.Connection, process_id: str) -> list[RunRow]:
    """See `Store.owned`."""
    return [run_row(row) for row in connection.execute(f"{_OWNED_BY} = ? ORDER BY seq", (process_id,))]


def take_over(
    tenant: str, run_id: str, fence: int, owner: str, counted: bool, transaction: Transaction
) -> RunRow | None:
    """See `Store.take_over`."""
    row = transaction.execute(_TAKE_OVER, (owner, counted, transaction.now, tenant, run_id, fence)).fetchone()
    return None if row is None else run_row(row)


def commands(connection: sqlite3.Connection, process_id: str) -> list[tuple[str, str]]:
    """See `Store.commands`."""
    return [(row[0], row[1]) for row in connection.execute(_COMMANDS, (process_id, process_id))]


def peek(connection: sqlite3.Connection, keys: Sequence[tuple[str, str]]) -> list[Sighting]:
    """See `Store.peek`: `alive` says that the owner's lease lasts."""
    found = []
    with one_moment(connection) as cursor:
        lasting = alive(connection)
        for tenant, run_id in keys:
            row = cursor.execute(_SIGHTING, (tenant, run_id)).fetchone()
            if row is not None:
                state, fence, owner, last = row
                found.append(Sighting(tenant, run_id, state, fence, owner, last, owner in lasting))
    return found
