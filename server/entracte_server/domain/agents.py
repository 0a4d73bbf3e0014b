"""Agents made of data: what a version says, and what is stored of agents and their versions.

Times are milliseconds since the epoch; JSON values are text.
"""

from typing import Literal

from entracte_server.domain.data import Data
from entracte_server.domain.memory import RecallScope
from entracte_server.domain.options import RunOptions

DEFINITION_FORMAT = 1
"""The version of `AgentDefinition`. A process runs only versions whose format it knows."""

VersionStatus = Literal["draft", "published", "archived"]


class SubAgent(Data, frozen=True):
    """An agent that can be delegated to, made of data or written in Python; `name` is what the model calls
    it."""

    agent_id: str
    name: str


class WorkingMemorySettings(Data, frozen=True):
    """What an agent notes down: by a template, by a JSON Schema, or, with neither, as the server has it."""

    template: str | None = None
    schema: str | None = None
    scope: Literal["resource", "thread"] = "resource"


class RecallSettings(Data, frozen=True):
    """How an agent searches older messages; None is the server's default."""

    embedder: str
    top_k: int | None = None
    message_range: int | None = None
    scope: RecallScope | None = None


class MemorySettings(Data, frozen=True):
    """What an agent remembers of threads; None is the server's default."""

    last_messages: int | None = None
    max_history_tokens: int | None = None
    generate_title: bool = False
    title_model: str = ""
    title_instructions: str = ""
    working_memory: WorkingMemorySettings | None = None
    semantic_recall: RecallSettings | None = None


class AgentDefinition(Data, frozen=True):
    """What a version says, checked when it was made. Everything else it names is by name: `models` as
    `provider/model`, `tools` and `toolsets` of the app, agents by id. `defaults` are what callers say,
    where they do not say it."""

    models: tuple[str, ...]
    instructions: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    toolsets: tuple[str, ...] = ()
    agents: tuple[SubAgent, ...] = ()
    defaults: RunOptions = RunOptions()
    memory: MemorySettings | None = None


class AgentRow(Data, frozen=True):
    """An agent made of data. `name` and `description` are those of the published version, or else of the
    newest one; `published` and `draft` (the newest) are ids of versions, empty for none."""

    tenant: str
    agent_id: str
    name: str
    description: str
    published: str
    draft: str
    create_time: int
    update_time: int


class AgentVersionRow(Data, frozen=True):
    """A version of an agent. `number` is given by the store. `source` is the definition as it was sent, for
    those who read it; `definition` is what runs. Lists leave both out: empty, None. `publish_time` is 0, and
    `publisher` empty, where it was never published; `is_published` says that it is the one that runs use
    unless they say otherwise."""

    tenant: str
    agent_id: str
    version_id: str
    name: str
    description: str
    creator: str
    create_time: int
    definition: AgentDefinition | None = None
    source: bytes = b""
    number: int = 0
    status: VersionStatus = "draft"
    publisher: str = ""
    publish_time: int = 0
    is_published: bool = False
    format: int = DEFINITION_FORMAT
