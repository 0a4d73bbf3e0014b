"""How much room runs take: a waiting run little, a long one in proportion to what is new in it."""

import asyncio
import os
import random
from pathlib import Path

from msgspec.structs import replace

from entracte_server.domain.ids import new_id
from entracte_server.domain.messages import TextPart, text_message
from entracte_server.domain.results import Usage
from entracte_server.domain.runs import Response
from entracte_server.store.base import ChunkRow, CreateRun, RunPatch
from entracte_server.store.sqlite import SQLiteStore
from entracte_server.testing.store_conformance.builders import (
    SPEC,
    a_call,
    a_park,
    a_pending,
    a_request,
    a_run,
    a_step,
    a_write,
    chunks,
    created,
)

RUNS = 1600
WORKERS = 16

_random = random.Random(1)


def size_of(path: Path | str) -> int:
    return os.path.getsize(path)


async def empty(folder: Path) -> int:
    """The size of a database with nothing in it."""
    path = folder / "empty.db"
    await (await SQLiteStore.open(path)).close()
    return size_of(path)


def some_chunks(first: int, last: int) -> ChunkRow:
    """As large as real ones, and without anything to pack."""
    return ChunkRow(first, last, _random.randbytes(70 * (last - first + 1)))


async def suspend(store: SQLiteStore) -> None:
    """One run that streamed twenty deltas and waits for an approval."""
    run = a_run(run_id=new_id(), last_sequence=2, owner=new_id(), root_run_id="")
    run = replace(run, root_run_id=run.run_id)
    request = a_request(request_id=new_id(), body_hash=bytes(32))
    await store.create_run(CreateRun(run, SPEC, some_chunks(1, 2), request))
    await store.write(a_write(run, chunks=some_chunks(3, 14)))
    call = a_call(run, call_id=new_id(), args='{"order_id":"7","amount_cents":9900}')
    pending = a_pending(
        run,
        call,
        pending_call_id=new_id(),
        args_digest=bytes(32),
        tool_digest=bytes(32),
        tool_description="Refund an order.",
    )
    step = a_step(
        parts=(TextPart("word " * 20),),
        message_id=new_id(),
        response=Response("chatcmpl-" + new_id(), "gpt-5-mini", 1_796_079_694),
        model="openai/gpt-5-mini",
    )
    written = await store.write(
        a_write(
            run,
            chunks=some_chunks(15, 26),
            patch=RunPatch(1, 1, Usage(100, 20, 120)),
            steps=(step,),
            calls=(call,),
            opened=(pending,),
            park=replace(a_park(27), chunks=some_chunks(27, 28)),
        )
    )
    assert written.parked


async def test_a_suspended_run_takes_four_kilobytes(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = await SQLiteStore.open(path, synchronous="OFF")

    async def worker() -> None:
        for _ in range(RUNS // WORKERS):
            await suspend(store)

    await asyncio.gather(*(worker() for _ in range(WORKERS)))
    await store.close()
    assert size_of(path) / RUNS < 4096


async def test_what_repeats_itself_is_packed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = await SQLiteStore.open(path)
    run = await created(store)
    await store.write(a_write(run, chunks=ChunkRow(1, 1000, b"the same header, " * 100_000)))
    await store.close()
    assert size_of(path) - await empty(tmp_path) < 75_000


async def test_progress_costs_what_is_new(tmp_path: Path) -> None:
    """Neither the input nor earlier steps are written again with every step."""
    path = tmp_path / "store.db"
    store = await SQLiteStore.open(path)
    history = tuple(text_message("user", "x" * 10_000) for _ in range(100))
    run = a_run()
    await store.create_run(CreateRun(run, replace(SPEC, input=history)))
    for number in range(1, 31):
        text = _random.randbytes(500).hex()
        call = a_call(run, step=number, state="done")
        write = a_write(
            run,
            chunks=chunks(number, number),
            steps=(a_step(number, parts=(TextPart(text),)),),
            calls=(call,),
        )
        await store.write(write)
    log = size_of(f"{path}-wal")
    await store.close()
    # The input once; for each step its row and the pages it touches.
    assert log < 1_200_000 + 30 * 12 * 4096
    assert size_of(path) - await empty(tmp_path) < 1_062_432


async def test_deleting_gives_room_back(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = await SQLiteStore.open(path)
    for _ in range(60):
        run = await created(store)
        noise = _random.randbytes(50_000)
        await store.write(a_write(run, chunks=ChunkRow(1, 9, noise), park=a_park(10)))
        await store.delete_run(run.tenant, run.run_id, force=True, request=None)
    await store.close()
    assert size_of(path) - await empty(tmp_path) < 175_000
