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
        CheckInfo,
        DefaultAnswer,
        Delegation,
        DelegationDone,
        DelegationInfo,
        DelegationVerdict,
        Hook,
        Iteration,
        IterationInfo,
        LanguageDetector,
        LlmScorer,
        McpToolset,
        Memory,
        Moderation,
        PiiFilter,
        Price,
        Processor,
        PromptInjectionDetector,
        RunView,
        Sampled,
        Score,
        ScorerInput,
        SemanticRecall,
        Skip,
        StepInfo,
        StepView,
        StopInfo,
        StopWhen,
        StreamBatcher,
        StructuredOutput,
        SystemPromptScrubber,
        TaskCheck,
        TokenLimiter,
        Tool,
        ToolCallDone,
        ToolCallInfo,
        ToolContext,
        Toolset,
        ToolUse,
        UnicodeNormalizer,
        WorkingMemory,
        ask_user,
        hook,
        remote_tool,
        scorer,
        tool,
    )
    from entracte_server.domain.messages import Message, text_message
    from entracte_server.domain.options import ModelSettings, StepOverrides, ToolChoice
    from entracte_server.domain.tracing import TelemetryOptions, TracingOptions
    from entracte_server.models.embedding import Embedder, EmbeddingError
    from entracte_server.models.minilm import MiniLM

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "App",
    "ApprovalPolicy",
    "ApprovalRequest",
    "CheckInfo",
    "DefaultAnswer",
    "Delegation",
    "DelegationDone",
    "DelegationInfo",
    "DelegationVerdict",
    "Embedder",
    "EmbeddingError",
    "Hook",
    "Iteration",
    "IterationInfo",
    "LanguageDetector",
    "LlmScorer",
    "McpToolset",
    "Memory",
    "Message",
    "MiniLM",
    "ModelSettings",
    "Moderation",
    "PiiFilter",
    "Price",
    "Processor",
    "PromptInjectionDetector",
    "RunView",
    "Sampled",
    "Score",
    "ScorerInput",
    "SemanticRecall",
    "Skip",
    "StepInfo",
    "StepOverrides",
    "StepView",
    "StopInfo",
    "StopWhen",
    "StreamBatcher",
    "StructuredOutput",
    "SystemPromptScrubber",
    "TaskCheck",
    "TelemetryOptions",
    "TokenLimiter",
    "Tool",
    "ToolCallDone",
    "ToolCallInfo",
    "ToolChoice",
    "ToolContext",
    "ToolUse",
    "Toolset",
    "TracingOptions",
    "UnicodeNormalizer",
    "WorkingMemory",
    "ask_user",
    "hook",
    "remote_tool",
    "scorer",
    "text_message",
    "tool",
]

_HOMES = {
    "Embedder": "models.embedding",
    "EmbeddingError": "models.embedding",
    "Message": "domain.messages",
    "MiniLM": "models.minilm",
    "ModelSettings": "domain.options",
    "StepOverrides": "domain.options",
    "TelemetryOptions": "domain.tracing",
    "ToolChoice": "domain.options",
    "TracingOptions": "domain.tracing",
    "text_message": "domain.messages",
}
"""Where those are that `agents` does not have."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(f"{__name__}.{_HOMES.get(name, 'agents')}")
    value = globals()[name] = getattr(home, name)
    return value
