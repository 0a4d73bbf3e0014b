"""The lease of a process, when its database is slow."""

import asyncio
import time
from typing import Any

import pytest

from entracte_server import Agent, App, ToolContext, tool
from entracte_server.domain.errors import Refusal
from entracte_server.engine.lease import Lease
from entracte_server.engine.runlog import RunLog
from entracte_server.store.base import Created, CreateRun, LeaseLost
from entracte_server.testing import scripted, serve
from tests.cases.support import Caller, serving

LEASE = 1.0
"""Seconds."""


class SlowStore:
    """A store whose renewals take as long as the test says."""

    def __init__(self) -> None:
        self.entered: list[str] = []
        self.renewing = asyncio.Event()
        self.answer = asyncio.Event()
        self.renewed = True

    async def enter(self, process_id: str, seconds: float) -> None:
        self.entered.append(process_id)

    async def renew(self, process_id: str, seconds: float) -> bool:
        self.renewing.set()
        await self.answer.wait()
        return self.renewed


async def test_a_renewal_that_comes_too_late_gives_nothing_back() -> None:
    """Who was told that the lease is lost cannot be told otherwise: the process goes on under another id,
    and in between it owns nothing."""
    store: Any = SlowStore()
    lost: list[str] = []
    lease = Lease(store, 0.2, lost.append)
    await lease.take()
    first = lease.process_id
    renewing = asyncio.create_task(lease.renew())
    await store.renewing.wait()
    await asyncio.sleep(0.25)
    assert not lease.check()
    assert lost == [first]
    assert not lease.held("")
    with pytest.raises(Refusal):
        _ = lease.owner
    store.answer.set()
    await renewing
    assert lease.held()
    assert lease.owner == store.entered[-1] != first
    assert not lease.held(first)
    assert lost == [first]


async def test_a_refused_renewal_is_a_loss() -> None:
    """Also where the own clock would still allow to go on."""
    store: Any = SlowStore()
    store.renewed = False
    store.answer.set()
    lost: list[str] = []
    lease = Lease(store, 60, lost.append)
    await lease.take()
    await lease.renew()
    assert lost == store.entered[:1]
    assert lease.owner == store.entered[1]


async def test_a_call_that_was_not_entered_is_not_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease runs out between an approval and the tool's first line: the run changes hands, and the tool
    is entered once, without a question to anybody."""
    entered: list[str] = []

    @tool(requires_approval=True)
    async def gated(ctx: ToolContext) -> str:
        """Needs approval."""
        entered.append(ctx.tool_call_id)
        return "done"

    check = RunLog.check
    armed: list[bool] = []

    def ends_once(log: RunLog) -> None:
        if armed:
            armed.clear()
            raise LeaseLost("the lease may be over")
        check(log)

    monkeypatch.setattr(RunLog, "check", ends_once)
    model = scripted([[{"tool": "gated", "id": "c"}], [{"text": "end"}]], position="transcript")
    async with serving(App(agents=[Agent(id="agent", model=model, tools=[gated])])) as caller:
        (waiting,) = (await caller.generate()).result.pending_calls
        armed.append(True)
        assert (await caller.approve(waiting)).result.text == "end"
        assert len(await caller.decisions()) == 1
    assert entered == ["c"]
    assert not armed


async def test_a_run_that_changes_hands_between_two_steps_ends_each_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end of a step is written when the lease runs out: whoever goes on asks for the next step."""

    @tool
    async def plain() -> str:
        """Needs nobody."""
        return "done"

    check = RunLog.check
    checks: list[RunLog] = []

    def ends_before_the_second_step(log: RunLog) -> None:
        checks.append(log)
        # Before the first question, around the tool's start, before the second question.
        if len(checks) == 4:
            raise LeaseLost("the lease may be over")
        check(log)

    monkeypatch.setattr(RunLog, "check", ends_before_the_second_step)
    model = scripted([[{"tool": "plain", "id": "c"}], [{"text": "end"}]], position="transcript")
    async with serving(App(agents=[Agent(id="agent", model=model, tools=[plain])])) as caller:
        done = await caller.generate()
        assert done.result.text == "end"
        chunks = await caller.watch(done.run.run_id)
        ended = [(chunk.step, chunk.attempt) for chunk in chunks if chunk.HasField("step_finish")]
        assert ended == [(1, 1), (2, 1)]
        assert [step.step for step in done.result.steps] == [1, 2]
    assert len({id(log) for log in checks}) == 2


async def test_a_run_that_had_not_begun_when_the_lease_was_lost_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process stands still while a run is created, and finds its lease lost before the run's first move.
    The run goes on under the next lease, and does not count as one that is executed for ever."""
    model = scripted([[{"text": "end"}]])
    app = App(agents=[Agent(id="agent", model=model)])
    async with serve(app, lease=LEASE, max_runs=1) as server, Caller(server.address, agent="agent") as caller:
        store, lease = server.engine.store, server.engine.lease
        create = store.create_run
        lost: list[str] = []

        async def too_slow(op: CreateRun) -> Created:
            created = await create(op)
            if not lost:
                lost.append(lease.process_id)
                time.sleep(LEASE)  # noqa: ASYNC251
                asyncio.get_running_loop().call_soon(lease.check)
            return created

        monkeypatch.setattr(store, "create_run", too_slow)
        assert (await caller.generate()).result.text == "end"
        assert lease.process_id not in lost
        assert (await caller.generate()).result.text == "end"
        assert server.engine.active_runs == 0
