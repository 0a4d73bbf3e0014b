"""A PostgreSQL server of one's own, from the binaries of Debian's packages.

It lives in a temporary folder, listens on a Unix socket there and on a port of the loopback interface,
and keeps the settings that make commits durable. Used by the fixtures in `tests/conftest.py`, and by the
benchmark.
"""

import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import psycopg

USER = "entracte"
START_SECONDS = 30.0


class NoPostgres(Exception):
    """There are no binaries, or nobody to run them as."""


def binaries() -> Path:
    """The folder of the newest server's programs. Raises `NoPostgres`."""
    found = sorted(
        (path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")),
        key=lambda path: float(path.parent.name),
    )
    if found:
        return found[-1]
    if named := shutil.which("postgres"):
        return Path(named).resolve().parent
    raise NoPostgres("no PostgreSQL server here; on Debian: apt-get install postgresql")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Postgres:
    """The server. Use as a context manager."""

    def __init__(
        self, parent: Path | None = None, *, standby_of: "Postgres | None" = None, **settings: str
    ) -> None:
        """`parent` is where its folder is made; `settings` are those of `postgresql.conf`. A standby copies
        another server, which runs, and follows it until `promote`. Raises `NoPostgres`."""
        self._primary = standby_of
        self._programs = binaries()
        self.folder = Path(tempfile.mkdtemp(prefix="entracte-postgres-", dir=parent))
        self.port = free_port()
        self._settings = {"max_connections": "100", "listen_addresses": "127.0.0.1", **settings}
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        # PostgreSQL refuses to be run by root.
        self.as_user: list[str] = []
        if os.geteuid() == 0:
            try:
                shutil.chown(self.folder, "postgres")
            except LookupError:
                raise NoPostgres("root cannot run a server, and there is no user `postgres`") from None
            # A command, because Python itself would have to fork for it, which gRPC does not survive.
            self.as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]

    def __enter__(self) -> "Postgres":
        try:
            if self._primary is None:
                self._run("initdb", "--auth=trust", f"--username={USER}", "--encoding=UTF8", "--locale=C")
            else:
                source = f"--dbname={self._primary.url('postgres')}"
                self._run("pg_basebackup", source, "--write-recovery-conf", "--checkpoint=fast")
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop(signal.SIGQUIT)
        finally:
            self._remove()

    def _remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [*self.as_user, str(self._programs / program), f"--pgdata={self._data}", *arguments],
            check=True, stdout=subprocess.DEVNULL, cwd=self.folder,
        )  # fmt: skip

    # ---- the server ----

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        options = [f"-c{name}={value}" for name, value in self._settings.items()]
        server = str(self._programs / "postgres")
        command = [*self.as_user, server, f"-D{self._data}", f"-k{self.folder}", f"-p{self.port}"]
        with open(self.folder / "log", "ab") as log:
            process: subprocess.Popen[bytes] = subprocess.Popen(
                [*command, *options], stdout=log, stderr=log, cwd=self.folder
            )
        self._process = process
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline or process.poll() is not None:
                    self.stop(signal.SIGQUIT)
                    raise RuntimeError(f"PostgreSQL does not start:\n{self.log_tail()}") from None
                time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT disconnects everybody, SIGQUIT is a crash. Idempotent."""
        if self._process is not None:
            self._process.send_signal(how)
            try:
                self._process.wait(START_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop and start it."""
        self.stop(how)
        self.start()

    def promote(self) -> None:
        """Make a standby the primary."""
        self.execute("SELECT pg_promote()")

    def log_tail(self) -> str:
        """The last of what the server said."""
        log = self.folder / "log"
        return log.read_text(errors="replace")[-4096:] if log.exists() else ""

    # ---- databases ----

    def url(self, database: str, *, tcp: bool = False) -> str:
        """The URL of a database, over the Unix socket unless `tcp`."""
        if tcp:
            return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"
        return f"postgresql://{USER}@/{database}?host={self.folder}&port={self.port}"

    def execute(self, sql: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Execute one statement, as the superuser."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description is not None else []

    def create_database(self) -> str:
        """A new database; its name."""
        name = f"test_{next(self._numbers)}"
        self.execute(f'CREATE DATABASE "{name}"')
        return name

    def empty_database(self, name: str) -> None:
        """Delete all that a store has put into a database. Ten times as fast as making another one."""
        self.terminate(name)
        tables = self.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'entracte'", name)
        deletions = "".join(
            f"DELETE FROM entracte.{table}; " for (table,) in tables if table != "schema_version"
        )
        self.execute(f"DO $$ BEGIN {deletions} END $$", name)

    def drop_database(self, name: str) -> None:
        """Drop a database, whoever is connected to it."""
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def dump(self, database: str) -> str:
        """What a store has put into a database, as SQL."""
        url = self.url(database)
        command = [str(self._programs / "pg_dump"), "--schema=entracte", "--inserts", "--no-owner", url]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        # Lines for psql alone, with a new secret each time.
        return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("\\"))

    def terminate(self, database: str, where: str = "true") -> int:
        """Kill the connections to a database for which the condition `where` on `pg_stat_activity` is
        true; how many there were."""
        rows = self.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE datname = '{database}' AND pid <> pg_backend_pid() AND ({where})"
        )
        return len(rows)
