"""Entering the body of one tool: in a task or in a thread, within its time, with its errors caught."""

import asyncio
from typing import Any

import structlog

from entracte_server.agents.context import Suspended, ToolContext
from entracte_server.agents.tools import Arguments, Tool
from entracte_server.domain import json_text
from entracte_server.domain.data import Data
from entracte_server.domain.expiry import Expiry
from entracte_server.domain.options import PinnedTool
from entracte_server.domain.runs import Outcome
from entracte_server.engine.authored import AuthoredCode, message_of
from entracte_server.engine.settings import EngineSettings
from entracte_server.telemetry.base import Telemetry

_log = structlog.get_logger(__name__)

MAX_MESSAGE = 4096
"""Longest message of a tool's error, in characters."""


class Parked(Data, frozen=True):
    """A tool suspended: what it asks, the schema of the answer, what it keeps (JSON texts), and how
    long it waits for the answer, where it said so."""

    payload: str | None
    resume_schema: str | None
    state: str | None
    expiry: Expiry | None = None


class Lost(Data, frozen=True):
    """The tool runs elsewhere, and nobody knows what became of the call."""


class Redefined(Data, frozen=True):
    """The tool is another one than the call was made for, and was not entered."""

    definition: PinnedTool


class CallLost(Exception):
    """Raised by a tool that runs elsewhere: see `Lost`."""


class ToolRedefined(Exception):
    """Raised by a tool that runs elsewhere: see `Redefined`."""

    def __init__(self, definition: PinnedTool) -> None:
        super().__init__(f"the tool {definition.name} is another one now")
        self.definition = definition


Came = Outcome | Parked | Lost | Redefined
"""What entering a tool came to."""


class ToolRunner:
    """Runs tools for a process. Synchronous ones get a thread of their own each, at most
    `sync_tool_threads` at a time."""

    def __init__(self, settings: EngineSettings, telemetry: Telemetry) -> None:
        self._settings = settings
        self._telemetry = telemetry
        self._authored = AuthoredCode(settings.sync_tool_threads, settings.cancel_grace)

    async def run(self, tool: Tool, arguments: Arguments, context: ToolContext[Any]) -> Came:
        """Enter the body and wait for it. Never raises but for cancellation of the caller, which
        reaches the tool as well."""
        with self._telemetry.tool(tool, arguments, context) as execution:
            return execution.came_to(await self._enter(tool, arguments, context))

    async def _enter(self, tool: Tool, arguments: Arguments, context: ToolContext[Any]) -> Came:
        limit = tool.timeout if tool.timeout is not None else self._settings.tool_timeout
        task = asyncio.current_task()
        clock = asyncio.timeout(limit)
        try:
            async with clock:
                if tool.is_async:
                    value = await self._authored.in_task(
                        lambda: tool.call(arguments, context), f"tool:{tool.name}", context._cancel
                    )
                else:
                    value = await self._authored.in_thread(
                        lambda: tool.call(arguments, context), "entracte-tool"
                    )
        except Suspended as suspended:
            return self._parked(suspended, context)
        except CallLost:
            return Lost()
        except ToolRedefined as redefined:
            return Redefined(redefined.definition)
        except TimeoutError as error:
            context._cancel()
            if not clock.expired():  # raised by the tool itself
                return self._failed(tool, context, error)
            return Outcome("error", f"The tool {tool.name} did not end within {limit:g} s.", "timeout")
        except asyncio.CancelledError:
            context._cancel()
            if task is not None and task.cancelling():
                raise
            return self._failed(tool, context, RuntimeError("the tool cancelled itself"))
        except BaseException as error:
            return self._failed(tool, context, error)
        return self._result(tool, value)

    def _parked(self, suspended: Suspended, context: ToolContext[Any]) -> Outcome | Parked:
        try:
            state = json_text.dump_for_storage(context.state) if context.state else None
        except BaseException as error:  # a value's own code may raise anything
            return Outcome("error", f"ctx.state cannot be stored: {error}"[:MAX_MESSAGE], "exception")
        return Parked(suspended.payload, suspended.resume_schema, state, suspended.expiry)

    def _result(self, tool: Tool, value: Any) -> Outcome:
        try:
            text = json_text.dump_for_storage(value)
        except BaseException as error:  # a value's own code may raise anything
            return Outcome(
                "error", f"The result of {tool.name} cannot be used: {error}"[:MAX_MESSAGE], "invalid-result"
            )
        size = len(text) if text.isascii() else len(text.encode())
        if size > self._settings.max_result:
            return Outcome(
                "error",
                f"The result of {tool.name} is too large: {size} bytes, at most "
                f"{self._settings.max_result} are allowed.",
                "invalid-result",
            )
        return Outcome("result", text)

    def _failed(self, tool: Tool, context: ToolContext[Any], error: BaseException) -> Outcome:
        _log.info("tool_failed", run_id=context.run_id, tool=tool.name, error=type(error).__name__)
        if self._settings.tool_errors == "generic":
            return Outcome("error", f"The tool {tool.name} failed.", "exception")
        return Outcome("error", json_text.scrub(message_of(error))[:MAX_MESSAGE], "exception")
