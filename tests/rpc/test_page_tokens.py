"""Page tokens: pages are complete and without repetitions; a token goes on with its own list only."""

import base64
import functools
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from entracte.v1 import agent_service_pb2 as agents
from entracte.v1 import catalog_service_pb2 as catalog
from entracte.v1 import inbox_service_pb2 as inbox
from entracte.v1 import message_pb2, options_pb2, run_pb2
from entracte.v1 import run_service_pb2 as runs
from entracte.v1 import thread_service_pb2 as threads
from tests.rpc.support import Peer, definition, generate, ref, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOTAL = 7


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def served() -> AsyncIterator[Peer]:
    """A peer of a server with some runs, pending calls and decisions."""
    async with serving() as (_, peer):
        for _ in range(TOTAL):
            _, (pending,) = await peer.parked()
            await peer.one("Decline", agents.DeclineRequest(call=ref(pending.pending_call_id), wait=True))
            await peer.parked()
        for number in range(TOTAL):
            await peer.thread(f"t-{number}")
            version = catalog.CreateAgentVersionRequest(agent_id="made", definition=definition())
            await peer.one("CreateAgentVersion", version)
            memory = options_pb2.MemoryOptions(thread=options_pb2.ThreadRef(id="t-0"), resource="ada")
            await peer.one("Generate", generate("talk", f"word {number}", memory=memory))
        yield peer


LISTS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "ListRuns": (
        runs.ListRunsRequest,
        "runs",
        {"states": [run_pb2.RUN_STATE_SUSPENDED, run_pb2.RUN_STATE_SUCCEEDED]},
    ),
    "ListPendingCalls": (inbox.ListPendingCallsRequest, "pending_calls", {"agent_id": "gate"}),
    "ListDecisions": (inbox.ListDecisionsRequest, "decisions", {"principal": "local"}),
    "ListAgents": (catalog.ListAgentsRequest, "agents", {}),
    "ListAgentVersions": (
        functools.partial(catalog.ListAgentVersionsRequest, agent_id="made"),
        "versions",
        {},
    ),
    "ListThreads": (threads.ListThreadsRequest, "threads", {"resource_id": "ada"}),
    "ListThreadMessages": (
        functools.partial(threads.ListThreadMessagesRequest, thread_id="t-0"),
        "messages",
        {"roles": [message_pb2.ROLE_USER, message_pb2.ROLE_ASSISTANT]},
    ),
}
"""The lists: their requests, the field with the items, and a filter that lets all pass."""

OTHER_FILTERS: dict[str, list[dict[str, Any]]] = {
    "ListRuns": [
        {"agent_id": "talk"},
        {"thread_id": "t"},
        {"states": [run_pb2.RUN_STATE_SUSPENDED]},
        {"include_children": True},
    ],
    "ListPendingCalls": [
        {"run_id": "r"},
        {"agent_id": "gate"},
        {"thread_id": "t"},
        {"resource_id": "r"},
        {"include_decided": True},
    ],
    "ListDecisions": [{"run_id": "r"}, {"pending_call_id": "p"}, {"principal": "local"}],
    "ListThreads": [{"resource_id": "ada"}],
    "ListAgents": [],
    "ListAgentVersions": [{"agent_id": "another"}],
    "ListThreadMessages": [
        {"thread_id": "t-1"},
        {"roles": [message_pb2.ROLE_USER]},
        {"run_id": "r"},
        {"newest_first": True},
    ],
}


async def pages(peer: Peer, method: str, size: int, **where: Any) -> list[list[Any]]:
    """All pages of a list."""
    kind, field, _ = LISTS[method]
    found: list[list[Any]] = []
    token = ""
    while True:
        page = await peer.one(method, kind(page_size=size, page_token=token, **where))
        found.append(list(getattr(page, field)))
        token = page.next_page_token
        if not token:
            return found


@pytest.mark.parametrize("method", LISTS)
async def test_pages_hold_everything_once(served: Peer, method: str) -> None:
    """Page by page the list is the same as at once, in the same order; the last page has no token."""
    (everything,) = await pages(served, method, 1000)
    assert len(everything) >= TOTAL
    for size in (1, 3, len(everything) - 1, len(everything)):
        found = await pages(served, method, size)
        assert [item for page in found for item in page] == everything
        assert all(len(page) == size for page in found[:-1])
        assert found[-1]
    filtered = await pages(served, method, 2, **LISTS[method][2])
    assert [item for page in filtered for item in page] == everything


async def test_orders(served: Peer) -> None:
    """Runs, decisions and threads come newest first, pending calls and messages oldest first; messages
    newest first where that is asked for."""
    (listed,) = await pages(served, "ListRuns", 1000)
    created = [run.create_time.ToMilliseconds() for run in listed]
    assert created == sorted(created, reverse=True)
    (pending,) = await pages(served, "ListPendingCalls", 1000)
    waited = [call.create_time.ToMilliseconds() for call in pending]
    assert waited == sorted(waited)
    (decided,) = await pages(served, "ListDecisions", 1000)
    times = [decision.decide_time.ToMilliseconds() for decision in decided]
    assert times == sorted(times, reverse=True)
    (kept,) = await pages(served, "ListThreads", 1000)
    assert [thread.thread_id for thread in kept] == [f"t-{number}" for number in reversed(range(TOTAL))]
    (said,) = await pages(served, "ListThreadMessages", 1000)
    assert [message.position for message in said] == list(range(1, 2 * TOTAL + 1))
    backwards = await pages(served, "ListThreadMessages", 3, newest_first=True)
    assert [message for page in backwards for message in page] == said[::-1]


