"""Models: the protocol, the OpenAI-style adapter, fallback lists, and a model that plays a script."""

from entracte_server.models.base import (
    Model,
    ModelError,
    ModelEvent,
    ModelFinish,
    ModelRequest,
    ModelSettings,
    ToolChoice,
    ToolSpec,
)
from entracte_server.models.scripted import ScriptedModel, scripted

__all__ = [
    "Model",
    "ModelError",
    "ModelEvent",
    "ModelFinish",
    "ModelRequest",
    "ModelSettings",
    "ScriptedModel",
    "ToolChoice",
    "ToolSpec",
    "scripted",
]
