"""Decisions hit the call they name, once, whoever sends them and how often."""

import asyncio
import hashlib
from collections import Counter
from typing import Any

import grpc
import pytest

from entracte.v1 import pending_call_pb2, run_pb2
from entracte_server import ToolContext, tool
from entracte_server.testing import scripted
from tests.cases.support import (
    Caller,
    already_decided,
    announced,
    app_of,
    chunks_of,
    kinds,
    payloads,
    read_refusal,
    refused,
    served,
    serving,
    told_results,
    until,
    user,
    value_of,
)

pytestmark = pytest.mark.usefixtures("each_store")

PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION


@tool(requires_approval=True)
async def pay(cents: int, ctx: ToolContext) -> dict[str, int]:
    """Pays."""
    paid[cents] += 1
    return {"paid": cents}


paid: Counter[int] = Counter()


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    paid.clear()


def call(id: str, cents: int) -> dict[str, Any]:
    return {"tool": "pay", "id": id, "args": {"cents": cents}}


async def test_a_stale_id_does_not_reach_the_call_that_waits_now() -> None:
    """SR-01: approving a settled call is refused, and the call that waits now stays untouched."""
    model = scripted([[call("c1", 1)], [call("c2", 2)], [{"text": "end"}]])
    async with serving(app_of(model, [pay])) as caller:
        first = await caller.generate()
        run_id = first.run.run_id
        second = await caller.decline(first.result.pending_calls[0])
        assert [c.tool_call_id for c in second.result.pending_calls] == ["c2"]
        by_call = pending_call_pb2.CallRef(run_id=run_id, tool_call_id="c1")
        for ref in (by_call, first.result.pending_calls[0]):
            with already_decided() as refusal:
                await caller.approve(ref)
            assert refusal.metadata["verb"] == "decline"
        # By the run alone: one call waits, but another of the run was decided before.
        with refused(PRECONDITION, "PENDING_CALL_AMBIGUOUS") as refusal:
            await caller.approve(pending_call_pb2.CallRef(run_id=run_id))
        assert refusal.metadata["pending_call_ids"] == second.result.pending_calls[0].pending_call_id
        assert [c.tool_call_id for c in await caller.pending(run_id)] == ["c2"]
        assert not paid


async def test_a_digest_of_other_arguments_is_refused() -> None:
    """SR-01: what was not shown cannot be approved: the digest covers the name and the frozen text."""
    model = scripted([[call("c1", 1)], [{"text": "end"}]])
    async with serving(app_of(model, [pay])) as caller:
        waiting = (await caller.generate()).result.pending_calls[0]
        shown = waiting.args.text
        assert waiting.args_digest == hashlib.sha256(b"3\npay" + shown.encode()).digest()
        other = hashlib.sha256(b"3\npay" + shown.replace("1", "9").encode()).digest()
        with refused(PRECONDITION, "ARGS_DIGEST_MISMATCH"):
            await caller.approve(waiting, args_digest=other)
        assert not paid
        await caller.approve(waiting, args_digest=waiting.args_digest)
        assert paid == {1: 1}


async def test_twenty_approvals_run_the_tool_once() -> None:
    """SR-02: of twenty approvals from two clients one wins; the others are told who decided."""
    model = scripted([[call("c1", 1)], [{"text": "end"}]])
    app = app_of(model, [pay])
    async with served(app) as server, Caller(server.address) as one, Caller(server.address) as two:
        waiting = (await one.generate()).result.pending_calls[0]
        outcomes = await asyncio.gather(
            *((one, two)[i % 2].approve(waiting, wait=False) for i in range(20)),
            return_exceptions=True,
        )
        (won,) = [o for o in outcomes if not isinstance(o, BaseException)]
        for outcome in outcomes:
            if isinstance(outcome, grpc.aio.AioRpcError):
                refusal = read_refusal(outcome)
                assert refusal.reason == "PENDING_CALL_ALREADY_DECIDED"
                assert refusal.metadata["decision_id"] == won.decision.decision_id
            else:
                assert outcome is won
        await one.watch(won.run.run_id)
        assert paid == {1: 1}


