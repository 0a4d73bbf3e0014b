"""A program that reads slowly, with the SDK over a real socket: it is cut off again and again, attaches
again by itself, and loses nothing; the server holds little for it.
"""

import asyncio
from typing import Any

import pytest

from entracte import Client
from entracte_server import Agent, App
from entracte_server.engine.hub import Subscription
from entracte_server.rpc.run_service import RunService
from entracte_server.testing import scripted, serve
from tests.rpc.support import MIB

SMALL_WINDOW = {"grpc.http2.lookahead_bytes": 65536, "grpc.http2.bdp_probe": 0}
"""A client that takes little before its program reads: what it does not read stays with the server."""

WORDS = 40


@pytest.mark.parametrize("start", ["stream", "watch"])
async def test_a_slow_program_gets_every_chunk_once(start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 MB in 40 pieces, for a reader that sleeps longer than it may, several times."""
    attached: list[int] = []
    held: list[int] = []
    watch, push = RunService.WatchRun, Subscription.push

    async def counting(self: RunService, request: Any, context: Any) -> None:
        attached.append(request.after_sequence)
        await watch(self, request, context)

    def measuring(self: Subscription, event: Any) -> None:
        push(self, event)
        held.append(self._size)

    monkeypatch.setattr(RunService, "WatchRun", counting)
    monkeypatch.setattr(Subscription, "push", measuring)
    blocks = [f"{number:08}" + "x" * MIB for number in range(WORDS)]
    model = scripted(lambda request: [{"text": block + " "} for block in blocks])
    app = App(agents=[Agent(id="floods", model=model)])
    async with (
        serve(app, reader_timeout=0.2) as server,
        Client(server.address, channel_options=SMALL_WINDOW) as client,
    ):
        stream: Any = client.agent("floods").stream("go", run_id="r")
        if start == "watch":
            await anext(aiter(stream))
            await stream.aclose()
            stream = client.runs.watch("r")
        chunks = []
        naps = 0
        async for chunk in stream:
            chunks.append(chunk)
            if naps < 3 and len(attached) == naps + (start == "watch") and chunk.type == "text-delta":
                naps += 1
                await asyncio.sleep(0.6)
        assert [chunk.sequence for chunk in chunks] == list(range(1, len(chunks) + 1))
        assert chunks[-1].type == "finish"
        text = "".join(chunk.text for chunk in chunks if chunk.type == "text-delta")
        assert text == "".join(block + " " for block in blocks)
        assert naps == 3
        assert len(attached) >= 3, "it was cut off each time, and attached after what it had read"
        assert attached == sorted(attached)
        assert max(held) < 3 * MIB, "more is in the log, not in memory"
