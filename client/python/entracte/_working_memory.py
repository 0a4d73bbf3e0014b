"""What agents noted down for later runs."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from entracte._chunk_base import value_of


@dataclass(frozen=True)
class WorkingMemory:
    """The working memory of a thread (`thread_id`) or of a resource (`resource_id`); the other is empty.

    `content` is markdown, or the text of a JSON object, as the agent's working memory says; empty where
    nothing was noted. `version` grows with every change, from 1; it is 0 where there was none.
    """

    thread_id: str
    resource_id: str
    content: str
    version: int
    update_time: datetime | None

    @property
    def data(self) -> Any:
        """The content of one that is an object, as a dict; None where nothing was noted. Raises ValueError
        for one that is markdown."""
        return value_of(self.content or None)
