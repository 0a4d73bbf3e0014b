"""What a tool is given besides its arguments, and how it suspends."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, Generic, NoReturn

from typing_extensions import TypeVar

from entracte_server.agents import schemas
from entracte_server.agents.expiry import WhatThen, check_answer, expiry_from
from entracte_server.domain import json_text
from entracte_server.domain.expiry import Expiry

R = TypeVar("R", default=Any)


class Suspended(BaseException):
    """Leaves a tool that suspends. Not an `Exception`, so that a tool's own handlers let it pass."""

    def __init__(self, payload: str | None, resume_schema: str | None, expiry: Expiry | None) -> None:
        super().__init__("the tool suspended")
        self.payload = payload
        self.resume_schema = resume_schema
        self.expiry = expiry


class ToolContext(Generic[R]):
    """A tool's view of its run. `R` is the type of the resume data.

    Made anew each time the tool is entered. Safe to use from the thread of a synchronous tool.

    Attributes:
        run_id: The run, the root of its tree of agents.
        thread_id: The conversation; empty where there is none.
        resource_id: Whose memory the run uses; empty where there is none.
        tool_call_id: The call.
        agent_id: The agent whose call it is.
        idempotency_key: The same each time this call is entered, after a crash or a suspension too.
            Hand it to services that take one.
        request_context: The values the caller gave, read-only.
        resumed: Whether the tool is entered with an answer.
        resume_data: The answer: an instance of the tool's resume model where it has one, else the
            JSON value. None when not resumed; `null` is an answer, so test `resumed`.
        expired: Whether the answer is the default one, because nobody answered in time.
        suspend_payload: What was asked in the last suspension, as a JSON value.
        state: JSON values the tool keeps over its suspensions; stored when it suspends.
    """

    def __init__(
        self,
        *,
        run_id: str,
        tool_call_id: str,
        tool_name: str,
        agent_id: str,
        idempotency_key: str,
        request_context: Mapping[str, Any],
        thread_id: str = "",
        resource_id: str = "",
        resumed: bool = False,
        expired: bool = False,
        resume_data: R | None = None,
        suspend_payload: Any = None,
        state: dict[str, Any] | None = None,
        resume_schema: str | None = None,
        emit: Callable[[str | None, str, str], None] | None = None,
        drain: Callable[[], Awaitable[None]] | None = None,
        approved: bool = False,
    ) -> None:
        self.run_id = run_id
        self.tool_call_id = tool_call_id
        self.tool_name = tool_name
        self.agent_id = agent_id
        self.idempotency_key = idempotency_key
        self.request_context = request_context
        self.thread_id = thread_id
        self.resource_id = resource_id
        self.resumed = resumed
        self.expired = expired
        self._resume_data = resume_data
        self.suspend_payload = suspend_payload
        self.state: dict[str, Any] = {} if state is None else state
        self._resume_schema = resume_schema
        self._emit = emit
        self._drain = drain
        self._approved = approved
        self._cancelled = threading.Event()

    @property
    def resume_data(self) -> R:
        """The answer; see the class."""
        return self._resume_data  # type: ignore[return-value]

    @property
    def cancelled(self) -> bool:
        """Whether the run was cancelled or the tool's time ran out. Asynchronous tools get
        `asyncio.CancelledError` as well; synchronous ones should look here now and then."""
        return self._cancelled.is_set()

    def suspend(
        self,
        payload: Any = None,
        *,
        resume_schema: Mapping[str, Any] | None = None,
        expires_after: float | timedelta | None = None,
        on_expiry: WhatThen = "decline",
    ) -> NoReturn:
        """Park the call until somebody answers; never returns.

        The tool is entered again from its start with the answer. `payload` (JSON, or a pydantic
        model) is what the person sees. `resume_schema` narrows the tool's own schema for this one
        question, `expires_after` and `on_expiry` replace the tool's own for it. Raises `TypeError` or
        `ValueError` when they are not JSON, or more than may be stored, when the default answer does not
        fit the schema, and `schemas.InvalidSchema` (a `ValueError`) when it is not a schema.
        """
        schema = None
        if resume_schema is not None:
            schema = json_text.dump(resume_schema)
            schemas.compile_schema(schema)
        expiry = expiry_from(expires_after, on_expiry)
        if expiry is not None and expiry.answer is not None:
            check_answer(schema or self._resume_schema, expiry.answer)
        raise Suspended(json_text.dump_for_storage(payload), schema, expiry)

    def write(self, value: Any, *, name: str | None = None, id: str = "") -> None:
        """Stream a JSON value to whoever follows the run: as `tool-output`, or with `name` as
        `data-NAME`. A synchronous tool waits here while it is faster than the store; an asynchronous one
        that writes much waits with `drain`. Raises `TypeError` or `ValueError` as `suspend` does, and
        `BufferError` when 16 MiB were written without waiting."""
        text = json_text.dump_for_storage(value)
        if self._emit is not None and not self._cancelled.is_set():
            self._emit(name, text, id)

    async def drain(self) -> None:
        """Wait while the tool writes faster than the store; for asynchronous tools that write much."""
        if self._drain is not None and not self._cancelled.is_set():
            await self._drain()

    def _cancel(self) -> None:
        self._cancelled.set()
