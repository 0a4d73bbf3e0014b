"""What went wrong at a provider, as a `RunError` that may be shown: short, without secrets."""

import re
from collections.abc import Mapping
from typing import Any

from entracte_server.domain import json_text
from entracte_server.domain.results import RunError
from entracte_server.models.base import ModelError

MAX_MESSAGE_BYTES = 2048
MAX_RAW_BYTES = 8192

_RETRYABLE_STATUSES = frozenset({408, 409, 429})
_RETRYABLE_WORDS = frozenset(
    {
        "server_error",
        "internal_server_error",
        "overloaded",
        "overloaded_error",
        "rate_limit_exceeded",
        "rate_limit_error",
        "service_unavailable",
        "timeout",
        "provider_unavailable",
    }
)
_SECRETS = re.compile(
    r"(?i)\b(?:bearer|basic)\s+[\w.~+/=-]{8,}"
    r"|\b(?:sk|pk|rk|gsk|xai|hf|api|key|csk|nvapi|pplx|fw|tgp|AIza)[-_][\w*.-]{6,}"
    r"|\bAIza[\w-]{20,}"
    r"|\beyJ[\w-]{10,}\.[\w-]{5,}\.[\w-]*"
)


def clean(text: str, limit: int = MAX_MESSAGE_BYTES, secrets: tuple[str, ...] = ()) -> str:
    """`text` without what looks like a credential, and not longer than `limit` bytes of UTF-8.

    `secrets` are texts known to be secret.
    """
    for secret in secrets:
        if len(secret) >= 6:
            text = text.replace(secret, "[secret]")
    text = _SECRETS.sub("[secret]", json_text.scrub(text))
    data = text.encode()
    if len(data) <= limit:
        return text
    return data[: limit - 3].decode("utf-8", "ignore") + "..."


def is_retryable(status: int) -> bool:
    """Whether an HTTP status says that the same request may succeed later."""
    return status in _RETRYABLE_STATUSES or status >= 500


def provider_error(
    error: Any,
    *,
    status: int = 0,
    retry_after: float = 0.0,
    retryable: bool | None = None,
    secrets: tuple[str, ...] = (),
) -> ModelError:
    """The error for what a provider sent instead of an answer, in any of the usual forms.

    `error` is the decoded JSON, or text. `status` is the response's; where the response was a
    success, the record's own is used. `retryable` overrules what status and words say.
    """
    record: Mapping[str, Any] = {}
    if isinstance(error, list) and len(error) == 1:
        error = error[0]
    if isinstance(error, Mapping):
        inner = error.get("error")
        record = inner if isinstance(inner, Mapping) else error
        message = inner if isinstance(inner, str) else _message(record)
    else:
        message = str(error)
    code = record.get("code")
    code = code if isinstance(code, (str, int)) and not isinstance(code, bool) else None
    kind_word = record.get("type")
    kind_word = kind_word if isinstance(kind_word, str) else ""
    if not status:
        status = next(
            (s for s in map(_status, (record.get("status_code"), code, record.get("status"))) if s), 0
        )
    if retryable is None:
        words = {str(code).lower(), kind_word.lower()}
        retryable = is_retryable(status) if status else bool(words & _RETRYABLE_WORDS)
    if str(code) == "insufficient_quota":
        retryable = False
    filtered = str(code) == "content_filter"
    return ModelError(
        RunError(
            kind="content_filter" if filtered else "provider_error",
            message=clean(message.strip() or "the provider reported an error", secrets=secrets),
            status=status,
            retryable=retryable and not filtered,
            retry_after=retry_after,
            code=clean(str(code if code is not None else kind_word), 200, secrets),
            raw=_raw(error, secrets),
        )
    )


def _message(record: Mapping[str, Any]) -> str:
    for key in ("message", "detail", "error_message", "msg"):
        value = record.get(key)
        if isinstance(value, str) and value:
            metadata = record.get("metadata")
            upstream = metadata.get("raw") if isinstance(metadata, Mapping) else None
            return f"{value}: {upstream}" if isinstance(upstream, str) and upstream else value
    return ""


def _status(value: Any) -> int:
    if isinstance(value, str) and value.isdecimal() and len(value) == 3:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599 else 0


def _raw(error: Any, secrets: tuple[str, ...]) -> str:
    try:
        text = json_text.dump(error)
    except (TypeError, ValueError):
        try:
            text = json_text.dump(str(error))
        except RecursionError:
            text = json_text.dump("nested too deeply")
    if len(text.encode()) > MAX_RAW_BYTES:
        # Cut text is not JSON any more: it is kept as a JSON string.
        return json_text.dump(clean(text, MAX_RAW_BYTES, secrets))
    return clean(text, MAX_RAW_BYTES, secrets)
