"""The client: one connection to a server, and what can be asked of it."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, TypedDict, Unpack

import grpc

from entracte._agent import AgentClient
from entracte._agents import AgentsClient
from entracte._connection import Connection, tls_credentials
from entracte._inbox import InboxClient
from entracte._options_codec import check_names
from entracte._runs import RunsClient
from entracte._threads import ThreadsClient


class ClientOptions(TypedDict, total=False):
    """The keyword arguments of `Client` and `SyncClient`."""

    api_key: str | None
    """Sent with every call."""
    tls: bool
    """Whether the server is reached over TLS and verified, with the root certificates gRPC ships."""
    ca_certificates: bytes | str | Path | None
    """Root certificates to verify the server with (implies `tls`): PEM bytes, or a file's path."""
    credentials: grpc.ChannelCredentials | None
    """Channel credentials for anything else, for example client certificates."""
    channel_options: Mapping[str, str | int] | None
    """gRPC channel arguments, added to the SDK's own."""
    timeout: float | None
    """The longest a plain request may take, in seconds. Default 30. Waiting for a run has no limit
    unless a call says so."""
    reattach_timeout: float
    """How long calls and streams wait for a server that was there before and is not now, trying again
    without progress, in seconds. A call's own timeout may end that earlier. Default 60."""


class Client:
    """A connection to an Entracte server, for asyncio code. `SyncClient` is for other code.

        async with Client("localhost:50051") as client:
            result = await client.agent("support").generate("Hello")

    It keeps one channel: make one client and share it, from one event loop. Nothing is connected
    before the first call. Close it with `aclose()` or `async with`.

    `address` is `host:port`, or any name gRPC resolves (`dns:///host:port`, `unix:/path`).
    """

    def __init__(self, address: str = "localhost:50051", **options: Unpack[ClientOptions]) -> None:
        check_names(options, ClientOptions.__annotations__, "Client")
        credentials = options.get("credentials")
        ca_certificates = options.get("ca_certificates")
        if credentials is None and (options.get("tls") or ca_certificates is not None):
            credentials = tls_credentials(ca_certificates)
        self._connection = Connection(
            address,
            api_key=options.get("api_key"),
            credentials=credentials,
            options=options.get("channel_options") or {},
            timeout=options.get("timeout", 30.0),
            reattach_timeout=options.get("reattach_timeout", 60.0),
        )
        self.runs = RunsClient(self._connection)
        """Looking at runs, following them, ending them."""
        self.inbox = InboxClient(self._connection)
        """What waits for people, and what people decided."""
        self.threads = ThreadsClient(self._connection)
        """Conversations: making, reading, changing and deleting them."""
        self.agents = AgentsClient(self._connection)
        """Which agents there are, and the versions of those that are made of data."""

    def agent(self, agent_id: str) -> AgentClient:
        """An agent by its id. Whether it exists shows when a run is started: AgentNotFound."""
        return AgentClient(self._connection, agent_id)

    async def aclose(self) -> None:
        """Close the connection. Streams and waits that are open end with an error."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        self._connection.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
