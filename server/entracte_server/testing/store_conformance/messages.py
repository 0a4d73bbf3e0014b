"""The messages of threads: added once, by the run that has the thread, read in their order."""

from typing import Any

import pytest
from msgspec.structs import replace

from entracte_server.domain.messages import FilePart, ImagePart, ReasoningPart, TextPart
from entracte_server.domain.runs import Outcome, Remembered, RunRow
from entracte_server.domain.threads import (
    CallPart,
    DataPart,
    ErrorPart,
    SourcePart,
    ThreadMessage,
)
from entracte_server.store.base import LeaseLost, NotFound, Retention, Store, Written
from entracte_server.store.threads import CreateThread, MessageRange, ThreadClaim
from entracte_server.testing.store_conformance.builders import (
    NOW,
    OWNER,
    TENANT,
    a_call,
    a_cancel,
    a_decide,
    a_message,
    a_park,
    a_pending,
    a_thread,
    a_write,
    an_end,
    chunks,
    claiming,
    created,
    ended,
    taken_over,
    took,
)
from entracte_server.testing.store_conformance.suite import StoreSuite
from entracte_server.testing.store_conformance.turns import WAITS, end, go_on

ALL = MessageRange()


async def read(
    store: Store, where: MessageRange = ALL, *, thread_id: str = "t", limit: int = 1000, tenant: str = TENANT
) -> list[ThreadMessage]:
    return await store.read_messages(tenant, thread_id, where, limit=limit)


async def say(store: Store, run: RunRow, *messages: ThreadMessage, **changes: Any) -> Written:
    now = await store.get_run(run.tenant, run.run_id)
    return await store.write(a_write(now, messages=messages, **changes))


def placed(*messages: ThreadMessage, first: int = 1) -> list[ThreadMessage]:
    """As they are stored one after the other."""
    return [replace(message, position=first + number) for number, message in enumerate(messages)]


