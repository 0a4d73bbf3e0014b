"""Servers that can be restarted: in this process, gracefully; or as a process that is killed."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import grpc
import grpc.aio

from entracte_server.testing import TestServer, serve
from tests.cases.process import ServerProcess, forked
from tests.cases.support import Caller, read_refusal
from tests.invariants import world

T = TypeVar("T")

PRINCIPALS = {"ann": "a", "abe": "a", "ben": "b", "bob": "b"}
"""Two of each tenant."""

KEYS = [{"key": f"key-of-{name}", "principal": name, "tenant": tenant} for name, tenant in PRINCIPALS.items()]

PATIENCE = 20.0
"""How long what must come true may take, in seconds."""


class Harness(Protocol):
    """A server on one database, with callers of each principal."""

    kills: int
    """How often work was cut off: by a kill, or by a stop without a grace time."""

    async def caller(self, principal: str) -> Caller:
        """A caller of the server that runs now; waits while none does."""
        ...

    async def restart(self, *, abrupt: bool) -> None:
        """Stop the server and start another one on the same database. `abrupt`: without a grace time,
        where it makes a difference."""
        ...

    def journal(self) -> list[dict[str, Any]]:
        """What the tools and the model wrote down."""
        ...


class _Base:
    """Callers that change with the server."""

    def __init__(self) -> None:
        self.kills = 0
        self._callers: dict[str, Caller] = {}
        self._all: list[Caller] = []
        self._up = asyncio.Event()
        self._restarting = asyncio.Lock()

    async def caller(self, principal: str) -> Caller:
        await asyncio.wait_for(self._up.wait(), PATIENCE)
        return self._callers[principal]

    def _serves(self, address: str) -> None:
        self._callers = {name: Caller(address, key=f"key-of-{name}", agent="world") for name in PRINCIPALS}
        self._all += self._callers.values()
        self._up.set()

    async def _close_callers(self) -> None:
        for caller in self._all:
            await caller.channel.close()


class Graceful(_Base):
    """A server in this process."""

    def __init__(self, store: Path) -> None:
        super().__init__()
        self._store = store
        self._stack = AsyncExitStack()
        self._grace = 5.0
        world.entries.clear()

    async def start(self) -> None:
        """Serve."""
        settings: dict[str, Any] = {"api_keys": KEYS, "log_level": "error", "keep_alive": 0.5}
        server = await self._stack.enter_async_context(self._server(settings))
        self._serves(server.address)

    @asynccontextmanager
    async def _server(self, settings: dict[str, Any]) -> AsyncIterator[TestServer]:
        async with serve(world.make_app(), store=self._store, grace=5.0, **settings) as server:
            try:
                yield server
            finally:
                if not self._grace:
                    await server.engine.close(0.0)

    async def restart(self, *, abrupt: bool) -> None:
        async with self._restarting:
            self._up.clear()
            self.kills += abrupt
            self._grace = 0.0 if abrupt else 5.0
            await self._stack.aclose()
            await self.start()

    def journal(self) -> list[dict[str, Any]]:
        return list(world.entries)

    async def close(self) -> None:
        """Stop for good."""
        await self._close_callers()
        await self._stack.aclose()


class Killed(_Base):
    """A server in a process of its own, ended by SIGKILL."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._store = folder / "db"
        self._journal = folder / "journal"
        self._stack = AsyncExitStack()
        self._server: ServerProcess | None = None

    async def start(self) -> None:
        """Serve."""
        environment = {
            world.JOURNAL: str(self._journal),
            "ENTRACTE_API_KEYS": json.dumps(KEYS),
            "ENTRACTE_KEEP_ALIVE": "0.5",
            "ENTRACTE_LOG_LEVEL": "error",
        }
        self._server = await self._stack.enter_async_context(
            forked("tests.invariants.world:app", self._store, environment=environment)
        )
        self._serves(self._server.address)

    async def restart(self, *, abrupt: bool) -> None:
        async with self._restarting:
            assert self._server is not None
            self._up.clear()
            self.kills += 1
            await self._server.kill()
            await self._stack.aclose()
            await self.start()

    def journal(self) -> list[dict[str, Any]]:
        if not self._journal.exists():
            return []
        return [json.loads(line) for line in self._journal.read_text().splitlines()]

    async def close(self) -> None:
        """Stop for good; what it printed must hold no trace."""
        await self._close_callers()
        output = self._server.output if self._server is not None else ""
        await self._stack.aclose()
        assert "Traceback" not in output, output


@asynccontextmanager
async def graceful(folder: Path) -> AsyncIterator[Graceful]:
    """A server in this process."""
    harness = Graceful(folder / "db")
    await harness.start()
    try:
        yield harness
    finally:
        await harness.close()


@asynccontextmanager
async def killed(folder: Path) -> AsyncIterator[Killed]:
    """A server to kill."""
    os.environ.pop(world.JOURNAL, None)
    harness = Killed(folder)
    await harness.start()
    try:
        yield harness
    finally:
        await harness.close()


GONE = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
    }
)
"""What a caller may see when the server goes away under it."""


def went_away(error: BaseException) -> bool:
    """Whether an RPC failed because its server, or its channel, was going away; nothing typed said
    otherwise."""
    if isinstance(error, grpc.aio.UsageError):
        return "closed" in str(error).lower()
    if not isinstance(error, grpc.aio.AioRpcError):
        return False
    refusal = read_refusal(error)
    return refusal.reason == "SERVER_DRAINING" or (not refusal.reason and refusal.code in GONE)


async def insist(harness: Harness, principal: str, attempt: Callable[[Caller], Awaitable[T]]) -> T:
    """Do something until a server answers, as SDKs do: the attempt must be safe to repeat."""
    end = asyncio.get_running_loop().time() + PATIENCE
    while True:
        caller = await harness.caller(principal)
        try:
            return await attempt(caller)
        except (grpc.aio.AioRpcError, grpc.aio.UsageError) as error:
            if not went_away(error) or asyncio.get_running_loop().time() > end:
                raise
        await asyncio.sleep(0.01)