async def test_a_second_answer_is_refused_unless_it_is_the_same_request() -> None:
    """SR-24: other data for an answered call is refused; the same request returns the first outcome."""
    answers: list[Any] = []

    @tool
    async def ask(ctx: ToolContext) -> Any:
        if not ctx.resumed:
            ctx.suspend("what?")
        answers.append(ctx.resume_data)
        return ctx.resume_data

    model = scripted([[{"tool": "ask", "id": "c1"}], [{"text": "end"}]])
    async with serving(app_of(model, [ask])) as caller:
        waiting = (await caller.generate()).result.pending_calls[0]
        first = await caller.resume(waiting, "a", request_id="r1")
        with already_decided():
            await caller.resume(waiting, "b")
        with already_decided():
            await caller.resume(waiting, "a")
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_ID_REUSED"):
            await caller.resume(waiting, "b", request_id="r1")
        again = await caller.resume(waiting, "a", request_id="r1")
        assert again.replayed
        assert not first.replayed
        assert again.decision == first.decision
        assert again.result == first.result
        assert value_of(again.decision.data) == "a"
        assert answers == ["a"]


DECISIONS = ("approve", "decline")


async def decide(caller: Caller, verb: str, ref: Any) -> Any:
    return await (caller.approve(ref) if verb == "approve" else caller.decline(ref))


@pytest.mark.parametrize("second", DECISIONS)
@pytest.mark.parametrize("first", DECISIONS)
async def test_settled_calls_stay_settled(first: str, second: str) -> None:
    """AP-18: every order of two decisions, by either name of the call, before and after the run ended."""
    model = scripted([[call("c1", 1), call("c2", 2)], [{"text": "end"}]])
    async with serving(app_of(model, [pay])) as caller:
        started = await caller.generate()
        one, two = started.result.pending_calls
        run_id = started.run.run_id
        refs = (one, pending_call_pb2.CallRef(run_id=run_id, tool_call_id="c1"))
        decision = (await decide(caller, first, one)).decision
        for ended in (False, True):
            if ended:
                await decide(caller, first, two)
                assert await caller.state(run_id) == "SUCCEEDED"
            for ref in refs:
                with already_decided() as refusal:
                    await decide(caller, second, ref)
                assert refusal.metadata["decision_id"] == decision.decision_id
                assert refusal.metadata["verb"] == first
                assert refusal.metadata["principal"] == "local"
                assert int(refusal.metadata["decide_time"]) > 1_600_000_000_000
        assert paid == ({1: 1, 2: 1} if first == "approve" else {})
        assert len(await caller.decisions(run_id)) == 2


async def test_unknown_ids_are_not_found_and_cancelled_calls_are_decided() -> None:
    """AP-18: NOT_FOUND is for ids that never were; after a cancellation the record says so."""
    model = scripted([[call("c1", 1)], [{"text": "end"}]])
    not_found = grpc.StatusCode.NOT_FOUND
    async with serving(app_of(model, [pay])) as caller:
        started = await caller.generate()
        run_id = started.run.run_id
        with refused(not_found, "PENDING_CALL_NOT_FOUND"):
            await caller.approve("01ARZ3NDEKTSV4RRFFQ69G5FAV")
        with refused(not_found, "RUN_NOT_FOUND"):
            await caller.approve(pending_call_pb2.CallRef(run_id="never", tool_call_id="c1"))
        with refused(not_found, "PENDING_CALL_NOT_FOUND"):
            await caller.approve(pending_call_pb2.CallRef(run_id=run_id, tool_call_id="c9"))
        # An id of this run beside the name of another call is no name of anything.
        waiting = started.result.pending_calls[0]
        odd = pending_call_pb2.CallRef(pending_call_id=waiting.pending_call_id, tool_call_id="c9")
        with refused(not_found, "PENDING_CALL_NOT_FOUND"):
            await caller.approve(odd)
        await caller.cancel(run_id)
        for verb in DECISIONS:
            with already_decided() as refusal:
                await decide(caller, verb, waiting)
            assert refusal.metadata["verb"] == "cancel"
        assert not paid


