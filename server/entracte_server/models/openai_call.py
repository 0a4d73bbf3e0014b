"""One HTTP call to an OpenAI-style provider, from the request to the end of the body."""

import asyncio
import contextlib
import json
import os
import re
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any

from entracte_server.domain.results import RunError
from entracte_server.models.base import ModelError, ModelEvent
from entracte_server.models.provider_errors import clean, provider_error
from entracte_server.models.providers import (
    DEFAULT_IDLE_TIMEOUT,
    PATIENCE,
    ProviderSettings,
)
from entracte_server.models.rate_limits import RateLimits, read_limits, read_retry_after
from entracte_server.models.response_body import AnswerReader, BodyReader
from entracte_server.models.watchdog import Watchdog

if TYPE_CHECKING:
    import httpx2

    from entracte_server.models.provider_client import ProviderClient

# Seconds to wait for the rest of the body once the answer is complete: for usage after the finish
# reason, and after the last record for the end that lets the connection be used again.
_AFTER_FINISH = 10.0
_AFTER_DONE = 0.1

_LARGE_BODY = 64 * 1024

# The largest body of an error that is read, in bytes.
_MAX_ERROR = 256 * 1024

# The headers that say which request it was, and how many more may follow. They are kept with each
# step, so the rest (dates, caches, cookies) stays out.
_SHOWN_HEADERS = re.compile(r"(x-)?request-id|cf-ray|retry-after.*|(\w+-)?ratelimit-.*|openai-.*")


class OpenAICall:
    """Open it, take batches until one is empty, close it whatever happens. `answer` reads the body.

    `limits` is what the head of the response says of the provider's limits. Every failure is a `ModelError`;
    what came before it is given first.
    """

    def __init__(
        self,
        provider: ProviderSettings,
        client: "ProviderClient",
        answer: AnswerReader,
        warnings: tuple[str, ...],
    ) -> None:
        self._provider = provider
        self._client = client
        self._warnings = warnings
        self._idle = DEFAULT_IDLE_TIMEOUT if provider.idle_timeout is None else provider.idle_timeout
        self._patience = self._idle * PATIENCE if provider.patience is None else provider.patience
        self._secrets = (client.key,)
        self._answer = answer
        self._body = BodyReader(self._answer, self._secrets, provider.max_answer_bytes)
        self._response: httpx2.Response | None = None
        self._bytes: AsyncGenerator[bytes, None] | None = None
        self._watch: Watchdog | None = None
        self._failure: ModelError | None = None
        self._over = False
        self.limits = RateLimits()

    async def open(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Sends the request; returns when the head of the response is there."""
        import aiohttp
        import httpx2

        try:
            async with asyncio.timeout(self._patience):
                self._response = await self._client.post(body, headers)
                self.limits = read_limits(self._response.headers)
                if not self._response.is_success:
                    raise await self._status_error(self._response)
        except TimeoutError:
            message = f"the provider did not begin to answer within {self._patience:g} s"
            raise ModelError(RunError("stall", message, retryable=True)) from None
        except (httpx2.HTTPError, httpx2.StreamError, aiohttp.ClientError, OSError) as error:
            raise self._connection_error(error) from None
        if len(body) > _LARGE_BODY:
            # The response refers to its request, and that to a copy of the whole conversation.
            self._response.request = httpx2.Request("POST", self._response.url)
        # Undoing a compression costs more than reading, and is hardly ever needed.
        encoded = "content-encoding" in self._response.headers
        source = self._response.aiter_bytes() if encoded else self._response.aiter_raw()
        self._bytes = source
        self._watch = Watchdog(self._response.aclose, self._idle, self._patience)

    async def next_batch(self) -> list[ModelEvent]:
        """What the next read brings, or reads until one brings something; empty at the end."""
        if self._failure is not None:
            raise self._failure
        while not self._over:
            try:
                await self._read()
            except ModelError as error:
                self._over = True
                self._failure = error
                self._answer.close()
            if events := self._answer.take():
                return events
            if self._failure is not None:
                raise self._failure
        return []

    async def aclose(self) -> None:
        """Closes the connection, unless the body was read to its end: then it can be used again."""
        if self._watch is not None:
            await self._watch.stop()
        if self._bytes is not None:
            await self._bytes.aclose()
        if self._response is not None:
            await self._response.aclose()

    async def _read(self) -> None:
        import aiohttp
        import httpx2

        assert self._bytes is not None
        assert self._watch is not None
        self._watch.wait()
        try:
            data = await anext(self._bytes)
        except StopAsyncIteration:
            self._end(whole=True)
            return
        except (httpx2.HTTPError, httpx2.StreamError, aiohttp.ClientError, OSError) as error:
            self._watch.received(False)
            self._end(whole=False, error=error)
            return
        self._watch.received(self._body.feed(data))
        if self._answer.done:
            await self._drain()
            self._end(whole=True)
        elif self._answer.finished:
            self._watch.hurry(_AFTER_FINISH)

    def _end(self, *, whole: bool, error: Exception | None = None) -> None:
        self._over = True
        assert self._response is not None
        assert self._watch is not None
        try:
            self._body.end()
            self._answer.end(whole=whole, headers=_shown(self._response.headers), warnings=self._warnings)
        except ModelError as failure:
            if whole or failure.error.kind not in ("cut", "empty_stream"):
                raise
            if self._watch.fired:
                if self._watch.silent:
                    message = f"the provider sent nothing for {self._idle:g} s in the middle of its answer"
                else:
                    message = f"the provider brought its answer no further for {self._patience:g} s"
                raise ModelError(RunError("stall", message, retryable=True)) from None
            if not self._answer.begun and error is not None:
                raise self._connection_error(error) from None
            raise

    async def _drain(self) -> None:
        """Reads the end of a body whose last record has come."""
        assert self._bytes is not None
        # Whatever is wrong with what follows is of no interest any more.
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_AFTER_DONE):
                async for _ in self._bytes:
                    pass

    async def _status_error(self, response: "httpx2.Response") -> ModelError:
        text = ""
        with contextlib.suppress(Exception):  # the status says enough
            text = await _begin_of(response)
        try:
            body: Any = json.loads(text)
        except (ValueError, RecursionError):
            body = text
        if isinstance(body, dict):
            body = body.get("error", body)
        status = response.status_code
        if not body or isinstance(body, str):
            text = clean(str(body or "").strip(), 300, self._secrets)
            body = f"the provider answered with status {status}{': ' + text if text else ''}"
        advice = response.headers.get("x-should-retry", "")
        retry_after = read_retry_after(response.headers)
        if status == 429 and not retry_after:
            retry_after = self.limits.until_free()[0]
        return provider_error(
            body,
            status=status,
            retry_after=retry_after,
            retryable={"true": True, "false": False}.get(advice),
            secrets=self._secrets,
        )

    def _connection_error(self, error: BaseException) -> ModelError:
        """Says which provider and why, but not where: addresses are the operator's business."""
        reason = ""
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, OSError) and cause.errno and cause.errno > 0:
                reason = f" ({os.strerror(cause.errno)})"
            cause = cause.__cause__ or cause.__context__
        message = f"the connection to the provider {self._provider.name} failed{reason}"
        return ModelError(RunError("connection", clean(message), retryable=True))


async def _begin_of(response: "httpx2.Response") -> str:
    pieces, size = [], 0
    async for piece in response.aiter_bytes():
        pieces.append(piece)
        size += len(piece)
        if size > _MAX_ERROR:
            break
    return b"".join(pieces).decode("utf-8", "replace")


def _shown(headers: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in headers.items() if _SHOWN_HEADERS.fullmatch(key)}
