"""What a run is told of the conversation it belongs to, and what it may do to it."""

from typing import Literal

from entracte_server.domain.data import Data

DEFAULT_LAST_MESSAGES = 10
DEFAULT_HISTORY_TOKENS = 64_000

MAX_TOP_K = 100
MAX_MESSAGE_RANGE = 20
"""How many messages a run may search for, and how many neighbours of each it may be told."""


RecallScope = Literal["thread", "resource"]
"""Where older messages are searched: in the thread, or in all threads of its resource."""


SUB_AGENT = "sub-agent:"
"""How the resources of sub-agents begin, which are nobody's name: else a user called as that of another's
sub-agent would be told what that one noted down."""


def resource_below(resource_id: str, key: str) -> str:
    """The resource of the sub-agent `key` of a run whose resource is `resource_id`."""
    return f"{SUB_AGENT}{key}:{resource_id}"


class RecallOptions(Data, frozen=True):
    """How a run searches older messages, as its caller asked for it. None means "as the agent says". With
    `top_k` 0 it does not."""

    top_k: int | None = None
    message_range: int | None = None
    scope: RecallScope | None = None


class MemoryOptions(Data, frozen=True):
    """The thread of a run, as its caller asked for it. None means "as the agent says, else the default".

    The thread belongs to `resource_id`; one that does not exist is made with `title` and `metadata` (the
    JSON text of an object). The run is told the last `last_messages` messages, as whole exchanges, of
    about `max_history_tokens` tokens at most. `save_messages`: what is said is added to the thread; with
    `read_only` nothing is written at all, and the thread is neither made nor had. `filter_incomplete`
    leaves out calls without a result; otherwise the model is told that they wait. `on_busy` says what
    happens while another run has the thread, `on_parked` while that run is parked, and `queue_timeout` how
    many seconds the run may wait for it. `working_memory`: whether the run has the agent's working memory;
    `generate_title`: whether a thread without a title is given one after the reply. `semantic_recall` None:
    as the agent says.
    """

    thread_id: str
    resource_id: str
    title: str = ""
    metadata: str | None = None
    last_messages: int | None = None
    max_history_tokens: int | None = None
    save_messages: bool = True
    read_only: bool = False
    filter_incomplete: bool = True
    on_busy: Literal["refuse", "queue"] = "refuse"
    on_parked: Literal["refuse", "cancel", "queue"] = "refuse"
    queue_timeout: float | None = None
    semantic_recall: RecallOptions | None = None
    working_memory: bool | None = None
    generate_title: bool | None = None
