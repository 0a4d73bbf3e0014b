"""A model whose calls are recorded."""

import asyncio
import time
from collections.abc import AsyncIterator

from opentelemetry import trace as otel
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from entracte_server.models.base import (
    Model,
    ModelError,
    ModelEvent,
    ModelFinish,
    ModelRequest,
    ResponseFormats,
)
from entracte_server.models.streams import closing
from entracte_server.telemetry import content
from entracte_server.telemetry import names as n
from entracte_server.telemetry.instruments import Instruments
from entracte_server.telemetry.scope import Scope, current
from entracte_server.telemetry.spans import Attributes

_SETTINGS = {
    "temperature": "gen_ai.request.temperature",
    "max_output_tokens": "gen_ai.request.max_tokens",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "seed": "gen_ai.request.seed",
}


class ObservedModel:
    """Another model, asked as it is."""

    def __init__(self, model: Model, instruments: Instruments, content: bool = True) -> None:
        self._model = model
        self._instruments = instruments
        self._content = content

    @property
    def name(self) -> str:
        """See `Model`."""
        return self._model.name

    @property
    def response_formats(self) -> ResponseFormats:
        """See `Model`."""
        return self._model.response_formats

    def request_body(self, request: ModelRequest) -> str:
        """See `Model`."""
        return self._model.request_body(request)

    async def stream(self, request: ModelRequest) -> AsyncIterator[list[ModelEvent]]:
        """See `Model`."""
        call = _Call(self._model.name, request, self._instruments, current.get(), self._content)
        try:
            async with closing(self._model.stream(request)) as batches:
                async for batch in batches:
                    call.arrived(batch)
                    yield batch
        except ModelError as error:
            call.failed(error.error.kind, error.error.message)
            raise
        except (asyncio.CancelledError, GeneratorExit):
            call.failed("cancelled")
            raise
        except BaseException as error:
            call.failed(type(error).__name__)
            raise
        finally:
            call.ended()


class _Call:
    """One call of a model."""

    def __init__(
        self,
        name: str,
        request: ModelRequest,
        instruments: Instruments,
        scope: Scope | None,
        shows_content: bool,
    ) -> None:
        self._instruments = instruments
        self._scope = scope
        self._finish: ModelFinish | None = None
        self._error = ""
        self._is_first = True
        provider, model = n.model_names(name)
        self._labels: Attributes = {n.OPERATION: "chat", n.PROVIDER: provider, n.REQUEST_MODEL: model}
        self._span: Span = otel.INVALID_SPAN
        self._text: content.AnswerText | None = None
        if scope is not None and scope.spans is not None:
            attributes = {**scope.common(), **self._labels, **_asked(request)}
            self._span = scope.spans.start(f"chat {model}", scope.context, attributes, kind=SpanKind.CLIENT)
            if self._span.is_recording() and shows_content:
                self._record_input(request, scope)
        self._started = time.perf_counter()

    def _record_input(self, request: ModelRequest, scope: Scope) -> None:
        if scope.policy.raw_outputs:
            self._text = content.AnswerText()
        if not scope.policy.inputs:
            return
        self._span.set_attribute(n.INPUT_MESSAGES, content.messages(request.messages))
        if system := content.system_instructions(request.messages):
            self._span.set_attribute(n.SYSTEM_INSTRUCTIONS, system)
        if request.tools:
            self._span.set_attribute(n.TOOL_DEFINITIONS, content.tool_definitions(request.tools))

    def arrived(self, batch: list[ModelEvent]) -> None:
        """A piece of the answer is there."""
        if self._is_first:
            self._is_first = False
            seconds = time.perf_counter() - self._started
            self._instruments.first_chunk.record(seconds, self._labels)
            self._span.set_attribute(n.FIRST_CHUNK, seconds)
        if self._text is not None:
            self._text.add(batch)
        if batch and isinstance(batch[-1], ModelFinish):
            self._finish = batch[-1]

    def failed(self, kind: str, message: str = "") -> None:
        """There is no more of it."""
        if self._finish is not None:  # it was read to its end; what is left is to close it
            return
        self._error = kind
        self._span.set_attribute(n.ERROR_TYPE, kind)
        if kind != "cancelled":
            shown = message if message and self._text is not None else kind
            self._span.set_status(Status(StatusCode.ERROR, shown))

    def ended(self) -> None:
        """Nothing more is to come."""
        if self._finish is None and not self._error:
            self.failed("cut")
        labels = {**self._labels, n.ERROR_TYPE: self._error} if self._error else self._labels
        self._instruments.model_duration.record(time.perf_counter() - self._started, labels)
        if self._finish is not None:
            self._answered(self._finish)
        self._span.end()

    def _answered(self, finish: ModelFinish) -> None:
        usage = finish.usage
        if usage.total or usage.input or usage.output:
            for kind, tokens in (("input", usage.input), ("output", usage.output)):
                self._instruments.tokens.record(tokens, {**self._labels, n.TOKEN_TYPE: kind})
        if self._scope is not None:
            self._scope.usage += usage
        span = self._span
        if not span.is_recording():
            return
        if self._text is not None:
            span.set_attribute(n.OUTPUT_MESSAGES, self._text.dump(finish.reason))
        span.set_attribute(n.FINISH_REASONS, [finish.reason])
        for key, value in (
            (n.RESPONSE_ID, finish.response_id),
            (n.RESPONSE_MODEL, finish.response_model),
            (n.CACHED_TOKENS, usage.cached_input),
            (n.REASONING_TOKENS, usage.reasoning),
        ):
            if value:
                span.set_attribute(key, value)
        span.set_attribute(n.INPUT_TOKENS, usage.input)
        span.set_attribute(n.OUTPUT_TOKENS, usage.output)


def _asked(request: ModelRequest) -> Attributes:
    found: Attributes = {n.REQUEST_STREAM: True}
    for name, key in _SETTINGS.items():
        value = getattr(request.settings, name)
        if value is not None:
            found[key] = value
    if request.settings.stop_sequences:
        found["gen_ai.request.stop_sequences"] = request.settings.stop_sequences
    if request.response_format is not None:
        found[n.OUTPUT_TYPE] = "json"
    return found
