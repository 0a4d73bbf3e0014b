"""Entracte: a gRPC service that runs LLM agents which stop and wait for people.

This is what authors of agents use; everything in `__all__` is public. Names are loaded when they are
first used, so that the command line starts fast.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from entracte_server.agents import (
        Agent,
        App,
        ApprovalPolicy,
        ApprovalRequest,
        DefaultAnswer,
        LlmScorer,
        Sampled,
        Score,
        ScorerInput,
        Tool,
        ToolContext,
        Toolset,
        ToolUse,
        ask_user,
        scorer,
        tool,
    )
    from entracte_server.domain.options import ModelSettings, ToolChoice
    from entracte_server.domain.tracing import TelemetryOptions, TracingOptions

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "App",
    "ApprovalPolicy",
    "ApprovalRequest",
    "DefaultAnswer",
    "LlmScorer",
    "ModelSettings",
    "Sampled",
    "Score",
    "ScorerInput",
    "TelemetryOptions",
    "Tool",
    "ToolChoice",
    "ToolContext",
    "ToolUse",
    "Toolset",
    "TracingOptions",
    "ask_user",
    "scorer",
    "tool",
]

_OPTIONS = ("ModelSettings", "TelemetryOptions", "ToolChoice", "TracingOptions")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "entracte_server.domain.options" if name in _OPTIONS else "entracte_server.agents"
    value = globals()[name] = getattr(importlib.import_module(home), name)
    return value
