"""Calling the hooks of processors: within their time, with what they raise told apart."""

import asyncio
from collections.abc import Sequence
from typing import Any

import structlog

from entracte_server.agents.processors.base import Processor, Tripped, is_async
from entracte_server.domain import json_text
from entracte_server.domain.options import StepOverrides
from entracte_server.domain.results import Tripwire
from entracte_server.engine.authored import AuthoredCode, as_stored
from entracte_server.engine.settings import EngineSettings

_log = structlog.get_logger(__name__)


class Vetoed(Exception):
    """A processor stopped what it was given."""

    def __init__(self, tripwire: Tripwire, hook: str) -> None:
        super().__init__(tripwire.reason)
        self.tripwire = tripwire
        self.hook = hook


class ProcessorFailed(Exception):
    """A processor failed, so that nobody knows whether it would have passed what it was given. The message
    is for the caller of the run; what the processor raised is in the log only, since it may quote what was
    not to be shown."""

    def __init__(self, processor: str, where: str, fault: object) -> None:
        super().__init__(f"The processor {processor} failed in {where}.")
        _log.error("processor_failed", processor=processor, where=where, fault=_told(fault)[:300])


class ProcessorCalls:
    """Calls hooks, for a process."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._authored = AuthoredCode(settings.sync_tool_threads, settings.cancel_grace)

    async def call(
        self, processor: Processor, hook: str, given: Sequence[Any], answers: tuple[type, ...]
    ) -> Any:
        """What a hook answers: None or one of `answers`. Raises `Vetoed` when it aborts, and
        `ProcessorFailed` for anything else: another answer, an error, none in time. Cancelling the caller
        reaches the hook."""
        function = getattr(processor, hook)
        limit = processor.timeout or self._settings.processor_timeout
        task = asyncio.current_task()
        clock = asyncio.timeout(limit)
        try:
            async with clock:
                if is_async(function):
                    answer = await self._authored.in_task(
                        lambda: function(*given), f"processor:{processor.name}"
                    )
                else:
                    answer = await self._authored.in_thread(lambda: function(*given), "entracte-processor")
        except Tripped as tripped:
            raise Vetoed(_tripwire(processor, tripped), hook) from None
        except asyncio.CancelledError:
            if task is not None and task.cancelling():
                raise
            fault: object = "it cancelled itself"
        except BaseException as raised:  # an author's code may raise anything
            fault = f"no answer within {limit:g} s" if clock.expired() else raised
        else:
            if answer is None or isinstance(answer, answers):
                try:
                    return as_stored(answer) if isinstance(answer, StepOverrides) else answer
                except ValueError as unusable:
                    fault = unusable
            else:
                fault = f"it answered with {type(answer).__name__}"
        raise ProcessorFailed(processor.name, hook, fault)


def _told(fault: object) -> str:
    try:
        return fault if isinstance(fault, str) else repr(fault)
    except BaseException:  # an exception's text is its author's code
        return type(fault).__name__


def _tripwire(processor: Processor, tripped: Tripped) -> Tripwire:
    metadata = tripped.metadata
    return Tripwire(
        reason=json_text.scrub(tripped.reason),
        processor_id=processor.name,
        retry=tripped.retry,
        metadata=None if metadata is None else json_text.scrub(metadata),
    )
