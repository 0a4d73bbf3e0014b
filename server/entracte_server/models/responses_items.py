"""What is kept of an answer of the Responses API, so that it can be sent back as it was.

The API is used without its memory: nothing is stored at the provider, so each request has the whole
conversation, with the model's encrypted thinking. Beside each part of an answer stands where in the answer
it was, and what else belongs to it; only the provider that wrote it is shown it again.
"""

from typing import Any

from entracte_server.domain import json_text
from entracte_server.models.provider_json import json_of

RESPONSES = "openai_responses"
"""The key in a part's `provider_metadata`."""


def keep(provider: str, at: int, **more: Any) -> str:
    """The metadata of a part that was number `at` of the answer's items."""
    return json_of({RESPONSES: {"provider": provider, "at": at, **more}})


def kept(metadata: str | None, provider: str) -> dict[str, Any]:
    """What `keep` kept for this provider; empty for a part of another."""
    if metadata is None:
        return {}
    value = json_text.parse(metadata)
    own = value.get(RESPONSES) if isinstance(value, dict) else None
    return own if isinstance(own, dict) and own.get("provider") == provider else {}
