"""Calling hooks: within their time, with their errors made plain."""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from entracte_server.agents.hooks import Hook, Iteration, StepOverrides
from entracte_server.domain import json_text
from entracte_server.engine.authored import AuthoredCode, as_stored, message_of
from entracte_server.engine.settings import EngineSettings

_log = structlog.get_logger(__name__)

MAX_MESSAGE = 4096
"""Longest text of an error, in characters."""

_STORED = (Iteration, StepOverrides)
"""Answers that are kept with the run."""


class HookFailed(Exception):
    """A hook that must answer did not, or not with what it may answer."""


class HookRunner:
    """Calls hooks, for a process."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._authored = AuthoredCode(settings.sync_tool_threads, settings.cancel_grace)

    async def call(
        self,
        hook: Hook,
        info: Any,
        *answers: type,
        fails_closed: bool | None = None,
        usable: Callable[[Any], Any] | None = None,
    ) -> Any:
        """What a hook answers: None or one of `answers`, as `usable` makes it, which raises `ValueError` for
        one that is of no use. Raises `HookFailed` for any other answer, an error or none in time, where the
        hook fails closed, or as `fails_closed` has it; otherwise that is logged and is None. Cancelling the
        caller reaches the hook."""
        task = asyncio.current_task()
        clock = asyncio.timeout(hook.timeout)
        try:
            async with clock:
                if hook.is_async:
                    answer = await self._authored.in_task(lambda: hook(info), f"hook:{hook.name}")
                else:
                    answer = await self._authored.in_thread(lambda: hook(info), "entracte-hook")
        except asyncio.CancelledError:
            if task is not None and task.cancelling():
                raise
            fault = "it cancelled itself"
        except TimeoutError as raised:
            fault = f"no answer within {hook.timeout:g} s" if clock.expired() else self._told(raised)
        except BaseException as raised:  # an author's code may raise anything
            fault = self._told(raised)
        else:
            if not answers or answer is None or isinstance(answer, answers):
                try:
                    if answer is not None and usable is not None:
                        return usable(answer)
                    return as_stored(answer) if isinstance(answer, _STORED) else answer
                except ValueError as unusable:
                    fault = str(unusable)
            else:
                kinds = ", ".join(kind.__name__ for kind in answers)
                fault = f"it answered with {type(answer).__name__}, which is none of {kinds}, None"
        _log.warning("hook_failed", hook=hook.name, kind=hook.kind, error=fault[:300])
        if hook.fails_closed if fails_closed is None else fails_closed:
            raise HookFailed(json_text.scrub(f"The hook {hook.name} failed: {fault}")[:MAX_MESSAGE])
        return None

    def _told(self, error: BaseException) -> str:
        return "an error" if self._settings.tool_errors == "generic" else message_of(error)