class MessageSuite(StoreSuite):
    """`RunWrite.messages`, `RunWrite.remembered`, `Decide.messages`, `read_messages`."""

    async def test_all_that_a_message_may_hold(self, store: Store) -> None:
        run, _ = await claiming(store, "t")
        user = a_message(metadata='{"a":[1]}', author="alice", run_id=run.run_id)
        answer = a_message(
            role="assistant",
            author="support",
            run_id=run.run_id,
            step=3,
            aborted=True,
            parts=(
                ReasoningPart("Hm\0"),
                TextPart("Grüße 🙈"),
                ImagePart(data=b"\x00\xff", media_type="image/png"),
                FilePart(data=b"\x00\xff", media_type="x/y"),
                CallPart("c1", "refund", "{}", Outcome("error", "no", "tool"), '{"p":1}'),
                CallPart("c2", "refund", '{"n":9007199254740993}'),
                SourcePart("s", "https://example.com", "Example"),
                ErrorPart("provider_error", "boom"),
                DataPart("object", "null"),
            ),
        )
        await say(store, run, user, answer)
        assert await read(store) == placed(user, answer)
        view = await store.get_thread(TENANT, "t")
        assert (view.thread.last_position, view.thread.update_time) == (2, answer.create_time)

    async def test_storing_it_again_replaces_it_in_its_place(self, store: Store) -> None:
        run, _ = await claiming(store, "t")
        first, second, third, fourth = [a_message() for _ in range(4)]
        await say(store, run, first, second)
        changed = replace(first, role="assistant", parts=(TextPart("more"),), create_time=NOW, step=1)
        await say(store, run, third, changed, fourth)
        assert await read(store) == placed(changed, second, third, fourth)
        # Twice in one write: the last one is right, where the first one was.
        fifth, sixth = a_message(), a_message()
        again = replace(fifth, parts=(TextPart("again"),))
        await say(store, run, fifth, sixth, again, replace(changed, aborted=True))
        assert await read(store) == placed(
            replace(changed, aborted=True), second, third, fourth, again, sixth
        )
        assert (await store.get_thread(TENANT, "t")).thread.last_position == 6

    async def test_one_run_after_the_other(self, store: Store) -> None:
        runs = [(await claiming(store, "t", WAITS))[0] for _ in range(3)]
        said = [a_message(run_id=run.run_id) for run in runs for _ in range(2)]
        for number, run in enumerate(runs):
            if number:
                await go_on(store, run)
            await say(store, run, said[2 * number])
            await say(store, run, said[2 * number + 1], chunks=chunks(1, 1), end=an_end())
        assert await read(store) == placed(*said)
        again, _ = await claiming(store, "t")
        more = a_message(id=said[0].id, role="system")
        await say(store, again, more)
        assert (await read(store))[0] == replace(more, position=1)

    async def test_writes_that_are_repeated(self, store: Store) -> None:
        run, _ = await claiming(store, "t")
        said = [a_message() for _ in range(4)]
        call = a_call(run)
        writes = [
            a_write(run, messages=said[:1]),
            a_write(run, messages=said[1:2], chunks=chunks(1, 2)),
            a_write(run, messages=said[2:3], calls=(call,), opened=(a_pending(run, call),)),
            a_write(run, messages=said[3:], chunks=chunks(3, 3), end=an_end()),
        ]
        for number, write in enumerate(writes, 1):
            for _ in range(2):
                await store.write(write)
                assert await read(store) == placed(*said[:number])

    async def test_parked_or_not(self, store: Store) -> None:
        run, _ = await claiming(store, "t")
        one, two, three = a_message(), a_message(), a_message()
        decided = a_call(run, state="decided")
        written = await say(store, run, one, calls=(decided,), park=a_park(1))
        assert written == Written()
        call = replace(decided, state="waiting")
        pending = a_pending(run, call)
        written = await say(store, run, two, calls=(call,), opened=(pending,), park=a_park(1))
        assert written == Written(parked=True)
        decision = replace(a_decide(pending, call), messages=(three, replace(one, aborted=True)))
        for _ in range(2):
            await store.decide(decision)
            assert await read(store) == placed(replace(one, aborted=True), two, three)

    async def test_a_decision_on_a_run_that_is_owned(self, store: Store) -> None:
        run, _ = await claiming(store, "t")
        call = a_call(run)
        pending = a_pending(run, call)
        await say(store, run, calls=(call,), opened=(pending,))
        answer = a_message()
        assert not took(await store.decide(replace(a_decide(pending, call), messages=(answer,))))
        assert await read(store) == placed(answer)

    async def test_who_lost_the_run_adds_nothing(self, store: Store) -> None:
        run, _ = await claiming(store, "t")
        await taken_over(store, run, "process-2")
        for changes in ({}, {"chunks": chunks(1, 1)}, {"end": an_end()}, {"park": a_park(1)}):
            with pytest.raises(LeaseLost):
                await store.write(a_write(run, messages=(a_message(),), **changes))
        assert await read(store) == []

    async def test_runs_that_have_no_thread_add_nothing(self, store: Store) -> None:
        first, second = [(await claiming(store, "t", WAITS))[0] for _ in range(2)]
        reader, _ = await claiming(store, "t", ThreadClaim(reads_only=True))
        none = await created(store)
        await store.cancel(a_cancel(second))
        for run in (reader, none, second):
            await say(store, run, a_message())
        for run in (reader, none, second):
            await say(store, run, a_message(), chunks=chunks(1, 1), end=an_end())
        assert await read(store) == []
        message = a_message()
        await say(store, first, message)
        assert await read(store) == placed(message)

    async def test_which_are_read(self, store: Store) -> None:
        one, _ = await claiming(store, "t")
        said = [a_message(role=role, run_id=one.run_id) for role in ("system", "user", "assistant") * 2]
        await say(store, one, *said)
        await end(store, one)
        two, _ = await claiming(store, "t")
        said += [a_message(role=role, run_id=two.run_id) for role in ("user", "assistant")]
        await say(store, two, *said[6:])
        stored = placed(*said)

        async def positions(limit: int = 100, **where: Any) -> list[int]:
            found = await read(store, MessageRange(**where), limit=limit)
            assert found == [stored[message.position - 1] for message in found]
            return [message.position for message in found]

        assert await positions() == [1, 2, 3, 4, 5, 6, 7, 8]
        assert await positions(limit=3) == [1, 2, 3]
        assert await positions(limit=3, newest=True) == [6, 7, 8]
        assert await positions(after=3, before=7) == [4, 5, 6]
        assert await positions(after=3, before=7, limit=2) == [4, 5]
        assert await positions(after=3, before=7, limit=2, newest=True) == [5, 6]
        assert await positions(after=8) == await positions(before=1) == []
        assert await positions(roles=("user",)) == [2, 5, 7]
        assert await positions(roles=("user", "system"), limit=2, newest=True) == [5, 7]
        assert await positions(run_id=two.run_id) == [7, 8]
        assert await positions(run_id=one.run_id, newest=True, limit=1, roles=("user",), before=5) == [2]
        assert await positions(run_id="unknown") == []
        ids = (said[6].id, said[1].id, "unknown")
        assert await positions(ids=ids) == [2, 7]
        assert await positions(ids=ids, run_id=two.run_id) == [7]
        assert await positions(resource_id="alice", limit=1) == [1]
        for resource_id in ("ALICE", "bob"):
            with pytest.raises(NotFound):
                await positions(resource_id=resource_id)

    async def test_whose_they_are(self, store: Store) -> None:
        runs = [
            (await claiming(store, "t", resource_id=f"of {tenant}", tenant=tenant))[0]
            for tenant in (TENANT, "other")
        ]
        same = a_message(parts=(TextPart("mine"),)), a_message(parts=(TextPart("mine"),))
        await say(store, runs[0], *same)
        theirs = replace(same[0], parts=(TextPart("theirs"),))
        await say(store, runs[1], theirs)
        assert await read(store) == placed(*same)
        assert await read(store, tenant="other") == placed(theirs)
        with pytest.raises(NotFound):
            await read(store, tenant="third")
        with pytest.raises(NotFound):
            await read(store, thread_id="T")
        # Another thread of the same tenant may hold a message with the same id.
        run, _ = await claiming(store, "u")
        await say(store, run, theirs)
        assert await read(store, thread_id="u") == placed(theirs)
        assert await read(store) == placed(*same)

    async def test_they_outlive_their_runs(self, store: Store) -> None:
        said = [a_message() for _ in range(3)]
        for message in said:
            run, _ = await claiming(store, "t")
            await say(store, run, message, chunks=chunks(1, 1), end=an_end())
        await store.delete_run(TENANT, run.run_id, force=False, request=None)
        while await store.trim(Retention(chunks=2**52, runs=2**52), limit=10):
            pass
        with pytest.raises(NotFound):
            await store.get_run(TENANT, run.run_id)
        assert await read(store) == placed(*said)
        parked, _ = await claiming(store, "t")
        more = a_message()
        await say(store, parked, more, park=a_park(1))
        await store.delete_run(TENANT, parked.run_id, force=True, request=None)
        assert await read(store) == placed(*said, more)
        assert (await store.get_thread(TENANT, "t")).holder is None

    async def test_none_at_all(self, store: Store) -> None:
        await store.create_thread(CreateThread(a_thread(thread_id="t")))
        assert await read(store) == await read(store, MessageRange(newest=True)) == []

    async def test_what_a_run_remembers(self, store: Store) -> None:
        run, _ = await claiming(store, "t")
        assert (await store.load(TENANT, run.run_id)).remembered is None
        remembered = Remembered(3, 12, (("other", 7), ("t", 1)), "Likes tea.")
        await store.write(a_write(run, remembered=remembered))
        assert (await store.load(TENANT, run.run_id)).remembered == remembered
        # Beside chunks only, and replaced.
        remembered = Remembered(1, 2)
        await store.write(a_write(run, chunks=chunks(1, 1), remembered=remembered))
        await store.write(a_write(run, chunks=chunks(2, 2)))
        call = a_call(run)
        pending = a_pending(run, call)
        await store.write(a_write(run, calls=(call,), opened=(pending,), park=a_park(3)))
        decided = await store.decide(a_decide(pending, call, owner=OWNER))
        assert decided.snapshot is not None
        assert decided.snapshot.remembered == remembered
        assert (await store.load(TENANT, (await ended(store)).run_id)).remembered is None
