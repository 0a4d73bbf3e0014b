"""What an agent remembers of a conversation where its callers do not say."""

from dataclasses import dataclass

from entracte_server.domain.memory import DEFAULT_HISTORY_TOKENS, DEFAULT_LAST_MESSAGES


@dataclass(frozen=True)
class Memory:
    """How much of a thread a run of an agent is told.

    Attributes:
        last_messages: How many earlier messages, completed to whole exchanges; 0 for none.
        max_history_tokens: About how many tokens they may take; the oldest exchanges are left out first.

    Raises:
        ValueError: A number that makes no sense.
    """

    last_messages: int = DEFAULT_LAST_MESSAGES
    max_history_tokens: int = DEFAULT_HISTORY_TOKENS

    def __post_init__(self) -> None:
        if self.last_messages < 0:
            raise ValueError("last_messages is 0 (none) or more")
        if self.max_history_tokens < 1:
            raise ValueError("max_history_tokens is 1 or more")