@pytest.mark.parametrize("method", LISTS)
async def test_sizes(served: Peer, method: str) -> None:
    """0 is the default of 50, more than 1000 is 1000."""
    kind, field, _ = LISTS[method]
    for size in (0, 1000, 1001, 2**31 - 1):
        page = await served.one(method, kind(page_size=size))
        assert TOTAL <= len(getattr(page, field)) <= 50


def _encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


GARBAGE = [
    "x",
    "garbage",
    "=",
    "====",
    "é",
    "\0",
    " ",
    "a b",
    "-" * 100_000,
    _encoded(None),
    _encoded(1),
    _encoded([]),
    _encoded({}),
    _encoded({"a": 1, "b": 2, "c": 3}),
    _encoded([1, "x", "y"]),
    _encoded([1, "x", {"y": 1}]),
    _encoded([[[[]]]]),
    base64.urlsafe_b64encode(b"[" * 100_000).decode(),
    base64.urlsafe_b64encode(b"[1" + b"0" * 100_000 + b"]").decode(),
    base64.urlsafe_b64encode(b"\xff\xfe").decode(),
]


@pytest.mark.parametrize("method", LISTS)
async def test_garbage_is_no_token(served: Peer, method: str) -> None:
    """PAGE_TOKEN_INVALID naming the field."""
    kind, _, _ = LISTS[method]
    for token in GARBAGE:
        refusal = await served.refuse(method, kind(page_token=token))
        assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "PAGE_TOKEN_INVALID"), token[:40]
        assert list(refusal.violations) == ["page_token"]


@pytest.mark.parametrize("method", LISTS)
async def test_a_token_that_was_tampered_with_is_none(served: Peer, method: str) -> None:
    """No character of a token can be changed, and no position made up under a right frame."""
    kind, _, _ = LISTS[method]
    token = (await served.one(method, kind(page_size=1))).next_page_token
    frame = json.loads(base64.urlsafe_b64decode(token))
    for cursor in ("0", "AAAA", "A" * 22, frame[2][:-2] + "AA", frame[2] + "AAAA"):
        if cursor != frame[2]:
            forged = _encoded([*frame[:2], cursor])
            refusal = await served.refuse(method, kind(page_size=1, page_token=forged))
            assert refusal.reason == "PAGE_TOKEN_INVALID", cursor
    refusal = await served.refuse(method, kind(page_size=1, page_token=_encoded([2, *frame[1:]])))
    assert refusal.reason == "PAGE_TOKEN_INVALID"


@pytest.mark.parametrize("method", LISTS)
async def test_a_token_of_another_list_is_none(served: Peer, method: str) -> None:
    """Each list has tokens of its own."""
    kind, _, _ = LISTS[method]
    token = (await served.one(method, kind(page_size=1))).next_page_token
    assert token
    for other, (other_kind, _, _) in LISTS.items():
        if other != method:
            refusal = await served.refuse(other, other_kind(page_size=1, page_token=token))
            assert refusal.reason == "PAGE_TOKEN_INVALID"


@pytest.mark.parametrize("method", LISTS)
async def test_a_token_of_another_filter_is_none(served: Peer, method: str) -> None:
    """A page goes on with the filters it began with; another page size is fine."""
    kind, field, _ = LISTS[method]
    token = (await served.one(method, kind(page_size=1))).next_page_token
    for where in OTHER_FILTERS[method]:
        refusal = await served.refuse(method, kind(page_size=1, page_token=token, **where))
        assert refusal.reason == "PAGE_TOKEN_INVALID", where
    more = await served.one(method, kind(page_size=3, page_token=token))
    assert len(getattr(more, field)) == 3


@pytest.mark.parametrize("method", LISTS)
async def test_every_filter_is_tried(method: str) -> None:
    """A new filter cannot be forgotten."""
    kind, _, _ = LISTS[method]
    filters = set(type(kind()).DESCRIPTOR.fields_by_name) - {"page_size", "page_token"}
    assert {name for where in OTHER_FILTERS[method] for name in where} == filters


async def test_a_list_goes_on_while_runs_come_and_go() -> None:
    """Pages are found by position: what is created or deleted between two pages neither hides nor
    repeats another run."""
    async with serving() as (_, peer):
        made = [(await peer.one("Generate", generate())).run.run_id for _ in range(6)]
        first = await peer.one("ListRuns", runs.ListRunsRequest(page_size=3))
        await peer.one("DeleteRun", runs.DeleteRunRequest(run_id=made[3]))
        await peer.one("DeleteRun", runs.DeleteRunRequest(run_id=made[1]))
        await peer.one("Generate", generate())
        second = await peer.one(
            "ListRuns", runs.ListRunsRequest(page_size=3, page_token=first.next_page_token)
        )
        assert [run.run_id for run in first.runs] == made[:2:-1]
        assert [run.run_id for run in second.runs] == [made[2], made[0]]
