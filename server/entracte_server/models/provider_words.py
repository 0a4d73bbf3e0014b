"""Words and figures of OpenAI-style providers, read leniently."""

from collections.abc import Mapping
from typing import Any

from entracte_server.domain.chunks import FinishReason
from entracte_server.domain.results import Usage

_REASONS: Mapping[str, FinishReason] = {
    "stop": "stop",
    "end_turn": "stop",
    "eos": "stop",
    "stop_sequence": "stop",
    "tool_calls": "tool-calls",
    "function_call": "tool-calls",
    "tool_use": "tool-calls",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "content-filter",
}


def finish_reason(word: str) -> FinishReason:
    """Our word for the provider's; `other` for one we do not know."""
    return _REASONS.get(word.lower(), "other")


def read_usage(usage: Mapping[str, Any]) -> Usage:
    """Tokens as the provider counted them. What it did not say is 0; a missing total is the sum."""
    prompt = _count(usage, "prompt_tokens", "input_tokens")
    completion = _count(usage, "completion_tokens", "output_tokens")
    details = usage.get("completion_tokens_details") or usage.get("output_tokens_details")
    reasoning = _count(details, "reasoning_tokens") or _count(usage, "reasoning_tokens")
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    cached = _count(details, "cached_tokens") or _count(usage, "prompt_cache_hit_tokens", "cached_tokens")
    return Usage(
        input=prompt,
        output=completion,
        total=_count(usage, "total_tokens") or prompt + completion,
        reasoning=reasoning,
        cached_input=cached,
    )


def _count(record: Any, *keys: str) -> int:
    if isinstance(record, Mapping):
        for key in keys:
            value = record.get(key)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 2**53:
                return int(value)
    return 0
