"""The store for several hosts: PostgreSQL. Needs the extra `postgres`."""

from entracte_server.store.base import WrongDatabase
from entracte_server.store.postgres.store import PostgresStore

__all__ = ["PostgresStore", "WrongDatabase"]