async def test_a_decision_while_a_sibling_executes_is_taken_at_once() -> None:
    """SR-28: while the tool of A runs, the decision for B is recorded and B runs beside A."""
    entered, release = asyncio.Event(), asyncio.Event()

    @tool(requires_approval=True)
    async def slow() -> str:
        entered.set()
        await release.wait()
        return "slow"

    model = scripted([[{"tool": "slow", "id": "a"}, call("b", 2)], [{"text": "end"}]])
    async with serving(app_of(model, [slow, pay])) as caller:
        started = await caller.generate()
        a, b = started.result.pending_calls
        await caller.approve(a, wait=False)
        await asyncio.wait_for(entered.wait(), 5)
        answer = await caller.approve(b, wait=False)
        assert answer.run.state == run_pb2.RUN_STATE_RUNNING
        following = caller.open_watch(started.run.run_id, answer.run.last_sequence, until_finished=True)
        seen = chunks_of(following)
        async for chunk in seen:
            if chunk.WhichOneof("payload") == "tool_result":
                break
        assert chunk.tool_result.tool_call_id == "b"
        assert not release.is_set()
        release.set()
        rest = [chunk async for chunk in seen]
        assert kinds(rest)[-1] == "finish"
        assert paid == {2: 1}
        assert [id for id, _ in told_results(model.requests[-1])] == ["a", "b"]


async def test_decisions_made_together_execute_together() -> None:
    """SR-28: two calls approved at the same moment: neither waits for the tool of the other, and a
    cancellation that comes with them does not either."""
    release = asyncio.Event()
    entered: set[str] = set()

    @tool(requires_approval=True)
    async def long(ctx: ToolContext) -> str:
        entered.add(ctx.run_id + ctx.tool_call_id)
        await release.wait()
        return "done"

    step = [{"tool": "long", "id": i} for i in ("a", "b", "c")]
    model = scripted([step, [{"text": "end"}]], position="transcript")
    async with serving(app_of(model, [long])) as caller:

        async def together(with_cancel: bool) -> None:
            entered.clear()
            release.clear()
            waiting = (await caller.generate()).result.pending_calls
            run_id = waiting[0].run_id
            approved = waiting[: 2 if with_cancel else 3]
            cancelled = [caller.cancel(run_id, wait=False)] if with_cancel else []
            await asyncio.gather(
                *(caller.approve(w, wait=False) for w in approved),
                *cancelled,
                return_exceptions=with_cancel,  # a decision that comes after the cancellation is refused
            )
            if with_cancel:
                await until(lambda: caller.has_state(run_id, "CANCELLED"))
                return
            await until(lambda: len(entered) == 3)
            release.set()
            assert kinds(await caller.watch(run_id))[-1] == "finish"

        for turn in range(30):
            await together(with_cancel=turn % 3 == 2)


async def test_partial_decisions_do_not_freeze_or_hurry_the_run() -> None:
    """AP-17: decided calls run at once, the model is asked only when every call has a result, and the
    status shows who is left."""
    model = scripted([[call("c1", 1), call("c2", 2), call("c3", 3)], [{"text": "end"}]])
    async with serving(app_of(model, [pay])) as caller:
        started = await caller.generate()
        one, two, three = started.result.pending_calls
        run_id = started.run.run_id
        after_one = await caller.approve(one)
        assert paid == {1: 1}
        assert [c.tool_call_id for c in after_one.result.pending_calls] == ["c2", "c3"]
        after_two = await caller.decline(two, "no")
        assert [c.tool_call_id for c in after_two.result.pending_calls] == ["c3"]
        assert model.calls == 1
        status = await caller.get_run(run_id)
        assert status.run.state == run_pb2.RUN_STATE_SUSPENDED
        assert [c.tool_call_id for c in status.run.pending_calls] == ["c3"]
        done = await caller.approve(three)
        assert done.run.state == run_pb2.RUN_STATE_SUCCEEDED
        assert model.calls == 2
        assert [id for id, _ in told_results(model.requests[1])] == ["c1", "c2", "c3"]
        assert paid == {1: 1, 3: 1}


