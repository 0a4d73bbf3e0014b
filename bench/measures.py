"""The measurements, one function per case; each returns the figures of one system in one round.

A figure's name ends in its unit. `scale` is 1 for a full measurement and less for a quick one.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from bench import jobs
from bench.systems import (
    POSTGRES,
    PROXIES,
    Mock,
    System,
    bytes_by_table,
    bytes_on_disk,
    checkpoint,
    generate,
    start_generator,
    start_system,
)

Figures = dict[str, float]


class MeasurementError(Exception):
    """A measurement that must not be used: some streams failed or were wrong."""


def _window(system: System, mock: Mock, job: jobs.Throughput) -> tuple[jobs.Window, Figures]:
    limit = job.warmup + job.seconds + job.concurrency * job.stagger + 120
    window = generate(job, jobs.Window, system.folder, limit)
    if window.errors or not window.chunks:
        raise MeasurementError(f"{system.name}, {job.model}: {window.errors or 'no chunks'}")
    shares = {
        "server_busy_percent": 100 * window.cpu / window.seconds,
        "generator_busy_percent": 100 * window.generator_cpu / window.seconds,
        "mock_busy_percent": 100 * window.mock_cpu / window.seconds,
        "others_busy_percent": 100 * window.other_cpu / window.seconds,
        "checked_streams": float(window.checked),
    }
    return window, shares


CLOSED_LOOPS: dict[str, dict[str, Any]] = {
    "a": {"model": "text-200", "deltas": 200},
    "a20": {"model": "text-200@20", "deltas": 200, "warmup": 0.5, "stagger": 4.02 / 50},
    "b": {"model": "text-20", "deltas": 20},
    "c": {"model": "gated-20", "deltas": 20, "cycles": "wait", "concurrency": 16, "channels": 16},
    "cw": {"model": "gated-20", "deltas": 20, "cycles": "watch", "concurrency": 16, "channels": 16},
}
"""What a Throughput job says of a case; a20 spreads its streams evenly over each other's pauses."""


def _closed_loop(case: str, system: System, mock: Mock, seconds: float) -> tuple[jobs.Window, Figures]:
    job = jobs.Throughput(
        kind=system.kind,
        address=system.address,
        seconds=seconds,
        pid=system.pid,
        mock_pid=mock.pid,
        **CLOSED_LOOPS[case],
    )
    return _window(system, mock, job)


def warm_up(system: System, mock: Mock) -> None:
    """Short runs for some seconds, so that no measurement pays for imports and first connections."""
    _closed_loop("b", system, mock, 2)


def long_runs(system: System, mock: Mock, scale: float) -> Figures:
    """(a) 50 concurrent runs of 200 chunks as fast as they go."""
    window, shares = _closed_loop("a", system, mock, 5 * scale)
    return {
        "chunks_per_s": window.chunks / window.seconds,
        "cpu_us_per_chunk": 1e6 * window.cpu / window.chunks,
        **shares,
    }


def paced_runs(system: System, mock: Mock, scale: float) -> Figures:
    """(a20) 50 streams at 20 ms per chunk."""
    window, shares = _closed_loop("a20", system, mock, 8 * scale)
    return {
        "cpu_us_per_chunk": 1e6 * window.cpu / window.chunks,
        "chunks_per_s": window.chunks / window.seconds,
        **shares,
    }


def short_runs(system: System, mock: Mock, scale: float) -> Figures:
    """(b) 50 concurrent runs of 20 chunks."""
    window, shares = _closed_loop("b", system, mock, 5 * scale)
    return {
        "runs_per_s": window.runs / window.seconds,
        "cpu_ms_per_run": 1e3 * window.cpu / window.runs,
        **shares,
    }


def _cycles(case: str, system: System, mock: Mock, scale: float) -> Figures:
    window, shares = _closed_loop(case, system, mock, 5 * scale)
    return {
        "cycles_per_s": window.runs / window.seconds,
        "cpu_ms_per_cycle": 1e3 * window.cpu / window.runs,
        **shares,
    }


def cycles(system: System, mock: Mock, scale: float) -> Figures:
    """(c) 16 concurrent cycles: stream until parked, approve and wait for the result."""
    return _cycles("c", system, mock, scale)


def watched_cycles(system: System, mock: Mock, scale: float) -> Figures:
    """(c) The same, the second half read with WatchRun instead of waited for."""
    return _cycles("cw", system, mock, scale)


def first_delays(system: System, mock: Mock, scale: float) -> Figures:
    """(d) Delay of the first chunk over the raw model at 20 ms per chunk, one run at a time."""
    job = jobs.First(
        kind=system.kind,
        address=system.address,
        model="text-5@20",
        mock_port=mock.port,
        count=max(15, int(60 * scale)),
    )
    delays = generate(job, jobs.FirstDelays, system.folder, 120)
    if delays.errors:
        raise MeasurementError(f"{system.name}, first chunk: {delays.errors}")
    raw, own = statistics.median(delays.raw), statistics.median(delays.system)
    return {"added_ms": 1e3 * (own - raw), "raw_ms": 1e3 * raw, "system_ms": 1e3 * own}


