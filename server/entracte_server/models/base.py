"""What a model is to the engine: one request in, batches of events out.

A model's answer is an async iterator of *batches*: all events that one read from the network
brought, in order, as a list. The engine commits and sends a batch as one.
"""

from collections.abc import AsyncIterator, Container, Mapping, Sequence
from typing import Any, Literal, Protocol

from entracte_server.domain.chunks import FinishReason, Payload
from entracte_server.domain.data import Data
from entracte_server.domain.messages import Message
from entracte_server.domain.options import ModelSettings, ToolChoice
from entracte_server.domain.results import RunError, Usage


class ToolSpec(Data, frozen=True):
    """A tool as a model sees it. `input_schema` is the JSON text of a JSON Schema object."""

    name: str
    description: str
    input_schema: str


class ResponseFormat(Data, frozen=True):
    """The answer's text is to be JSON that fits a schema.

    `schema` is the JSON text of a JSON Schema, `name` 1 to 64 characters of letters, digits, `_` and
    `-`. `strict` None leaves it to the provider whether it holds the model to the schema.
    """

    name: str
    schema: str
    strict: bool | None = None


ResponseFormats = Literal["none", "without-tools", "with-tools"]
"""Whether a model can be asked for a `ResponseFormat`: not at all, only when the request has no tools,
or always."""


class EveryId:
    """Has any id in it: as `ModelRequest.reserved_ids` it gives every call a fresh one."""

    def __contains__(self, _: object) -> bool:
        return True


class ModelRequest(Data, frozen=True):
    """One model call.

    `reserved_ids` are tool call ids already used in the conversation: a model's call that repeats one gets
    a fresh id before it is first shown. `provider_options` is keyed by provider name; a model reads
    only its own entry. A model that cannot be asked for the `response_format` leaves it out and says so
    in a warning: see `Model.response_formats`. `rate_limit_wait` is how many seconds in all it may wait for
    the provider's rate limit before the answer begins, each wait shown as a custom chunk.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    tool_choice: ToolChoice = ToolChoice()
    settings: ModelSettings = ModelSettings()
    provider_options: Mapping[str, Any] = {}
    include_raw: bool = False
    reserved_ids: Container[str] = frozenset()
    response_format: ResponseFormat | None = None
    rate_limit_wait: float = 0.0


class ModelFinish(Data, frozen=True):
    """The end of a complete answer; always the last event, exactly once.

    `raw_reason` is the provider's own word, `response_time` its own clock (ms). `tool_calls` is never
    promised by `reason`: whether there are calls is told by the `ToolCall` events.
    """

    reason: FinishReason
    raw_reason: str = ""
    usage: Usage = Usage()
    response_id: str = ""
    response_model: str = ""
    response_time: int = 0
    headers: Mapping[str, str] = {}
    warnings: tuple[str, ...] = ()
    provider_metadata: str | None = None
    dropped_calls: int = 0
    refusal: str = ""


ModelEvent = Payload | ModelFinish


class ModelError(Exception):
    """The call failed, before or in the middle of the answer. `error` says how."""

    def __init__(self, error: RunError) -> None:
        super().__init__(error.message)
        self.error = error


class Model(Protocol):
    """A model that can be called.

    `stream` yields batches of events: payloads among text, reasoning, tool-call, source, file, custom and
    raw chunks, and one `ModelFinish` at the end. It raises `ModelError` for anything that goes
    wrong, at any point; an answer that ends without a finish reason is `cut`. Closing the iterator
    closes the connection to the provider.
    """

    @property
    def name(self) -> str:
        """`provider/model`."""
        ...

    @property
    def response_formats(self) -> ResponseFormats:
        """Whether it can be asked for a response format."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[list[ModelEvent]]:
        """Ask once."""
        ...

    def request_body(self, request: ModelRequest) -> str:
        """The JSON text that `stream` would send, without credentials."""
        ...
