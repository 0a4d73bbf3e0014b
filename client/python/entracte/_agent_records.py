"""Agents and their versions, and what an agent made of data is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

from entracte._chunk_base import value_of
from entracte._options import GenerateOptions, SemanticRecall

AgentOrigin = Literal["code", "data", "unknown"]
VersionStatus = Literal["draft", "published", "archived", "unknown"]


@dataclass(frozen=True, slots=True)
class AgentWorkingMemory:
    """What an agent notes down for later runs: by a markdown `template`, by the JSON Schema `schema` of an
    object, or by the server's own template. `scope`: of the `resource`, in all its threads, or of one
    `thread`."""

    template: str | None = None
    schema: Mapping[str, Any] | None = None
    scope: Literal["resource", "thread"] | None = None


@dataclass(frozen=True, slots=True)
class AgentRecall:
    """How an agent searches older messages: with the embedding model `embedder` (`provider/model`)."""

    embedder: str
    search: SemanticRecall | None = None


@dataclass(frozen=True, slots=True)
class AgentMemory:
    """What an agent remembers of threads where its callers do not say; None is the server's default."""

    last_messages: int | None = None
    max_history_tokens: int | None = None
    generate_title: bool = False
    title_model: str = ""
    title_instructions: str = ""
    working_memory: AgentWorkingMemory | None = None
    semantic_recall: AgentRecall | None = None


@dataclass(frozen=True, slots=True)
class AgentDefinition:
    """What a version of an agent made of data says. What it names has to be on the server.

    `models` are `provider/model`, tried in order; `tools` those that the server offers to agents made of
    data; `toolsets` the server's; `agents` the ids of agents that it can delegate to, or what its model
    calls them and their ids. `defaults` are options of `generate` for its runs where their callers do not
    say.
    """

    models: Sequence[str]
    name: str = ""
    description: str = ""
    instructions: str | Sequence[str] = ()
    tools: Sequence[str] = ()
    toolsets: Sequence[str] = ()
    agents: Sequence[str] | Mapping[str, str] = ()
    defaults: GenerateOptions = field(default_factory=GenerateOptions)
    memory: AgentMemory | None = None


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """An agent that can be called, written in Python (`code`) or made of data. `published_version_id` is the
    version that runs use unless they say otherwise (empty: none, or one without a name)."""

    agent_id: str
    name: str
    description: str
    origin: AgentOrigin
    published_version_id: str
    draft_version_id: str
    create_time: datetime | None
    update_time: datetime | None


@dataclass(frozen=True)
class AgentVersion:
    """A version of an agent made of data. What it says, `definition`, is there where one version was read."""

    agent_id: str
    version_id: str
    number: int
    status: VersionStatus
    is_published: bool
    creator: str
    create_time: datetime | None
    publisher: str
    publish_time: datetime | None
    definition_json: str | None

    @cached_property
    def definition(self) -> Any:
        """What it says, a dict in the JSON form of the contract (`AgentDefinition` there), of which
        `create_version` makes another version; None where it was not read."""
        return value_of(self.definition_json)


@dataclass(frozen=True, slots=True)
class AgentDetails:
    """An agent with what it works with, the version that was asked for (None for an agent written in
    Python) and its newest versions."""

    agent: AgentInfo
    version: AgentVersion | None
    models: tuple[str, ...]
    tools: tuple[str, ...]
    toolsets: tuple[str, ...]
    agents: tuple[str, ...]
    versions: tuple[AgentVersion, ...]
