"""How many calls a provider lets through, by its own figures, and waiting until it lets one through again."""

import contextlib
import email.utils
import re
import time
from collections.abc import Mapping

from entracte_server.domain import json_text
from entracte_server.domain.chunks import Custom
from entracte_server.domain.data import Data
from entracte_server.domain.results import RunError

WAIT = "rate-limit-wait"
"""The name of the chunk that shows a wait."""

MAX_SECONDS = 1e9
"""More than any provider means: what is longer is taken for nothing said."""

_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_CODES = frozenset({"rate_limit_exceeded", "rate_limit_error"})


class Limit(Data, frozen=True):
    """One limit: how much it allows, how much of that is left, and in how many seconds all of it is there
    again. None where the provider does not say."""

    most: int | None = None
    left: int | None = None
    reset: float | None = None

    @property
    def exhausted(self) -> bool:
        return self.left == 0 and bool(self.reset)


class RateLimits(Data, frozen=True):
    """What the headers of an answer say."""

    requests: Limit = Limit()
    tokens: Limit = Limit()

    def until_free(self) -> tuple[float, str]:
        """For how many seconds nothing is let through, and by which limit; 0 where there is no such time."""
        waits = [
            (limit.reset or 0.0, name)
            for name, limit in (("requests", self.requests), ("tokens", self.tokens))
            if limit.exhausted
        ]
        return max(waits, default=(0.0, ""))


def read_limits(headers: Mapping[str, str]) -> RateLimits:
    """The figures in the `x-ratelimit-...` headers of an answer."""

    def limit(what: str) -> Limit:
        return Limit(
            most=_count(headers.get(f"x-ratelimit-limit-{what}", "")),
            left=_count(headers.get(f"x-ratelimit-remaining-{what}", "")),
            reset=_seconds(headers.get(f"x-ratelimit-reset-{what}", "")),
        )

    return RateLimits(requests=limit("requests"), tokens=limit("tokens"))


def is_rate_limit(error: RunError) -> bool:
    """Whether a call failed because the provider lets no more through for now."""
    return error.retryable and (error.status == 429 or error.code in _CODES)


class Waits:
    """The waits of one model call, of at most `seconds` in all."""

    def __init__(self, model: str, seconds: float) -> None:
        self._model = model
        self._left = seconds

    def take(self, seconds: float, limit: str = "") -> Custom | None:
        """Takes a wait out of what is left. Gives the chunk that shows it, or None where it is too long;
        `limit` says which one it is for, if that is known."""
        if not 0 < seconds <= self._left:
            return None
        self._left -= seconds
        shown = {"model": self._model, "seconds": round(seconds, 3), "limit": limit or None}
        return Custom(WAIT, json_text.dump(shown))


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def _seconds(text: str) -> float | None:
    """Spans such as `6m0s`, `1.5s` and `20ms`, and plain seconds."""
    text = text.strip()[:40]
    pieces = _SPAN.findall(text)
    if pieces and "".join(number + unit for number, unit in pieces) == text:
        seconds = sum(float(number) * _UNITS[unit] for number, unit in pieces)
    else:
        try:
            seconds = float(text)
        except ValueError:
            return None
    return seconds if 0 <= seconds < MAX_SECONDS else None


def read_retry_after(headers: Mapping[str, str]) -> float:
    """Seconds the provider asks to wait, 0 where it does not say."""
    for text, unit in ((headers.get("retry-after-ms", ""), 0.001), (headers.get("retry-after", ""), 1.0)):
        with contextlib.suppress(ValueError):
            return _wait(float(text) * unit)
    with contextlib.suppress(ValueError, OverflowError):  # dates that no calendar has
        date = email.utils.parsedate_tz(headers.get("retry-after", ""))
        return _wait(email.utils.mktime_tz(date) - time.time()) if date else 0.0
    return 0.0


def _wait(seconds: float) -> float:
    return seconds if 0 < seconds < MAX_SECONDS else 0.0
