"""The hooks around tool calls: before one, which may have it not made, and after one, which looks on."""

import asyncio
from typing import TYPE_CHECKING

from entracte_server.agents.hooks import Skip, ToolCallDone, ToolCallInfo
from entracte_server.agents.tools import Arguments
from entracte_server.domain import json_text
from entracte_server.domain.runs import CallRow, Outcome
from entracte_server.engine.hooking import HookFailed
from entracte_server.engine.scoring import tool_use
from entracte_server.engine.views import run_view
from entracte_server.store.base import LeaseLost, StoreUnavailable

if TYPE_CHECKING:
    from entracte_server.engine.run import RunExecution


class ToolCallHooks:
    """The hooks around the tool calls of one step. Owns the tasks of those that look on."""

    def __init__(self, run: "RunExecution") -> None:
        self._run = run
        names, known = run.spec.options.hooks or run.agent.hooks, run.services.app.hooks
        self._before = known[names.before_tool_call] if names and names.before_tool_call else None
        self._after = known[names.after_tool_call] if names and names.after_tool_call else None
        self._looking: set[asyncio.Task[None]] = set()

    @property
    def ask_before(self) -> bool:
        """Whether `before` is to be asked."""
        return self._before is not None

    async def before(self, call: CallRow, arguments: Arguments) -> Outcome | None:
        """What comes of a call that is not to be made; None where it is."""
        assert self._before is not None
        info = ToolCallInfo(
            run_view(self._run), call.call_id, call.tool_name, json_text.parse_stored(arguments.text)
        )
        try:
            skip: Skip | None = await self._run.services.hooks.call(self._before, info, Skip)
            return None if skip is None else Outcome("result", json_text.dump_for_storage(skip.output))
        except HookFailed as failure:
            return Outcome("error", str(failure), "hook")
        except Exception as error:  # what a hook gave as output is its author's
            return Outcome("error", f"The output of the hook {self._before.name} is no JSON: {error}", "hook")

    def after(self, call: CallRow) -> None:
        """Show what came of a call that was made, once it is durable."""
        if self._after is not None:
            self._looking.add(asyncio.create_task(self._look(call), name="hook"))

    async def _look(self, call: CallRow) -> None:
        assert self._after is not None
        try:
            await self._run.log.commit()
        except (LeaseLost, StoreUnavailable):
            return
        info = ToolCallDone(run_view(self._run), tool_use(call))
        await self._run.services.hooks.call(self._after, info)

    async def end(self) -> None:
        """Until those that look on have seen what there was, each within its time."""
        if self._looking:
            await asyncio.wait(self._looking)
            self._looking.clear()

    async def cancel(self) -> None:
        """End those that look on."""
        for task in self._looking:
            task.cancel()
        await self.end()
