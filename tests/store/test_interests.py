"""Who is told what: the bookkeeping of signals, on a transport that shows what it carried."""

import asyncio
import json
from collections import Counter
from typing import Any

import pytest

from entracte_server.store import interests
from entracte_server.store.interests import Interests


class Post:
    """Carries texts between processes of this test, at once, and keeps them."""

    def __init__(self) -> None:
        self.processes: dict[str, Interests] = {}
        self.heard: dict[str, list[str]] = {}
        self.carried: list[str] = []
        self.full: set[str] = set()

    def join(self, name: str) -> Interests:
        process = self.processes[name] = Interests()
        self.heard[name] = []
        process.listen(self.heard[name].append)
        process.start(name, _Line(self, name))
        return process

    def kinds(self) -> Counter[str]:
        """What was carried since the last time, by kind."""
        counted = Counter(json.loads(text)[0] for text in self.carried)
        self.carried.clear()
        return counted


class _Line:
    def __init__(self, post: Post, name: str) -> None:
        self._post, self._name = post, name

    def broadcast(self, text: str) -> bool:
        return all([self.send(name, text) for name in self._post.processes])

    def send(self, process_id: str, text: str) -> bool:
        if process_id in self._post.full:
            return False
        self._post.carried.append(text)
        self._post.processes[process_id].receive(text)
        return True


async def turn() -> None:
    """Let what was queued for the next iterations of the event loop be done."""
    for _ in range(4):
        await asyncio.sleep(0)


@pytest.fixture
def post() -> Post:
    return Post()


async def test_only_those_who_watch_are_told(post: Post) -> None:
    one, two, three = post.join("1"), post.join("2"), post.join("3")
    two.watch("a")
    two.watch("b")
    three.watch("b")
    await turn()
    post.kinds()
    one.tell("a")
    one.tell("b")
    one.tell("c")
    await turn()
    assert post.heard == {"1": [], "2": ["a", "b"], "3": ["b"]}
    assert post.kinds() == {"tell": 2}


async def test_telling_costs_no_message_when_nobody_watches(post: Post) -> None:
    one, _ = post.join("1"), post.join("2")
    one.watch("a")
    await turn()
    post.kinds()
    for _ in range(1000):
        one.tell("a")
    await turn()
    assert not post.kinds()


async def test_what_is_told_in_one_turn_goes_together_and_once(post: Post) -> None:
    one, two = post.join("1"), post.join("2")
    for topic in "abc":
        two.watch(topic)
    await turn()
    assert post.kinds()["watch"] == 2  # one message, to either
    for topic in "abcabcabc":
        one.tell(topic)
    await turn()
    assert post.heard["2"] == ["a", "b", "c"]
    assert post.kinds() == {"tell": 1}


async def test_watches_are_counted(post: Post) -> None:
    one, two = post.join("1"), post.join("2")
    two.watch("a")
    two.watch("a")
    two.unwatch("a")
    await turn()
    one.tell("a")
    await turn()
    assert post.heard["2"] == ["a"]
    two.unwatch("a")
    two.unwatch("a")  # once too often
    await turn()
    one.tell("a")
    await turn()
    assert post.heard["2"] == ["a"]
    two.watch("a")
    await turn()
    one.tell("a")
    await turn()
    assert post.heard["2"][-1] == "a"


async def test_who_comes_later_learns_what_others_watch(post: Post) -> None:
    one = post.join("1")
    one.watch("a")
    await turn()
    two = post.join("2")
    await turn()
    two.tell("a")
    await turn()
    assert post.heard["1"] == ["a"]


async def test_what_was_told_just_before_a_watch_arrived_is_told_again(post: Post) -> None:
    one, two = post.join("1"), post.join("2")
    one.tell("a")
    two.watch("a")
    await turn()
    assert post.heard["2"] == ["a"]
    two.watch("a")
    two.announce()
    await turn()
    assert post.heard["2"] == ["a"]


async def test_a_message_to_one_process_needs_no_watch(post: Post) -> None:
    one, _, _ = post.join("1"), post.join("2"), post.join("3")
    one.send("2", "a")
    one.send("1", "a")
    await turn()
    assert post.heard == {"1": [], "2": ["a"], "3": []}


async def test_good_bye(post: Post) -> None:
    one, two = post.join("1"), post.join("2")
    two.watch("a")
    await turn()
    two.tell("b")
    one.watch("b")
    two.stop()
    two.stop()
    await turn()
    post.kinds()
    one.tell("a")
    two.tell("b")
    two.watch("c")
    two.announce()
    await turn()
    assert not post.kinds()["tell"]
    two.start("2", _Line(post, "2"))  # what it watches is kept
    await turn()
    one.tell("c")
    await turn()
    assert post.heard["2"][-1] == "c"


async def test_an_interest_that_is_not_repeated_is_dropped(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interests, "KEEP_SECONDS", 0.0)
    one, two, three = post.join("1"), post.join("2"), post.join("3")
    two.watch("a")
    three.watch("a")
    await turn()
    del post.processes["2"]  # dies without a word
    for _ in range(interests.KEEP_PERIODS + 1):
        three.announce()
        await turn()
        one.announce()
    await turn()
    post.processes["2"] = two
    one.tell("a")
    await turn()
    assert post.heard == {"1": [], "2": [], "3": ["a"]}


async def test_a_process_that_is_full_gets_it_later(post: Post) -> None:
    one, two = post.join("1"), post.join("2")
    two.watch("a")
    await turn()
    post.full.add("2")
    for _ in range(50):
        one.tell("a")
        await turn()
    one.watch("b")
    await turn()
    post.full.clear()
    arrived: asyncio.Queue[str] = asyncio.Queue()
    two.listen(arrived.put_nowait)
    assert await asyncio.wait_for(arrived.get(), 5) == "a"
    assert arrived.empty()
    two.tell("b")
    await turn()
    assert post.heard["1"] == ["b"]


async def test_messages_fit(post: Post) -> None:
    one, two = post.join("1"), post.join("2")
    topics = [f"run\nacmé-{'ß' * 40}\0\n{number}" for number in range(1000)]
    for topic in topics:
        two.watch(topic)
        one.tell(topic)
    endless = "x" * interests.MAX_MESSAGE_BYTES
    two.watch(endless)
    one.tell(endless)
    one.send("2", endless)
    await turn()
    assert sorted(post.heard["2"]) == sorted(topics)
    sizes = [len(text.encode()) for text in post.carried]
    assert interests.MAX_MESSAGE_BYTES / 2 < max(sizes) <= interests.MAX_MESSAGE_BYTES


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        '["tell","2"]',
        '["tell",2,["a"]]',
        '["tell","2",[1]]',
        '["tell","2",7]',
        '[["tell"],"2",["a"]]',
        '["shout","2",["a"]]',
        "[" * 100_000,
    ],
)
async def test_what_is_no_message_is_ignored(post: Post, text: str) -> None:
    one = post.join("1")
    one.receive(text)
    assert post.heard["1"] == []


async def test_a_listener_that_fails_disturbs_nobody(post: Post, caplog: pytest.LogCaptureFixture) -> None:
    one, two = post.join("1"), post.join("2")
    heard = []

    def listener(topic: str) -> Any:
        heard.append(topic)
        raise ValueError("oops")

    two.listen(listener)
    one.send("2", "a")
    one.send("2", "b")
    await turn()
    assert heard == ["a", "b"]
    assert "listener failed" in caplog.text
