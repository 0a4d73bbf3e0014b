"""Which older exchanges a run is told beside the recent ones."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import structlog

from entracte_server.agents.agent import Agent
from entracte_server.agents.memory import SemanticRecall
from entracte_server.domain.data import Data
from entracte_server.domain.memory import MemoryOptions
from entracte_server.domain.options import RunOptions
from entracte_server.domain.runs import RunSpec
from entracte_server.domain.threads import ThreadMessage
from entracte_server.engine import history
from entracte_server.engine.recall import RecallFailed, text_of
from entracte_server.store.base import NotFound, Store
from entracte_server.store.threads import MessageRange
from entracte_server.store.vectors import Reach

if TYPE_CHECKING:
    from entracte_server.engine.run import RunExecution

_log = structlog.get_logger(__name__)

EDGE = 100
"""Messages that are read on either side of a hit, to find where its exchange begins and ends; a longer
exchange is not recalled."""

NOT_SEARCHED = "Older messages were not searched:"

Place = tuple[str, int]
"""The id of a thread and a position in it."""


class Recalled(Data, frozen=True):
    """The places of what is recalled, in the order it is told, and why there is nothing where it failed."""

    places: tuple[Place, ...] = ()
    warning: str = ""


def semantic_recall(own: SemanticRecall | None, options: MemoryOptions) -> SemanticRecall | None:
    """How a run recalls: as its caller says, value by value, else as its agent does; None: not at all."""
    asked = options.semantic_recall
    if own is None or asked is None:
        return own
    if asked.top_k == 0:
        return None
    return SemanticRecall(
        own.embedder,
        top_k=own.top_k if asked.top_k is None else asked.top_k,
        message_range=own.message_range if asked.message_range is None else asked.message_range,
        scope=own.scope if asked.scope is None else asked.scope,
    )


def recall_fault(agent: Agent, options: RunOptions) -> str:
    """Why a run cannot recall as its caller asks; empty where it can."""
    asked = None if options.memory is None else options.memory.semantic_recall
    if asked is None or asked.top_k == 0:
        return ""
    if agent.memory is None or agent.memory.semantic_recall is None:
        return f"the agent {agent.id!r} has no embedder; give its memory a semantic_recall"
    return ""


async def recall(
    run: "RunExecution", options: MemoryOptions, recent: Sequence[ThreadMessage], budget: int
) -> Recalled:
    """What of the older messages has to do with the newest thing a run was asked, of about `budget` tokens
    together at most. Raises `StoreUnavailable`."""
    memory = run.agent.memory
    wanted = None if memory is None else semantic_recall(memory.semantic_recall, options)
    question = asked_of(run.spec)
    if fault := recall_fault(run.agent, run.spec.options):  # another version of the agent took the request
        return Recalled(warning=f"{NOT_SEARCHED} {fault}.")
    if wanted is None or not question:
        return Recalled()
    tenant = run.log.key[0]
    first = recent[0].position if recent else 0
    try:
        try:
            embedder = run.services.embedder(wanted.embedder)
        except ValueError as error:
            raise RecallFailed(str(error)) from error
        where = Reach(
            tenant=tenant,
            resource_id=options.resource_id,
            embedder=embedder.name,
            thread_id=options.thread_id if wanted.scope == "thread" else "",
        )
        hits = await run.services.recall.find(
            where,
            embedder,
            question,
            wanted.top_k,
            shown=(options.thread_id, first) if recent else None,
            keep=not options.read_only,
        )
    except RecallFailed as error:
        _log.warning("recall_failed", run_id=run.log.key[1], error=str(error))
        return Recalled(warning=f"{NOT_SEARCHED} {error}")
    found: dict[Place, list[ThreadMessage]] = {}
    for hit in hits:
        before = first if hit[0] == options.thread_id else 0
        around = await exchanges_around(
            run.services.store, tenant, options.resource_id, hit, wanted.message_range, before
        )
        for exchange in around:
            place = (hit[0], exchange[0].position)
            if place in found:
                continue
            cost = sum(map(history.tokens, exchange))
            if cost <= budget:
                budget -= cost
                found[place] = exchange
            elif exchange is around[0]:  # the hit itself, so its neighbours make no sense
                break
    return Recalled(tuple(_in_order(found, options.thread_id)))


def _in_order(found: dict[Place, list[ThreadMessage]], own: str) -> Iterable[Place]:
    """Thread by thread in the order of time, the run's own thread last."""
    begun: dict[str, int] = {}
    for (thread_id, _), exchange in found.items():
        begun[thread_id] = min(exchange[0].create_time, begun.get(thread_id, exchange[0].create_time))
    order = sorted(found, key=lambda place: (place[0] == own, begun[place[0]], *place))
    return [(place[0], message.position) for place in order for message in found[place]]


def asked_of(spec: RunSpec) -> str:
    """The text of the newest thing that a run was asked."""
    return next((text_of(message) for message in reversed(spec.input) if message.role == "user"), "")


async def exchanges_around(
    store: Store, tenant: str, resource_id: str, hit: Place, reach: int, before: int
) -> list[list[ThreadMessage]]:
    """The exchanges with the messages up to `reach` from a hit, that of the hit first; none from the
    position `before` on (0: to the end)."""
    thread_id, position = hit
    first, last = position - reach, position + reach
    end = last + EDGE + 1
    if before:
        end = min(end, before)
    after = max(0, first - EDGE - 1)
    window = MessageRange(after=after, before=end, resource_id=resource_id)
    try:
        read = await store.read_messages(tenant, thread_id, window, limit=end - after)
    except NotFound:  # it was deleted, and by now its name may be another's
        return []
    around = [
        exchange
        for exchange in history.exchanges(read)
        if exchange[-1].position >= first and exchange[0].position <= last
    ]
    if around and around[-1][-1].position == end - 1 != before - 1:  # it goes on, nobody knows how long
        around.pop()
    around.sort(key=lambda exchange: not exchange[0].position <= position <= exchange[-1].position)
    if around and not around[0][0].position <= position <= around[0][-1].position:
        return []
    return around


async def read_places(
    store: Store, tenant: str, resource_id: str, places: Sequence[Place]
) -> list[tuple[str, list[ThreadMessage]]]:
    """The messages at some places, with the thread they are of, thread by thread. What was deleted since
    is left out."""
    found: list[tuple[str, list[ThreadMessage]]] = []
    for thread_id, first, last in _stretches(places):
        window = MessageRange(after=first - 1, before=last + 1, resource_id=resource_id)
        try:
            messages = await store.read_messages(tenant, thread_id, window, limit=last - first + 1)
        except NotFound:
            continue
        if found and found[-1][0] == thread_id:
            found[-1][1].extend(messages)
        else:
            found.append((thread_id, messages))
    return [(thread_id, messages) for thread_id, messages in found if messages]


def _stretches(places: Sequence[Place]) -> list[tuple[str, int, int]]:
    """Places that lie beside each other, together."""
    found: list[tuple[str, int, int]] = []
    for thread_id, position in places:
        if found and found[-1][0] == thread_id and found[-1][2] == position - 1:
            found[-1] = (thread_id, found[-1][1], position)
        else:
            found.append((thread_id, position, position))
    return found
