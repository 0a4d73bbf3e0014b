"""The connections to one provider."""

import os
from collections.abc import Mapping, Sequence
from typing import cast

import httpx2
import openai

from entracte_server.models.providers import OPENAI, ProviderSettings

# Open streams are bounded by the engine; a second bound here would only make calls wait unseen.
_MAX_CONNECTIONS = 100_000

_PATHS = {"chat": b"chat/completions", "responses": b"responses"}

_OF_THE_MESSAGE = frozenset(
    {
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        "cookie",
        "host",
        "openai-organization",
        "openai-project",
        "proxy-authorization",
        "transfer-encoding",
    }
)

_OPENAI_HEADERS = "OPENAI_CUSTOM_HEADERS"


class ProviderClient:
    """Sends to one provider; made on an event loop, to be closed. Raises `MissingApiKey`.

    The `openai` package says where to, signed in how, with which headers, over which transport. What
    goes out at every call is put together once: its own `post` does so anew each time, and so does the
    `build_request` below it, which takes as long as sending.
    """

    def __init__(self, settings: ProviderSettings) -> None:
        self.key = settings.key()
        self._settings = settings
        limits = httpx2.Limits(
            max_connections=_MAX_CONNECTIONS, max_keepalive_connections=100, keepalive_expiry=30.0
        )
        # Silence is bounded by the stream itself, which can tell a keep-alive from an answer.
        self._timeout = httpx2.Timeout(None, connect=settings.connect_timeout)
        self._http = openai.DefaultAioHttpClient(limits=limits, timeout=self._timeout)
        self._openai = openai.AsyncOpenAI(
            api_key=self.key,
            base_url=settings.base_url,
            default_headers=_headers(settings, self.key),
            max_retries=0,
            timeout=self._timeout,
            http_client=self._http,
        )
        headers = {**self._openai.auth_headers, **self._openai.default_headers}
        self._headers = httpx2.Headers(self._http.headers)
        self._headers.update(
            {name: value for name, value in headers.items() if not isinstance(value, openai.Omit)}
        )
        self._headers["Accept"] = "text/event-stream, application/json"
        base = self._openai.base_url
        self._url = base.copy_with(raw_path=base.raw_path + _PATHS[settings.api])

    def owns(self, header: str) -> bool:
        """Whether a header is the server's own to send: what signs in, what is set up for the provider, and
        what describes the message."""
        return header in self._headers or header.lower() in _OF_THE_MESSAGE

    async def post(self, body: bytes, headers: Mapping[str, str]) -> httpx2.Response:
        """The head of the answer, its body unread, whatever its status; to be closed. `headers` go with
        the request unless they are the server's own. Raises `httpx2.HTTPError`, `aiohttp.ClientError`,
        `OSError`."""
        request = httpx2.Request(
            "POST",
            self._url,
            content=body,
            headers=self._headers,
            cookies=self._http.cookies,
            extensions={"timeout": self._timeout.as_dict()},
        )
        if headers:
            request.headers.update({k: v for k, v in headers.items() if not self.owns(k)})
        return await self._http.send(request, stream=True)

    async def embeddings(self, model: str, texts: Sequence[str]) -> list[list[float]]:
        """The vectors of some texts, in their order, as the provider gave them. Raises `openai.OpenAIError`,
        and `ValueError`, `TypeError` or `AttributeError` for an answer that is none."""
        settings = self._settings
        client = self._openai.with_options(
            max_retries=settings.max_retries,
            timeout=httpx2.Timeout(settings.idle_timeout, connect=settings.connect_timeout),
        )
        # As numbers: not every server that speaks this dialect knows the other encoding.
        answer = await client.embeddings.create(model=model, input=list(texts), encoding_format="float")
        return [item.embedding for item in sorted(answer.data, key=lambda item: item.index or 0)]

    async def aclose(self) -> None:
        """Closes all connections."""
        await self._openai.close()


def _headers(settings: ProviderSettings, key: str) -> Mapping[str, str]:
    headers: dict[str, object] = {**settings.headers}
    if settings.name not in OPENAI:
        # The environment's organization, project and headers are for OpenAI, and for nobody else.
        theirs = [line.partition(":")[0].strip() for line in os.environ.get(_OPENAI_HEADERS, "").splitlines()]
        for header in ("OpenAI-Organization", "OpenAI-Project", *theirs):
            if header.lower() == "authorization":
                headers.setdefault(header, f"Bearer {key}")
            elif header:
                headers.setdefault(header, openai.Omit())
    return cast("Mapping[str, str]", headers)
