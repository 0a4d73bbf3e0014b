"""The embedded store: SQLite in a file."""

from entracte_server.store.base import WrongDatabase
from entracte_server.store.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore", "WrongDatabase"]