@pytest.mark.parametrize(("rounds", "megabytes"), [(160, 0), (40, 5)])
async def test_what_was_announced_can_be_decided_at_once(rounds: int, megabytes: int) -> None:
    """SR-10: an approval sent the moment its announcement arrives is never refused, a history of 5 MB
    or not."""
    model = scripted([*([call(f"c{i}", i)] for i in range(rounds)), [{"text": "end"}]])
    history = [user("go"), *(user("x" * 1_000_000) for _ in range(megabytes))]
    async with serving(app_of(model, [pay])) as caller:
        first = (await caller.generate(history, max_steps=rounds + 1)).run
        following = caller.open_watch(first.run_id, until_finished=True)
        async with asyncio.TaskGroup() as deciding:
            async for chunk in chunks_of(following):
                for waiting in announced([chunk]):
                    deciding.create_task(caller.approve(waiting, wait=False))
        assert paid == Counter(range(rounds))
        assert await caller.state(first.run_id) == "SUCCEEDED"


async def test_a_decision_covers_one_call_only() -> None:
    """AP-03: approving a call does not open the gate for the same tool, nor for the same arguments."""
    model = scripted([[call("c1", 1)], [call("c2", 1)], [call("c3", 7)], [{"text": "end"}]])
    async with serving(app_of(model, [pay])) as caller:
        result = (await caller.generate()).result
        for call_id, count in (("c1", 0), ("c2", 1), ("c3", 1)):
            assert [c.tool_call_id for c in result.pending_calls] == [call_id]
            assert sum(paid.values()) == count
            waiting = result.pending_calls[0]
            decision = caller.approve(waiting) if call_id == "c1" else caller.decline(waiting)
            result = (await decision).result
        assert paid == {1: 1}


async def test_a_repeated_request_joins_what_the_first_one_started() -> None:
    """CT-09: past its deadline a Generate has still started its run; the same request id finds it."""
    model = scripted([[{"delay": 600}, call("c1", 1)], [{"text": "end"}]])
    async with serving(app_of(model, [pay])) as caller:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await caller.generate(request_id="r1", timeout=0.2)
        assert raised.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        again = await caller.generate(request_id="r1")
        assert again.replayed
        assert len((await caller.list_runs()).runs) == 1
        assert model.calls == 1
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "REQUEST_ID_REUSED"):
            await caller.generate("other", request_id="r1")
        streamed = await caller.stream("go", request_id="r1")  # another method: another scope
        assert streamed[0].run_id != again.run.run_id


async def test_an_approval_past_its_deadline_counts_once() -> None:
    """CT-09: an approval whose waiting is cut off is made all the same, and repeating it joins it."""
    release = asyncio.Event()

    @tool(requires_approval=True)
    async def slow() -> str:
        paid[0] += 1
        await release.wait()
        return "done"

    model = scripted([[{"tool": "slow", "id": "c1"}], [{"text": "end"}]])
    async with serving(app_of(model, [slow])) as caller:
        waiting = (await caller.generate()).result.pending_calls[0]
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await caller.approve(waiting, request_id="r1", timeout=0.3)
        assert raised.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        repeated = asyncio.create_task(caller.approve(waiting, request_id="r1"))
        quick = await caller.approve(waiting, request_id="r1", wait=False)
        assert quick.replayed
        release.set()
        joined = await repeated
        assert joined.replayed
        assert joined.run.state == run_pb2.RUN_STATE_SUCCEEDED
        assert paid == {0: 1}
        chunks = await caller.watch(joined.run.run_id)
        assert len(payloads(chunks, "tool_call_resolved")) == 1
