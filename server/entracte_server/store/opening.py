"""Opens the store that a URL names. A store's code, and the driver it needs, are loaded when it is used."""

import re
from pathlib import Path

from entracte_server.store.base import Store

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")
_AUTHORITY = re.compile(r"(?<=://)[^/?#]*")
_PASSWORD = re.compile(r"(?<=[?&]password=)[^&]*")


async def open_store(url: str, *, listen_url: str = "") -> Store:
    """Open `sqlite:///PATH` or `postgresql://...`, and bring it to the version of this code.

    `listen_url` is the direct URL of a PostgreSQL database whose `url` leads through a pooler. Raises
    `ValueError` for another URL, and what opening the store raises.
    """
    if url.startswith(_SQLITE) and len(url) > len(_SQLITE) and not listen_url:
        from entracte_server.store.sqlite import SQLiteStore

        return await SQLiteStore.open(Path(url.removeprefix(_SQLITE)))
    if url.startswith(_POSTGRES) and (not listen_url or listen_url.startswith(_POSTGRES)):
        try:
            from entracte_server.store.postgres import PostgresStore
        except ImportError as error:
            if not (error.name or "").startswith("psycopg"):
                raise
            raise ValueError(
                "a PostgreSQL store needs its driver: install entracte-server[postgres]"
            ) from error
        return await PostgresStore.open(url, listen_url=listen_url)
    if listen_url and url.startswith(_SQLITE):
        raise ValueError("store_listen_url is for PostgreSQL only")
    raise ValueError(f"store {without_password(url)!r}: use sqlite:///PATH or postgresql://...")


def without_password(url: str) -> str:
    """The URL as people and logs may see it."""
    return _PASSWORD.sub("***", _AUTHORITY.sub(_hide, url, count=1))


def _hide(authority: re.Match[str]) -> str:
    user, _, hosts = authority[0].rpartition("@")
    name, colon, _ = user.partition(":")
    return f"{name}:***@{hosts}" if colon else authority[0]
