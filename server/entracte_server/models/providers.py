"""Providers: where models are, how to sign in, and in what each dialect differs."""

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal

import msgspec

from entracte_server.domain.data import Data
from entracte_server.models.base import Model, ResponseFormats

if TYPE_CHECKING:
    from entracte_server.models.embedding import Embedder
    from entracte_server.models.openai_model import OpenAIModel
    from entracte_server.models.provider_client import ProviderClient

ReasoningBack = Literal["none", "reasoning_content", "reasoning", "reasoning_details", "thinking_parts"]

OPENAI = frozenset({"openai", "openai-responses"})
"""The providers that are OpenAI itself, by either of its interfaces, with its own variables."""

DEFAULT_IDLE_TIMEOUT = 60.0
"""Seconds a provider may be silent in the middle of an answer."""

PATIENCE = 5.0
"""How many times the idle limit a first piece, or keep-alives without a piece, may take."""

DEFAULT_MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""Largest body of an answer, in bytes. A stream wraps each word in a record of a few hundred."""


MAX_MODELS = 1000
"""How many models are kept. Callers may name any, so there is no end to them."""


class MissingApiKey(ValueError):
    """No key for a provider was given; `variable` is the environment variable that would hold it."""

    def __init__(self, provider: str, variable: str) -> None:
        super().__init__(f"no API key for the provider {provider!r}: set {variable}")
        self.provider = provider
        self.variable = variable


class UnknownProvider(ValueError):
    """A model's name does not start with the name of a provider that is set up."""


class ProviderSettings(Data, frozen=True):
    """One provider. Times are in seconds.

    Without `base_url` it is the `openai` package's own, and without `api_key` the key is read from
    `api_key_variable` (`NAME_API_KEY` unless given). `requires_key=False` is for servers that ask for none.

    `api` is the interface: `chat` for chat completions, `responses` for the Responses API.

    Quirks: `reasoning_back` says in which form thinking goes back to the provider, and
    `reasoning_on_all` that every assistant message must have it, empty where there was none;
    `max_tokens_field` names the limit on the answer; `stream_usage=False` leaves out
    `stream_options`; `think_tags` lifts a leading `<think>` block out of the text; `finish_optional`
    accepts an answer that ends properly without a finish reason; `unsupported` names settings to
    leave out with a warning; `response_formats` says whether it takes a JSON Schema for its answer,
    and whether together with tools.

    Waiting: `idle_timeout` bounds the silence between bytes (None: `Providers` says). The first piece
    of an answer, and a time in which the provider only sends keep-alives, may take `patience`
    (None: `PATIENCE` times the idle limit), because models think for minutes without a word. Records
    without a piece of the answer, new usage or a finish reason are no more than keep-alives.
    `max_retries` counts attempts after the first.

    Size: an answer whose body is larger than `max_answer_bytes`, decompressed, is given up with a
    `provider_error`, and the connection is closed.
    """

    name: str
    api: Literal["chat", "responses"] = "chat"
    base_url: str | None = None
    api_key: str | None = None
    api_key_variable: str = ""
    requires_key: bool = True
    headers: Mapping[str, str] = {}
    reasoning_back: ReasoningBack = "none"
    reasoning_on_all: bool = False
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    stream_usage: bool = True
    think_tags: bool = False
    finish_optional: bool = False
    unsupported: tuple[str, ...] = ()
    response_formats: ResponseFormats = "without-tools"
    connect_timeout: float = 10.0
    idle_timeout: float | None = None
    patience: float | None = None
    max_retries: int = 2
    max_answer_bytes: int = DEFAULT_MAX_ANSWER_BYTES

    def __repr__(self) -> str:
        return f"ProviderSettings(name={self.name!r}, base_url={self.base_url!r})"

    @property
    def key_variable(self) -> str:
        """The environment variable that holds the key."""
        return self.api_key_variable or f"{self.name.upper().replace('-', '_')}_API_KEY"

    def key(self) -> str:
        """The key to sign in with. Raises `MissingApiKey`."""
        key = self.api_key or os.environ.get(self.key_variable, "")
        if not key and self.requires_key:
            raise MissingApiKey(self.name, self.key_variable)
        return key or "none"


