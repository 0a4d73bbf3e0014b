"""How an MCP server is reached: a program's standard input and output, or HTTP.

Both tell what became of a request that got no answer: that it was not sent, or that nobody knows. A
failed HTTP request costs its own call, not the session and the other calls with it.
"""

import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx2
from mcp import MCPError
from mcp.client import Transport
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CONNECTION_CLOSED

from entracte_server.agents.mcp import McpToolset
from entracte_server.domain.json_text import MAX_JSON_BYTES

NOT_SENT = -32950
"""The code of the error for a request that did not reach the server: it was not acted upon."""

LOST = -32951
"""The code of the error for a request whose answer did not come: nobody knows."""

FORGOTTEN = -32952
"""The code of the error for a request of a session that the server does not know any more."""

MAX_ANSWER = 2 * MAX_JSON_BYTES
"""Largest answer over HTTP, in bytes."""

_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
_NOBODY_ANSWERED = frozenset({502, 504})
"""What gateways say when the server behind them did not answer."""

_HUNG_UP = (
    "Connection closed",
    "SSE stream ended without a response",
    "SSE stream ended and reconnection attempts were exhausted",
)
"""What the package says when an answer did not come. Servers use the same code for errors of their own."""

_SESSION = "mcp-session-id"

_WRITE = 30.0
_READ = 366 * 86400.0
"""Seconds: how long a call may take is the business of whoever waits for it."""


def is_lost(error: MCPError) -> bool:
    """Whether nobody knows what became of the request."""
    return error.code == LOST or (error.code == CONNECTION_CLOSED and error.message in _HUNG_UP)


def transport(toolset: McpToolset, on_end: Callable[[], None]) -> Transport:
    """The way to the server of a toolset. `on_end` is called when the server has hung up."""
    if toolset.command is None:
        return _Watched(_over_http(toolset), on_end)
    program, *arguments = toolset.command
    parameters = StdioServerParameters(command=program, args=arguments, env=toolset.env, cwd=toolset.cwd)
    return _Watched(stdio_client(parameters, errlog=sys.__stderr__ or sys.stderr), on_end)


class _Watched(AbstractAsyncContextManager[Any]):
    """A transport that says when its server has hung up."""

    def __init__(self, inner: AbstractAsyncContextManager[Any], on_end: Callable[[], None]) -> None:
        self._inner = inner
        self._on_end = on_end

    async def __aenter__(self) -> Any:
        read, write = await self._inner.__aenter__()
        return _WatchedStream(read, self._on_end), write

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._inner.__aexit__(*error)


class _WatchedStream:
    def __init__(self, inner: Any, on_end: Callable[[], None]) -> None:
        self._inner = inner
        self._on_end = on_end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __aiter__(self) -> "_WatchedStream":
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._inner.__anext__()
        except StopAsyncIteration:
            self._on_end()
            raise

    async def __aenter__(self) -> "_WatchedStream":
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        ended: bool | None = await self._inner.__aexit__(*error)
        return ended


@asynccontextmanager
async def _over_http(toolset: McpToolset) -> AsyncIterator[Any]:
    timeout = httpx2.Timeout(_WRITE, connect=toolset.connect_timeout, read=_READ)
    client = httpx2.AsyncClient(headers=toolset.headers, timeout=timeout, transport=_Answering())
    url = str(toolset.url)
    async with (
        client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MAX_ANSWER) as streams,
    ):
        yield streams


class _Answering(httpx2.AsyncBaseTransport):
    """Answers a request itself where the server does not."""

    def __init__(self) -> None:
        self._inner = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await self._inner.handle_async_request(request)
        except _NOT_SENT as error:
            return _answered(request, NOT_SENT, error)
        except httpx2.TransportError as error:
            return _answered(request, LOST, error)
        if response.status_code in _NOBODY_ANSWERED:
            await response.aclose()
            return _answered(request, LOST, httpx2.RemoteProtocolError(f"status {response.status_code}"))
        if response.status_code == 404 and _SESSION in request.headers:
            await response.aclose()
            return _answered(request, FORGOTTEN, httpx2.RemoteProtocolError("status 404"))
        if response.headers.get("content-type", "").startswith("application/json"):
            response.stream = _Bounded(response.stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


def _answered(request: httpx2.Request, code: int, error: httpx2.TransportError) -> httpx2.Response:
    """The error as an answer to the call in the request; raised where there is none."""
    try:
        asked = json.loads(request.content)["id"]
    except (ValueError, LookupError, TypeError, httpx2.StreamError):
        raise error from None
    message = {"jsonrpc": "2.0", "id": asked, "error": {"code": code, "message": type(error).__name__}}
    return httpx2.Response(503, json=message, request=request)


class _Bounded(httpx2.AsyncByteStream):
    """A body that breaks off where it becomes too large."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._inner:
            size += len(piece)
            if size > MAX_ANSWER:
                raise httpx2.StreamError(f"the answer has more than {MAX_ANSWER} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()
