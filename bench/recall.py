"""Semantic recall: how much of what a reader would point to is found, and how long a search takes.

python -m bench.recall [--messages 100000] [--postgres URL]
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.recall_set import MESSAGES, QUERIES
from entracte_server import Embedder, MiniLM
from entracte_server.domain.ids import new_id
from entracte_server.domain.messages import TextPart
from entracte_server.domain.options import RunOptions
from entracte_server.domain.runs import RunRow, RunSpec
from entracte_server.domain.threads import ThreadMessage
from entracte_server.engine.recall import Recall
from entracte_server.engine.settings import EngineSettings
from entracte_server.engine.similarity import packed
from entracte_server.store.base import CreateRun, RunWrite, Store
from entracte_server.store.opening import open_store
from entracte_server.store.threads import ThreadClaim
from entracte_server.store.vectors import AddVectors, Reach

TENANT, RESOURCE, THREAD = "bench", "ada", "t"

STORED_AT_ONCE = 1000


async def recall_at(count: int, embedder: Embedder) -> float:
    """The share of what answers the questions that is among the first `count` messages found, as the mean
    of all questions."""
    keys = [key for key, _ in MESSAGES]
    made = np.array(await embedder.embed([text for _, text in MESSAGES]))
    asked = np.array(await embedder.embed([question for question, _ in QUERIES]))
    shares = []
    for likeness, (_, wanted) in zip(asked @ made.T, QUERIES, strict=True):
        found = {keys[index] for index in np.argsort(-likeness)[:count]}
        shares.append(len(found & set(wanted)) / len(wanted))
    return statistics.mean(shares)


async def fill(store: Store, messages: int, embedder: Embedder) -> None:
    """A thread of `messages` messages, with vectors: those of the small conversation at its beginning, and
    random ones for all that comes after."""
    now = time.time_ns() // 1_000_000
    run_id = new_id()
    run = RunRow(
        tenant=TENANT,
        run_id=run_id,
        agent_id="a",
        state="running",
        principal="p",
        create_time=now,
        update_time=now,
        owner="bench",
        fence=1,
        root_run_id=run_id,
        thread_id=THREAD,
        resource_id=RESOURCE,
    )
    await store.enter("bench", 3600)
    spec = RunSpec((), RunOptions())
    await store.create_run(CreateRun(run, spec, None, claim=ThreadClaim()))
    texts = [text for _, text in MESSAGES]
    made = packed(await embedder.embed(texts))
    where = reach(embedder)
    draw = np.random.default_rng(1)
    for first in range(0, messages, STORED_AT_ONCE):
        places = range(first, min(first + STORED_AT_ONCE, messages))
        await store.write(
            RunWrite(
                TENANT,
                run_id,
                1,
                messages=tuple(
                    ThreadMessage(
                        id=f"m{place}",
                        role="user",
                        parts=(TextPart(texts[place] if place < len(texts) else f"Remark {place}."),),
                        create_time=now,
                        run_id=run_id,
                    )
                    for place in places
                ),
            )
        )
        rest = max(0, len(places) - max(0, len(made) - first))
        vectors = [
            *made[first : first + len(places)],
            *packed(draw.normal(size=(rest, 384)).tolist()),
        ]
        (thread,) = {row.thread for row in await store.unembedded(where, newest=messages, limit=1)}
        rows = tuple((thread, place + 1, data) for place, data in zip(places, vectors, strict=True))
        await store.add_vectors(AddVectors(TENANT, embedder.name, rows))


def reach(embedder: Embedder) -> Reach:
    return Reach(tenant=TENANT, resource_id=RESOURCE, embedder=embedder.name, thread_id=THREAD)


async def searches(store: Store, embedder: Embedder, messages: int) -> list[float]:
    """Seconds that searches took. Raises `AssertionError` where they found something else."""
    recall = Recall(store, EngineSettings(recall_messages=messages))
    seconds = []
    for question, wanted in QUERIES[:10]:
        started = time.perf_counter()
        found = await recall.find(reach(embedder), embedder, question, 4, shown=None, keep=True)
        seconds.append(time.perf_counter() - started)
        keys = {MESSAGES[position - 1][0] for _, position in found if position <= len(MESSAGES)}
        assert keys & set(wanted), f"{question}: {found}"
    return seconds


async def measure(argv: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--messages", type=int, default=100_000)
    options.add_argument("--postgres", default="", help="a database with nothing in it; default: SQLite")
    given = options.parse_args(argv)
    embedder = MiniLM()
    for count in (1, 3, 5):
        print(f"recall at {count}: {await recall_at(count, embedder):.3f} ({len(QUERIES)} questions)")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        store = await open_store(given.postgres or f"sqlite:///{folder}/bench.db")
        try:
            await fill(store, given.messages, embedder)
            seconds = await searches(store, embedder, given.messages)
        finally:
            await store.close()
    print(
        f"a recall over {given.messages} messages: median {statistics.median(seconds) * 1000:.0f} ms, "
        f"longest {max(seconds) * 1000:.0f} ms"
    )


if __name__ == "__main__":
    asyncio.run(measure())
