"""Medians over the rounds, ratios within a round, and the table."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.measures import CASES, Case, Figures
from bench.systems import ALL, ENTRACTE

_PEERS = ("batched", "raw", "iterator")


@dataclass(slots=True)
class Record:
    """The figures of one system in one round of one case."""

    case: str
    system: str
    round: int
    figures: Figures


@dataclass(slots=True)
class Results:
    """All that a run of the benchmark measured."""

    rounds: int
    scale: float
    fdatasync_ms: list[float] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def values(self, case: str, system: str, figure: str) -> dict[int, float]:
        """A figure by round."""
        return {
            record.round: record.figures[figure]
            for record in self.records
            if record.case == case and record.system == system and figure in record.figures
        }

    def median(self, case: str, system: str, figure: str) -> float | None:
        """A figure's median over the rounds; None where it was not measured."""
        values = self.values(case, system, figure)
        return statistics.median(values.values()) if values else None

    @property
    def systems(self) -> list[str]:
        """The columns of the table."""
        return [*ALL, *self.variants]

    @property
    def variants(self) -> list[str]:
        """The other ways in which Entracte was measured: on PostgreSQL, with several workers."""
        return [name for name in dict.fromkeys(record.system for record in self.records) if name not in ALL]

    def ratio(self, case: str, figure: str, peer: str, own: str = ENTRACTE) -> float | None:
        """Median over the rounds of a system's figure over a peer's of the same round."""
        mine, other = self.values(case, own, figure), self.values(case, peer, figure)
        ratios = [mine[number] / other[number] for number in mine if other.get(number)]
        return statistics.median(ratios) if ratios else None


def machine() -> str:
    """One line about where this ran."""
    model = "unknown processor"
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        for line in info:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return f"{os.cpu_count()} x {model}, Linux {platform.release()}, Python {platform.python_version()}"


def number(value: float | None) -> str:
    """Three digits or so."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _ratios(results: Results, case: str, figure: str) -> list[str]:
    ratios = [results.ratio(case, figure, peer) for peer in ("raw", "batched")]
    ratios += [results.ratio(case, figure, ENTRACTE, variant) for variant in results.variants]
    return [number(ratio) for ratio in ratios]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _case_row(results: Results, case: Case) -> str | None:
    medians = [results.median(case.id, system, case.figure) for system in results.systems]
    if all(value is None for value in medians):
        return None
    ratios = _ratios(results, case.id, case.figure)
    cells = [f"({case.id}) {case.title}, {case.unit}", *map(number, medians), *ratios, case.wanted]
    return _row(cells)


_CPU = (
    ("a", "cpu_us_per_chunk", "us CPU/chunk, 200 chunks"),
    ("b", "cpu_ms_per_run", "ms CPU/run, 20 chunks"),
    ("c", "cpu_ms_per_cycle", "ms CPU/cycle"),
    ("cw", "cpu_ms_per_cycle", "ms CPU/cycle, watched"),
    ("e", "server_mib", "MiB, server at rest"),
    ("f", "kib_per_run", "KiB memory/suspended run"),
)


def table(results: Results) -> str:
    """The Markdown that goes into the README."""
    ratios = ["entracte / raw", "entracte / batched", *(f"{name} / entracte" for name in results.variants)]
    lines = [_row(["case", *results.systems, *ratios, "wanted"])]
    lines.append(_row(["---", *["---:"] * (len(results.systems) + len(ratios)), "---"]))
    lines.extend(row for case in CASES if (row := _case_row(results, case)) is not None)
    for case_id, figure, title in _CPU:
        medians = [results.median(case_id, system, figure) for system in results.systems]
        if any(value is not None for value in medians):
            cells = [*map(number, medians), *_ratios(results, case_id, figure), ""]
            lines.append(_row([f"({case_id}) {title}", *cells]))
    lines.append("")
    lines.append(
        f"{machine()}. Medians of {results.rounds} rounds; ratios are medians of the ratios within a round. "
        f"fdatasync of 4 KiB beside the database: {number(statistics.median(results.fdatasync_ms))} ms."
    )
    lines.extend(_busy(results))
    lines.extend(_disk(results))
    lines.extend(f"FAILED: {failure}" for failure in results.failures)
    return "\n".join(lines)


def _busy(results: Results) -> list[str]:
    """Who was busy in the closed loops: a bottleneck other than the server shows here."""
    lines = []
    for case in CASES:
        for system in results.systems:
            parts = [
                (who, results.median(case.id, system, f"{who}_busy_percent"))
                for who in ("server", "generator", "mock", "others")
            ]
            if all(value is not None for _, value in parts):
                shares = ", ".join(f"{who} {value:.0f} %" for who, value in parts)
                lines.append(f"- ({case.id}) {system}: {shares}")
    return ["", "CPU shares of one processor, in the window:", "", *lines] if lines else []


def _disk(results: Results) -> list[str]:
    """Where the bytes of a suspended run are."""
    prefix = "bytes_per_run_in_"
    figures = sorted(
        {
            key
            for record in results.records
            if record.case == "f"
            for key in record.figures
            if key.startswith(prefix)
        }
    )
    lines = [
        f"- {figure.removeprefix(prefix)}: {number(results.median('f', ENTRACTE, figure))}"
        for figure in figures
    ]
    return ["", "Bytes on disk per suspended run, by table with its indexes:", "", *lines] if lines else []


def as_json(results: Results) -> dict[str, Any]:
    """Everything, for a program."""
    return {
        "machine": machine(),
        "rounds": results.rounds,
        "scale": results.scale,
        "fdatasync_ms": results.fdatasync_ms,
        "failures": results.failures,
        "records": [
            {"case": item.case, "system": item.system, "round": item.round, "figures": item.figures}
            for item in results.records
        ],
        "medians": {
            case.id: {
                system: {
                    figure: results.median(case.id, system, figure)
                    for figure in sorted(
                        {
                            key
                            for item in results.records
                            if item.case == case.id and item.system == system
                            for key in item.figures
                        }
                    )
                }
                for system in results.systems
            }
            for case in CASES
        },
        "ratios": {
            case.id: {peer: results.ratio(case.id, case.figure, peer) for peer in _PEERS} for case in CASES
        },
    }
