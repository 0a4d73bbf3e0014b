"""Runs the benchmark and prints its table.

Starts the mock, the bare proxies and the server, each a process of its own on 127.0.0.1, and puts them
under load in turn, round after round, so that what else the machine does falls on all of them. Every
process it starts is ended.

Run: `python -m bench.run [--quick] [--rounds N] [--only a,b] [--systems raw,entracte] [--json FILE]`.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from bench.measures import CASES, Case, MeasurementError, systems_of, warm_up
from bench.processes import ROOT, end_on_signals, fdatasync_ms
from bench.report import Record, Results, as_json, number, table
from bench.systems import ALL, POSTGRES, WORKERS, Mock, System, start_mock, start_system


def log(text: str) -> None:
    """A line of progress."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def measure(case: Case, system: System, mock: Mock, scale: float, turn: int, results: Results) -> None:
    """One case on one system in one round; a failure is noted, the rest goes on."""
    try:
        figures = case.measure(system, mock, scale)
    except (MeasurementError, RuntimeError, OSError, sqlite3.Error) as error:
        results.failures.append(f"({case.id}) {system.name}, round {turn}: {error}")
        log(results.failures[-1])
        return
    results.records.append(Record(case.id, system.name, turn, figures))
    log(f"({case.id}) {system.name}: {number(figures[case.figure])} {case.unit}")


def run_rounds(cases: list[Case], names: list[str], rounds: int, scale: float, folder: Path) -> Results:
    """All rounds, the systems in turn, in the opposite order every other round."""
    results = Results(rounds=rounds, scale=scale)
    with ExitStack() as stack:
        mock = start_mock(stack, folder)
        systems = {name: start_system(stack, name, mock, folder) for name in names}
        for system in systems.values():
            warm_up(system, mock)
        for turn in range(1, rounds + 1):
            results.fdatasync_ms.append(fdatasync_ms(folder))
            log(f"round {turn} of {rounds}, fdatasync {number(results.fdatasync_ms[-1])} ms")
            for case in cases:
                if case.once and turn > 1:
                    continue
                order = systems_of(case, names)
                for name in order if turn % 2 else reversed(order):
                    measure(case, systems[name], mock, scale, turn, results)
    return results


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.run", description="Entracte beside bare proxies.")
    parser.add_argument(
        "--quick", action="store_true", help="two short rounds and a quarter of the streams and runs"
    )
    parser.add_argument("--rounds", type=int, default=None, help="rounds (5; 2 with --quick)")
    parser.add_argument("--only", default="", help=f"cases, of {','.join(case.id for case in CASES)}")
    parser.add_argument("--systems", default=",".join(ALL), help=f"systems, of {','.join(ALL)}")
    parser.add_argument(
        "--postgres", action="store_true", help="Entracte on a PostgreSQL server of its own as well"
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="Entracte with N worker processes (2 or more) as well"
    )
    parser.add_argument("--json", type=Path, default=None, help="write everything measured to this file")
    parser.add_argument("--folder", type=Path, default=ROOT / "var", help="where the database lives (var)")
    parser.add_argument("--keep", action="store_true", help="leave database and logs behind")
    return parser.parse_args()


def main() -> int:
    """Run, print the table, exit 1 when a measurement failed."""
    args = parse_arguments()
    end_on_signals()
    wanted = [part for part in args.only.split(",") if part]
    names = [name for name in args.systems.split(",") if name]
    if args.postgres:
        names.append(POSTGRES)
    if args.workers is not None:
        names.append(f"{WORKERS}{args.workers}")
    unknown = [part for part in wanted if part not in {case.id for case in CASES}]
    unknown += [name for name in names if name not in (*ALL, POSTGRES) and not name.startswith(WORKERS)]
    if unknown:
        print(f"unknown: {', '.join(unknown)}", file=sys.stderr)
        return 2
    cases = [case for case in CASES if not wanted or case.id in wanted]
    rounds = args.rounds or (2 if args.quick else 5)
    args.folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        if args.keep:
            folder = Path(tempfile.mkdtemp(prefix="bench-", dir=args.folder))
            log(f"database and logs: {folder}")
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=args.folder)))
        results = run_rounds(cases, names, rounds, 0.25 if args.quick else 1.0, folder)
    print(table(results))
    if args.json is not None:
        args.json.write_text(json.dumps(as_json(results), indent=1) + "\n", encoding="utf-8")
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
