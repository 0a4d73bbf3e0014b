"""Where a server's time goes under load: samples its stacks from outside and groups them by layer.

Needs `py-spy`, beside this interpreter or on the PATH. It sees Python and native frames, so time inside
grpcio's, SQLite's and the parsers' own code counts for them and not for whoever called; the threads that
grpcio keeps for itself show in the CPU time by thread only.

Run: `python -m bench.profile [--case a|a20|b|c] [--system entracte] [--seconds 10] [--raw FILE]`.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import msgspec

from bench import jobs
from bench.measures import CLOSED_LOOPS, warm_up
from bench.processes import ROOT, end_on_signals, thread_cpu_seconds
from bench.systems import ALL, ENTRACTE, POSTGRES, Mock, System, start_generator, start_mock, start_system

RATE = 100  # samples per second; each stops the server for a moment
_FRAME = re.compile(r"(?P<name>.*) \((?P<file>[^()]*?)(?::\d+)?\)\Z")
_ENTRACTE = re.compile(r"entracte_server/(?P<package>\w+)")
_WAITING = re.compile(
    r"take_gil|PyThread_acquire_lock|epoll_p?wait|futex|clock_nanosleep|pthread_cond|sem_.*wait|^poll$|^select$"
)
_SYNC = re.compile(r"^(fsync|fdatasync)")
_LAYERS = (
    ("grpc", re.compile(r"grpc")),
    ("http client", re.compile(r"aiohttp|httpx|httpcore|openai|multidict|yarl|frozenlist|propcache")),
    ("protobuf", re.compile(r"google/protobuf|_upb|_message\.|entracte/v1|_pb2")),
    ("json", re.compile(r"msgspec|jiter|json/|_json")),
    ("sqlite", re.compile(r"sqlite")),
    ("pydantic", re.compile(r"pydantic")),
    ("benchmark's own", re.compile(r"bench/")),
    ("event loop", re.compile(r"asyncio|uvloop|loop\.c|threading|concurrent|selectors|contextvars")),
    ("event loop", re.compile(r"^(core|linux|stream|unix|loop-watcher|timer)\.[ch]$")),
)


def layer(file: str) -> str | None:
    """The layer that a frame's file belongs to; None for the interpreter and the C library."""
    own = _ENTRACTE.search(file)
    if own is not None:
        return f"entracte {own['package']}"
    return next((name for name, pattern in _LAYERS if pattern.search(file)), None)


def attribute(frames: list[str]) -> tuple[str, str] | None:
    """Layer and function that a stack's time belongs to, from the inside out; None while it waits."""
    parsed = [match for frame in reversed(frames) if (match := _FRAME.match(frame))]
    if any(_WAITING.search(match["name"]) for match in parsed[:6]):
        return None
    if parsed and _SYNC.search(parsed[0]["name"]):
        return "disk sync", parsed[0]["name"]
    for match in parsed:
        found = layer(match["file"])
        if found is not None:
            name = "(native)" if match["name"].startswith("0x") else match["name"]
            return found, f"{name} {match['file']}"
    return "interpreter", parsed[0]["name"] if parsed else "?"


def read_samples(lines: Iterable[str]) -> tuple[Counter[tuple[str, str]], Counter[str]]:
    """Samples by layer and function, and by thread, of py-spy's raw format."""
    functions: Counter[tuple[str, str]] = Counter()
    threads: Counter[str] = Counter()
    for line in lines:
        stack, _, count = line.rpartition(" ")
        thread, *frames = stack.split(";")
        found = attribute(frames)
        if found is not None:
            functions[found] += int(count)
            threads[thread] += int(count)
    return functions, threads


def tables(functions: Counter[tuple[str, str]], threads: Counter[str], top: int) -> str:
    """Layers with their top functions, and threads, as Markdown."""
    total = functions.total() or 1
    layers: Counter[str] = Counter()
    for (name, _), count in functions.items():
        layers[name] += count
    lines = ["| layer | share | top functions, by the time spent in themselves |", "| --- | ---: | --- |"]
    for name, count in layers.most_common():
        inside = [(where, number) for (owner, where), number in functions.most_common() if owner == name]
        best = "<br>".join(f"`{where}` {100 * number / total:.1f} %" for where, number in inside[:top])
        lines.append(f"| {name} | {100 * count / total:.1f} % | {best} |")
    lines += ["", "| Python thread | share of samples at work |", "| --- | ---: |"]
    lines += [f"| {thread} | {100 * count / total:.1f} % |" for thread, count in threads.most_common(8)]
    return "\n".join(lines)


def profile(system: System, mock: Mock, case: str, seconds: float, spy: str, raw: Path, folder: Path) -> str:
    """Sample a server while a generator keeps it busy; the CPU time of its threads, as text."""
    job = jobs.Throughput(
        kind=system.kind,
        address=system.address,
        seconds=seconds + 4,
        pid=system.pid,
        mock_pid=mock.pid,
        **CLOSED_LOOPS[case],
    )
    warm_up(system, mock)
    command = [spy, "record", "--pid", str(system.pid), "--format", "raw", "--output", str(raw)]
    command += ["--duration", str(round(seconds)), "--rate", str(RATE), "--threads", "--native", "--function"]
    with start_generator(job, folder) as generator:
        time.sleep(2.5)  # the generator starts up
        before = thread_cpu_seconds(system.pid)
        subprocess.run(command, check=True, timeout=seconds + 120, stdout=subprocess.DEVNULL)
        after = thread_cpu_seconds(system.pid)
        window = msgspec.json.decode(generator.read_line(seconds + 120), type=jobs.Window)
    if window.errors:
        raise RuntimeError(f"the generator failed: {window.errors}")
    used: Counter[str] = Counter()
    for thread, cpu in after.items():
        used[thread[1]] += round(1e3 * (cpu - before.get(thread, 0.0)))
    shares = ", ".join(f"{name} {cpu} ms" for name, cpu in used.most_common(8) if cpu)
    return f"CPU time by the system's name of the thread while sampled: {shares}."


def main() -> int:
    """Profile and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.profile", description="Where a server's time goes."
    )
    parser.add_argument("--case", choices=sorted(CLOSED_LOOPS), default="a")
    parser.add_argument("--system", choices=(*ALL, POSTGRES), default=ENTRACTE)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--top", type=int, default=6, help="functions per layer")
    parser.add_argument("--raw", type=Path, default=None, help="keep the stacks in this file")
    parser.add_argument("--folder", type=Path, default=ROOT / "var", help="where the database lives (var)")
    args = parser.parse_args()
    end_on_signals()
    beside = Path(sys.executable).with_name("py-spy")
    spy = str(beside) if beside.exists() else shutil.which("py-spy")
    if spy is None:
        print("py-spy is missing: install it into this environment", file=sys.stderr)
        return 2
    args.folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="profile-", dir=args.folder)))
        mock = start_mock(stack, folder)
        system = start_system(stack, args.system, mock, folder)
        raw = args.raw or folder / "stacks.txt"
        threads = profile(system, mock, args.case, args.seconds, spy, raw, folder)
        functions, python_threads = read_samples(raw.read_text(encoding="utf-8").splitlines())
    print(f"Case ({args.case}), {args.system}, {functions.total()} samples at work.\n")
    print(tables(functions, python_threads, args.top))
    print(f"\n{threads}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
