"""Who wants to hear of what: the bookkeeping behind `Signals`, over whatever carries a text.

Messages are JSON: `[kind, sender, topics]`.

    hello     the sender is new here: all tell it what they watch
    watch     the sender watches these topics (repeated every few seconds)
    unwatch   it does not any more
    tell      something happened to these topics
    bye       the sender goes; it watches nothing

Messages may be lost, late, doubled or out of order. An interest that is not repeated for a while is
dropped, so neither a lost `unwatch` nor a process that died without a `bye` stays for ever.
"""

import asyncio
import json
import logging
import time
from collections.abc import Iterator, Sequence
from typing import Protocol

from entracte_server.store.signals import Listener

MAX_MESSAGE_BYTES = 7_000
"""A message is smaller than this, in UTF-8. PostgreSQL's NOTIFY takes 8,000 bytes."""

RETRY_SECONDS = 0.005

KEEP_SECONDS, KEEP_PERIODS = 20.0, 3
"""An interest is dropped when it was not repeated for that long and for that many of our own periods:
whose periods are longer is not forgotten by those whose are shorter."""

MAX_RECENT = 4096

_log = logging.getLogger(__name__)


class Transport(Protocol):
    """Carries texts to other processes. Does not block, does not raise."""

    def broadcast(self, text: str) -> bool:
        """To all other processes. False: some could not take it now, it is worth another try in some
        milliseconds. A transport says so for a second at most of one process."""
        ...

    def send(self, process_id: str, text: str) -> bool:
        """To one process. False: as for `broadcast`. True says nothing about its arrival."""
        ...


