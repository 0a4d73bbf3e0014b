"""What the hooks of processors are given, and what they answer with.

Each record has `replace`, which makes the changed copy that a hook returns.
"""

from typing import Any, Self

import msgspec

from entracte_server.agents.hooks import RunView, StepView
from entracte_server.domain.chunks import FinishReason
from entracte_server.domain.data import Data
from entracte_server.domain.messages import Message, ToolCallPart
from entracte_server.domain.results import RunError, Usage


class View(Data, frozen=True):
    """A record that a hook may return changed."""

    def replace(self, **changes: Any) -> Self:
        """A copy with other values."""
        return msgspec.structs.replace(self, **changes)


class Input(View, frozen=True):
    """For `process_input`: what the run was asked, before the first model call. `messages` are the context
    and the input, `system` the system messages."""

    run: RunView
    messages: tuple[Message, ...]
    system: tuple[Message, ...]


class LlmRequest(View, frozen=True):
    """For `process_llm_request`: the messages of one model call as they will be sent, system messages
    first. `number` is the step's, from 1."""

    run: RunView
    number: int
    model: str
    messages: tuple[Message, ...]


class CachedAnswer(Data, frozen=True):
    """What `process_llm_request` answers with to have the model not asked: `text` is its answer."""

    text: str


class StreamInfo(Data, frozen=True):
    """For `process_output_stream`: the step whose answer arrives. `retry_count` counts its answers that
    were sent back."""

    run: RunView
    number: int
    attempt: int
    retry_count: int


class Answer(View, frozen=True):
    """For `process_llm_response` and `process_output_step`: a complete answer, before any of its tools is
    called. `messages` are what it was the answer to. `text` and `reasoning_text` can be replaced."""

    run: RunView
    number: int
    text: str
    reasoning_text: str
    tool_calls: tuple[ToolCallPart, ...]
    finish_reason: FinishReason
    usage: Usage
    messages: tuple[Message, ...]
    retry_count: int


class ToolOutput(View, frozen=True):
    """For `process_tool_result`: what a tool returned. `args` and `value` are JSON values; `value` can be
    replaced. Where the tool failed (`is_error`), it is the message, a text."""

    run: RunView
    tool_call_id: str
    tool_name: str
    args: Any
    value: Any
    is_error: bool = False


class Result(View, frozen=True):
    """For `process_output_result`: what the run has come to. `text` is the text of all its steps,
    `final_text` that of the last one, which can be replaced. `object` is the structured output."""

    run: RunView
    text: str
    final_text: str
    finish_reason: FinishReason
    usage: Usage
    steps: tuple[StepView, ...]
    messages: tuple[Message, ...]
    object: Any = None


class ApiFailure(View, frozen=True):
    """For `process_api_error`: why no model of the agent answered. `retry_count` counts the calls of this
    step that were made again."""

    run: RunView
    number: int
    model: str
    error: RunError
    retry_count: int
    messages: tuple[Message, ...]
