"""The options of a run, as they are stored with it and hold over every suspension."""

from collections.abc import Mapping
from typing import Literal

from entracte_server.domain.data import Data
from entracte_server.domain.expiry import RunExpiry
from entracte_server.domain.messages import Message

DEFAULT_MAX_STEPS = 5
DEFAULT_TOOL_CALL_CONCURRENCY = 10


class ApprovalRules(Data, frozen=True):
    """Which calls need approval beyond what the tools ask for. `all` covers every call; `patterns`
    are shell patterns over tool names."""

    all: bool = False
    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()


class ClientTool(Data, frozen=True):
    """A tool the caller executes. `input_schema` is JSON text."""

    name: str
    description: str
    input_schema: str


class ToolChoice(Data, frozen=True):
    """`mode` `tool` forces the tool called `tool_name`."""

    mode: Literal["auto", "none", "required", "tool"] = "auto"
    tool_name: str = ""


class ModelSettings(Data, frozen=True):
    """How to sample. None leaves a setting to the provider.

    `max_retries` counts attempts after the first, before anything of the answer was seen.
    """

    temperature: float | None = None
    max_output_tokens: int | None = None
    max_retries: int | None = None
    top_p: float | None = None
    top_k: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stop_sequences: tuple[str, ...] = ()
    seed: int | None = None
    headers: Mapping[str, str] = {}


class ScorerChoice(Data, frozen=True):
    """A scorer that runs on results. `key` is what it is called in the run, `scorer` the name it is
    registered by, `ratio` the share of runs, from 0 to 1, that it runs on (None: all)."""

    key: str
    scorer: str
    ratio: float | None = None


class RunOptions(Data, frozen=True):
    """Everything a caller may say about one run. JSON values are text. Times are in seconds.

    None means "as the agent says, else the default". `active_tools` None means all.
    """

    max_steps: int | None = None
    active_tools: tuple[str, ...] | None = None
    require_tool_approval: ApprovalRules | None = None
    tool_call_concurrency: int | None = None
    context: tuple[Message, ...] = ()
    instructions: tuple[str, ...] | None = None
    system: tuple[str, ...] = ()
    model_settings: ModelSettings = ModelSettings()
    tool_choice: ToolChoice = ToolChoice()
    client_tools: tuple[ClientTool, ...] = ()
    provider_options: str | None = None
    request_context: str | None = None
    include_raw_chunks: bool = False
    execution_timeout: float | None = None
    cancel_on_disconnect: bool = False
    include_request_body: bool = False
    pending_call_expiry: RunExpiry | None = None
