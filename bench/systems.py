"""The systems under test: how each is started and reached."""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from bench import jobs
from bench.processes import Child, free_port, memory_kib, python
from tests.postgres import Postgres

ENTRACTE = "entracte"
POSTGRES = "postgres"
"""Entracte on PostgreSQL, measured only when asked for."""

WORKERS = "workers-"
"""Entracte with several worker processes, followed by their number, measured only when asked for."""

PROXIES = ("iterator", "raw", "batched")
ALL = (*PROXIES, ENTRACTE)

Result = TypeVar("Result", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Mock:
    """The mock back end, running."""

    pid: int
    port: int

    @property
    def url(self) -> str:
        """Its base URL, as the `openai` package takes it."""
        return f"http://127.0.0.1:{self.port}/v1"


@dataclass(frozen=True, slots=True)
class System:
    """A server under test, running. `store` is the URL of its database, and `database` its file."""

    name: str
    pid: int
    address: str
    database: Path | None
    folder: Path
    store: str = ""

    @property
    def kind(self) -> str:
        """The kind of target it is to the generator."""
        return "proxy" if self.name in PROXIES else "entracte"

    def memory_kib(self) -> int:
        """Proportional set size of its processes, in KiB."""
        return memory_kib(self.pid)


def start_mock(stack: ExitStack, folder: Path) -> Mock:
    """Start the mock; the stack ends it."""
    child = stack.enter_context(Child("mock", python("bench.mock_backend"), log=folder / "mock.log"))
    return Mock(pid=child.pid, port=child.ready_port())


def start_system(
    stack: ExitStack, name: str, mock: Mock, folder: Path, prefix: list[str] | None = None
) -> System:
    """Start a server under test on a free port with a new database; the stack ends it."""
    log = folder / f"{name}.log"
    if name in PROXIES:
        command = [*(prefix or []), *python("bench.proxies", name, "--mock", mock.url)]
        child = stack.enter_context(Child(name, command, log=log))
        return System(name, child.pid, f"127.0.0.1:{child.ready_port()}", None, folder)
    database = None
    if name == POSTGRES:
        folder.chmod(0o711)  # the server may have to run as another user
        server = stack.enter_context(Postgres(folder))
        store = server.url(server.create_database())
    else:
        database = folder / f"bench-{time.monotonic_ns()}.db"
        store = f"sqlite:///{database}"
    address = f"127.0.0.1:{free_port()}"
    command = serve_command(address, store, workers_of(name))
    child = stack.enter_context(
        Child(name, [*(prefix or []), *command], log=log, env=entracte_settings(mock), talks=False)
    )
    child.wait_logged("Entracte serves on ")
    return System(name, child.pid, address, database, folder, store)


def workers_of(name: str) -> int:
    """How many worker processes a system has."""
    return int(name.removeprefix(WORKERS)) if name.startswith(WORKERS) else 1


def serve_command(address: str, store: str, workers: int) -> list[str]:
    """The command line that serves the benchmark's agents."""
    entracte = str(Path(sys.executable).with_name("entracte"))
    where = ["--address", address, "--store", store, "--workers", str(workers)]
    return [entracte, "serve", "bench.app:app", *where]


def entracte_settings(mock: Mock) -> dict[str, str]:
    """The environment that makes `mock/MODEL` mean the mock, which may fall silent for long."""
    provider = {"base_url": mock.url, "requires_key": False, "idle_timeout": 900, "patience": 900}
    return {"ENTRACTE_PROVIDERS": json.dumps({"mock": provider})}


def generate(job: jobs.AnyJob, result: type[Result], folder: Path, seconds: float) -> Result:
    """Run one job in a generator of its own; RuntimeError when it takes longer than `seconds`."""
    with start_generator(job, folder) as child:
        return msgspec.json.decode(child.read_line(seconds), type=result)


def start_generator(job: jobs.AnyJob, folder: Path) -> Child:
    """A generator at work on a job."""
    child = Child("generator", python("bench.generator"), log=folder / "generator.log", stdin=True)
    child.write_line(msgspec.json.encode(job).decode())
    return child


def checkpoint(database: Path) -> None:
    """Empty the write-ahead log into the database file; RuntimeError when readers never let it."""
    connection = sqlite3.connect(database, timeout=10)
    try:
        for _ in range(100):
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if not busy:
                return
            time.sleep(0.1)
    finally:
        connection.close()
    raise RuntimeError(f"{database}: no checkpoint")


def bytes_on_disk(database: Path) -> int:
    """Size of the database with its write-ahead log, in bytes."""
    files = (database, database.with_name(database.name + "-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


def bytes_by_table(database: Path) -> dict[str, int]:
    """Bytes in pages of each table, its indexes included; nothing where SQLite has no `dbstat`."""
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        rows = connection.execute(
            "SELECT m.tbl_name, SUM(s.pgsize) FROM dbstat AS s JOIN sqlite_master AS m ON m.name = s.name"
            " WHERE s.aggregate = TRUE GROUP BY m.tbl_name"
        )
        return {str(table): int(size) for table, size in rows}
    except sqlite3.OperationalError:
        return {}
    finally:
        connection.close()
