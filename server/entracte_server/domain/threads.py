"""What is stored of a conversation that outlives its runs: the thread and its messages.

A message has one form, whoever wrote it and whichever model is to read it: a tool call is one part
that holds its result, so that no history can have the one without the other. Times are milliseconds
since the epoch; JSON values are text.
"""

from typing import Literal

from entracte_server.domain.data import Data
from entracte_server.domain.messages import FilePart, ImagePart, Part, ReasoningPart, TextPart
from entracte_server.domain.runs import Outcome, RunState

MESSAGE_FORMAT = 1
"""The version of stored messages."""


class ThreadRow(Data, frozen=True):
    """A conversation of `resource_id` (whose memory it is, such as a user's id). `last_position` is that of
    its newest message, 0 where it has none. `update_time` is that of its last change or newest message,
    whichever is later. `metadata` is the JSON text of an object."""

    tenant: str
    thread_id: str
    resource_id: str
    create_time: int
    update_time: int
    title: str = ""
    metadata: str | None = None
    last_position: int = 0


class ThreadRun(Data, frozen=True):
    """A run that has a thread, or waits for it."""

    run_id: str
    state: RunState


class ThreadView(Data, frozen=True):
    """A thread, the run that has it (None: it is free), and how many wait for it."""

    thread: ThreadRow
    holder: ThreadRun | None = None
    queued: int = 0


class CallPart(Part, frozen=True, tag="call"):
    """A tool call with what came of it; `outcome` is None while the call waits. `args` is the JSON text of
    an object, as the history shows it. `provider_metadata` goes back to the provider unchanged.
    `delegated`: a sub-agent took it over, whose result says which run it was, too; `feedback` is what a hook
    had to say of that."""

    tool_call_id: str
    tool_name: str
    args: str
    outcome: Outcome | None = None
    provider_metadata: str | None = None
    delegated: bool = False
    feedback: str = ""


class SourcePart(Part, frozen=True, tag="source"):
    """Something the model cited."""

    id: str
    url: str
    title: str = ""


class ErrorPart(Part, frozen=True, tag="error"):
    """Why there is no more of an answer. Models never see it."""

    code: str
    text: str


class DataPart(Part, frozen=True, tag="data"):
    """JSON text under a name, such as the object of a structured answer. Models never see it."""

    name: str
    json: str


StoredPart = TextPart | ReasoningPart | ImagePart | FilePart | CallPart | SourcePart | ErrorPart | DataPart

Author = Literal["user", "assistant", "system"]


class ThreadMessage(Data, frozen=True):
    """One message of a thread. `position` counts from 1 and is given when it is stored first (0: not stored
    yet). `author` is the principal who sent it or the id of the agent that answered. `run_id` is the run
    it was said in. `aborted`: the answer was cut off, and models are told only of its whole calls."""

    id: str
    role: Author
    parts: tuple[StoredPart, ...]
    create_time: int
    author: str = ""
    run_id: str = ""
    step: int = 0
    metadata: str | None = None
    aborted: bool = False
    position: int = 0
    format: int = MESSAGE_FORMAT
