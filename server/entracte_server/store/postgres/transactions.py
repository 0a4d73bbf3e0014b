"""How statements become transactions, and what holds in each of them.

Nothing rests on the state of a connection, which may be another one for every transaction when there
is a pooler: every transaction begins with its own settings.
"""

from collections.abc import Sequence
from typing import TypeVar

from entracte_server.store.postgres.connection import Connection, Result, Statement
from entracte_server.store.postgres.errors import ConnectionLost, DatabaseError
from entracte_server.store.postgres.programs import Program

T = TypeVar("T")

STATEMENT_SECONDS = 5.0
"""How long one statement may take."""

LOCK_SECONDS = 2.0
"""How long a statement waits for a lock."""

TRIP_SECONDS = 10.0
"""How long a pipeline may take, network included, before its connection is given up."""

_SETTINGS = {
    # Durable when acknowledged, whatever the server's or the role's default is.
    "synchronous_commit": "on",
    "statement_timeout": f"{STATEMENT_SECONDS * 1000:.0f}",
    "lock_timeout": f"{LOCK_SECONDS * 1000:.0f}",
    "idle_in_transaction_session_timeout": f"{TRIP_SECONDS * 1000:.0f}",
    # Every statement here finds a few rows by indexes, and the same ones however full the tables are:
    # statistics may be missing or old, and planning anew costs more than executing.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}
SETTINGS: Statement = (
    "SELECT " + ", ".join(f"set_config('{name}', '{value}', true)" for name, value in _SETTINGS.items()),
    (),
)
_BEGIN: Statement = ("BEGIN ISOLATION LEVEL READ COMMITTED", ())
_BEGIN_READING: Statement = ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", ())
_COMMIT: Statement = ("COMMIT", ())
_ROLLBACK: Statement = ("ROLLBACK", ())


async def commit_together(connection: Connection, statements: Sequence[Statement]) -> list[Result]:
    """Execute statements in one transaction, in one trip. Raises `DatabaseError`, with nothing changed,
    and `ConnectionLost`, with everything changed or nothing."""
    try:
        results = await connection.run([_BEGIN, SETTINGS, *statements, _COMMIT], TRIP_SECONDS)
    except DatabaseError:
        await roll_back(connection)
        raise
    return results[2:-1]


async def read_together(connection: Connection, statements: Sequence[Statement]) -> list[Result]:
    """Execute statements that only read, in one trip, as of one moment. Raises `DatabaseError`,
    `ConnectionLost`."""
    if len(statements) == 1:  # what a pipeline holds is one transaction
        return (await connection.run([SETTINGS, *statements], TRIP_SECONDS))[1:]
    try:
        results = await connection.run([_BEGIN_READING, SETTINGS, *statements, _COMMIT], TRIP_SECONDS)
    except DatabaseError:
        await roll_back(connection)
        raise
    return results[2:-1]


async def execute(connection: Connection, program: Program[T], seconds: float = TRIP_SECONDS) -> T:
    """Run a program in a transaction of its own, in as many trips as it likes, and commit it.

    Each trip takes `seconds` at most. What the program raises undoes what it did. Raises
    `DatabaseError`, with nothing changed, and `ConnectionLost`, with everything changed or nothing.
    """
    try:
        statements: list[Statement] = [_BEGIN, SETTINGS, *next(program)]
        begun = 2
        while True:
            results = await connection.run(statements, seconds)
            statements = program.send(results[begun:])
            begun = 0
    except StopIteration as stop:
        if connection.in_transaction:
            await connection.run([_COMMIT], TRIP_SECONDS)
        outcome: T = stop.value
        return outcome
    finally:
        program.close()
        await roll_back(connection)


async def roll_back(connection: Connection) -> None:
    """Undo the transaction that is open, if there is one. Never raises: a connection on which that is
    not possible is closed, which does it as well."""
    if connection.busy:  # whoever waited for it was cancelled
        connection.close()
    elif connection.in_transaction:
        try:
            await connection.run([_ROLLBACK], TRIP_SECONDS)
        except (DatabaseError, ConnectionLost):
            connection.close()
