"""One session with one MCP server: begun on demand, begun again when it was lost, never durable."""

import asyncio
from collections.abc import Mapping
from typing import Any

import mcp_types as mcp
import structlog
from mcp import MCPError
from mcp.client import Client
from pydantic import TypeAdapter, ValidationError

from entracte_server.agents.mcp import McpToolset
from entracte_server.domain.json_text import scrub
from entracte_server.domain.options import PinnedTool
from entracte_server.engine.execution import CallLost, ToolRedefined
from entracte_server.engine.mcp_results import definitions, text_of, value_of
from entracte_server.engine.mcp_transports import FORGOTTEN, NOT_SENT, is_lost, transport

MAX_TOOLS = 256
"""Most tools that a server may list."""

LIST_AGE = 10.0
"""Seconds for which a list of tools is good."""

CLOSE_TIME = 8.0
"""Seconds that a session gets to end: a program that does not end by itself is killed within them."""

IDEMPOTENCY_KEY = "entracte.dev/idempotency-key"
"""Where a call's idempotency key is in its metadata."""

_log = structlog.get_logger(__name__)

_RESULT: TypeAdapter[mcp.CallToolResult | mcp.InputRequiredResult] = TypeAdapter(
    mcp.CallToolResult | mcp.InputRequiredResult
)


class McpUnavailable(Exception):
    """The server cannot be asked; nothing was done. The message is for callers and models."""


class McpFailed(Exception):
    """The call failed; the message is for the model."""


class _Session:
    """One session. Its task enters and leaves it; whoever waits for `ready` gets the client."""

    def __init__(self, toolset: McpToolset) -> None:
        self.ended = asyncio.Event()
        self.ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self.tools: dict[str, PinnedTool] = {}
        self.listed_at: float | None = None
        self.listing = asyncio.Lock()
        self.calls = 0
        """How many calls wait for an answer."""
        self._toolset = toolset
        self.task = asyncio.create_task(self._live(), name=f"mcp:{toolset.name}")

    async def _live(self) -> None:
        client = Client(
            transport(self._toolset, self.ended.set),
            client_info=mcp.Implementation(name="entracte", version="1"),
            message_handler=self._heard,
            cache=None,
        )
        try:
            async with client:
                if not self.ready.done():
                    self.ready.set_result(client)
                await self.ended.wait()
        except BaseException as error:
            if not self.ready.done():
                self.ready.set_exception(McpUnavailable(_reason(error)))
                self.ready.exception()  # also where nobody waits any more
            if not isinstance(error, Exception):
                raise
            _log.info("mcp_session_failed", toolset=self._toolset.name, error=repr(error)[:500])
        finally:
            self.ended.set()

    async def _heard(self, message: Any) -> None:
        if isinstance(message, mcp.ToolListChangedNotification):
            self.listed_at = None


