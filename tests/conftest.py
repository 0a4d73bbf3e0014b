"""Settings of the whole test run, and a PostgreSQL server for those tests that want one."""

import os
from collections.abc import Iterator

import pytest

from tests import stores
from tests.postgres import NoPostgres, Postgres

# The modules of the conformance suite are no test modules by name, so their asserts are explained only on
# request, which has to come before any test imports them.
pytest.register_assert_rewrite("entracte_server.testing.store_conformance")

# gRPC's C core writes connection notices to stderr; it reads this when it is first imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A server, for all tests of the session. Where there is none to be had, tests are skipped, and fail
    where `CI` is set."""
    try:
        server = Postgres()
    except NoPostgres as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    with server:
        yield server


@pytest.fixture(scope="session")
def postgres_database(postgres: Postgres) -> str:
    """The database that `postgres_url` gives to one test after the other."""
    return postgres.create_database()


@pytest.fixture
def postgres_url(postgres: Postgres, postgres_database: str) -> str:
    """The URL of a database with nothing in it, for this test alone."""
    postgres.empty_database(postgres_database)
    return postgres.url(postgres_database)


@pytest.fixture(params=["sqlite", "postgres"])
def each_store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a test on each store; see `tests.stores`."""
    if request.param == "postgres":
        monkeypatch.setattr(stores, "url", request.getfixturevalue("postgres_url"))
