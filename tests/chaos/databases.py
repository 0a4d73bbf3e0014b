"""Where the fleets of these tests keep their runs: one empty database for each."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.postgres import Postgres

Databases = Callable[[Path], AbstractContextManager[str]]
"""The URL of an empty database; it may use the folder."""


@contextmanager
def on_sqlite(folder: Path) -> Iterator[str]:
    """A file."""
    yield f"sqlite:///{folder}/db"


def on_postgres(server: Postgres) -> Databases:
    """Databases of a server."""

    @contextmanager
    def database(_: Path) -> Iterator[str]:
        name = server.create_database()
        yield server.url(name)
        server.drop_database(name)

    return database
