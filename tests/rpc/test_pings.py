"""Pings: clients may keep a quiet connection alive with one every few seconds."""

import asyncio
import struct

from tests.rpc.support import serving

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, PING, GOAWAY = 4, 6, 7
ACK = 1
ENHANCE_YOUR_CALM = 11


class Connection:
    """The least of an HTTP/2 client: it pings, and sees what comes back."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._count = 0

    @classmethod
    async def open(cls, address: str) -> "Connection":
        """Connect and greet."""
        host, _, port = address.rpartition(":")
        connection = cls(*await asyncio.open_connection(host, int(port)))
        connection._writer.write(PREFACE)
        connection._send(SETTINGS)
        return connection

    def _send(self, kind: int, payload: bytes = b"", flags: int = 0) -> None:
        header = struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", 0)
        self._writer.write(header + payload)

    async def _frame(self) -> tuple[int, int, bytes]:
        header = await self._reader.readexactly(9)
        length = int.from_bytes(header[:3], "big")
        return header[3], header[4], await self._reader.readexactly(length)

    async def ping(self) -> int | None:
        """Ping and wait for the answer: None, or the error code of a GOAWAY."""
        self._count += 1
        mark = struct.pack(">Q", self._count)
        self._send(PING, mark)
        while True:
            kind, flags, payload = await asyncio.wait_for(self._frame(), 10)
            if kind == GOAWAY:
                return int.from_bytes(payload[4:8], "big")
            if kind == SETTINGS and not flags & ACK:
                self._send(SETTINGS, flags=ACK)
            if kind == PING and flags & ACK and payload == mark:
                return None

    async def goaway(self, seconds: float) -> int | None:
        """The error code of a GOAWAY that comes within some seconds."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    kind, _, payload = await self._frame()
                    if kind == GOAWAY:
                        return int.from_bytes(payload[4:8], "big")
        except TimeoutError:
            return None

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        await self._writer.wait_closed()


async def test_a_ping_every_five_seconds_is_no_offence() -> None:
    """Without a call on the connection, too. Pings without end are answered with GOAWAY; the test sees
    how many are forgiven, uses them up on another connection, lets five seconds pass, and pings
    again: that one must not count."""
    async with serving() as (server, _):
        impatient = await Connection.open(server.address)
        forgiven = 0
        while (answer := await impatient.ping()) is None:
            forgiven += 1
            assert forgiven < 20, "pings without end are taken"
        assert answer == ENHANCE_YOUR_CALM
        await impatient.close()

        patient = await Connection.open(server.address)
        for _ in range(forgiven - 1):  # the last one of the other was answered before it was too much
            assert await patient.ping() is None
        assert await patient.goaway(5.1) is None
        assert await patient.ping() is None
        assert await patient.goaway(0.5) is None
        await patient.close()
