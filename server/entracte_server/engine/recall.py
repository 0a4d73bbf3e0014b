"""Searching older messages for those that have to do with what is asked.

The vectors of messages are made here, when they are first searched, and stored: what a run adds to a thread
is embedded together with the question of the next one. So there is nothing that could be lost with a
process, two processes that do the same only do it twice, and messages from before there was an embedder, or
from before there was another, are found like any other.
"""

import asyncio
from collections.abc import Sequence

import structlog

from entracte_server.domain.messages import Message, TextPart
from entracte_server.domain.threads import ThreadMessage
from entracte_server.engine.authored import AuthoredCode
from entracte_server.engine.settings import EngineSettings
from entracte_server.engine.similarity import Closest, packed
from entracte_server.models.embedding import Embedder, EmbeddingError
from entracte_server.store.base import Store
from entracte_server.store.vectors import AddVectors, Reach, StoredVector, Unembedded

_log = structlog.get_logger(__name__)

SEARCHES = 4
"""How many searches of a process go on at once; each holds a page of vectors."""

PAGE = 1000
"""Vectors of a page."""

TOGETHER = 64
"""Texts that are embedded in one call."""

MAX_NEW = 256
"""Messages that one recall embeds at most. What is left is embedded by the next ones."""

MAX_TEXT = 4000
"""Characters of a text that count."""

MAX_ERROR = 300


class RecallFailed(Exception):
    """Nothing can be recalled; the message says why, without secrets."""


class Recall:
    """Searches, for a process."""

    def __init__(self, store: Store, settings: EngineSettings) -> None:
        self._store = store
        self._settings = settings
        self._searches = asyncio.Semaphore(SEARCHES)
        self._authored = AuthoredCode(SEARCHES, settings.cancel_grace)

    async def find(
        self,
        where: Reach,
        embedder: Embedder,
        question: str,
        count: int,
        *,
        shown: tuple[str, int] | None,
        keep: bool,
    ) -> list[tuple[str, int]]:
        """The messages closest to a question, as (thread id, position), the closest first. The messages from
        the place `shown` on, in its thread, are not searched. Without `keep` no vectors are stored. Raises
        `RecallFailed`; `StoreUnavailable`."""
        seconds = self._settings.recall_timeout
        try:
            async with asyncio.timeout(seconds):
                found = await self._find(where, embedder, question, count, shown, keep)
        except TimeoutError:
            raise RecallFailed(f"It took longer than {seconds:g} seconds.") from None
        return [(row.thread_id, row.position) for row in found]

    async def _find(
        self,
        where: Reach,
        embedder: Embedder,
        question: str,
        count: int,
        shown: tuple[str, int] | None,
        keep: bool,
    ) -> list[StoredVector]:
        newest = self._settings.recall_messages
        new = await self._store.unembedded(where, newest=newest, limit=MAX_NEW)
        (wanted,), first = await self._embed(embedder, [question], new[: TOGETHER - 1])
        closest = Closest(wanted, count)

        async def look_at(page: list[StoredVector]) -> None:
            if shown is not None:
                thread_id, first = shown
                page = [row for row in page if row.thread_id != thread_id or row.position < first]
            await self._authored.in_thread(lambda: closest.look_at(page), "recall")

        start = TOGETHER - 1
        while first:
            if keep:
                rows = tuple((row.thread, row.position, row.data) for row in first)
                await self._store.add_vectors(AddVectors(where.tenant, where.embedder, rows))
            else:
                await look_at(first)
            _, first = await self._embed(embedder, [], new[start : start + TOGETHER])
            start += TOGETHER
        async with self._searches:
            seen, last = 0, None
            while seen < newest:
                page = await self._store.read_vectors(where, after=last, limit=min(PAGE, newest - seen))
                if not page:
                    break
                seen, last = seen + len(page), page[-1]
                await look_at(page)
        return closest.found

    async def _embed(
        self, embedder: Embedder, texts: list[str], new: Sequence[Unembedded]
    ) -> tuple[list[bytes], list[StoredVector]]:
        """The vectors of some texts, and those of some messages."""
        said = [text_of(row.message) for row in new]
        given = [text[:MAX_TEXT] for text in (*texts, *said) if text]
        made = await self._vectors(embedder, given) if given else []
        vectors, rest = made[: len(texts)], iter(made[len(texts) :])
        return vectors, [
            StoredVector(row.thread, row.thread_id, row.message.position, next(rest) if text else b"")
            for row, text in zip(new, said, strict=True)
        ]

    async def _vectors(self, embedder: Embedder, texts: list[str]) -> list[bytes]:
        try:
            vectors = await self._authored.in_task(lambda: embedder.embed(texts), "embedder")
            if len(vectors) != len(texts):
                raise EmbeddingError(f"the embedder gave {len(vectors)} vectors for {len(texts)} texts")
            return await self._authored.in_thread(lambda: packed(vectors), "recall")
        except asyncio.CancelledError:
            raise
        except EmbeddingError as error:
            raise RecallFailed(str(error)[:MAX_ERROR]) from error
        except BaseException as error:  # an author's embedder may raise anything
            _log.exception("embedder_failed", embedder=embedder.name)
            raise RecallFailed("The embedder failed.") from error


def text_of(message: Message | ThreadMessage) -> str:
    """What is said in a message; without what was thought or what tools were told and returned."""
    return "\n".join(part.text for part in message.parts if isinstance(part, TextPart)).strip()
