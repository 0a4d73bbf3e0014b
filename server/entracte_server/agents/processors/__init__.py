"""Processors: the base that authors write theirs on, what hooks are given, and those that are built in."""

from entracte_server.agents.hooks import StepInfo, StepOverrides
from entracte_server.agents.processors.base import InvalidParameters, Processor
from entracte_server.agents.processors.batching import StreamBatcher
from entracte_server.agents.processors.judges import LanguageDetector, Moderation, PromptInjectionDetector
from entracte_server.agents.processors.normalizer import UnicodeNormalizer
from entracte_server.agents.processors.pii import PiiFilter
from entracte_server.agents.processors.prompts import SystemPromptScrubber
from entracte_server.agents.processors.tokens import TokenLimiter
from entracte_server.agents.processors.views import (
    Answer,
    ApiFailure,
    CachedAnswer,
    Input,
    LlmRequest,
    Result,
    StreamInfo,
    ToolOutput,
)

__all__ = [
    "Answer",
    "ApiFailure",
    "CachedAnswer",
    "Input",
    "InvalidParameters",
    "LanguageDetector",
    "LlmRequest",
    "Moderation",
    "PiiFilter",
    "Processor",
    "PromptInjectionDetector",
    "Result",
    "StepInfo",
    "StepOverrides",
    "StreamBatcher",
    "StreamInfo",
    "SystemPromptScrubber",
    "TokenLimiter",
    "ToolOutput",
    "UnicodeNormalizer",
]