def _settled_memory(system: System, seconds: float = 10) -> float:
    """Memory in KiB once it has stopped shrinking, or after some seconds."""
    least = float(system.memory_kib())
    quiet = 0
    for _ in range(int(seconds / 0.5)):
        time.sleep(0.5)
        now = float(system.memory_kib())
        quiet = 0 if now < least - 64 else quiet + 1
        least = min(least, now)
        if quiet == 4:
            break
    return least


def quiet_streams(system: System, mock: Mock, scale: float) -> Figures:
    """(e) Memory per open quiet stream, in a server started for it and warmed up."""
    count = int(1000 * scale)
    with ExitStack() as stack:
        fresh = start_system(stack, system.name, mock, system.folder)
        warm_up(fresh, mock)
        before = _settled_memory(fresh)
        job = jobs.Hold(kind=fresh.kind, address=fresh.address, model="quiet", count=count)
        with start_generator(job, fresh.folder) as child:
            done = jobs.decode_done(child.read_line(180))
            if done.errors or done.count != count:
                raise MeasurementError(f"{system.name}, quiet streams: {done}")
            after = _settled_memory(fresh, 4)
            child.write_line("done")
            child.process.wait(30)
    return {
        "kib_per_stream": (after - before) / count,
        "server_mib": before / 1024,
        "streams": float(count),
    }


def suspended_runs(system: System, mock: Mock, scale: float) -> Figures:
    """(e, f) Memory and bytes on disk per suspended run, after a checkpoint, in a server started for it."""
    count = int(10_000 * scale)
    with ExitStack() as stack:
        fresh = start_system(stack, system.name, mock, system.folder)
        assert fresh.database is not None
        _park(fresh, max(500, count // 5))
        checkpoint(fresh.database)
        memory, disk, tables = (
            _settled_memory(fresh),
            bytes_on_disk(fresh.database),
            bytes_by_table(fresh.database),
        )
        done = _park(fresh, count)
        raw_disk = bytes_on_disk(fresh.database)
        checkpoint(fresh.database)
        grown = {
            table: (size - tables.get(table, 0)) / count
            for table, size in bytes_by_table(fresh.database).items()
        }
        figures = {
            "kib_per_run": (_settled_memory(fresh) - memory) / count,
            "bytes_per_run": (bytes_on_disk(fresh.database) - disk) / count,
            "bytes_per_run_before_checkpoint": (raw_disk - disk) / count,
            "suspended_per_s": done.count / done.seconds,
            "runs": float(count),
        }
    figures |= {f"bytes_per_run_in_{table}": size for table, size in sorted(grown.items()) if size >= 1}
    return figures


def _park(system: System, count: int) -> jobs.Done:
    job = jobs.Suspend(kind=system.kind, address=system.address, model="gated-20", count=count, deltas=20)
    done = generate(job, jobs.Done, system.folder, 960)
    if done.errors or done.count != count:
        raise MeasurementError(f"{system.name}, suspended runs: {done}")
    return done


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table."""

    id: str
    title: str
    figure: str  # the one that counts
    unit: str
    wanted: str
    measure: Callable[[System, Mock, float], Figures]
    proxies: bool = True
    once: bool = False  # rather than in every round
    file: bool = False  # looks into the database's file


CASES = (
    Case("a", "50 runs of 200 chunks", "chunks_per_s", "chunks/s", "at least 80,000; 1.7 x raw", long_runs),
    Case("a20", "50 streams at 20 ms", "cpu_us_per_chunk", "us CPU/chunk", "at most 150", paced_runs),
    Case("b", "50 runs of 20 chunks", "runs_per_s", "runs/s", "at least 650; 0.8 x raw", short_runs),
    Case("c", "16 cycles, waited for", "cycles_per_s", "cycles/s", "at least 280", cycles, proxies=False),
    Case("cw", "16 cycles, watched", "cycles_per_s", "cycles/s", "", watched_cycles, proxies=False),
    Case("d", "first chunk, added", "added_ms", "ms", "at most 3.5", first_delays),
    Case("e", "memory per quiet stream", "kib_per_stream", "KiB", "at most 68", quiet_streams, once=True),
    Case(
        "f",
        "disk per suspended run",
        "bytes_per_run",
        "bytes",
        "at most 4,096",
        suspended_runs,
        False,
        True,
        True,
    ),
)


def systems_of(case: Case, names: list[str]) -> list[str]:
    """The systems that a case is measured on."""
    wanted = names if case.proxies else [name for name in names if name not in PROXIES]
    return [name for name in wanted if not (case.file and name == POSTGRES)]
