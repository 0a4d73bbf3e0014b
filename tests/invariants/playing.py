"""Plays a history: starts its runs, does what its people do, and brings every run to its end."""

import asyncio
import functools
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc.aio

from entracte.v1 import (
    agent_service_pb2,
    chunk_pb2,
    inbox_service_pb2,
    options_pb2,
    pending_call_pb2,
    result_pb2,
)
from tests.cases.support import Caller, PendingCall, as_json, read_refusal, until, user, value_of
from tests.invariants.following import Seen, follow, start_stream
from tests.invariants.harness import PATIENCE, PRINCIPALS, Harness, insist, went_away
from tests.invariants.histories import History, Op, PlannedRun
from tests.invariants.world import OUTSIDE

APPROVAL = chunk_pb2.PENDING_CALL_KIND_APPROVAL
SUSPENSION = chunk_pb2.PENDING_CALL_KIND_SUSPENSION
CLIENT_TOOL = chunk_pb2.PENDING_CALL_KIND_CLIENT_TOOL
RECOVERY = chunk_pb2.PENDING_CALL_KIND_RECOVERY

GATES = options_pb2.ToolApproval(rules=options_pb2.ToolApprovalRules(names=["outside"]))

DENIED = frozenset({"PENDING_CALL_ALREADY_DECIDED", "PENDING_CALL_CLAIMED", "RUN_FINISHED"})
"""How an honest decision may be refused."""

MISTAKES = DENIED | {"VERB_MISMATCH", "RESUME_DATA_INVALID", "EDITED_ARGS_INVALID", "ARGS_DIGEST_MISMATCH"}
"""How a wrong one may be."""


@dataclass
class Playing:
    """One run while it is played."""

    plan: PlannedRun
    name: str
    run_id: str
    readers: list[Seen] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    cancels: int = 0
    acknowledged: list[pending_call_pb2.Decision] = field(default_factory=list)

    @property
    def owner(self) -> str:
        """Who started it."""
        return "ann" if self.plan.tenant == "a" else "ben"

    @property
    def colleague(self) -> str:
        """Another one of the tenant."""
        return "abe" if self.plan.tenant == "a" else "bob"

    @property
    def stranger(self) -> str:
        """Somebody of the other tenant."""
        return "ben" if self.plan.tenant == "a" else "ann"

    def fields(self) -> dict[str, Any]:
        """The fields of the request that starts it."""
        return {
            "agent_id": "world",
            "messages": [user(self.plan.message(self.name))],
            "options": options_pb2.GenerateOptions(
                run_id=self.run_id,
                client_tools=[OUTSIDE],
                require_tool_approval=GATES if self.plan.gates else None,
                request_context=as_json({"name": self.name}),
            ),
            "request_id": f"start-{self.run_id}",
        }


