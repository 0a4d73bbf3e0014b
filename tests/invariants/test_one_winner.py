"""Two hundred decide one call at once: one of them does."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest

from entracte.v1 import agent_service_pb2, pending_call_pb2, run_pb2
from entracte_server import ToolContext, tool
from entracte_server.testing import scripted
from tests.cases.support import Caller, app_of, as_json, payloads, read_refusal, served

CLIENTS = 20
ATTEMPTS = 200

entered: Counter[str] = Counter()

KEYS = [{"key": f"key-of-client-{i}", "principal": f"client-{i}", "tenant": "t"} for i in range(CLIENTS)]


@tool(requires_approval=True)
async def pay(cents: int, ctx: ToolContext) -> int:
    """Pays."""
    entered[ctx.tool_call_id] += 1
    await asyncio.sleep(0.01)
    return cents


@tool
async def ask(ctx: ToolContext) -> Any:
    """Asks."""
    if not ctx.resumed:
        ctx.suspend("?")
    entered[ctx.tool_call_id] += 1
    return ctx.resume_data


async def clients(stack: AsyncExitStack, *, keys: bool = True) -> list[Caller]:
    """Twenty clients with a channel each, of twenty principals or of one."""
    call = {"tool": "pay", "id": "c1", "args": {"cents": 1}}
    model = scripted([[call, {"tool": "ask", "id": "c2"}], [{"text": "end"}]])
    settings: dict[str, Any] = {"api_keys": KEYS} if keys else {}
    server = await stack.enter_async_context(served(app_of(model, [pay, ask]), **settings))
    made = [Caller(server.address, key=str(k["key"]) if keys else "") for k in KEYS]
    for caller in made:
        await stack.enter_async_context(caller)
    return made


@pytest.fixture(autouse=True)
def _nobody_entered() -> None:
    entered.clear()


@pytest.mark.parametrize("how", ["by id", "by run and call", "approve and decline"])
async def test_one_of_two_hundred_decisions_wins(how: str) -> None:
    """Exactly one decision is made and the tool runs once for it; everybody else is told who decided
    what and when."""
    async with AsyncExitStack() as stack:
        callers = await clients(stack)
        waiting = (await callers[0].generate()).result.pending_calls[0]
        ref: Any = waiting
        if how == "by run and call":
            ref = pending_call_pb2.CallRef(run_id=waiting.run_id, tool_call_id="c1")

        async def attempt(i: int) -> Any:
            caller = callers[i % CLIENTS]
            if how == "approve and decline" and i % 2:
                return await caller.decline(ref, f"no {i}", wait=False)
            return await caller.approve(ref, wait=False, comment=f"yes {i}")

        outcomes = await asyncio.gather(*map(attempt, range(ATTEMPTS)), return_exceptions=True)
        (winner,) = [i for i, o in enumerate(outcomes) if not isinstance(o, BaseException)]
        won: Any = outcomes[winner]
        decision = won.decision
        assert decision.principal == f"client-{winner % CLIENTS}"
        declined = isinstance(won, agent_service_pb2.DeclineResponse)
        when = decision.decide_time.ToMilliseconds()
        for outcome in outcomes:
            if outcome is won:
                continue
            assert isinstance(outcome, grpc.aio.AioRpcError), outcome
            refusal = read_refusal(outcome)
            assert refusal.code == grpc.StatusCode.FAILED_PRECONDITION
            assert refusal.reason == "PENDING_CALL_ALREADY_DECIDED"
            assert refusal.metadata == {
                "pending_call_id": waiting.pending_call_id,
                "decision_id": decision.decision_id,
                "verb": "decline" if declined else "approve",
                "principal": decision.principal,
                "decide_time": str(when),
            }
        chunks = await callers[0].watch(waiting.run_id)
        resolved = payloads(chunks, "tool_call_resolved")
        assert [r.decision_id for r in resolved] == [decision.decision_id]
        assert [d.decision_id for d in await callers[0].decisions(waiting.run_id)] == [decision.decision_id]
        assert entered == ({} if declined else {"c1": 1})


@pytest.mark.parametrize("verb", ["approve", "resume"])
@pytest.mark.parametrize("wait", [False, True])
async def test_one_request_sent_two_hundred_times_has_one_answer(verb: str, wait: bool) -> None:
    """With one request id all get the same decision, one of them as the one who made it; those who wait
    all get the same result."""
    async with AsyncExitStack() as stack:
        callers = await clients(stack, keys=False)
        started = await callers[0].generate()
        waiting = started.result.pending_calls[0 if verb == "approve" else 1]

        async def attempt(i: int) -> Any:
            caller = callers[i % CLIENTS]
            if verb == "approve":
                return await caller.approve(waiting, request_id="same", wait=wait)
            return await caller.resume(waiting, {"n": 1}, request_id="same", wait=wait)

        outcomes: list[Any] = await asyncio.gather(*map(attempt, range(ATTEMPTS)))
        assert [o.replayed for o in outcomes].count(False) == 1
        assert len({o.decision.SerializeToString(deterministic=True) for o in outcomes}) == 1
        assert {o.run.run_id for o in outcomes} == {waiting.run_id}
        if wait:
            assert len({o.result.SerializeToString(deterministic=True) for o in outcomes}) == 1
            assert {o.run.state for o in outcomes} == {run_pb2.RUN_STATE_SUSPENDED}
        await callers[0].watch(waiting.run_id)
        assert entered == {waiting.tool_call_id: 1}
        assert len(await callers[0].decisions(waiting.run_id)) == 1


async def test_one_request_with_other_bodies_is_refused() -> None:
    """Of requests with one id and different bodies one is taken, repeated ones of its body join it, and
    the others are refused as a reuse of the id."""
    async with AsyncExitStack() as stack:
        callers = await clients(stack, keys=False)
        waiting = (await callers[0].generate()).result.pending_calls[0]

        async def attempt(i: int) -> Any:
            edit = as_json({"cents": i % 4})
            return await callers[i % CLIENTS].approve(
                waiting, request_id="same", edited_args=edit, wait=False
            )

        outcomes = await asyncio.gather(*map(attempt, range(ATTEMPTS)), return_exceptions=True)
        made = [o for o in outcomes if not isinstance(o, BaseException)]
        assert len({o.decision.decision_id for o in made}) == 1
        assert len(made) == ATTEMPTS // 4
        for outcome in outcomes:
            if isinstance(outcome, grpc.aio.AioRpcError):
                refusal = read_refusal(outcome)
                assert refusal.reason == "REQUEST_ID_REUSED", refusal.reason
            else:
                assert not isinstance(outcome, BaseException)
        await callers[0].watch(waiting.run_id)
        assert entered == {"c1": 1}
