"""Who follows a run in another process counts for `cancel_on_disconnect`."""

import asyncio
from pathlib import Path

import pytest

from entracte_server.engine import keeper
from tests.cases.support import chunks_of, finish_of, reason_name
from tests.recovery.test_across import Work, two


async def test_a_reader_in_another_process_keeps_a_run_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For as long as it reads, and not longer."""
    monkeypatch.setattr(keeper, "ROUND", 0.05)
    work = Work()
    async with two(tmp_path, work.app, disconnect_grace=0.5) as (one, first, _, second):
        rpc = first.open_stream(cancel_on_disconnect=True)
        run_id = (await anext(aiter(chunks_of(rpc)))).run_id
        watching = second.open_watch(run_id)
        await anext(aiter(chunks_of(watching)))
        rpc.cancel()
        await asyncio.sleep(1.5)
        assert await first.state(run_id) == "RUNNING"
        watching.cancel()
        watch = first.open_watch(run_id)
        watch.cancel()
        chunks = []
        for _ in range(200):
            if await first.state(run_id) == "CANCELLED":
                chunks = await first.watch(run_id)
                break
            await asyncio.sleep(0.05)
        assert reason_name(finish_of(chunks).reason) == "aborted"
        assert one.engine.active_runs == 0
