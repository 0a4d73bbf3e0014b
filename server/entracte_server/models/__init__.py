"""Models: the protocol, OpenAI-style providers, and a model that plays a script."""

from entracte_server.domain.options import ModelSettings, ToolChoice
from entracte_server.models.base import (
    Model,
    ModelError,
    ModelEvent,
    ModelFinish,
    ModelRequest,
    ResponseFormat,
    ResponseFormats,
    ToolSpec,
)
from entracte_server.models.openai_request import check_pairing
from entracte_server.models.providers import (
    KNOWN_PROVIDERS,
    MissingApiKey,
    Providers,
    ProviderSettings,
    UnknownProvider,
    resolve,
)
from entracte_server.models.scripted import ScriptedModel, scripted
from entracte_server.models.streams import closing

__all__ = [
    "KNOWN_PROVIDERS",
    "MissingApiKey",
    "Model",
    "ModelError",
    "ModelEvent",
    "ModelFinish",
    "ModelRequest",
    "ModelSettings",
    "ProviderSettings",
    "Providers",
    "ResponseFormat",
    "ResponseFormats",
    "ScriptedModel",
    "ToolChoice",
    "ToolSpec",
    "UnknownProvider",
    "check_pairing",
    "closing",
    "resolve",
    "scripted",
]
