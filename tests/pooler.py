"""A PgBouncer in transaction mode in front of a server of `tests.postgres`."""

import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

import psycopg

from tests.postgres import START_SECONDS, USER, NoPostgres, Postgres, free_port

_SETTINGS = """
[databases]
* = host=127.0.0.1 port={server_port}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 200
server_reset_query =
"""


class Pooler:
    """Runs while the context lasts. `size` connections to the server are shared by all clients."""

    def __init__(self, server: Postgres, size: int = 2) -> None:
        """Raises `NoPostgres` when PgBouncer is not installed."""
        self._program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
        if self._program is None:
            raise NoPostgres("no PgBouncer here; on Debian: apt-get install pgbouncer")
        self._server = server
        self._size = size
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Pooler":
        assert self._program is not None
        self._folder = Path(tempfile.mkdtemp(prefix="pooler-", dir=self._server.folder))
        self._folder.chmod(0o755)
        settings = _SETTINGS.format(
            server_port=self._server.port, port=self.port, folder=self._folder, size=self._size
        )
        (self._folder / "settings.ini").write_text(settings)
        (self._folder / "users").write_text(f'"{USER}" ""\n')
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [*self._server.as_user, self._program, str(self._folder / "settings.ini")],
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=5).close()
                return self
            except psycopg.OperationalError as error:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    log_text = (self._folder / "log").read_text(errors="replace")
                    self.__exit__(None, None, None)
                    raise RuntimeError(f"PgBouncer does not start: {error}\n{log_text[-4096:]}") from None
                time.sleep(0.02)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(START_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def url(self, database: str) -> str:
        """The URL of a database of the server, through the pooler."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"
