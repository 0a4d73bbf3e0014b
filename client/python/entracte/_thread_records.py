"""What the server keeps of conversations: threads and their messages."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar, Literal

from entracte._chunk_base import value_of
from entracte._enums import Role, RunState, ToolInvocationState
from entracte._messages import FilePart, ImagePart, ReasoningPart, TextPart


@dataclass(frozen=True)
class ThreadInfo:
    """A conversation as it is kept. `active_run_id` is the run that has it (empty: it is free), which may be
    parked; `queued_runs` says how many wait for it."""

    thread_id: str
    resource_id: str
    title: str
    metadata_json: str | None
    create_time: datetime | None
    update_time: datetime | None
    message_count: int
    active_run_id: str
    active_run_state: RunState | None
    queued_runs: int

    @cached_property
    def metadata(self) -> Any:
        """What is kept beside it, a dict; None where there is nothing."""
        return value_of(self.metadata_json)


@dataclass(frozen=True)
class ToolInvocationPart:
    """A tool call with what came of it.

    `state`: it is `pending`, or the tool gave a `result`, or it failed (`error`), a person declined it
    (`denied`), or it was `cancelled` with its run. `error` is what the model was told where there is no
    result, or why it was declined.
    """

    type: ClassVar[Literal["tool-invocation"]] = "tool-invocation"
    tool_call_id: str
    tool_name: str
    args_json: str | None
    state: ToolInvocationState
    result_json: str | None
    error: str

    @cached_property
    def args(self) -> Any:
        """The arguments, a dict."""
        return value_of(self.args_json)

    @cached_property
    def result(self) -> Any:
        """What the tool returned; None where there is no result."""
        return value_of(self.result_json)


@dataclass(frozen=True, slots=True)
class SourcePart:
    """Something the model cited."""

    type: ClassVar[Literal["source"]] = "source"
    id: str
    url: str
    title: str


@dataclass(frozen=True, slots=True)
class ErrorPart:
    """Why there is no more of an answer. `code` is what a run's error calls `kind`."""

    type: ClassVar[Literal["error"]] = "error"
    code: str
    message: str


@dataclass(frozen=True)
class DataPart:
    """Data under a name; `object` for the object of a structured answer."""

    type: ClassVar[Literal["data"]] = "data"
    name: str
    data_json: str | None

    @cached_property
    def data(self) -> Any:
        """The value."""
        return value_of(self.data_json)


ThreadPart = (
    TextPart | ReasoningPart | ToolInvocationPart | ImagePart | FilePart | SourcePart | ErrorPart | DataPart
)
"""Any part of a message of a thread; `part.type` tells which."""


@dataclass(frozen=True)
class ThreadMessage:
    """One message of a thread.

    `position` counts from 1. `author` is the principal who sent it or the id of the agent that answered;
    `step` is 0 for what was said to the agent. `aborted`: the answer was cut off. `omitted_parts`: so many
    parts are missing here, because it is larger than a response may be; the run has them.
    """

    id: str
    position: int
    role: Role
    parts: tuple[ThreadPart, ...]
    author: str
    create_time: datetime | None
    run_id: str
    step: int
    metadata_json: str | None
    aborted: bool
    omitted_parts: int

    @cached_property
    def metadata(self) -> Any:
        """What is kept beside it, a dict; None where there is nothing."""
        return value_of(self.metadata_json)

    @property
    def text(self) -> str:
        """The text parts, one after the other."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def tool_invocations(self) -> Iterator[ToolInvocationPart]:
        """The tool calls of it."""
        return (part for part in self.parts if isinstance(part, ToolInvocationPart))
