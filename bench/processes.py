"""Processes of a benchmark: started, measured from outside, ended by their id."""

from __future__ import annotations

import os
import select
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

_TICK = os.sysconf("SC_CLK_TCK")
ROOT = Path(__file__).resolve().parent.parent


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def process_tree(pid: int) -> list[int]:
    """The ids of a process and its descendants; a vanished process has none."""
    found, waiting = [], [pid]
    while waiting:
        current = waiting.pop()
        try:
            tasks = list(Path(f"/proc/{current}/task").iterdir())
            children = [child for task in tasks for child in (task / "children").read_text().split()]
        except OSError:
            continue
        found.append(current)
        waiting.extend(map(int, children))
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its descendants so far, in seconds."""
    total = 0
    for member in process_tree(pid):
        try:
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / _TICK


def thread_cpu_seconds(pid: int) -> dict[tuple[int, str], float]:
    """User and system time so far of each thread of a process tree, by id and name, in seconds."""
    found = {}
    for member in process_tree(pid):
        for task in Path(f"/proc/{member}/task").iterdir():
            name, _, rest = (task / "stat").read_text().partition(" (")[2].rpartition(") ")
            fields = rest.split()
            found[int(task.name), name] = (int(fields[11]) + int(fields[12])) / _TICK
    return found


def machine_cpu_seconds() -> float:
    """Time that all processors of the machine were busy so far, in seconds."""
    user, nice, system, _, _, irq, softirq, steal = Path("/proc/stat").read_text().split()[1:9]
    return sum(map(int, (user, nice, system, irq, softirq, steal))) / _TICK


def memory_kib(pid: int) -> int:
    """Proportional set size of a process and its descendants, in KiB."""
    total = 0
    for member in process_tree(pid):
        try:
            lines = Path(f"/proc/{member}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total


def fdatasync_ms(folder: Path, writes: int = 200) -> float:
    """Median time of appending 4 KiB and fdatasync in a folder, in milliseconds."""
    path = folder / "fsync.probe"
    block = os.urandom(4096)
    times = []
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        for _ in range(writes):
            os.write(descriptor, block)
            start = time.perf_counter()
            os.fdatasync(descriptor)
            times.append(time.perf_counter() - start)
    finally:
        os.close(descriptor)
        path.unlink()
    return statistics.median(times) * 1000


class Child:
    """A process of the benchmark; leaving the `with` block ends it, by its id."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        stdin: bool = False,
        talks: bool = True,  # otherwise standard output is log too, and never fills a pipe
    ) -> None:
        self.name = name
        self._log = log
        with log.open("ab") as stderr:
            self._log_start = stderr.tell()
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})},
                stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE if talks else stderr,
                stderr=stderr,
            )
        self._pending = b""

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    def write_line(self, text: str) -> None:
        """Write one line to the process's standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()

    def read_line(self, seconds: float) -> str:
        """The next line of standard output; RuntimeError when it does not come in time."""
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        deadline = time.monotonic() + seconds
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                raise RuntimeError(f"{self.name}: no line within {seconds:.0f} s\n{self.log_tail()}")
            data = os.read(descriptor, 1 << 20)
            if not data:
                raise RuntimeError(f"{self.name}: ended (exit {self.process.wait(10)})\n{self.log_tail()}")
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode()

    def ready_port(self, seconds: float = 30) -> int:
        """The port of the `ready PORT` line."""
        word, _, port = self.read_line(seconds).partition(" ")
        if word != "ready":
            raise RuntimeError(f"{self.name}: said {word!r} instead of ready\n{self.log_tail()}")
        return int(port)

    def wait_logged(self, words: str, seconds: float = 60) -> None:
        """Wait until the process has written these words into its log."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if words.encode() in self._log.read_bytes()[self._log_start :]:
                return
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name}: ended (exit {self.process.returncode})\n{self.log_tail()}")
            time.sleep(0.1)
        raise RuntimeError(f"{self.name}: did not write {words!r}\n{self.log_tail()}")

    def log_tail(self) -> str:
        """The last 4 KiB of what the process wrote to standard error."""
        return self._log.read_bytes()[-4096:].decode(errors="replace") if self._log.exists() else ""

    def stop(self, grace: float = 5) -> None:
        """SIGTERM, then SIGKILL to the whole tree after the grace time, in seconds."""
        tree = process_tree(self.pid)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(grace)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(grace)
        for member in tree[1:]:
            if Path(f"/proc/{member}").exists():
                try:
                    os.kill(member, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def end_on_signals() -> None:
    """Make SIGTERM and SIGINT leave the `with` blocks, which end what this process started."""

    def leave(number: int, frame: object) -> None:
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)


def python(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module with this interpreter."""
    return [sys.executable, "-m", module, *arguments]
