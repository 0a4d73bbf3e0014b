"""Following a run: what is stored, then what happens, without a gap."""

import asyncio
from collections.abc import AsyncIterator

import msgspec

from entracte_server.domain.data import Data
from entracte_server.domain.errors import Refusal
from entracte_server.domain.follow_ups import FollowUpRow
from entracte_server.domain.runs import TERMINAL, RunRow, RunState, Snapshot
from entracte_server.engine.engine import Engine, draining
from entracte_server.engine.hub import Subscription
from entracte_server.store.base import NotFound
from entracte_server.wire import codec

PAGE = 1024 * 1024
"""How much of a log is read at once, and the largest message sent, in bytes."""


LOOK_SECONDS = 1.0
"""How often a reader that waits for what comes after the end looks into the store."""


class KeepAlive(Data, frozen=True):
    """Nothing happened for a while; everything up to `through` was sent."""

    through: int


class Reader:
    """One reader of one run, positioned after `after`. Use as a context manager.

    Raises `Refusal` SEQUENCE_TRIMMED or SEQUENCE_AHEAD, and `store.NotFound`.
    """

    def __init__(
        self, engine: Engine, tenant: str, run_id: str, *, after: int = 0, counts: bool = True
    ) -> None:
        self._engine = engine
        self._key = (tenant, run_id)
        self._after = after
        self._subscription: Subscription = engine.hub.subscribe(self._key, counts=counts)

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._engine.hub.unsubscribe(self._subscription)
        # A reader that was cut off because it is slow did not leave: it is to come again.
        cut_off = isinstance(error, Refusal) and error.reason == "READER_TOO_SLOW"
        if self._subscription.counts and not cut_off:
            self._engine.follower_left(self._key)

    async def follow(
        self, run: RunRow, *, until_finished: bool = False, fresh: bool = False
    ) -> AsyncIterator[bytes | KeepAlive]:
        """Entries of chunks, in order and without gaps, until the run rests. `run` is its row as of
        after this reader was made. `fresh`: it was created after that, too, so that all it says
        comes to this reader by itself."""
        if self._after > run.last_sequence:
            raise Refusal(
                "SEQUENCE_AHEAD",
                f"after_sequence {self._after} lies beyond the run's last chunk, {run.last_sequence}.",
                run_id=run.run_id,
                last_sequence=str(run.last_sequence),
            )
        state: RunState = run.state
        stored = self._after if fresh else run.last_sequence
        while True:
            while self._after < stored:
                async for entries in self._from_log():
                    yield entries
            if self._subscription.lagging:
                # More came meanwhile than is held: what it was, the end perhaps, only the store knows.
                self._subscription.lagging = False
                run = await self._engine.store.get_run(*self._key)
                state, stored = run.state, run.last_sequence
                continue
            if self._rests(state, until_finished):
                # What was committed while the log was read may have woken the run again.
                events = self._subscription.take()
                if not events:
                    return
            else:
                if not await self._wait() and not self._engine.draining:
                    yield KeepAlive(self._after)
                events = self._subscription.take()
                if not events:
                    self._engine.check_stranded(self._key)
                    if self._engine.draining:
                        raise draining()
            # What piled up while the client was written to goes out as one message.
            pieces: list[bytes] = []
            missing = False
            for event in events:
                row = event.row
                if row is not None and row.last > self._after:
                    missing = row.first != self._after + 1
                    if missing:
                        break
                    self._after = row.last
                    pieces.append(row.data)
                if event.state is not None:
                    state = event.state
            stored = self._after
            if pieces:
                for piece in codec.split(pieces[0] if len(pieces) == 1 else b"".join(pieces), PAGE):
                    yield piece
            if missing:
                run = await self._engine.store.get_run(*self._key)
                state, stored = run.state, run.last_sequence

    def _rests(self, state: RunState, until_finished: bool) -> bool:
        return state in TERMINAL or (state == "suspended" and not until_finished)

    async def _from_log(self) -> AsyncIterator[bytes]:
        rows, first = await self._engine.store.read_chunks(*self._key, after=self._after, limit_bytes=PAGE)
        if self._after + 1 < first:
            raise Refusal(
                "SEQUENCE_TRIMMED",
                f"The chunks before {first} are no longer stored.",
                run_id=self._key[1],
                first_sequence=str(first),
            )
        if not rows:
            raise NotFound(self._key[1])
        for row in rows:
            data = codec.without_first(row.data, self._after - row.first + 1)
            self._after = row.last
            for piece in codec.split(data, PAGE):
                yield piece

    async def _wait(self) -> bool:
        """Until something happens, but not on a server that stops: that it does was said once, and
        perhaps when this reader was busy."""
        # What happens to a run that is not executed here, other processes tell.
        self._engine.hub.listen(self._subscription, self._engine.idle(self._key))
        return await self._subscription.wait(0 if self._engine.draining else self._engine.settings.keep_alive)

    async def late(self) -> AsyncIterator[list[FollowUpRow] | KeepAlive]:
        """What is done about the run after its end, as it is settled, until all of it is. A run that has
        not ended has nothing of this."""
        engine, told, waited = self._engine, set[tuple[str, str]](), 0.0
        while True:
            rows = await engine.store.follow_ups(self._key[0], [self._key[1]])
            if not rows:
                await engine.store.get_run(*self._key)  # it may be gone
            settled = [row for row in rows if row.state != "waiting" and (row.kind, row.name) not in told]
            if settled:
                told.update((row.kind, row.name) for row in settled)
                waited = 0.0
                yield settled
            if len(told) == len(rows):
                return
            if engine.draining:
                raise draining()
            if waited >= engine.settings.keep_alive:
                waited = 0.0
                yield KeepAlive(self._after)
            # Whoever settles one tells; should that be lost, looking is what counts.
            engine.hub.listen(self._subscription, True)
            before = asyncio.get_running_loop().time()
            await self._subscription.wait(min(LOOK_SECONDS, engine.settings.keep_alive))
            waited += asyncio.get_running_loop().time() - before
            self._subscription.take()
            self._subscription.lagging = False

    async def follow_part(
        self, child: Snapshot, root: RunRow, *, until_finished: bool = False
    ) -> AsyncIterator[bytes | KeepAlive]:
        """Of the chunks of `root`, whose reader this is, those of a sub-agent and what it delegated to,
        until its run has ended or the root rests."""
        if child.run.state in TERMINAL:  # what is stored is all there is
            root = msgspec.structs.replace(root, state=child.run.state)
        async for item in self.follow(root, until_finished=until_finished):
            if isinstance(item, KeepAlive):
                yield item
                continue
            piece, ended = codec.under(item, child.spec.path)
            if piece:
                yield piece
            if ended:
                return

    async def until_rest(
        self, run: RunRow, *, after: int | None = None, until_finished: bool = False
    ) -> Snapshot:
        """All of the run when it next parks (unless `until_finished`) or ends after `after` (this
        reader's position, unless given); at once when it rests and has gone beyond that. `run` is its
        row as of after this reader was made."""
        if after is not None:
            self._after = after
        store = self._engine.store
        while True:
            if self._rests(run.state, until_finished) and run.last_sequence > self._after:
                snapshot = await store.load(*self._key)
                run = snapshot.run
                if self._rests(run.state, until_finished):
                    return snapshot
            woken = await self._wait()
            states = [event.state for event in self._subscription.take() if event.state is not None]
            lagging, self._subscription.lagging = self._subscription.lagging, False
            if not woken or not (states or lagging):  # woken to hear that nobody goes on with it
                self._engine.check_stranded(self._key)
                if self._engine.draining:
                    raise draining()
            if lagging or not woken:
                run = await store.get_run(*self._key)
            elif states:
                # Its last sequence is not told, but it has gone on to be where it is.
                run = msgspec.structs.replace(run, state=states[-1], last_sequence=self._after + 1)
