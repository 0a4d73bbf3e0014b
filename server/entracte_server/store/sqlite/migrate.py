"""Brings a database to the version of this code: numbered SQL files, each applied once, in order."""

import os
import re
import sqlite3
import time
from importlib import resources

from entracte_server.store.base import WrongDatabase

_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")


def migrations() -> list[tuple[int, str, str]]:
    """Version, file name and text of every migration, in order."""
    found = []
    for file in resources.files("entracte_server.store.sqlite").joinpath("migrations").iterdir():
        if match := _NAME.fullmatch(file.name):
            found.append((int(match[1]), file.name, file.read_text("utf-8")))
    return sorted(found)


def statements(text: str) -> list[str]:
    """The statements of a migration. A statement ends with a semicolon at the end of a line."""
    found, lines = [], list[str]()
    for line in text.splitlines(keepends=True):
        lines.append(line)
        if line.rstrip().endswith(";") and sqlite3.complete_statement("".join(lines)):
            found.append("".join(lines))
            lines.clear()
    if any(line.strip() and not line.lstrip().startswith("--") for line in lines):
        raise ValueError("a migration ends within a statement")
    return found


def version_of(connection: sqlite3.Connection) -> int:
    """The database's version; 0 when it is empty. Raises `WrongDatabase`."""
    names = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if "schema_version" not in names:
        if names:
            raise WrongDatabase("the file is a database of another program")
        return 0
    return int(connection.execute("SELECT coalesce(max(version), 0) FROM schema_version").fetchone()[0])


def migrate(connection: sqlite3.Connection) -> int:
    """Apply what is missing, each file in a transaction of its own; the version reached.

    One process does it at a time: to be called with the database locked. Raises `WrongDatabase`.
    """
    known = migrations()
    newest = known[-1][0]
    reached = version_of(connection)
    if reached > newest:
        raise WrongDatabase(
            f"the database has version {reached}, this program knows versions up to {newest}: "
            "a newer program wrote it; use that one, or another file"
        )
    for version, name, text in known:
        if version <= reached:
            continue
        connection.execute("BEGIN IMMEDIATE")
        try:
            if version_of(connection) >= version:  # by somebody who does not heed the lock file
                connection.execute("ROLLBACK")
                continue
            if version == 1:
                connection.execute(
                    "CREATE TABLE schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL, "
                    "apply_time INTEGER NOT NULL)"
                )
            for statement in statements(text):
                connection.execute(statement)
            connection.execute(
                "INSERT INTO schema_version VALUES (?, ?, ?)", (version, name, int(time.time() * 1000))
            )
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        reached = version
    return reached


def cursor_key(connection: sqlite3.Connection) -> bytes:
    """The secret of this database's list cursors; made when it is first asked for."""
    connection.execute("INSERT OR IGNORE INTO meta VALUES ('cursor_key', ?)", (os.urandom(32),))
    value: bytes = connection.execute("SELECT value FROM meta WHERE name = 'cursor_key'").fetchone()[0]
    return value
