"""What an agent remembers of a conversation where its callers do not say."""

import importlib.util
from dataclasses import dataclass
from typing import get_args

from entracte_server.agents.working_memory import WorkingMemory
from entracte_server.domain.memory import (
    DEFAULT_HISTORY_TOKENS,
    DEFAULT_LAST_MESSAGES,
    MAX_MESSAGE_RANGE,
    MAX_TOP_K,
    RecallScope,
)
from entracte_server.models.base import Model
from entracte_server.models.embedding import Embedder


@dataclass(frozen=True)
class SemanticRecall:
    """Has a run search older messages for those that have to do with what it is asked, and tells the model
    of them, each with its neighbours and as whole exchanges; needs the extra `entracte-server[recall]`.

    Attributes:
        embedder: What makes the vectors that are searched: `provider/model`, by the interface of OpenAI, or
            an object, such as `MiniLM()`.
        top_k: How many messages are searched for, 1 to 100.
        message_range: How many messages before and after each of them are told with it, up to 20.
        scope: Where: in the run's `thread`, or in all threads of its `resource`.

    Raises:
        ValueError: A value that makes no sense.
        RuntimeError: numpy is not there.
    """

    embedder: Embedder | str
    top_k: int = 4
    message_range: int = 1
    scope: RecallScope = "thread"

    def __post_init__(self) -> None:
        if not 1 <= self.top_k <= MAX_TOP_K:
            raise ValueError(f"top_k is 1 to {MAX_TOP_K}")
        if not 0 <= self.message_range <= MAX_MESSAGE_RANGE:
            raise ValueError(f"message_range is 0 to {MAX_MESSAGE_RANGE}")
        if self.scope not in get_args(RecallScope):
            raise ValueError("scope is thread or resource")
        if importlib.util.find_spec("numpy") is None:
            raise RuntimeError("SemanticRecall needs numpy: install entracte-server[recall]")


@dataclass(frozen=True)
class Memory:
    """How much of a thread a run of an agent is told, and what is kept beside its messages.

    Attributes:
        last_messages: How many earlier messages, completed to whole exchanges; 0 for none.
        max_history_tokens: About how many tokens they may take; the oldest exchanges are left out first.
            What `semantic_recall` finds takes what is left of them.
        semantic_recall: How older messages are searched; None: they are not.
        working_memory: What the agent notes down for later runs; None: it has none.
        generate_title: Whether a thread without a title is given one after the reply.
        title_model: What makes the title: `provider/model` or a model object. Default: the agent's models.
        title_instructions: Said to that model in place of the server's own words.

    Raises:
        ValueError: A number that makes no sense.
    """

    last_messages: int = DEFAULT_LAST_MESSAGES
    max_history_tokens: int = DEFAULT_HISTORY_TOKENS
    semantic_recall: SemanticRecall | None = None
    working_memory: WorkingMemory | None = None
    generate_title: bool = False
    title_model: str | Model = ""
    title_instructions: str = ""

    def __post_init__(self) -> None:
        if self.last_messages < 0:
            raise ValueError("last_messages is 0 (none) or more")
        if self.max_history_tokens < 1:
            raise ValueError("max_history_tokens is 1 or more")

    @property
    def title_model_name(self) -> str:
        """What the model that makes titles is called; empty where the agent's own do."""
        return self.title_model if isinstance(self.title_model, str) else self.title_model.name
