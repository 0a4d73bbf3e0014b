"""`kill -9` at any moment: what was acknowledged is there, and nothing is there by halves."""

import asyncio
import json
import random
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from entracte_server.domain.runs import RunRow, Snapshot
from entracte_server.store.base import Made, NotFound, RunFilter, Store
from entracte_server.store.opening import open_store
from entracte_server.testing.store_conformance.builders import SPEC, TENANT, a_request, chunks, log_of

ROOT = Path(__file__).parents[2]
ROUNDS = 4

Acknowledged = list[list[Any]]


async def live_and_die(url: str, number: int, seconds: float) -> Acknowledged:
    """Run the child and kill it after `seconds` of work; what it said."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.store.kill_child",
        url,
        str(number),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    said = [json.loads(await child.stdout.readline())]
    rest = asyncio.create_task(child.stdout.read())
    await asyncio.sleep(seconds)
    child.kill()
    text = await rest
    assert await child.wait() == -signal.SIGKILL
    # The last line may have been cut: its acknowledgement never got out.
    said += [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith(b"\n")]
    return said


async def check_acknowledged(store: Store, said: Acknowledged) -> None:
    for what, name, *rest in said:
        snapshot = await store.load(TENANT, name)
        run = snapshot.run
        assert await store.find_request(a_request(request_id=name)) == Made(name)
        match what:
            case "chunks":
                assert run.last_sequence >= rest[0]
            case "parked":
                pending, _ = await store.get_pending(TENANT, f"{name}-pending")
                assert (pending.run_id, run.last_sequence >= rest[0]) == (name, True)
            case "decided":
                decision = await store.get_decision(TENANT, f"{name}-decision")
                assert (decision.sequence, run.fence) == (8, rest[0])
            case "ended":
                assert (run.state, run.last_sequence, run.executed_ms) == ("succeeded", 12, 150)


async def check_whole(store: Store, run: RunRow) -> None:
    """Every transaction is there with all it wrote, or not at all."""
    snapshot: Snapshot = await store.load(TENANT, run.run_id)
    assert snapshot.spec == SPEC
    assert await log_of(store, run) == chunks(1, run.last_sequence).data
    parked = run.last_sequence >= 8
    assert run.last_sequence not in (6, 7, 10, 11)  # written together with what follows
    assert [step.step for step in snapshot.steps] == ([1] if parked else [])
    assert len(snapshot.calls) == parked
    try:
        pending, decision = await store.get_pending(TENANT, f"{run.run_id}-pending")
    except NotFound:
        assert not parked
        return
    assert parked
    assert (pending.state == "decided") is (decision is not None) is (run.fence == 2)
    state = snapshot.calls[0].state
    if run.state == "suspended":
        assert (run.owner, pending.state, state, run.last_sequence) == ("", "open", "waiting", 8)
    elif run.state == "running":
        assert (run.owner, pending.state, state) == (
            "child",
            "decided",
            "started" if run.last_sequence == 8 else "done",
        )
    else:
        assert (run.state, run.owner, state, run.last_sequence) == ("succeeded", "", "done", 12)


async def count_runs(store: Store) -> int:
    count, cursor = 0, ""
    while True:
        runs, cursor = await store.list_runs(TENANT, RunFilter(), cursor=cursor, limit=1000)
        count += len(runs)
        if not cursor:
            return count


@pytest.mark.timeout(120)
async def test_kill_at_any_moment_on_sqlite(tmp_path: Path) -> None:
    database = tmp_path / "store.db"
    await kill_again_and_again(f"sqlite:///{database}")
    with sqlite3.connect(database) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    raw.close()


@pytest.mark.timeout(120)
async def test_kill_at_any_moment_on_postgres(postgres_url: str) -> None:
    await kill_again_and_again(postgres_url)


async def kill_again_and_again(url: str) -> None:
    seconds = random.Random()
    said: Acknowledged = []
    for number in range(ROUNDS):
        said += (await live_and_die(url, number, seconds.uniform(0.0, 0.6)))[1:]
        # Its locks died with it, and its log is taken up.
        store = await open_store(url)
        await check_acknowledged(store, said[-100:])
        # Whatever may have been under way when the child died is among the newest.
        runs, _ = await store.list_runs(TENANT, RunFilter(), cursor="", limit=50)
        for run in runs:
            await check_whole(store, run)
        assert sum(what == "created" for what, *_ in said) <= await count_runs(store)
        await store.close()
    assert said
