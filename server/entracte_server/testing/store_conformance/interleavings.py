"""Any order of what owners and people do to one run, checked after every step.

Owners are played with all their faults: those that lost the run go on writing, every write may be
repeated, and what happens at once happens in any order.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec.structs import replace

from entracte_server.domain.runs import TERMINAL, CallRow, Outcome, PendingRow, RunRow, Snapshot
from entracte_server.store.base import (
    Cancelled,
    Claim,
    CreateRun,
    Decide,
    Decided,
    DecisionFilter,
    LeaseLost,
    PendingFilter,
    Refused,
    Release,
    RunWrite,
    Store,
    Written,
)
from entracte_server.testing.store_conformance.builders import (
    NOW,
    SPEC,
    TENANT,
    a_call,
    a_cancel,
    a_decide,
    a_decision,
    a_park,
    a_pending,
    a_run,
    a_write,
    an_end,
    chunks,
    everything,
    took,
    unique,
)

OpenStores = Callable[[], Awaitable[Sequence[Store]]]
T = TypeVar("T")

indexes = st.integers(0, 1_000_000)
counts = st.integers(1, 3)
principals = st.sampled_from(["bob", "carol"])


class Owner:
    """A process that owns the run, or believes so."""

    def __init__(self, run: RunRow) -> None:
        self.run = run
        self.last = run.last_sequence
        self.writes: list[tuple[RunWrite, Written | None]] = []

    def write(self, **changes: Any) -> RunWrite:
        return a_write(self.run, **changes)


class Interleavings(RuleBasedStateMachine):
    """One run, its owners and the people who decide."""

    open_stores: OpenStores

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stores = self.wait(type(self).open_stores())
        self.turns = itertools.cycle(self.stores)
        run = a_run(fence=1, owner="process-0")
        self.wait(self.store.create_run(CreateRun(run, SPEC)))
        self.owners = [Owner(run)]
        self.fences = [1]
        self.calls: dict[str, CallRow] = {}
        self.opened: list[PendingRow] = []
        self.decided: dict[str, str] = {}
        self.claims: dict[str, str] = {}
        self.cancelled: str | None = None
        self.ended = False
        self.released = False
        self.key = run.tenant, run.run_id

    @initialize(parked=st.booleans(), expires=st.lists(st.booleans(), min_size=2, max_size=5))
    def begin(self, parked: bool, expires: list[bool]) -> None:
        """There is something to decide from the start."""
        owner = self.owners[0]
        calls = [a_call(owner.run, index=index) for index in range(len(expires))]
        opened = [
            a_pending(owner.run, call, expire_time=NOW + 10 if expiring else 0)
            for call, expiring in zip(calls, expires, strict=True)
        ]
        park = a_park(1) if parked else None
        self.write(owner, owner.write(calls=tuple(calls), opened=tuple(opened), park=park))

    def wait(self, work: Awaitable[T]) -> T:
        return self.runner.get_loop().run_until_complete(work)

    @property
    def store(self) -> Store:
        """The stores take turns: what one has done, the next has to know."""
        return next(self.turns)

    def teardown(self) -> None:
        for store in self.stores:
            self.wait(store.close())
        self.runner.close()

    # ---- what happened ----

    @property
    def owner(self) -> Owner | None:
        """Who may write now."""
        row = self.wait(self.store.get_run(*self.key))
        return self.owners[-1] if row.owner else None

    def is_current(self, owner: Owner) -> bool:
        return owner is self.owner

    def took(self, run: RunRow) -> None:
        assert not self.ended
        self.released = False
        assert run.fence == self.fences[-1] + 1, "an ownership without a fence of its own"
        assert run.owner
        self.fences.append(run.fence)
        self.owners.append(Owner(run))

    def wrote(self, owner: Owner, write: RunWrite, written: Written) -> None:
        owner.writes.append((write, written))
        if write.chunks is not None:
            owner.last = write.chunks.last
        if write.park is not None and written.parked:
            owner.last = write.park.chunks.last
        for call in write.calls:
            self.calls[call.call_id] = call
        self.opened.extend(write.opened)
        for decision in write.closed:
            self.decided.setdefault(decision.pending_call_id, decision.decision_id)
        self.ended = self.ended or write.end is not None

    def write(
        self, owner: Owner, write: RunWrite, *others: Awaitable[Any]
    ) -> tuple[Written | None, list[Any]]:
        """An owner writes, while something else happens."""
        current = self.is_current(owner)

        async def at_once() -> list[Any]:
            return await asyncio.gather(self.store.submit(write), *others, return_exceptions=True)

        before = self.wait(self.snapshot()) if not others else None
        written, *rest = self.wait(at_once())
        if not current:
            # An end or a release without chunks cannot be told from the one that was before.
            again = (self.ended and write.end is not None) or (self.released and write.release is not None)
            if not (again and owner is self.owners[-1] and write.chunks is None):
                assert isinstance(written, LeaseLost), written
            assert before is None or self.wait(self.snapshot()) == before
            return None, rest
        assert isinstance(written, Written), written
        self.wrote(owner, write, written)
        return written, rest

    async def snapshot(self) -> tuple[Snapshot, bytes]:
        return await everything(self.store, await self.store.get_run(*self.key))

    def an_owner(self, index: int) -> Owner:
        """The last one most of the time."""
        return self.owners[index % len(self.owners)] if index % 5 == 3 else self.owners[-1]

    # ---- what may happen ----

    @rule(index=indexes, count=counts)
    def append(self, index: int, count: int) -> None:
        owner = self.an_owner(index)
        self.write(owner, owner.write(chunks=chunks(owner.last + 1, owner.last + count)))

    @rule(index=indexes, count=counts, park=st.booleans(), expires=st.booleans())
    def ask(self, index: int, count: int, park: bool, expires: bool) -> None:
        """Open calls, and perhaps park in the same write."""
        owner = self.an_owner(index)
        calls = [a_call(owner.run, index=len(self.calls) + number) for number in range(count)]
        opened = [a_pending(owner.run, call, expire_time=NOW + 10 if expires else 0) for call in calls]
        first = owner.last + 1
        write = owner.write(
            chunks=chunks(first, first),
            calls=tuple(calls),
            opened=tuple(opened),
            park=a_park(first + 1) if park else None,
        )
        self.write(owner, write)

    @rule(index=indexes)
    def park(self, index: int) -> None:
        owner = self.an_owner(index)
        blocked = self.unprocessed()
        written, _ = self.write(owner, owner.write(park=a_park(owner.last + 1)))
        assert written is None or written.parked is not blocked

    def unprocessed(self) -> bool:
        """Whether a decision or a cancellation waits for the owner."""
        snapshot = self.wait(self.store.load(*self.key))
        return snapshot.run.cancel_reason is not None or any(c.state == "decided" for c in snapshot.calls)

    @rule(index=indexes)
    def process(self, index: int) -> None:
        """An owner does what was decided."""
        owner = self.an_owner(index)
        snapshot = self.wait(self.store.load(*self.key))
        calls = [
            replace(call, state="done", outcome=Outcome("result", "1"))
            for call in snapshot.calls
            if call.state in ("decided", "started")
        ]
        self.write(owner, owner.write(calls=tuple(calls)))

    @rule(index=indexes, with_chunks=st.booleans())
    def end(self, index: int, with_chunks: bool) -> None:
        if index % 7 != 4:  # seldom, for little happens afterwards
            return
        owner = self.an_owner(index)
        snapshot = self.wait(self.store.load(*self.key))
        self.write(
            owner,
            owner.write(
                chunks=chunks(owner.last + 1, owner.last + 1) if with_chunks else None,
                calls=tuple(
                    replace(call, state="done", outcome=Outcome("cancelled", "over"))
                    for call in snapshot.calls
                ),
                closed=tuple(a_decision(row, verb="cancel", principal="system") for row in snapshot.pending),
                end=an_end(),
            ),
        )

    @rule(index=indexes)
    def repeat(self, index: int) -> None:
        """The last write again, as after a commit nobody knows the outcome of."""
        owner = self.an_owner(index)
        if not owner.writes:
            return
        write, written = owner.writes[-1]
        if self.is_current(owner):
            before = self.wait(self.snapshot())
            if write.park is not None and written is not None and not written.parked and write.chunks is None:
                return  # asked anew, it may succeed now; `park` plays that
            assert self.wait(self.store.submit(write)) == written
            after = self.wait(self.snapshot())
            assert replace(after[0].run, update_time=0) == replace(before[0].run, update_time=0)
            assert (after[0].calls, after[0].pending, after[1]) == (
                before[0].calls,
                before[0].pending,
                before[1],
            )
            return
        before = self.wait(self.snapshot())
        outcome = self.wait(self._outcome(self.store.submit(write)))
        if isinstance(outcome, Written):  # its own parking or end, that nobody went on from
            assert outcome == written
            assert write.park is not None or write.end is not None or write.release is not None
        else:
            assert isinstance(outcome, LeaseLost)
        assert self.wait(self.snapshot()) == before

    async def _outcome(self, work: Awaitable[Any]) -> Any:
        try:
            return await work
        except Exception as error:
            return error

    def a_choice(self, index: int, principal: str, late: bool) -> Decide:
        pending = self.opened[index % len(self.opened)]
        call = self.calls[pending.call_id]
        return a_decide(
            pending, call, owner=unique("process"), principal=principal, decide_time=NOW + (20 if late else 5)
        )

    def judge(self, op: Decide, outcome: Any, *, owned: bool | None) -> None:
        """Check what came of a decision; `owned` None: the owner may have parked before it."""
        pending = op.decision.pending_call_id
        if isinstance(outcome, Decided):
            assert pending not in self.decided, "decided twice"
            assert self.refusal(op) is None
            self.decided[pending] = op.decision.decision_id
            assert owned is None or took(outcome) is not owned
            if took(outcome):
                self.took(outcome.run)
            self.calls[op.call.call_id] = op.started if took(outcome) and op.started is not None else op.call
            return
        assert isinstance(outcome, Refused), outcome
        if pending in self.decided:
            assert outcome.cause == "decided"
            assert outcome.decision is not None
            assert outcome.decision.decision_id == self.decided[pending]
        else:
            assert outcome.cause == self.refusal(op)

    def refusal(self, op: Decide) -> str | None:
        """Why an open call must not be decided like this."""
        decision = op.decision
        pending = next(row for row in self.opened if row.pending_call_id == decision.pending_call_id)
        if pending.expire_time and decision.decide_time > pending.expire_time:
            return "expired"
        return (
            "claimed" if self.claims.get(pending.pending_call_id) not in (None, decision.principal) else None
        )

    @rule(index=indexes, principal=principals, late=st.booleans())
    def decide(self, index: int, principal: str, late: bool) -> None:
        op = self.a_choice(index, principal, late)
        owned = self.owner is not None
        self.judge(op, self.wait(self._outcome(self.store.decide(op))), owned=owned)

    @rule(index=indexes, first=st.booleans())
    def decide_while_it_parks(self, index: int, first: bool) -> None:
        """Hand-over: either the owner is still there and does not park, or the decision takes the run."""
        owner = self.owner
        op = self.a_choice(index, "bob", False)
        if owner is None:
            return
        park = owner.write(park=a_park(owner.last + 1))

        async def at_once() -> tuple[Any, Any]:
            if first:
                decided = asyncio.ensure_future(self.store.decide(op))
                await asyncio.sleep(0)
                written = self.store.submit(park)
            else:
                written = self.store.submit(park)
                decided = asyncio.ensure_future(self.store.decide(op))
            outcomes = await asyncio.gather(written, decided, return_exceptions=True)
            return outcomes[0], outcomes[1]

        written, outcome = self.wait(at_once())
        assert isinstance(written, Written)
        self.wrote(owner, park, written)
        if isinstance(outcome, Decided):
            assert took(outcome) is written.parked
        self.judge(op, outcome, owned=None)

    @rule(index=indexes)
    def cancel(self, index: int) -> None:
        if index % 5 != 4:  # seldom, for nothing parks afterwards
            return
        owned = self.owner is not None
        op = a_cancel(self.owners[0].run, owner=unique("process"), reason=unique("reason"))
        outcome: Cancelled = self.wait(self.store.cancel(op))
        assert outcome.took is (not owned and not self.ended)
        if outcome.took:
            self.took(outcome.run)
        if not self.ended:
            self.cancelled = self.cancelled or op.reason

    @rule(index=indexes)
    def take_over(self, index: int) -> None:
        """The owner's process died, or is thought to have, or released the run."""
        running = self.wait(self.store.get_run(*self.key)).state == "running"
        late = index % 4 == 1 and len(self.fences) > 1
        fence = self.fences[-2 if late else -1]
        taken = self.wait(self.store.take_over(*self.key, fence=fence, owner=unique("process")))
        assert (taken is not None) is (running and not late)
        if taken is not None:
            self.took(taken)

    @rule(index=indexes)
    def release(self, index: int) -> None:
        """An owner that is about to stop gives the run away."""
        if index % 3:
            return
        owner = self.an_owner(index)
        written, _ = self.write(owner, owner.write(release=Release(1)))
        self.released = self.released or written is not None

    @rule(index=indexes, principal=principals, release=st.booleans())
    def claim(self, index: int, principal: str, release: bool) -> None:
        pending = self.opened[index % len(self.opened)]
        op = Claim(TENANT, pending.pending_call_id, principal, 0 if release else NOW + 30, NOW)
        outcome = self.wait(self._outcome(self.store.claim(op)))
        if isinstance(outcome, Refused):
            expected = "decided" if pending.pending_call_id in self.decided else "claimed"
            assert outcome.cause == expected
            return
        assert pending.pending_call_id not in self.decided
        assert self.claims.get(pending.pending_call_id) in (None, principal)
        if release:
            self.claims.pop(pending.pending_call_id, None)
        else:
            self.claims[pending.pending_call_id] = principal

    # ---- what holds all the time ----

    @invariant()
    def the_run_is_whole(self) -> None:
        snapshot, log = self.wait(self.snapshot())
        run = snapshot.run
        assert run.fence == self.fences[-1]
        assert run.cancel_reason == self.cancelled
        assert {call.call_id: call for call in snapshot.calls} == self.calls
        assert log == chunks(1, run.last_sequence).data
        open_ids = [row.pending_call_id for row in self.opened if row.pending_call_id not in self.decided]
        assert [row.pending_call_id for row in snapshot.pending] == open_ids
        if run.state == "suspended":
            assert not run.owner
            assert run.cancel_reason is None
            assert not [call for call in snapshot.calls if call.state == "decided"], "a decision sleeps"
        elif run.state == "running":
            assert run.owner == ("" if self.released else self.owners[-1].run.owner)
        else:
            assert run.state in TERMINAL
            assert self.ended
            assert not run.owner
            assert not snapshot.pending

    @invariant()
    def every_decision_is_kept(self) -> None:
        rows, _ = self.wait(self.store.list_decisions(TENANT, DecisionFilter(), cursor="", limit=10_000))
        assert {row.pending_call_id: row.decision_id for row in rows} == self.decided
        assert len(rows) == len(self.decided)
        calls, _ = self.wait(
            self.store.list_pending(TENANT, PendingFilter(include_decided=True), cursor="", limit=10_000)
        )
        assert {row.pending_call_id: row.decision_id for row, _ in calls if row.decision_id} == self.decided


def check_interleavings(open_stores: OpenStores, *, examples: int = 100, steps: int = 30) -> None:
    """Play many orders of events, each on a database of its own. `open_stores` makes an empty database
    and opens it, once or several times, as that many processes would."""
    machine = type("Machine", (Interleavings,), {"open_stores": staticmethod(open_stores)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
