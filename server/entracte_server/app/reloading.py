"""`serve --reload`: runs the server in a child process and restarts it when a Python file changes."""

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

INTERVAL = 0.5
"""Seconds between looks at the files."""

STOP_TIMEOUT = 30.0
"""Seconds a child gets to stop before it is killed."""

_SKIPPED = frozenset({".venv", ".git", "node_modules", "__pycache__"})


def _snapshot(folder: Path) -> dict[Path, float]:
    found: dict[Path, float] = {}
    stack = [folder]
    while stack:
        for path in stack.pop().iterdir():
            if path.is_dir():
                if path.name not in _SKIPPED and not path.name.startswith("."):
                    stack.append(path)
            elif path.suffix == ".py":
                try:
                    found[path] = path.stat().st_mtime
                except OSError:
                    continue
    return found


def _stop(child: "subprocess.Popen[bytes]") -> int:
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
        try:
            return child.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            child.kill()
    return child.wait()


def run_reloading(arguments: Sequence[str]) -> int:
    """Run `entracte ARGUMENTS` over and over; returns when this process is told to stop. A child
    that ends by itself is started again at the next change."""
    stopping = False

    def on_signal(*_: object) -> None:
        nonlocal stopping
        stopping = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    # -P: what lies in this folder must not shadow the modules of the interpreter.
    command = [sys.executable, "-P", "-m", "entracte_server.app.cli", *arguments]
    while not stopping:
        files = _snapshot(Path.cwd())
        child = subprocess.Popen(command)
        try:
            while not stopping and _snapshot(Path.cwd()) == files:
                time.sleep(INTERVAL)
        finally:
            _stop(child)
    return 0
