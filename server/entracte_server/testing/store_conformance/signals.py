"""Signals: hints from one process to those that asked for them. A store may lose some; it must not lose
all, and it must not send them to who did not ask."""

import asyncio

from entracte_server.store.base import Store
from entracte_server.store.signals import command_topic, inbox_topic, run_topic
from entracte_server.testing.store_conformance.builders import unique
from entracte_server.testing.store_conformance.suite import OpenStore, StoreSuite

LONG = 600.0
PATIENCE = 20.0


class Ear:
    """What a process heard."""

    def __init__(self, store: Store) -> None:
        self.process_id = unique("process")
        self.store = store
        self.heard: list[str] = []
        self._news = asyncio.Event()
        store.signals.listen(self._hear)

    def _hear(self, topic: str) -> None:
        self.heard.append(topic)
        self._news.set()

    async def enter(self) -> "Ear":
        await self.store.enter(self.process_id, LONG)
        return self

    async def hears(self, topic: str) -> None:
        """Wait until it has heard of `topic`."""
        async with asyncio.timeout(PATIENCE):
            while topic not in self.heard:
                self._news.clear()
                await self._news.wait()


async def told(speaker: Ear, listener: Ear, topic: str) -> None:
    """Tell until it is heard: how soon a watch is known to others is not promised."""
    async with asyncio.timeout(PATIENCE):
        while topic not in listener.heard:
            speaker.store.signals.tell(topic)
            await asyncio.sleep(0.02)


async def settled(one: Ear, two: Ear) -> None:
    """What was sent from one to the other so far has arrived."""
    for speaker, listener in ((one, two), (two, one)):
        mark = unique("mark")
        speaker.store.signals.send(listener.process_id, mark)
        await listener.hears(mark)


class SignalSuite(StoreSuite):
    """`signals`."""

    async def test_who_watches_is_told(self, open_store: OpenStore) -> None:
        one, two, three = [await Ear(await open_store()).enter() for _ in range(3)]
        topic, other = run_topic("acme", "run"), run_topic("acme", "another")
        two.store.signals.watch(topic)
        three.store.signals.watch(other)
        await told(one, two, topic)
        await told(one, three, other)
        assert topic not in three.heard
        assert other not in two.heard
        assert one.heard == []

    async def test_who_watches_no_more_is_not_told(self, open_store: OpenStore) -> None:
        one, two = [await Ear(await open_store()).enter() for _ in range(2)]
        topic = inbox_topic("acme")
        two.store.signals.watch(topic)
        two.store.signals.watch(topic)
        await told(one, two, topic)
        two.store.signals.unwatch(topic)
        await settled(one, two)
        two.heard.clear()
        await told(one, two, topic)  # there is one watch left
        two.store.signals.unwatch(topic)
        await settled(one, two)
        two.heard.clear()
        one.store.signals.tell(topic)
        await settled(one, two)
        assert topic not in two.heard

    async def test_one_process_is_told_unasked(self, open_store: OpenStore) -> None:
        one, two, three = [await Ear(await open_store()).enter() for _ in range(3)]
        topic = command_topic("acme", "run")
        one.store.signals.send(two.process_id, topic)
        await two.hears(topic)
        await settled(one, three)
        assert topic not in three.heard

    async def test_what_was_watched_before_entering(self, open_store: OpenStore) -> None:
        one = await Ear(await open_store()).enter()
        two = Ear(await open_store())
        two.store.signals.watch("topic")
        one.store.signals.tell("topic")
        await two.enter()
        await told(one, two, "topic")

    async def test_topics_of_any_letters_in_any_number(self, open_store: OpenStore) -> None:
        one, two = [await Ear(await open_store()).enter() for _ in range(2)]
        topics = [run_topic("Grüße 🙈 '\"\\\0", f"run-{number}") for number in range(500)]
        for topic in topics:
            two.store.signals.watch(topic)
        await told(one, two, topics[-1])
        async with asyncio.timeout(PATIENCE):
            while not set(topics) <= set(two.heard):
                for topic in topics:
                    one.store.signals.tell(topic)
                await asyncio.sleep(0.05)

    async def test_who_enters_anew_is_told_again(self, open_store: OpenStore) -> None:
        one, two = [await Ear(await open_store()).enter() for _ in range(2)]
        two.store.signals.watch("topic")
        await told(one, two, "topic")
        two.heard.clear()
        await two.store.enter(unique("process"), LONG)  # its lease was lost: it is another process now
        await told(one, two, "topic")

    async def test_after_leaving_and_before_entering_nothing_is_told(self, open_store: OpenStore) -> None:
        one, two, three = [await Ear(await open_store()).enter() for _ in range(3)]
        two.store.signals.watch("topic")
        await told(one, two, "topic")
        await two.store.leave(two.process_id)
        await settled(one, three)
        two.heard.clear()
        one.store.signals.tell("topic")
        one.store.signals.send(two.process_id, "topic")
        two.store.signals.tell("topic")
        two.store.signals.send(one.process_id, "topic")
        await settled(one, three)
        assert (one.heard.count("topic"), two.heard) == (0, [])