class Player:
    """See the module."""

    def __init__(self, harness: Harness, history: History) -> None:
        self.harness = harness
        self.history = history
        self.runs = [
            Playing(plan, name=f"{plan.tenant}{i}", run_id=f"run-{i if plan.tenant == 'a' else 0}")
            for i, plan in enumerate(self._apart(history.runs))
        ]
        self._requests = itertools.count()

    @staticmethod
    def _apart(runs: tuple[PlannedRun, ...]) -> list[PlannedRun]:
        """At most one run of tenant b, so that it can have the id of one of tenant a."""
        own = [run for run in runs if run.tenant == "a"]
        return own + [run for run in runs if run.tenant == "b"][:1]

    async def play(self) -> None:
        """Play it all. Returns when every run has ended and every reader is done."""
        try:
            async with asyncio.TaskGroup() as starting:
                for run in self.runs:
                    starting.create_task(self._start(run))
            for round in self.history.rounds:
                async with asyncio.TaskGroup() as acting:
                    for op in round.ops:
                        acting.create_task(self._act(op))
                    if round.restart is not None:
                        acting.create_task(self._restart(round.restart))
                if round.settle:
                    for run in self.runs:
                        await follow(self.harness, run.owner, Seen(run.run_id), until_finished=False)
            for run in self.runs:
                await self._bring_to_its_end(run)
                await asyncio.gather(*run.tasks)
        finally:
            for run in self.runs:
                for task in run.tasks:
                    task.cancel()
            everything = [task for run in self.runs for task in run.tasks]
            await asyncio.gather(*everything, return_exceptions=True)

    # ---- runs ----

    async def _start(self, run: Playing) -> None:
        if run.plan.started_by == "stream":
            seen = Seen(run.run_id)
            run.readers.append(seen)
            request = agent_service_pb2.StreamRequest(**run.fields())
            run.tasks.append(asyncio.create_task(start_stream(self.harness, run.owner, request, seen)))
            await until(lambda: bool(seen.chunks) or run.tasks[-1].done(), PATIENCE)
        else:
            fields = agent_service_pb2.GenerateRequest(**run.fields())

            async def generate(caller: Caller) -> Any:
                return await caller._unary(caller.agents.Generate, fields)

            await insist(self.harness, run.owner, generate)
        self._read(run, 0, until_finished=True)

    def _read(self, run: Playing, after: int, *, until_finished: bool) -> None:
        seen = Seen(run.run_id, after)
        run.readers.append(seen)
        work = follow(self.harness, run.owner, seen, until_finished=until_finished)
        run.tasks.append(asyncio.create_task(work))

    async def _restart(self, delay: int) -> None:
        await asyncio.sleep(delay / 1000)
        await self.harness.restart(abrupt=delay % 3 == 1)

    async def _bring_to_its_end(self, run: Playing) -> None:
        """Answer whatever waits until nothing does."""
        for turn in range(100):
            await follow(self.harness, run.owner, Seen(run.run_id), until_finished=False)
            waiting = await insist(self.harness, run.owner, lambda c: c.pending(run.run_id))
            if not waiting:
                state = await insist(self.harness, run.owner, lambda c: c.state(run.run_id))
                if state not in ("SUSPENDED", "RUNNING"):
                    return
                await asyncio.sleep(0.01)
                continue
            for call in waiting:
                holder = call.claim.principal or run.owner
                attempt = functools.partial(fitting, call=call, value=turn)
                await self._decide(run, holder, attempt, DENIED)
        raise AssertionError("the run does not come to an end")

    # ---- actions ----

    async def _act(self, op: Op) -> None:
        run = self.runs[op.run % len(self.runs)]
        if op.action in ("cancel", "look", "attach"):
            await getattr(self, f"_{op.action}")(run, op)
            return
        for call in await self._pick(run, op, decided=op.action in ("stale", "stranger")):
            await getattr(self, f"_{op.action}")(run, op, call)

    async def _pick(self, run: Playing, op: Op, *, decided: bool = False) -> list[PendingCall]:
        """One of the run's waiting calls, or with `decided` of all that ever waited; none if there is
        none."""
        calls = await insist(
            self.harness, run.owner, lambda c: c.pending(run.run_id, include_decided=decided)
        )
        return [calls[op.pick % len(calls)]] if calls else []

    async def _decide(
        self,
        run: Playing,
        principal: str,
        attempt: Callable[[Caller], Awaitable[Any]],
        allowed: frozenset[str],
    ) -> Any:
        """One attempt to decide, which may be refused in the ways allowed; None when it was, or when
        the server went away, so that nobody knows."""
        caller = await self.harness.caller(principal)
        try:
            response = await attempt(caller)
        except (grpc.aio.AioRpcError, grpc.aio.UsageError) as error:
            check_refusal(error, allowed)
            return None
        assert response.run.run_id == run.run_id
        assert response.decision.principal == principal
        run.acknowledged.append(response.decision)
        return response

    async def _answer(self, run: Playing, op: Op, call: PendingCall) -> None:
        who = run.colleague if op.value % 2 else run.owner
        wait = op.value % 3 == 0
        response = await self._decide(run, who, lambda c: fitting(c, call, op.value, wait=wait), DENIED)
        if response is not None and wait:
            assert response.result.run_id == run.run_id
            assert response.result.finish_reason in RESTING

    async def _edit(self, run: Playing, op: Op, call: PendingCall) -> None:
        if call.kind not in (APPROVAL, RECOVERY):
            return
        args = value_of(call.args)
        if "v" in args:
            args["v"] = 100 + op.value
        edit = as_json(args)
        await self._decide(run, run.owner, lambda c: c.approve(call, wait=False, edited_args=edit), DENIED)

    async def _decline(self, run: Playing, op: Op, call: PendingCall) -> None:
        reason = f"no {op.value}"
        await self._decide(run, run.owner, lambda c: c.decline(call, reason, wait=False), DENIED)

    async def _wrong(self, run: Playing, op: Op, call: PendingCall) -> None:
        attempts: list[Callable[[Caller], Awaitable[Any]]] = [
            lambda c: c.approve(call, wait=False, args_digest=bytes(32)),
            lambda c: c.approve(call, wait=False, edited_args=as_json({"v": "no number"})),
        ]
        if call.kind == SUSPENSION:
            attempts.append(lambda c: c.submit(call, 1, wait=False))
            if call.tool_name == "ask_user":
                attempts.append(lambda c: c.resume(call, ["violet"], wait=False))
        else:
            attempts.append(lambda c: c.resume(call, 1, wait=False))
        made = await self._decide(run, run.owner, attempts[op.value % len(attempts)], MISTAKES)
        assert made is None, "a decision that does not fit was made"

    async def _twice(self, run: Playing, op: Op, call: PendingCall) -> None:
        request_id = f"twice-{next(self._requests)}"

        def attempt(caller: Caller) -> Awaitable[Any]:
            return fitting(caller, call, op.value, request_id=request_id)

        one, two = await asyncio.gather(
            self._decide(run, run.owner, attempt, DENIED), self._decide(run, run.owner, attempt, DENIED)
        )
        if one is not None and two is not None:
            assert one.decision == two.decision
            assert one.replayed != two.replayed

    async def _rivals(self, run: Playing, op: Op, call: PendingCall) -> None:
        made = await asyncio.gather(
            self._decide(run, run.owner, lambda c: fitting(c, call, op.value), DENIED),
            self._decide(run, run.colleague, lambda c: c.decline(call, "rival", wait=False), DENIED),
            self._decide(run, run.colleague, lambda c: fitting(c, call, op.value + 1), DENIED),
        )
        assert sum(response is not None for response in made) <= 1

    async def _stale(self, run: Playing, op: Op, call: PendingCall) -> None:
        if call.state == pending_call_pb2.PENDING_CALL_STATE_DECIDED:
            made = await self._decide(run, run.owner, lambda c: fitting(c, call, op.value), DENIED)
            assert made is None, "a decided call was decided again"

    async def _claim(self, run: Playing, op: Op, call: PendingCall) -> None:
        caller = await self.harness.caller(run.colleague)
        await tolerate(caller.claim(call.pending_call_id), DENIED)

    async def _release(self, run: Playing, op: Op, call: PendingCall) -> None:
        caller = await self.harness.caller(run.colleague)
        request = inbox_service_pb2.ReleasePendingCallRequest(pending_call_id=call.pending_call_id)
        await tolerate(caller._unary(caller.inbox.ReleasePendingCall, request), DENIED)

    async def _cancel(self, run: Playing, op: Op) -> None:
        if op.value % 3:  # not too often: a cancelled run has little left to show
            return
        run.cancels += 1
        caller = await self.harness.caller(run.owner)
        reason = f"reason {op.value}"
        await tolerate(caller.cancel(run.run_id, reason, wait=op.value % 2 == 0), frozenset())

    async def _look(self, run: Playing, op: Op) -> None:
        shown = await insist(self.harness, run.colleague, lambda c: c.get_run(run.run_id))
        waiting = [call.pending_call_id for call in shown.run.pending_calls]
        assert waiting == [call.pending_call_id for call in shown.result.pending_calls]
        calls = [c.tool_call.tool_call_id for c in shown.result.tool_calls]
        results = [r.tool_result.tool_call_id for r in shown.result.tool_results]
        assert len(calls) == len(set(calls))
        assert len(results) == len(set(results))
        assert set(results) <= set(calls)

    async def _attach(self, run: Playing, op: Op) -> None:
        shown = await insist(self.harness, run.owner, lambda c: c.get_run(run.run_id))
        self._read(run, op.pick % (shown.run.last_sequence + 1), until_finished=op.value % 2 == 0)

    async def _stranger(self, run: Playing, op: Op, call: PendingCall) -> None:
        caller = await self.harness.caller(run.stranger)
        by_id = pending_call_pb2.CallRef(pending_call_id=call.pending_call_id)
        attempts: list[Awaitable[Any]] = [
            caller.approve(by_id, wait=False),
            caller.decline(by_id, wait=False),
            caller.resume(by_id, 1, wait=False),
            caller.submit(by_id, 1, wait=False),
            caller.claim(call.pending_call_id),
        ]
        for attempt in attempts:
            made = await tolerate(attempt, frozenset({"PENDING_CALL_NOT_FOUND"}))
            assert made is None, "a stranger decided"
        own = {other.run_id for other in self.runs if other.plan.tenant == PRINCIPALS[run.stranger]}
        listed = await tolerate(caller.pending(), frozenset())
        assert {c.run_id for c in listed or ()} <= own


