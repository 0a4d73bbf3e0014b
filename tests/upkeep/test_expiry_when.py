"""When calls expire, and which server decides then."""

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from entracte import PendingCallAlreadyDecided, PendingCallExpired
from entracte_server import Agent, App, DefaultAnswer, ToolContext, ask_user, tool
from entracte_server.agents.schemas import InvalidValue, Violation
from entracte_server.engine import expired, keeper, upkeep
from entracte_server.store.base import NotFound
from entracte_server.testing import TestServer
from tests.upkeep.support import (
    ASK,
    CHOOSE,
    CITY,
    PAY,
    PICK,
    SOON,
    app_of,
    calling,
    decisions,
    ended,
    parked,
    pay,
    serving,
    told,
    until,
)


def _holds(server: TestServer, duty: str) -> Any:
    async def look() -> bool:
        return await server.store.lead(duty, server.engine.lease.process_id, upkeep.DUTY_SECONDS)

    return look


class TestWhen:
    async def test_no_expiry_unless_asked_for(self, store: str) -> None:
        model = calling(PAY, ASK, PICK)
        app = app_of(model, pay, ask_user)
        async with serving(app, store=store) as (server, client):
            calls = await parked(client, client_tools=[CITY])
            assert {(call.expire_time, call.on_expiry) for call in calls.values()} == {(None, None)}
            rows = await server.store.expired(2**52, agents=frozenset({"agent"}), limit=10)
            assert rows == []

    async def test_a_decision_in_time_and_one_too_late(
        self, store: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A late one is refused although nobody has settled the call yet; so is a claim."""
        monkeypatch.setattr(keeper, "ROUND", 3600.0)
        asking = ask_user.expiring(0.4, DefaultAnswer("b"))
        async with serving(app_of(calling(CHOOSE), asking), store=store) as (server, client):
            in_time = await client.agent("agent").resume((await parked(client))["ask_user"], "a")
            assert in_time.text == "done"
            call = (await parked(client))["ask_user"]
            await client.inbox.claim(call)
            await asyncio.sleep(0.45)
            with pytest.raises(PendingCallExpired) as caught:
                await client.agent("agent").resume(call, "a")
            assert caught.value.code == "FAILED_PRECONDITION"
            assert caught.value.metadata["pending_call_id"] == call.pending_call_id
            with pytest.raises(PendingCallExpired):
                await client.inbox.claim(call)
            assert [c.state async for c in client.inbox.list()] == ["open"]
            # The claim does not keep the server from it.
            monkeypatch.setattr(keeper, "ROUND", 0.05)
            await server.engine._keeper._upkeep()  # type: ignore[misc]
            assert (await ended(client, call.run_id)).state == "succeeded"

    async def test_a_call_that_waits_while_the_run_goes_on(self) -> None:
        """The run executes all the time: the process that owns it is told, and it never parks."""
        release = asyncio.Event()

        @tool
        async def slow() -> str:
            """Takes its time."""
            await release.wait()
            return "finished"

        model = calling(PAY, {"tool": "slow", "id": "c", "args": {}})
        async with serving(app_of(model, pay.expiring(SOON), slow)) as (_, client):
            seen = []
            async for chunk in client.agent("agent").stream("go"):
                seen.append(chunk.type)
                if chunk.type == "tool-output-denied":
                    release.set()
            assert seen.count("finish") == 1
            assert seen.index("tool-output-denied") < seen.index("tool-result")

    async def test_a_call_expires_while_no_server_runs(self, store: str) -> None:
        model = calling(PAY)
        app = app_of(model, pay.expiring(SOON))
        async with serving(app, store=store) as (_, client):
            run_id = (await parked(client))["pay"].run_id
        await asyncio.sleep(SOON)
        async with serving(app, store=store) as (_, client):
            assert (await ended(client, run_id)).state == "succeeded"

    async def test_the_request_may_only_shorten(self) -> None:
        """The earlier time counts, with what was declared with it."""
        model = calling(PAY, CHOOSE)
        tools = pay.expiring(0.3, "fail"), ask_user.expiring(3600, DefaultAnswer("b"))
        async with serving(app_of(model, *tools)) as (_, client):
            longer = await parked(client, pending_call_expiry=7200)
            assert {name: call.on_expiry for name, call in longer.items()} == {
                "pay": "fail",
                "ask_user": "answer",
            }
            shorter = await parked(client, pending_call_expiry=0.2)
            assert {call.on_expiry for call in shorter.values()} == {"decline"}
            for call in shorter.values():
                assert call.create_time is not None
                assert call.expire_time == call.create_time + timedelta(seconds=0.2)
            assert (await ended(client, longer["pay"].run_id)).state == "failed"
            assert (await ended(client, shorter["pay"].run_id)).state == "succeeded"

    async def test_watchers_of_the_inbox_are_told(self) -> None:
        app = app_of(calling(PAY), pay.expiring(SOON))
        async with serving(app) as (_, client):
            watch = client.inbox.watch()
            assert (await anext(watch)).snapshot_complete
            call = (await parked(client))["pay"]
            opened = await anext(watch)
            assert opened.opened == (call,)
            closed = await asyncio.wait_for(anext(watch), 15)
            assert closed.closed == (call.pending_call_id,)
            await watch.aclose()


class TestWhoDecides:
    async def test_a_server_without_the_agent_leaves_the_call_alone(self, store: str) -> None:
        app = app_of(calling(PAY), pay.expiring(SOON))
        async with serving(app, store=store) as (_, client):
            run_id = (await parked(client))["pay"].run_id
        other = App(agents=[Agent(id="other", model=calling(PAY), tools=[pay.expiring(SOON)])])
        async with serving(other, store=store) as (_, client):
            result = await client.agent("other").generate("go")
            assert (await ended(client, result.run_id)).state == "succeeded"
            run = await client.runs.get(run_id)
            assert (run.state, len(run.pending_calls)) == ("suspended", 1)
        async with serving(app, store=store) as (_, client):
            assert (await ended(client, run_id)).state == "succeeded"

    async def test_one_server_decides_for_a_run_of_another(self, store: str) -> None:
        """The one that has the duty; the owner of the run hears of it, and goes on."""
        release = asyncio.Event()

        @tool
        async def slow() -> str:
            """Takes its time."""
            await release.wait()
            return "finished"

        model = calling(PAY, {"tool": "slow", "id": "c", "args": {}})
        app = app_of(model, pay.expiring(0.4), slow)
        duty = f"expiry {upkeep.same_app(app)}"
        async with AsyncExitStack() as stack:
            with_duty = await stack.enter_async_context(AsyncExitStack())
            first, _ = await with_duty.enter_async_context(serving(app, store=store))
            await until(_holds(first, duty), "the first server has the duty")
            second, client = await stack.enter_async_context(serving(app, store=store))
            seen = []
            async for chunk in client.agent("agent").stream("go", run_id="r"):
                seen.append(chunk.type)
                if chunk.type == "tool-call-approval":
                    owner = (await second.store.get_run("local", "r")).owner
                    assert owner == second.engine.lease.process_id
                if chunk.type == "tool-output-denied":
                    release.set()
            assert seen.count("finish") == 1
            assert not await _holds(second, duty)()
            await with_duty.aclose()
            await until(_holds(second, duty), "the second server has the duty when the first is gone")

    async def test_an_answer_waits_for_a_server_with_the_tool_but_not_for_ever(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "store.db"
        model = calling(CHOOSE)
        asking = ask_user.expiring(SOON, DefaultAnswer("b"))
        async with serving(app_of(model, asking), store=path) as (_, client):
            run_id = (await parked(client))["ask_user"].run_id
        monkeypatch.setattr(upkeep, "LATER_SECONDS", 0.05)
        async with serving(app_of(model, pay.expiring(SOON)), store=path) as (_, client):
            await asyncio.sleep(0.3)
            assert (await client.runs.get(run_id)).state == "suspended"
            monkeypatch.setattr(expired, "PATIENCE", 0.2)
            run = await ended(client, run_id)
            assert run.state == "succeeded"
            decision = (await decisions(client, run_id))["ask_user"]
            assert decision.reason.startswith("Expired: declined, because nobody has the tool")
            assert told(model)["ask_user"][0] == "denied"

    @pytest.mark.parametrize("fault", [None, ZeroDivisionError(), SystemExit()], ids=str)
    async def test_an_answer_that_the_tool_does_not_take_any_more(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: BaseException | None
    ) -> None:
        def asking() -> Any:
            @tool(resume_schema={"type": "string"}, expires_after=0.5, on_expiry=DefaultAnswer("x"))
            async def asks(ctx: ToolContext[Any]) -> Any:
                """Asks."""
                if not ctx.resumed:
                    ctx.suspend("?")
                return ctx.resume_data

            return asks

        path = tmp_path / "store.db"
        model = calling({"tool": "asks", "id": "c", "args": {}})
        async with serving(app_of(model, asking()), store=path) as (_, client):
            run_id = (await parked(client))["asks"].run_id
        changed = asking()

        def refuse(text: str) -> Any:
            raise InvalidValue((Violation("", "something else"),)) if fault is None else fault

        monkeypatch.setattr(changed, "parse_resume", refuse)
        async with serving(app_of(model, changed), store=path) as (_, client):
            assert (await ended(client, run_id)).state == "succeeded"
            decision = (await decisions(client, run_id))["asks"]
            assert decision.reason.startswith("Expired: declined, because the answer does not fit the tool")

    async def test_an_error_in_one_call_does_not_stop_the_others(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Not even one that would end a program, and that comes first. The call is tried again later."""
        monkeypatch.setattr(upkeep, "LATER_SECONDS", 0.2)
        decide, broken = expired.decide_expired, True

        async def sometimes(engine: Any, row: Any, now: int) -> bool:
            if row.tool_name == "pay" and broken:
                raise SystemExit("a validator of an author")
            return await decide(engine, row, now)

        monkeypatch.setattr(upkeep, "decide_expired", sometimes)
        monkeypatch.setattr(upkeep, "MAX_EXPIRED", 1)
        app = app_of(calling(ASK, PAY), pay, ask_user, expires_after=SOON)
        async with serving(app) as (_, client):
            run_id = (await parked(client))["pay"].run_id
            await until(lambda: decisions(client, run_id), "the other call expires")
            assert set(await decisions(client, run_id)) == {"ask_user"}
            broken = False
            assert (await ended(client, run_id)).state == "succeeded"

    async def test_a_call_that_was_decided_meanwhile_did_not_expire(self) -> None:
        """Whoever finds it too late says so, and not that it expired."""
        async with serving(app_of(calling(PAY), pay.expiring(60))) as (server, client):
            call = (await parked(client))["pay"]
            row, _ = await server.store.get_pending("local", call.pending_call_id)
            await client.agent("agent").approve(call)
            with pytest.raises(NotFound):
                await expired.decide_expired(server.engine, row, row.expire_time + 1)

    async def test_people_and_the_server_at_the_same_moment(self, store: str) -> None:
        """Of sixty runs each is decided once, by whoever was first, and nothing hangs."""
        model = calling(CHOOSE)
        asking = ask_user.expiring(1.0, DefaultAnswer("b"))
        async with serving(app_of(model, asking), store=store) as (_, client):
            agent = client.agent("agent")
            calls = [
                found["ask_user"] for found in await asyncio.gather(*(parked(client) for _ in range(60)))
            ]

            async def answer(position: int) -> str:
                call = calls[position]
                assert call.expire_time is not None
                left = (call.expire_time - datetime.now(UTC)).total_seconds()
                await asyncio.sleep(max(0.0, left + (position % 20 - 10) * 0.01))
                try:
                    await agent.resume(call, "a")
                except (PendingCallExpired, PendingCallAlreadyDecided):
                    return "server"
                return "person"

            who = await asyncio.gather(*map(answer, range(len(calls))))
            for call, winner in zip(calls, who, strict=True):
                run = await ended(client, call.run_id)
                assert run.state == "succeeded"
                [decision] = [d async for d in client.inbox.decisions(run_id=run.run_id)]
                assert (decision.verb == "expire") == (winner == "server")
                assert decision.data == ("b" if winner == "server" else "a")
            assert set(who) == {"server", "person"}
