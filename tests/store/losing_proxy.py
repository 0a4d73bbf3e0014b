"""A proxy between a store and its server that loses what it is told to lose, with the connection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

COMMITTED = b"C\x00\x00\x00\x0bCOMMIT\x00"
"""What the server says when a transaction is committed."""


class LosingProxy:
    """Listens on `port`. `lose_request` and `lose_answer` say what happens to the next of them."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._lose_requests = 0
        self._lose_answer = False
        self._flows = asyncio.Event()
        self._flows.set()
        self.lost = 0

    def lose_request(self, times: int = 1) -> None:
        """What a client says next does not arrive."""
        self._lose_requests = times

    def lose_answer(self) -> None:
        """The next transaction is committed, and nobody hears of it."""
        self._lose_answer = True

    def freeze(self) -> None:
        """Nothing arrives any more, and nothing breaks."""
        self._flows.clear()

    def thaw(self) -> None:
        """What was held up arrives."""
        self._flows.set()

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def drop(self) -> None:
        """Break all connections."""
        for writer in self._writers:
            writer.transport.abort()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["LosingProxy"]:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield self
        finally:
            self._server.close()
            self.thaw()
            self.drop()
            await self._server.wait_closed()

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        both = {to_client, to_server}
        self._writers |= both
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._requests(client, to_server))
                group.create_task(self._answers(server, to_client))
        except* (ConnectionError, EOFError):
            pass
        finally:
            self._writers -= both
            for writer in both:
                writer.transport.abort()
                with suppress(ConnectionError):
                    await writer.wait_closed()

    async def _requests(self, client: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> None:
        while data := await client.read(65_536):
            await self._flows.wait()
            if self._lose_requests:
                self._lose_requests -= 1
                self.lost += 1
                break
            to_server.write(data)
            await to_server.drain()
        raise EOFError

    async def _answers(self, server: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        while data := await server.read(65_536):
            await self._flows.wait()
            if self._lose_answer and COMMITTED in data:
                self._lose_answer = False
                self.lost += 1
                break
            to_client.write(data)
            await to_client.drain()
        raise EOFError
