"""What all chunks have in common."""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from entracte import _json
from entracte._enums import ChunkSource


def value_of(text: str | None) -> Any:
    """The value of a JSON text, None where there is none."""
    return None if text is None else _json.parse(text)


@dataclass(frozen=True, slots=True)
class PathElement:
    """One delegation on the way to a sub-agent."""

    agent_id: str
    tool_call_id: str


@dataclass(frozen=True, slots=True)
class ChunkHeader:
    """What every chunk has.

    `run_id` is always the root run of a tree of agents. `sequence` counts from 1 without gaps, over
    all suspensions. `step` and `attempt` count from 1, `step` is 0 before the first step.
    `agent_path` is empty for the run's own agent. A client that does not know a chunk's type may
    skip it if it is `ignorable`.
    """

    run_id: str
    sequence: int
    emit_time: datetime | None
    source: ChunkSource
    step: int
    attempt: int
    agent_path: tuple[PathElement, ...]
    ignorable: bool


@dataclass(frozen=True)
class WithProviderMetadata(ChunkHeader):
    id: str
    provider_metadata_json: str | None

    @cached_property
    def provider_metadata(self) -> Any:
        """What the provider attached; None where it attached nothing."""
        return value_of(self.provider_metadata_json)
