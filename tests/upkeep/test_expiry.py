"""Calls that nobody decides in time: each kind, each thing that can happen then, who is told."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from entracte import PendingCallAlreadyDecided, PendingCallExpiry
from entracte_server import DefaultAnswer, ToolContext, ask_user, tool
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


class TestDecline:
    @pytest.mark.parametrize("follow", ["generate", "stream"])
    async def test_an_approval(self, store: str, follow: str) -> None:
        """The tool is not entered; the model, the stream, the inbox and the audit are told; the run goes
        on without anybody; a decision that comes later is refused."""
        model = calling(PAY)
        async with serving(app_of(model, pay.expiring(SOON)), store=store) as (_, client):
            if follow == "generate":
                call = (await parked(client))["pay"]
            else:
                stream = client.agent("agent").stream("go")
                [shown] = [chunk async for chunk in stream if chunk.type == "tool-call-approval"]
                [call] = (await stream.result()).pending_calls
                assert shown.expire_time == call.expire_time
            assert call.expire_time is not None
            assert call.create_time is not None
            assert call.expire_time - call.create_time == timedelta(seconds=SOON)
            assert (call.on_expiry, call.default_answer_json) == ("decline", None)
            run = await ended(client, call.run_id)
            assert run.result is not None
            assert (run.state, run.result.text) == ("succeeded", "done")
            kind, text = told(model)["pay"]
            assert kind == "denied"
            assert "Nobody approved the call in time" in text
            chunks = [chunk async for chunk in client.runs.watch(call.run_id)]
            [resolved] = [chunk for chunk in chunks if chunk.type == "tool-call-resolved"]
            assert (resolved.verb, resolved.principal) == ("expire", "system")
            [denied] = [chunk for chunk in chunks if chunk.type == "tool-output-denied"]
            assert denied.reason_data == {"expired": True}
            decision = (await decisions(client, call.run_id))["pay"]
            assert (decision.verb, decision.principal) == ("expire", "system")
            assert decision.decision_id == resolved.decision_id
            assert decision.reason == "Expired: declined. The expiry was declared by the tool."
            assert decision.decide_time is not None
            assert decision.decide_time > call.expire_time
            late = await client.inbox.get(call.pending_call_id)
            assert (late.state, late.decision) == ("decided", decision)
            with pytest.raises(PendingCallAlreadyDecided, match=r"decided before by system \(expire\)"):
                await client.agent("agent").approve(call)

    async def test_a_question_and_a_client_tool(self) -> None:
        model = calling(ASK, PICK)
        app = app_of(model, ask_user, expires_after=SOON)
        async with serving(app) as (_, client):
            calls = await parked(client, client_tools=[CITY])
            assert {call.on_expiry for call in calls.values()} == {"decline"}
            run = await ended(client, calls["ask_user"].run_id)
            assert run.state == "succeeded"
            assert {kind for kind, _ in told(model).values()} == {"denied"}
            made = await decisions(client, run.run_id)
            assert {decision.verb for decision in made.values()} == {"expire"}
            assert made["pick_city"].reason.endswith("declared by the agent.")

    async def test_a_word_about_a_crash(self, store: str) -> None:
        """The model is told that the tool may have run, not that it was declined."""
        entered: list[int] = []

        @tool(expires_after=SOON)
        async def send(cents: int) -> None:
            """Sends."""
            entered.append(cents)
            await asyncio.Event().wait()

        model = calling({"tool": "send", "id": "c", "args": {"cents": 1}})
        async with serving(app_of(model, send), store=store) as (_, client):
            stream = client.agent("agent").stream("go", run_id="r")
            waiting = asyncio.ensure_future(anext(aiter(stream)))
            await until(_true(entered), "the tool is entered")
            await waiting
        async with serving(app_of(model, send), store=store) as (_, client):
            run = await ended(client, "r")
            assert run.state == "succeeded"
            kind, text = told(model)["send"]
            assert (kind, "It may have." in text) == ("error", True)
            assert (await decisions(client, "r"))["send"].verb == "expire"
        assert entered == [1]


def _true(value: Any) -> Any:
    async def look() -> bool:
        return bool(value)

    return look


class TestDefaultAnswer:
    async def test_a_question_is_answered(self) -> None:
        model = calling(CHOOSE)
        asking = ask_user.expiring(SOON, DefaultAnswer("b"))
        async with serving(app_of(model, asking)) as (_, client):
            call = (await parked(client))["ask_user"]
            assert (call.on_expiry, call.default_answer) == ("answer", "b")
            await ended(client, call.run_id)
            kind, text = told(model)["ask_user"]
            assert kind == "json"
            assert "Nobody answered in time. The default answer: b" in text
            decision = (await decisions(client, call.run_id))["ask_user"]
            assert (decision.verb, decision.principal, decision.data) == ("expire", "system", "b")
            assert decision.reason == "Expired: answered. The expiry was declared by the tool."

    async def test_a_question_that_does_not_have_the_answer_is_declined(self) -> None:
        """What will happen is shown from the beginning."""
        model = calling(CHOOSE)
        app = app_of(model, ask_user, expires_after=SOON, on_expiry=DefaultAnswer("c"))
        async with serving(app) as (_, client):
            call = (await parked(client))["ask_user"]
            assert (call.on_expiry, call.default_answer_json) == ("decline", None)
            await ended(client, call.run_id)
            assert told(model)["ask_user"][0] == "denied"

    async def test_a_tool_knows_that_the_answer_is_the_default(self) -> None:
        """And a later answer of a person in the same call is not."""
        seen: list[tuple[bool, Any, bool]] = []

        @tool(resume_schema={"type": "string"})
        async def asks(ctx: ToolContext[str]) -> str:
            """Asks twice."""
            seen.append((ctx.resumed, ctx.resume_data, ctx.expired))
            if not ctx.resumed:
                ctx.suspend("first", expires_after=SOON, on_expiry=DefaultAnswer("default"))
            if ctx.suspend_payload == "first":
                ctx.suspend("second")
            return ctx.resume_data

        model = calling({"tool": "asks", "id": "c", "args": {}})
        async with serving(app_of(model, asks)) as (_, client):
            first = (await parked(client))["asks"]

            async def second() -> Any:
                run = await client.runs.get(first.run_id)
                return [c for c in run.pending_calls if c.pending_call_id != first.pending_call_id]

            [call] = await until(second, "the second question")
            assert (call.expire_time, call.on_expiry) == (None, None)
            result = await client.agent("agent").resume(call, "a person")
            assert result.text == "done"
            assert seen == [(False, None, False), (True, "default", True), (True, "a person", False)]

    async def test_a_client_tool_gets_a_result_from_the_request(self, store: str) -> None:
        model = calling(PICK, ASK)
        expiry = PendingCallExpiry(SOON, default_answers={"pick_city": {"city": None}, "ask_user": "go on"})
        async with serving(app_of(model, ask_user), store=store) as (_, client):
            calls = await parked(client, client_tools=[CITY], pending_call_expiry=expiry)
            assert calls["pick_city"].default_answer == {"city": None}
            run = await ended(client, calls["pick_city"].run_id)
            assert told(model)["pick_city"] == ("json", '{"city":null}')
            assert "go on" in told(model)["ask_user"][1]
            made = await decisions(client, run.run_id)
            assert made["pick_city"].data == {"city": None}
            assert made["pick_city"].reason.endswith("declared by the request of local.")

    async def test_nothing_is_approved(self) -> None:
        """A gate that the caller adds to a tool with a default answer: the approval expires, and the
        answer is for what the tool would ask."""
        entered: list[str] = []

        @tool(expires_after=SOON, on_expiry=DefaultAnswer("yes"))
        async def asks(ctx: ToolContext[str]) -> str:
            """Asks."""
            entered.append("entered")
            return "never"

        model = calling({"tool": "asks", "id": "c", "args": {}})
        async with serving(app_of(model, asks)) as (_, client):
            call = (await parked(client, require_tool_approval=True))["asks"]
            assert (call.kind, call.on_expiry) == ("approval", "decline")
            await ended(client, call.run_id)
            assert told(model)["asks"][0] == "denied"
            assert entered == []


class TestFail:
    async def test_the_run_fails(self, store: str) -> None:
        """With a typed error; the call that waited beside it is closed, and every call has a result."""
        model = calling(PAY, ASK)
        app = app_of(model, pay.expiring(SOON, "fail"), ask_user)
        async with serving(app, store=store) as (_, client):
            calls = await parked(client)
            assert (calls["pay"].on_expiry, calls["ask_user"].on_expiry) == ("fail", None)
            run = await ended(client, calls["pay"].run_id)
            assert (run.state, run.finish_reason, run.stop_cause) == ("failed", "error", "error")
            assert run.error is not None
            assert (run.error.kind, run.error.retryable) == ("expired", False)
            assert run.error.message == "Nobody decided the call of pay in time."
            assert run.pending_calls == ()
            chunks = [chunk async for chunk in client.runs.watch(run.run_id)]
            assert [chunk.type for chunk in chunks[-4:]] == [
                "tool-call-resolved",
                "tool-error",
                "error",
                "finish",
            ]
            assert chunks[-3].code == "expired"  # type: ignore[union-attr]
            made = await decisions(client, run.run_id)
            assert {name: decision.verb for name, decision in made.items()} == {
                "pay": "expire",
                "ask_user": "cancel",
            }
            assert len(model.requests) == 1
            assert run.result is not None
            results = [part for message in run.result.messages for part in message.parts]
            answered = [part.tool_call_id for part in results if part.type == "tool-result"]
            assert sorted(answered) == ["c-ask", "c-pay"]

    async def test_a_tool_that_runs_beside_it_ends_first(self, store: str) -> None:
        """Its result is kept, what it asks is not asked, and what is decided meanwhile is not entered."""
        release = asyncio.Event()
        entered: list[str] = []

        @tool
        async def slow() -> str:
            """Takes its time."""
            entered.append("slow")
            await release.wait()
            return "finished"

        @tool
        async def asks_late(ctx: ToolContext[Any]) -> str:
            """Takes its time, and asks."""
            await release.wait()
            ctx.suspend("too late")

        @tool(requires_approval=True)
        async def gated() -> str:
            """Is approved when it does not matter any more."""
            entered.append("gated")
            return "entered"

        parts: list[dict[str, Any]] = [
            {"tool": name, "id": name, "args": {}} for name in ("slow", "asks_late", "gated")
        ]
        model = calling(PAY, *parts)
        app = app_of(model, pay.expiring(SOON, "fail"), slow, asks_late, gated)
        async with serving(app, store=store) as (_, client):
            stream = client.agent("agent").stream("go", run_id="r")
            seen = []
            async for chunk in stream:
                seen.append(chunk)
                if chunk.type == "tool-call-resolved" and chunk.tool_name == "pay":
                    [call] = (await client.runs.get("r")).pending_calls
                    await client.agent("agent").approve_stream(call).commit()
                    release.set()
            result = await stream.result()
            assert result.finish_reason == "error"
            assert entered == ["slow"]
            [finished] = [chunk for chunk in seen if chunk.type == "tool-result"]
            assert (finished.tool_name, finished.result) == ("slow", "finished")
            assert not [c for c in seen if c.type == "tool-call-suspended"]
            made = await decisions(client, "r")
            assert {name: decision.verb for name, decision in made.items()} == {
                "pay": "expire",
                "gated": "approve",
            }
            assert len(model.requests) == 1

    async def test_after_a_crash_between_the_decision_and_the_end(
        self, store: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The next process finds the decision and fails the run, without asking anybody."""
        model = calling(PAY, ASK)
        app = app_of(model, pay.expiring(SOON, "fail"), ask_user)
        async with serving(app, store=store) as (server, client):
            run_id = (await parked(client))["pay"].run_id

            async def die(*_: Any) -> None:
                raise asyncio.CancelledError

            monkeypatch.setattr(server.engine, "_drive", die)
            await until(lambda: decisions(client, run_id), "the call expires")
        async with serving(app, store=store) as (_, client):
            run = await ended(client, run_id)
            assert run.error is not None
            assert run.error.kind == "expired"
            made = await decisions(client, run_id)
            assert {name: decision.verb for name, decision in made.items()} == {
                "pay": "expire",
                "ask_user": "cancel",
            }
            assert len(model.requests) == 1

    async def test_after_a_crash_while_a_tool_runs_beside_it(self, store: str) -> None:
        """The run is to fail: the tool is not entered again, and nobody is asked whether it ran."""
        entered: list[str] = []

        @tool(idempotent=True)
        async def slow() -> None:
            """Never ends."""
            entered.append("slow")
            await asyncio.Event().wait()

        @tool
        async def other() -> None:
            """Never ends, and may not be entered again by itself."""
            entered.append("other")
            await asyncio.Event().wait()

        parts: list[dict[str, Any]] = [{"tool": name, "id": name, "args": {}} for name in ("slow", "other")]
        model = calling(PAY, *parts)
        app = app_of(model, pay.expiring(SOON, "fail"), slow, other)
        async with serving(app, store=store) as (_, client):
            async for chunk in client.agent("agent").stream("go", run_id="r"):
                if chunk.type == "tool-error":
                    break
        async with serving(app, store=store) as (_, client):
            run = await ended(client, "r")
            assert run.error is not None
            assert run.error.kind == "expired"
            chunks = [chunk async for chunk in client.runs.watch("r")]
            assert not [chunk for chunk in chunks if chunk.type == "tool-call-suspended"]
        assert sorted(entered) == ["other", "slow"]
        assert len(model.requests) == 1
