"""Models behind an OpenAI-style interface: what the dialects have in common.

The `openai` package signs in, finds the server and brings the transport; the bytes of the answer are
read here as they arrive, because its own per-chunk objects cost thirty times what the rest does.
"""

import asyncio
import importlib
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from entracte_server.domain.results import RunError
from entracte_server.models.base import ModelError, ModelEvent, ModelRequest, ResponseFormats
from entracte_server.models.openai_call import OpenAICall
from entracte_server.models.openai_request import body_text
from entracte_server.models.providers import MissingApiKey, ProviderSettings
from entracte_server.models.rate_limits import RateLimits, Waits, is_rate_limit
from entracte_server.models.response_body import AnswerReader

if TYPE_CHECKING:
    from entracte_server.models.provider_client import ProviderClient

_FIRST_BACK_OFF = 0.5
_MAX_BACK_OFF = 8.0
_MAX_RETRY_AFTER = 60.0
_RETRIED_KINDS = frozenset({"connection", "empty_stream", "cut", "provider_error"})


class OpenAIModel(ABC):
    """One model of one provider.

    `client` gives the provider's client; it is asked for at each call, so that the `openai` package
    is imported at the first. Events are given as they arrive: a batch is what one read brought.

    A call is tried again, up to `max_retries` times, only while nothing of the answer was seen, and
    only after connection errors, HTTP 408, 409, 429 and 5xx, and answers that were empty or broke
    off. Between attempts there is a pause that doubles, or what the provider asks for, up to a minute.

    A provider's rate limit is waited for only as long as the pause may grow by itself, unless the request
    allows more with `rate_limit_wait`: then each wait is shown as a chunk before it begins, and costs no
    retry. So is the time for which the last answer's headers said that nothing is left.
    """

    def __init__(
        self, model: str, provider: ProviderSettings, client: "Callable[[], ProviderClient]"
    ) -> None:
        self._model = model
        self._provider = provider
        self._client = client
        self._closed_until = 0.0
        self._closed_by = ""

    @abstractmethod
    def _body(self, request: ModelRequest) -> dict[str, Any]:
        """The body of the HTTP request."""

    @abstractmethod
    def _warnings(self, request: ModelRequest) -> tuple[str, ...]:
        """What of the request is not in the body."""

    @abstractmethod
    def _reader(self, request: ModelRequest, secrets: tuple[str, ...]) -> AnswerReader:
        """What reads one answer."""

    @property
    def name(self) -> str:
        return f"{self._provider.name}/{self._model}"

    @property
    def response_formats(self) -> ResponseFormats:
        return self._provider.response_formats

    def request_body(self, request: ModelRequest) -> str:
        return body_text(self._body(request)).decode()

    async def stream(self, request: ModelRequest) -> AsyncIterator[list[ModelEvent]]:
        body = body_text(self._body(request))
        warnings = self._warnings(request)
        retries = request.settings.max_retries
        if retries is None:
            retries = self._provider.max_retries
        await load_openai()
        try:
            client = self._client()
        except MissingApiKey as error:
            raise ModelError(RunError("provider_error", str(error), code="missing_api_key")) from None
        warnings += tuple(
            f"the header {header} is the server's own and was left out"
            for header in request.settings.headers
            if client.owns(header)
        )
        waits = Waits(self.name, request.rate_limit_wait)
        if self._closed_until and (wait := waits.take(self._closed_for(), self._closed_by)) is not None:
            yield [wait]
            await asyncio.sleep(self._closed_for())
        tries = 0
        while True:
            seen = False
            answer = self._reader(request, (client.key,))
            call = OpenAICall(self._provider, client, answer, warnings)
            try:
                await call.open(body, request.settings.headers)
                self._note(call.limits)
                while batch := await call.next_batch():
                    # No second attempt from here on, so no need to keep a conversation in memory.
                    seen, body = True, b""
                    yield batch
                return
            except ModelError as error:
                failure = error.error
                if seen or not _worth_a_retry(failure):
                    raise
                limited = is_rate_limit(failure)
                pause = _pause(tries, failure.retry_after, limited=limited)
                wait = waits.take(pause, call.limits.until_free()[1]) if limited else None
                if wait is None and (retries <= 0 or (limited and pause > _MAX_BACK_OFF)):
                    raise
            finally:
                await call.aclose()
            tries += 1
            if wait is None:
                retries -= 1
            else:
                yield [wait]
            await asyncio.sleep(pause)

    def _note(self, limits: RateLimits) -> None:
        """Remembers for how long the provider lets nothing through."""
        seconds, self._closed_by = limits.until_free()
        self._closed_until = asyncio.get_running_loop().time() + seconds if seconds else 0.0

    def _closed_for(self) -> float:
        if not self._closed_until:
            return 0.0
        return max(0.0, self._closed_until - asyncio.get_running_loop().time())


_loaded = False


async def load_openai() -> None:
    """Imports the `openai` package in a thread, because that takes long and would hold up the rest."""
    global _loaded
    if not _loaded:
        await asyncio.to_thread(importlib.import_module, "entracte_server.models.provider_client")
        _loaded = True


def _worth_a_retry(error: RunError) -> bool:
    return error.retryable and error.kind in _RETRIED_KINDS


def _pause(tries: int, retry_after: float, *, limited: bool) -> float:
    own = min(_FIRST_BACK_OFF * 2.0**tries, _MAX_BACK_OFF) * random.uniform(0.75, 1.0)
    if retry_after <= 0:
        return own
    if limited:
        # Whoever asks to come back at once, again and again, is asked less and less often.
        return max(retry_after, own) if tries else retry_after
    return min(retry_after, _MAX_RETRY_AFTER)