KNOWN_PROVIDERS: Mapping[str, ProviderSettings] = {
    settings.name: settings
    for settings in (
        ProviderSettings(
            "openai",
            max_tokens_field="max_completion_tokens",
            unsupported=("top_k",),
            response_formats="with-tools",
        ),
        ProviderSettings(
            "openai-responses",
            api="responses",
            api_key_variable="OPENAI_API_KEY",
            response_formats="with-tools",
        ),
        ProviderSettings(
            "openrouter",
            base_url="https://openrouter.ai/api/v1",
            reasoning_back="reasoning_details",
            response_formats="with-tools",
        ),
        ProviderSettings(
            "deepseek",
            base_url="https://api.deepseek.com",
            reasoning_back="reasoning_content",
            response_formats="none",
        ),
        ProviderSettings(
            "groq",
            base_url="https://api.groq.com/openai/v1",
            unsupported=("top_k",),
            response_formats="none",  # it takes a schema for answers in one piece only
        ),
        ProviderSettings(
            "mistral",
            base_url="https://api.mistral.ai/v1",
            reasoning_back="thinking_parts",
            stream_usage=False,
            unsupported=("top_k", "seed"),
        ),
        ProviderSettings(
            "ollama",
            base_url="http://127.0.0.1:11434/v1",
            requires_key=False,
            reasoning_back="reasoning",
        ),
    )
}
"""Providers that need no more than a key."""


class Providers:
    """The providers of a process and their connections: one client per provider, made on first use.

    `settings` add to the known providers and replace those of the same name; `idle_timeout` is for
    those that say nothing of their own. `aclose` closes the connections; the object belongs to one
    event loop. Raises `ValueError` for a provider of which it is not known where it is.
    """

    def __init__(
        self, settings: Iterable[ProviderSettings] = (), *, idle_timeout: float = DEFAULT_IDLE_TIMEOUT
    ) -> None:
        self._settings = dict(KNOWN_PROVIDERS)
        for one in settings:
            # Without a base URL the client would take OpenAI's, and send it another provider's key.
            if one.base_url is None and one.name not in OPENAI:
                raise ValueError(f"the provider {one.name!r} needs a base_url")
            self._settings[one.name] = one
        for name, one in self._settings.items():
            if one.idle_timeout is None:
                self._settings[name] = msgspec.structs.replace(one, idle_timeout=idle_timeout)
        self._clients: dict[str, ProviderClient] = {}
        self._models: dict[str, Model] = {}

    def register(self, model: Model) -> None:
        """Makes `model` what its name stands for from now on."""
        self._models[model.name] = model

    def settings(self, provider: str) -> ProviderSettings:
        """Raises `UnknownProvider`."""
        try:
            return self._settings[provider]
        except KeyError:
            known = ", ".join(sorted(self._settings))
            raise UnknownProvider(f"no provider is called {provider!r}; there are {known}") from None

    def resolve(self, name: str) -> Model:
        """The model called `provider/model`. Raises `UnknownProvider` and `MissingApiKey`."""
        model = self._models.get(name)
        if model is None:
            settings, model_name = self._named(name)
            model = _model_class(settings)(model_name, settings, lambda: self._client(settings))
            if len(self._models) < MAX_MODELS:
                self._models[name] = model
        return model

    def embedder(self, name: str) -> "Embedder":
        """The embedding model called `provider/model`. Raises `UnknownProvider` and `MissingApiKey`."""
        from entracte_server.models.openai_embedder import OpenAIEmbedder

        settings, model_name = self._named(name)
        return OpenAIEmbedder(model_name, settings, lambda: self._client(settings))

    def _named(self, name: str) -> tuple[ProviderSettings, str]:
        """The provider of a model, to which one can sign in, and what it calls the model."""
        provider, slash, model_name = name.partition("/")
        if not slash or not model_name:
            raise UnknownProvider(f"a model is named provider/model, not {name!r}")
        settings = self.settings(provider)
        settings.key()
        return settings, model_name

    async def load(self) -> None:
        """Imports what calls of the resolved models need, in a thread. Without it the first call does,
        and is a second late."""
        if not self._models:
            return
        from entracte_server.models.openai_model import load_openai

        await load_openai()

    async def aclose(self) -> None:
        """Closes all connections. The models cannot be used afterwards."""
        clients = list(self._clients.values())
        self._clients.clear()
        for client in clients:
            await client.aclose()

    def _client(self, settings: ProviderSettings) -> "ProviderClient":
        client = self._clients.get(settings.name)
        if client is None:
            from entracte_server.models.provider_client import ProviderClient

            client = ProviderClient(settings)
            self._clients[settings.name] = client
        return client


def _model_class(settings: ProviderSettings) -> "type[OpenAIModel]":
    if settings.api == "responses":
        from entracte_server.models.openai_responses import OpenAIResponsesModel

        return OpenAIResponsesModel
    from entracte_server.models.openai_chat import OpenAIChatModel

    return OpenAIChatModel


def resolve(name: str, providers: Providers) -> Model:
    """The model called `provider/model`. Raises `UnknownProvider` and `MissingApiKey`."""
    return providers.resolve(name)