class Interests:
    """Implements `Signals`. All methods are to be called on the event loop; none raises.

    Until `start` and after `stop` nothing is sent; what is watched is kept.
    """

    def __init__(self) -> None:
        self._process_id = ""
        self._transport: Transport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listener: Listener = _nobody
        # What we watch and how often, and what of it is to be said to the others.
        self._watched: dict[str, int] = {}
        self._changed: dict[str, None] = {}
        # Who watches a topic, and the time and period of ours when it last said so.
        self._watchers: dict[str, dict[str, tuple[float, int]]] = {}
        self._period = 0
        # What is to be told to whom.
        self._outgoing: dict[str, dict[str, None]] = {}
        self._flush: asyncio.Handle | None = None
        # What was told of late. Who begins to watch looked before, and its message took a while: it is
        # told again what happened in between.
        self._recent: dict[str, None] = {}

    def start(self, process_id: str, transport: Transport) -> None:
        """From now on this is `process_id`, and `transport` carries what it says."""
        self.stop()
        self._process_id, self._transport = process_id, transport
        self._loop = asyncio.get_running_loop()
        transport.broadcast(self._message("hello", ()))
        self._repeat()

    def stop(self) -> None:
        """Say what is still to be said, and good-bye. Idempotent."""
        if self._transport is not None:
            self._send_all()
            self._transport.broadcast(self._message("bye", ()))
            self._transport = None
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        for held in (self._changed, self._watchers, self._outgoing, self._recent):
            held.clear()

    def announce(self) -> None:
        """Repeat what is watched and forget what others did not repeat. To be called every few seconds."""
        self._period += 1
        self._recent.clear()
        oldest = time.monotonic() - KEEP_SECONDS
        for topic, watchers in list(self._watchers.items()):
            for process_id, (heard, period) in list(watchers.items()):
                if heard < oldest and self._period - period > KEEP_PERIODS:
                    self._drop(process_id, topic)
        self._repeat()

    # ---- Signals ----

    def listen(self, listener: Listener) -> None:
        """See `Signals.listen`."""
        self._listener = listener

    def watch(self, topic: str) -> None:
        """See `Signals.watch`."""
        count = self._watched.get(topic, 0)
        self._watched[topic] = count + 1
        if not count:
            self._changes(topic)

    def unwatch(self, topic: str) -> None:
        """See `Signals.unwatch`."""
        count = self._watched.get(topic, 0)
        if count > 1:
            self._watched[topic] = count - 1
        elif count:
            del self._watched[topic]
            self._changes(topic)

    def tell(self, topic: str) -> None:
        """See `Signals.tell`. Called for every commit: nearly free when nobody else watches."""
        if len(self._recent) >= MAX_RECENT:
            self._recent.clear()
        self._recent[topic] = None
        for process_id in self._watchers.get(topic, ()):
            self._enqueue(process_id, topic)

    def send(self, process_id: str, topic: str) -> None:
        """See `Signals.send`."""
        if process_id != self._process_id:
            self._enqueue(process_id, topic)

    # ---- what others say ----

    def receive(self, text: str) -> None:
        """A text that the transport brought. One that is no message of ours is ignored."""
        try:
            kind, sender, topics = json.loads(text)
            if not (isinstance(sender, str) and all(isinstance(topic, str) for topic in topics)):
                raise TypeError("ids and topics are texts")
        except (ValueError, TypeError, RecursionError) as error:
            _log.debug("a message of another program: %s", error)
            return
        if self._transport is None or sender == self._process_id:
            return
        if kind == "tell":
            for topic in topics:
                self._hear(topic)
        elif kind == "watch":
            self._watches(sender, topics)
        elif kind == "unwatch":
            for topic in topics:
                self._drop(sender, topic)
        elif kind == "hello":
            self._repeat()
        elif kind == "bye":
            self._outgoing.pop(sender, None)
            for topic in list(self._watchers):
                self._drop(sender, topic)

    def _hear(self, topic: str) -> None:
        try:
            self._listener(topic)
        except Exception:
            _log.exception("the listener failed")

    def _watches(self, sender: str, topics: list[str]) -> None:
        now = (time.monotonic(), self._period)
        for topic in topics:
            watchers = self._watchers.setdefault(topic, {})
            if sender not in watchers and topic in self._recent:
                self._enqueue(sender, topic)
            watchers[sender] = now

    def _drop(self, process_id: str, topic: str) -> None:
        if (watchers := self._watchers.get(topic)) is not None:
            watchers.pop(process_id, None)
            if not watchers:
                del self._watchers[topic]

    # ---- what we say ----

    def _changes(self, topic: str) -> None:
        if self._transport is not None:
            self._changed[topic] = None
            self._soon()

    def _repeat(self) -> None:
        if self._transport is not None and self._watched:
            self._changed.update(dict.fromkeys(self._watched))
            self._soon()

    def _enqueue(self, process_id: str, topic: str) -> None:
        if self._transport is not None:
            self._outgoing.setdefault(process_id, {})[topic] = None
            self._soon()

    def _soon(self) -> None:
        if self._flush is None and self._loop is not None:
            self._flush = self._loop.call_soon(self._send_all)

    def _send_all(self) -> None:
        """Send what has gathered since the last iteration of the event loop."""
        self._flush = None
        if (transport := self._transport) is None or self._loop is None:
            return
        sent = [self._send_changes(transport)]
        sent += [self._send_tells(transport, process_id) for process_id in list(self._outgoing)]
        if not all(sent):
            self._flush = self._loop.call_later(RETRY_SECONDS, self._send_all)

    def _send_changes(self, transport: Transport) -> bool:
        for kind, watched in (("watch", True), ("unwatch", False)):
            topics = [topic for topic in self._changed if (topic in self._watched) is watched]
            for text, part in self._messages(kind, topics):
                if not transport.broadcast(text):
                    return False
                for topic in part:
                    del self._changed[topic]
        self._changed.clear()
        return True

    def _send_tells(self, transport: Transport, process_id: str) -> bool:
        topics = self._outgoing[process_id]
        for text, part in self._messages("tell", list(topics)):
            if not transport.send(process_id, text):
                return False
            for topic in part:
                del topics[topic]
        del self._outgoing[process_id]
        return True

    def _message(self, kind: str, topics: Sequence[str]) -> str:
        return json.dumps([kind, self._process_id, topics], separators=(",", ":"))

    def _messages(self, kind: str, topics: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
        """The messages that say it, and the topics of each. None for no topics; a topic that no message
        can hold is left out."""
        room = MAX_MESSAGE_BYTES - len(self._message(kind, ()))
        part: list[str] = []
        used = 0
        for topic in topics:
            size = len(json.dumps(topic)) + 1  # what is not ASCII is escaped: characters are bytes
            if size > room:
                continue
            if used + size > room:
                yield self._message(kind, part), part
                part, used = [], 0
            part.append(topic)
            used += size
        if part:
            yield self._message(kind, part), part


def _nobody(topic: str) -> None:
    pass
