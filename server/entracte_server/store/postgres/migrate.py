"""Brings a database to the version of this code: numbered SQL files, each applied once, in order.

Several processes may start at once: one of them migrates, the others wait for it. The lock is that of
the transaction, since a pooler may give the next transaction another connection.
"""

import logging
import os
import re
import time
from importlib import resources

from entracte_server.store.base import WrongDatabase
from entracte_server.store.postgres.connection import Statement
from entracte_server.store.postgres.programs import Program

_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")

_log = logging.getLogger(__name__)

_LOCK = 0x656E747261637465
"""Nobody else's advisory lock: "entracte"."""

MIGRATION_SECONDS = 120.0
"""How long a migration may take, and others wait for it."""


def migrations() -> list[tuple[int, str, str]]:
    """Version, file name and text of every migration, in order."""
    found = []
    for file in resources.files("entracte_server.store.postgres").joinpath("migrations").iterdir():
        if match := _NAME.fullmatch(file.name):
            found.append((int(match[1]), file.name, file.read_text("utf-8")))
    return sorted(found)


def statements(text: str) -> list[str]:
    """The statements of a migration. A statement ends with a semicolon at the end of a line, and no
    other line ends with one."""
    found, lines = [], list[str]()
    for line in text.splitlines(keepends=True):
        lines.append(line)
        if line.rstrip().endswith(";"):
            found.append("".join(lines))
            lines.clear()
    if any(line.strip() and not line.lstrip().startswith("--") for line in lines):
        raise ValueError("a migration ends within a statement")
    return found


def migrate() -> Program[int]:
    """Apply what is missing, all in one transaction; the version reached. Raises `WrongDatabase`."""
    milliseconds = f"{MIGRATION_SECONDS * 1000:.0f}"
    yield [
        (f"SET LOCAL lock_timeout = {milliseconds}", ()),
        (f"SET LOCAL statement_timeout = {milliseconds}", ()),
        (f"SELECT pg_advisory_xact_lock({_LOCK})", ()),
    ]
    encoding, fsync, there, tables = yield [
        ("SELECT current_setting('server_encoding')", ()),
        ("SELECT current_setting('fsync')", ()),
        ("SELECT to_regclass('entracte.schema_version') IS NOT NULL", ()),
        ("SELECT 1 FROM pg_tables WHERE schemaname = 'entracte' LIMIT 1", ()),
    ]
    if encoding.rows[0][0] != "UTF8":
        raise WrongDatabase(f"the database's encoding is {encoding.rows[0][0]}, UTF8 is needed")
    if tables.rows and not there.rows[0][0]:
        raise WrongDatabase("the database has a schema `entracte` of another program")
    if fsync.rows[0][0] != "on":
        _log.warning("the server runs with fsync off: a power cut may lose or corrupt all it holds")
    reached: int = 0
    if there.rows[0][0]:
        (highest,) = yield [("SELECT coalesce(max(version), 0) FROM entracte.schema_version", ())]
        reached = highest.rows[0][0]
    known = migrations()
    newest = known[-1][0]
    if reached > newest:
        raise WrongDatabase(
            f"the database has version {reached}, this program knows versions up to {newest}: "
            "a newer program wrote it; use that one, or another database"
        )
    if not there.rows[0][0]:
        yield [
            ("CREATE SCHEMA IF NOT EXISTS entracte", ()),
            (
                "CREATE TABLE entracte.schema_version (version bigint PRIMARY KEY, name text NOT NULL, "
                "apply_time bigint NOT NULL)",
                (),
            ),
        ]
    for version, name, text in known:
        if version > reached:
            yield [*((statement, ()) for statement in statements(text)), _applied(version, name)]
            reached = version
    return reached


def _applied(version: int, name: str) -> Statement:
    now = int(time.time() * 1000)
    return "INSERT INTO entracte.schema_version VALUES ($1, $2, $3)", (version, name, now)


def cursor_key() -> Program[bytes]:
    """The secret of this database's list cursors; made when it is first asked for."""
    _, found = yield [
        (
            "INSERT INTO entracte.meta (name, value) VALUES ('cursor_key', $1) ON CONFLICT (name) DO NOTHING",
            (os.urandom(32),),
        ),
        ("SELECT value FROM entracte.meta WHERE name = 'cursor_key'", ()),
    ]
    value: bytes = found.rows[0][0]
    return value
