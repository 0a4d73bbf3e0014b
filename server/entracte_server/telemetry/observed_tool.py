"""The span and the figures of a tool's body."""

import time
from contextvars import Token
from types import TracebackType
from typing import Any, Self

from opentelemetry import context as otel_context
from opentelemetry import trace as otel
from opentelemetry.context import Context
from opentelemetry.trace import Span, Status, StatusCode

from entracte_server.agents.context import ToolContext
from entracte_server.agents.tools import Arguments, Tool
from entracte_server.domain.runs import Outcome
from entracte_server.telemetry import names as n
from entracte_server.telemetry.base import T, ToolExecution
from entracte_server.telemetry.instruments import Instruments
from entracte_server.telemetry.scope import Scope, current
from entracte_server.telemetry.spans import Attributes


class ObservedTool(ToolExecution):
    """See `ToolExecution`. What the tool does itself with OpenTelemetry becomes a part of its span."""

    def __init__(
        self, instruments: Instruments, tool: Tool, arguments: Arguments, context: ToolContext[Any]
    ) -> None:
        self._instruments = instruments
        self._tool = tool
        self._arguments = arguments
        self._call_id = context.tool_call_id
        self._name = context.tool_name
        self._scope: Scope | None = current.get()
        self._span: Span = otel.INVALID_SPAN
        self._token: Token[Context] | None = None
        self._started = 0.0
        self._error = "cancelled"
        """Unless it comes to something."""

    def __enter__(self) -> Self:
        scope = self._scope
        if scope is not None and scope.spans is not None:
            attributes: Attributes = {
                **scope.common(),
                n.OPERATION: "execute_tool",
                n.TOOL_NAME: self._name,
                n.TOOL_TYPE: "function",
                n.TOOL_CALL_ID: self._call_id,
            }
            if self._tool.description:
                attributes[n.TOOL_DESCRIPTION] = self._tool.description
            self._span = scope.spans.start(f"execute_tool {self._name}", scope.context, attributes)
            if scope.policy.inputs and self._span.is_recording():
                self._span.set_attribute(n.TOOL_ARGUMENTS, self._arguments.text)
            self._token = otel_context.attach(otel.set_span_in_context(self._span, scope.context))
        self._started = time.perf_counter()
        return self

    def came_to(self, outcome: T) -> T:
        """See `ToolExecution`."""
        self._error = ""
        kind = "suspended"
        if isinstance(outcome, Outcome):
            kind = outcome.kind
            if kind == "result":
                self._record(n.TOOL_RESULT, outcome.value)
            else:
                self._failed(outcome)
        self._span.set_attribute(n.TOOL_OUTCOME, kind)
        return outcome

    def _failed(self, outcome: Outcome) -> None:
        self._error = outcome.code or outcome.kind
        shows = self._scope is not None and self._scope.policy.raw_outputs
        self._span.set_status(Status(StatusCode.ERROR, outcome.value if shows else self._error))

    def _record(self, key: str, text: str) -> None:
        if self._scope is not None and self._scope.policy.raw_outputs:
            self._span.set_attribute(key, text)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = time.perf_counter() - self._started
        if self._token is not None:
            otel_context.detach(self._token)
        labels: Attributes = {n.TOOL_NAME: self._name}
        if self._scope is not None:
            labels[n.AGENT_NAME] = self._scope.agent_name
        if self._error:
            labels[n.ERROR_TYPE] = self._error
            self._span.set_attribute(n.ERROR_TYPE, self._error)
        self._instruments.tool_duration.record(seconds, labels)
        self._span.end()
