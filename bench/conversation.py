"""What a long conversation costs: one thread, turn after turn, on SQLite and on PostgreSQL.

Each turn is a run of its own, with a question, an answer of 20 deltas, and what the server remembers of the
thread unless it is told otherwise. Told is what turns cost from some lengths of the thread on, how much room
they take, and what is left once the thread is deleted.

Run: `python -m bench.conversation [--messages 2000] [--window 50] [--systems entracte,postgres]`.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from bench.entracte_target import agent_id
from bench.loops import run
from bench.processes import ROOT, cpu_seconds, end_on_signals
from bench.systems import ENTRACTE, POSTGRES, System, bytes_by_table, checkpoint, start_mock, start_system
from entracte import Client, Memory

SHARES = (0.0, 0.25, 0.5, 1.0)
"""Where it is measured, as shares of the whole conversation."""

QUESTION = "What is to be done about it? " * 8
WARM_UP = 50
SWEEP_SECONDS = 120.0

KEPT = ("requests", "processes", "duties")
"""Tables whose rows are not a thread's: ids of requests go by the age of these, whatever becomes of what
they made; the others are the server's own."""

_TABLES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'",
    "postgresql": "SELECT tablename FROM pg_tables WHERE schemaname = 'entracte'",
}
_SIZES = "SELECT relname::text, pg_total_relation_size(relid) FROM pg_stat_user_tables"


@dataclass(slots=True)
class Mark:
    """The turns from one length of the thread on. Times are medians, in milliseconds; `size` is the room
    that all takes, by table, in bytes."""

    messages: int
    time: float
    cpu: float
    size: dict[str, int]


@dataclass(slots=True)
class Conversation:
    """All that was measured of one system. After the deletion: `swept` are seconds, `left` rows by table, and
    `size` is the room that all takes then, in bytes."""

    system: str
    marks: list[Mark] = field(default_factory=list)
    swept: float = 0.0
    left: dict[str, int] = field(default_factory=dict)
    size: int = 0


def rows_by_table(system: System) -> dict[str, int]:
    """How many rows each table has."""
    if system.database is not None:
        with closing(sqlite3.connect(system.database, timeout=10)) as file:
            tables = [name for (name,) in file.execute(_TABLES["sqlite"]).fetchall()]
            return {name: file.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}
    with psycopg.connect(system.store) as server:
        tables = [name for (name,) in server.execute(_TABLES["postgresql"].encode()).fetchall()]
        counts = {}
        for name in tables:
            row = server.execute(f"SELECT count(*) FROM entracte.{name}".encode()).fetchone()
            assert row is not None
            counts[name] = int(row[0])
        return counts


def size_by_table(system: System) -> dict[str, int]:
    """Bytes of each table, its indexes included."""
    if system.database is not None:
        checkpoint(system.database)
        return bytes_by_table(system.database)
    with psycopg.connect(system.store) as server:
        return {name: int(size) for name, size in server.execute(_SIZES.encode()).fetchall()}


async def take_turns(client: Client, count: int, thread: str) -> list[float]:
    """Some turns on a thread; how long each took, in seconds."""
    agent, taken = client.agent(agent_id("text-20")), []
    for _ in range(count):
        start = time.perf_counter()
        result = await agent.generate(QUESTION, memory=Memory(thread=thread, resource="reader"))
        taken.append(time.perf_counter() - start)
        if result.finish_reason != "stop":
            raise RuntimeError(f"a turn ended with {result.finish_reason}: {result.error}")
    return taken


async def converse(system: System, messages: int, window: int, found: Conversation) -> None:
    """Have the conversation, measure it, and delete it."""
    async with Client(system.address, timeout=60) as client:
        await take_turns(client, WARM_UP, "warm-up")
        before = rows_by_table(system)
        said = 0
        for share in SHARES:
            mark = int(messages * share)
            await take_turns(client, max(0, mark - said) // 2, "long")
            size, start = size_by_table(system), cpu_seconds(system.pid)
            taken = await take_turns(client, window, "long")
            cpu = 1e3 * (cpu_seconds(system.pid) - start) / window
            found.marks.append(Mark(mark, 1e3 * statistics.median(taken), cpu, size))
            said = mark + 2 * window
        began = time.monotonic()
        await client.threads.delete("long")
        while time.monotonic() < began + SWEEP_SECONDS:
            now = rows_by_table(system)
            found.left = {name: now[name] - before[name] for name in now if now[name] > before[name]}
            if not set(found.left) - set(KEPT):
                break
            await asyncio.sleep(0.2)
        found.swept = time.monotonic() - began
        found.size = sum(size_by_table(system).values())


def report(found: Conversation) -> str:
    """The figures, in Markdown."""
    lines = [
        f"**{found.system}**",
        "",
        "| messages on the thread | ms a turn | ms CPU of the server a turn | bytes of all tables |",
        "| ---: | ---: | ---: | ---: |",
    ]
    for mark in found.marks:
        total = f"{sum(mark.size.values()):,}"
        lines.append(f"| {mark.messages:,} | {mark.time:.2f} | {mark.cpu:.2f} | {total} |")
    first, last = found.marks[0], found.marks[-1]
    grown = {name: last.size[name] - first.size.get(name, 0) for name in last.size}
    each = {name: bytes_ / (last.messages - first.messages) for name, bytes_ in grown.items() if bytes_ > 0}
    by_table = ", ".join(
        f"{name} {size:,.0f}" for name, size in sorted(each.items(), key=lambda one: -one[1]) if size >= 1
    )
    lines += ["", f"Bytes a message: {sum(each.values()):,.0f} ({by_table})."]
    left = {name: count for name, count in found.left.items() if name not in KEPT}
    rest = ", ".join(f"{count:,} rows of {name}" for name, count in left.items()) or "nothing"
    ids = f"{found.left.get('requests', 0):,} ids of requests, which go by their age"
    lines.append(
        f"Deleted within {found.swept:.1f} s. Left of it: {rest}, beside {ids}; {found.size:,} bytes."
    )
    return "\n".join(lines)


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.conversation", description="The cost of a long thread."
    )
    parser.add_argument("--messages", type=int, default=2000, help="length of the thread (2000)")
    parser.add_argument("--window", type=int, default=50, help="turns of one measurement (50)")
    parser.add_argument("--systems", default=f"{ENTRACTE},{POSTGRES}", help="where (entracte,postgres)")
    parser.add_argument("--folder", type=Path, default=ROOT / "var", help="where the databases live (var)")
    return parser.parse_args()


def main() -> int:
    """Run, print the figures; exit 1 when something was left behind."""
    args = parse_arguments()
    end_on_signals()
    args.folder.mkdir(parents=True, exist_ok=True)
    left = False
    for name in args.systems.split(","):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=args.folder)))
            system = start_system(stack, name, start_mock(stack, folder), folder)
            found = Conversation(name)
            run(converse(system, args.messages, args.window, found))
        left = left or bool(set(found.left) - set(KEPT))
        print(f"{report(found)}\n")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