def _reason(error: BaseException) -> str:
    """Why a server cannot be had, without anything about this machine."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, OSError):
        return "its program cannot be started"
    if isinstance(error, MCPError) and error.code != NOT_SENT and not is_lost(error):
        return f"it answered with an error: {scrub(error.message)[:500]}"
    if isinstance(error, (ValidationError, RuntimeError)):
        return "it does not speak the protocol"
    return "it cannot be reached"


class McpConnection:
    """The session of a process with the server of a toolset."""

    def __init__(self, toolset: McpToolset) -> None:
        self.toolset = toolset
        self._session: _Session | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._closed = False

    async def definitions(self, *, fresh: bool = False) -> Mapping[str, PinnedTool]:
        """The tools of the server by their names in a run. `fresh`: listed now. Raises
        `McpUnavailable`."""
        _, tools = await self._listed(fresh)
        return tools

    async def call(self, tool: PinnedTool, args: Mapping[str, Any], *, key: str, fresh: bool) -> Any:
        """What a call of the tool gives, as a JSON value. `key` is its idempotency key.

        Raises `ToolRedefined` when the server's tool is another one now, `CallLost` when nobody knows what
        became of the call, `McpFailed` when it failed or the server was not reached.
        Only calls of idempotent tools are made twice.
        """
        for again in (True, False):
            try:
                session, tools = await self._listed(fresh)
            except McpUnavailable as error:
                raise McpFailed(
                    f"The server of {self.toolset.name} cannot be asked: {error}. The call was not made."
                ) from None
            now = tools.get(tool.name)
            if now is None:
                raise McpFailed(f"The server of {self.toolset.name} has no tool {tool.remote!r} any more.")
            if now != tool:
                raise ToolRedefined(now)
            try:
                return await self._call(session, tool, args, key)
            except MCPError as error:
                if error.code == FORGOTTEN:  # and so nothing was done
                    self._leave(session)
                    if again:
                        continue
                if error.code == NOT_SENT:
                    raise McpFailed(
                        f"The server of {self.toolset.name} cannot be reached. The call was not made."
                    ) from None
                if not is_lost(error):
                    raise McpFailed(scrub(error.message) or "The server answered with an error.") from None
                _log.warning("mcp_call_lost", toolset=self.toolset.name, tool=tool.remote)
                if not self.toolset.is_idempotent(tool.remote):
                    raise CallLost from None
        raise McpFailed(f"The connection to the server of {self.toolset.name} was lost during the call.")

    async def _call(self, session: _Session, tool: PinnedTool, args: Mapping[str, Any], key: str) -> Any:
        meta: Any = {IDEMPOTENCY_KEY: key}
        asked = mcp.CallToolRequestParams(name=tool.remote, arguments=dict(args), _meta=meta)
        request = mcp.CallToolRequest(params=asked)
        session.calls += 1
        try:
            # Not by the client's own `call_tool`: that checks results against the server's schemas, with
            # patterns that may take for ever.
            result = await session.ready.result().session.send_request(request, _RESULT)
        except ValidationError:
            raise McpFailed("The server's answer does not fit the protocol.") from None
        finally:
            session.calls -= 1
        if isinstance(result, mcp.InputRequiredResult):
            raise McpFailed("The server asked for input, which it cannot have here.")
        if result.is_error:
            raise McpFailed(scrub(text_of(result)) or "The tool failed.")
        return value_of(result)

    # ---- the session ----

    async def _listed(self, fresh: bool) -> tuple[_Session, dict[str, PinnedTool]]:
        try:
            async with asyncio.timeout(self.toolset.connect_timeout):
                try:
                    return await self._list_if_old(fresh)
                except MCPError as error:  # a list may be asked for twice
                    if error.code != FORGOTTEN and not is_lost(error):
                        raise
                    return await self._list_if_old(fresh)
        except TimeoutError:
            # One that is busy with calls may be well; they would be lost with it.
            if self._session is not None and not self._session.calls:
                self._leave(self._session)
            seconds = f"{self.toolset.connect_timeout:g}"
            raise McpUnavailable(f"it did not list its tools within {seconds} s") from None
        except (MCPError, ValidationError) as error:
            raise McpUnavailable(_reason(error)) from None

    async def _list_if_old(self, fresh: bool) -> tuple[_Session, dict[str, PinnedTool]]:
        session = await self._connected()
        now = asyncio.get_running_loop().time
        # What another one lists from now on is as fresh as can be.
        good_from = now() if fresh else now() - LIST_AGE
        async with session.listing:
            if session.listed_at is None or session.listed_at < good_from:
                started = now()
                try:
                    session.tools = await self._list(session.ready.result())
                except MCPError as error:
                    if error.code == FORGOTTEN or is_lost(error):
                        self._leave(session)
                    raise
                session.listed_at = started
            return session, session.tools

    async def _connected(self) -> _Session:
        if self._closed:
            raise McpUnavailable("this process is stopping")
        if self._session is not None and self._session.ended.is_set():
            self._leave(self._session)
        if self._session is None:
            self._session = _Session(self.toolset)
        session = self._session
        try:
            await asyncio.shield(session.ready)
        except McpUnavailable:
            self._leave(session)
            raise
        return session

    async def _list(self, client: Client) -> dict[str, PinnedTool]:
        listed: list[mcp.Tool] = []
        cursor: str | None = None
        while True:
            page = await client.session.list_tools(params=mcp.PaginatedRequestParams(cursor=cursor))
            listed += page.tools
            cursor = page.next_cursor
            if len(listed) > MAX_TOOLS:
                raise McpUnavailable(f"it has more than {MAX_TOOLS} tools; take some of them with only=")
            if not cursor:
                return definitions(self.toolset, listed)

    def _leave(self, session: _Session | None) -> None:
        """End a session, and begin another one when there is need."""
        if session is None:
            return
        session.ended.set()
        if not session.ready.done():  # it is being entered
            session.task.cancel()
        if not session.task.done():
            self._leaving.add(session.task)
            session.task.add_done_callback(self._leaving.discard)
        if self._session is session:
            self._session = None

    async def close(self) -> None:
        """End the session, within `CLOSE_TIME`."""
        self._closed = True
        self._leave(self._session)
        for cut in (False, True):
            if self._leaving:
                for task in self._leaving if cut else ():
                    task.cancel()
                await asyncio.wait(set(self._leaving), timeout=CLOSE_TIME)
