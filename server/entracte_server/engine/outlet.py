"""What a running tool writes, on its way to the run's log: a tool that writes faster than the store does
is made to wait, so that what waits in memory is bounded.
"""

import asyncio
import threading
from typing import TYPE_CHECKING

from entracte_server.domain import chunks as c
from entracte_server.store.base import LeaseLost, StoreUnavailable

if TYPE_CHECKING:
    from entracte_server.engine.run import RunExecution

MAX_UNWRITTEN = 16 * 1024 * 1024
"""How much an asynchronous tool may write without waiting for it, in bytes."""

LOOK_SECONDS = 1.0
"""How often a thread that waits looks whether anybody still wants what it writes."""


class Outlet:
    """Takes what one call writes. Made on the event loop; `write` may be used from any thread."""

    def __init__(self, run: "RunExecution", call_id: str, tool_name: str) -> None:
        self._run = run
        self._call_id = call_id
        self._tool_name = tool_name
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def write(self, name: str | None, text: str, event_id: str) -> None:
        """Emit JSON text. In another thread than the event loop's this waits while the run is too far
        ahead of its log; on the event loop it cannot wait, and raises `BufferError` when far too much
        was written without `drain`. What comes too late is dropped."""
        payload: c.Payload = (
            c.ToolOutput(self._call_id, self._tool_name, text)
            if name is None
            else c.Custom(name, text, event_id)
        )
        if threading.get_ident() != self._thread:
            self._write_from_thread(payload)
        elif self._run.log.unwritten > MAX_UNWRITTEN:
            raise BufferError(
                f"more than {MAX_UNWRITTEN} bytes were written faster than they can be stored; "
                "await ctx.drain() now and then"
            )
        else:
            self._run.write_out(self._call_id, payload)

    async def drain(self) -> None:
        """Wait while the run is too far ahead of its log."""
        try:
            await self._run.log.room()
        except (LeaseLost, StoreUnavailable):  # nothing is written any more
            return

    def _write_from_thread(self, payload: c.Payload) -> None:
        work = self._write_and_drain(payload)
        try:
            done = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:  # the loop was closed: nobody waits any more
            work.close()
            return
        while True:
            try:
                done.result(LOOK_SECONDS)
                return
            except TimeoutError:
                if self._run.is_late(self._call_id):
                    done.cancel()
                    return

    async def _write_and_drain(self, payload: c.Payload) -> None:
        self._run.write_out(self._call_id, payload)
        await self.drain()
