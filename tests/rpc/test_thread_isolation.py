"""Ten users of two tenants, all with the same names for their threads: what happens is compared with a plain
account of it, over sequences that hypothesis makes. Nobody is told, shown or denied anything of another's.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from entracte.v1 import message_pb2, options_pb2
from entracte.v1 import thread_service_pb2 as threads
from entracte_server import Agent
from entracte_server.testing import scripted
from tests.rpc.support import Peer, generate, peer_of, serving

KEYS = [
    {"key": "key-of-north-0123", "principal": "app", "tenant": "north"},
    {"key": "key-of-south-0123", "principal": "app", "tenant": "south"},
]
USERS = [f"user-{number}" for number in range(10)]
NAMES = ["main", "a b", "ünï", "main-2"]


@dataclass(frozen=True)
class Do:
    """One thing that a tenant does for a user."""

    tenant: int
    user: str
    thread: str
    what: str


@dataclass
class Kept:
    """A thread as it must be."""

    user: str
    title: str = ""
    texts: list[str] = field(default_factory=list)


Account = dict[tuple[int, str], Kept]

STEPS = st.builds(
    Do,
    tenant=st.integers(0, 1),
    user=st.sampled_from(USERS),
    thread=st.sampled_from(NAMES),
    what=st.sampled_from(["say", "say", "say", "read", "title", "delete", "create"]),
)


def sequences(count: int) -> list[list[Do]]:
    """Some of them, made before the first is played."""
    found: list[list[Do]] = []

    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(STEPS, min_size=8, max_size=30))
    def make(steps: list[Do]) -> None:
        found.append(steps)

    make()
    return found


class Played:
    """Two tenants on one server, and the account of what they did."""

    def __init__(self, peers: list[Peer], model: Any) -> None:
        self.peers = peers
        self.model = model
        self.account: Account = {}
        self.said = 0

    async def start_over(self) -> None:
        """Delete everything."""
        for tenant, name in list(self.account):
            await self._delete(tenant, name)
        self.account.clear()

    async def do(self, step: Do) -> None:
        """Do it, and hold the outcome to the account."""
        key = (step.tenant, step.thread)
        kept = self.account.get(key)
        peer = self.peers[step.tenant]
        match step.what:
            case "say" | "read":
                await self._say(step, kept)
            case "create":
                request = threads.CreateThreadRequest(thread_id=step.thread, resource_id=step.user)
                if kept is None:
                    await peer.one("CreateThread", request)
                    self.account[key] = Kept(step.user)
                else:
                    assert (await peer.refuse("CreateThread", request)).reason == "THREAD_EXISTS"
            case "title":
                title = f"of {step.user}"
                change = threads.UpdateThreadRequest(thread_id=step.thread, title=title)
                if kept is None:
                    assert (await peer.refuse("UpdateThread", change)).reason == "THREAD_NOT_FOUND"
                else:
                    await peer.one("UpdateThread", change)
                    kept.title = title
            case "delete":
                if kept is not None:
                    await self._delete(step.tenant, step.thread)
                    del self.account[key]

    async def _delete(self, tenant: int, name: str) -> None:
        await self.peers[tenant].one("DeleteThread", threads.DeleteThreadRequest(thread_id=name))

    async def _say(self, step: Do, kept: Kept | None) -> None:
        """The model is told what was said on this thread, and nothing else."""
        self.said += 1
        text = f"{self.said}: {step.tenant} {step.user} {step.thread}"
        memory = options_pb2.MemoryOptions(
            thread=options_pb2.ThreadRef(id=step.thread),
            resource=step.user,
            last_messages=1000,
            read_only=step.what == "read",
        )
        request = generate("echo", text, memory=memory)
        peer = self.peers[step.tenant]
        if kept is not None and kept.user != step.user:
            assert (await peer.refuse("Generate", request)).reason == "THREAD_OF_OTHER_RESOURCE"
            return
        response = await peer.one("Generate", request)
        before = [] if kept is None else kept.texts
        assert [message.text for message in self.model.requests[-1].messages] == [*before, text]
        remembered = [part.text.text for m in response.result.remembered_messages for part in m.parts]
        assert remembered == before
        if step.what == "say":
            kept = self.account.setdefault((step.tenant, step.thread), Kept(step.user))
            kept.texts += [text, f"heard {text}"]

    async def check(self) -> None:
        """What is listed is what the account says."""
        for tenant, peer in enumerate(self.peers):
            expected = {name: kept for (owner, name), kept in self.account.items() if owner == tenant}
            for user in ("", *USERS):
                listed = await peer.one("ListThreads", threads.ListThreadsRequest(resource_id=user))
                found = {thread.thread_id: (thread.resource_id, thread.title) for thread in listed.threads}
                assert found == {
                    name: (kept.user, kept.title)
                    for name, kept in expected.items()
                    if user in ("", kept.user)
                }
            for name in NAMES:
                request = threads.ListThreadMessagesRequest(thread_id=name, page_size=1000)
                if name not in expected:
                    assert (await peer.refuse("ListThreadMessages", request)).reason == "THREAD_NOT_FOUND"
                    continue
                messages = (await peer.one("ListThreadMessages", request)).messages
                assert [message.parts[0].text.text for message in messages] == expected[name].texts
                roles = [message_pb2.ROLE_USER, message_pb2.ROLE_ASSISTANT] * (len(messages) // 2)
                assert [message.role for message in messages] == roles


@pytest_asyncio.fixture
async def played(each_store: None) -> AsyncIterator[Played]:
    """A server with an agent that says what it heard."""
    model = scripted(lambda request: [{"text": f"heard {request.messages[-1].text}"}])
    agent = Agent(id="echo", model=model)
    north, south = (key["key"] for key in KEYS)
    async with (
        serving(agent, only=True, api_keys=KEYS, key=north) as (server, one),
        peer_of(server.address, south) as other,
    ):
        yield Played([one, other], model)


async def test_nothing_leaks(played: Played) -> None:
    """Over random sequences of what an application does for its users."""
    for steps in sequences(12):
        for step in steps:
            await played.do(step)
        await played.check()
        await played.start_over()