async def tolerate(attempt: Awaitable[Any], allowed: frozenset[str]) -> Any:
    """The outcome; None when it was refused in a way allowed, or the server went away."""
    try:
        return await attempt
    except (grpc.aio.AioRpcError, grpc.aio.UsageError) as error:
        check_refusal(error, allowed)
        return None


def check_refusal(error: Exception, allowed: frozenset[str]) -> None:
    """An RPC failed because the server went away, or was refused in a way allowed; a refusal for a
    decision that was made before says who decided what and when."""
    if went_away(error):
        return
    if not isinstance(error, grpc.aio.AioRpcError):
        raise error
    refusal = read_refusal(error)
    assert refusal.reason in allowed, f"{refusal.reason}: {refusal.code} {refusal.text}"
    if refusal.reason == "PENDING_CALL_ALREADY_DECIDED":
        for key in ("pending_call_id", "decision_id", "verb", "principal", "decide_time"):
            assert refusal.metadata[key], key


RESTING = frozenset(
    {
        result_pb2.FINISH_REASON_STOP,
        result_pb2.FINISH_REASON_SUSPENDED,
        result_pb2.FINISH_REASON_ABORTED,
    }
)
"""What a run that rests says, when it did not fail."""


def fitting(
    caller: Caller, call: PendingCall, value: int, *, wait: bool = False, request_id: str = ""
) -> Awaitable[Any]:
    """The decision that fits a call."""
    fields: dict[str, Any] = {"wait": wait, "request_id": request_id}
    if call.kind == APPROVAL:
        return caller.approve(call, args_digest=call.args_digest, **fields)
    if call.kind == SUSPENSION:
        return caller.resume(call, answer_to(call, value), **fields)
    if call.kind == CLIENT_TOOL:
        error = f"failed {value}" if value % 5 == 4 else None
        return caller.submit(call, {"outside": value}, error=error, **fields)
    if value % 2:
        return caller.approve(call, args_digest=call.args_digest, **fields)
    return caller.submit(call, {"recovered": value}, **fields)


FALSY: list[Any] = [False, 0, "", [], None, {}, 0.0]


def answer_to(call: PendingCall, value: int) -> Any:
    """An answer that fits a question."""
    if call.tool_name == "ask_user":
        multi = value_of(call.suspend_payload)["selection_mode"] == "multi_select"
        return ["green", "red"] if multi else "green"
    return FALSY[value] if value < len(FALSY) else {"value": value}
