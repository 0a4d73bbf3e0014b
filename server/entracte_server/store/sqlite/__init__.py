"""The embedded store: SQLite in a file."""

from entracte_server.store.sqlite.connection import DatabaseInUse
from entracte_server.store.sqlite.migrate import WrongDatabase
from entracte_server.store.sqlite.store import SQLiteStore

__all__ = ["DatabaseInUse", "SQLiteStore", "WrongDatabase"]
