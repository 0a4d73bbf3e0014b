"""Tenants do not exist for each other; any text and any bytes come back as they were."""

import pytest
from msgspec.structs import replace

from entracte_server.domain.chunks import PathElement
from entracte_server.domain.messages import FilePart, ImagePart, Message, TextPart
from entracte_server.domain.options import ModelSettings, RunOptions
from entracte_server.domain.runs import FileRecord, Outcome, RunSpec
from entracte_server.store.base import (
    Claim,
    CreateRun,
    DecisionFilter,
    LeaseLost,
    NotFound,
    PendingFilter,
    RunFilter,
    Store,
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
    a_request,
    a_run,
    a_step,
    a_write,
    an_end,
    chunks,
    created,
    everything,
    log_of,
    took,
    waiting,
)
from entracte_server.testing.store_conformance.suite import StoreSuite

ODD = [
    "a\0b",
    "\0",
    "🙈👩‍👩‍👧‍👦\u200d\ufeff",
    "naïve ⟨x⟩ \x1b[31m",
    "'; DROP TABLE runs; --",
    "%_\\",
    "\uffff",
    "x" * 20_000,
]


class IsolationSuite(StoreSuite):
    """What one tenant has, another one neither sees nor changes."""

    async def test_another_tenant_reads_nothing(self, store: Store) -> None:
        run, call, pending = await waiting(store, thread_id="t", last_sequence=1)
        decided = await store.decide(a_decide(pending, call))
        again = a_pending(run, call, round=2)
        await store.write(a_write(decided.run, opened=(again,), park=a_park(6)))
        for reading in (
            store.get_run("other", run.run_id),
            store.load("other", run.run_id),
            store.read_chunks("other", run.run_id, after=0, limit_bytes=10),
            store.get_pending("other", again.pending_call_id),
            store.pending_of_run("other", run.run_id),
            store.get_decision("other", decided.decision.decision_id),
        ):
            with pytest.raises(NotFound):
                await reading
        assert await store.latest_decision("other", run.run_id, call.call_id) is None
        for runs in (RunFilter(), RunFilter(states=("suspended",)), RunFilter(thread_id="t")):
            assert await store.list_runs("other", runs, cursor="", limit=9) == ([], "")
        for waits in (PendingFilter(include_decided=True), PendingFilter(run_id=run.run_id)):
            assert await store.list_pending("other", waits, cursor="", limit=9) == ([], "")
        for where in (
            DecisionFilter(),
            DecisionFilter(run_id=run.run_id),
            DecisionFilter(pending_call_id=pending.pending_call_id),
        ):
            assert await store.list_decisions("other", where, cursor="", limit=9) == ([], "")

    async def test_another_tenant_changes_nothing(self, store: Store) -> None:
        run, call, pending = await waiting(store)
        running = await created(store)
        before = await everything(store, run), await everything(store, running)
        stolen = replace(pending, tenant="other")
        with pytest.raises(NotFound):
            await store.decide(a_decide(stolen, call))
        with pytest.raises(NotFound):
            await store.cancel(a_cancel(run, tenant="other"))
        with pytest.raises(NotFound):
            await store.claim(Claim("other", pending.pending_call_id, "eve", NOW + 9, NOW))
        with pytest.raises(NotFound):
            await store.delete_run("other", run.run_id, force=True, request=None)
        for write in (a_write(running, chunks=chunks(1, 1)), a_write(running, end=an_end())):
            with pytest.raises(LeaseLost):
                await store.write(replace(write, tenant="other"))
        assert (await everything(store, run), await everything(store, running)) == before

    async def test_a_tree_is_one_tenants(self, store: Store) -> None:
        for tenant in (TENANT, "other"):
            await created(store, tenant=tenant, run_id="root", root_run_id="root", parent_run_id="")
            child = await created(
                store, tenant=tenant, run_id="child", root_run_id="root", parent_run_id="root"
            )
            assert child.tenant == tenant
        await store.write(a_write(a_run(run_id="root"), end=an_end()))
        await store.delete_run(TENANT, "root", force=False, request=None)
        with pytest.raises(NotFound):
            await store.get_run(TENANT, "child")
        for run_id in ("root", "child"):
            assert (await store.get_run("other", run_id)).run_id == run_id

    async def test_tenants_may_use_the_same_ids(self, store: Store) -> None:
        request = a_request()
        tenants = ("one", "two")
        waits = {
            tenant: await waiting(store, tenant=tenant, run_id="same", pending_call_id="same")
            for tenant in tenants
        }
        for tenant in tenants:
            theirs = replace(request, tenant=tenant, body_hash=tenant.encode())
            _, call, pending = waits[tenant]
            op = a_decide(pending, call, decision_id="same-decision", comment=tenant)
            decided = await store.decide(replace(op, request=theirs))
            assert (took(decided), decided.run.tenant) == (True, tenant)
        for tenant in tenants:
            assert (await store.get_decision(tenant, "same-decision")).comment == tenant
            page, _ = await store.list_runs(tenant, RunFilter(), cursor="", limit=9)
            assert [run.tenant for run in page] == [tenant]
        await store.write(a_write(waits["one"][0], fence=2, end=an_end()))
        await store.delete_run("one", "same", force=False, request=None)
        assert (await store.load("two", "same")).run.state == "running"
        assert len((await store.list_decisions("two", DecisionFilter(), cursor="", limit=9))[0]) == 1

    async def test_an_owner_writes_for_its_tenant_only(self, store: Store) -> None:
        """Records that name another tenant or run than the write does still land in the write's run."""
        run, call, _ = await waiting(store, park=False)
        _, _, foreign = await waiting(store, tenant="other", park=False)
        stray = a_pending(run, call, tenant="other", run_id="elsewhere")
        closing = replace(a_decision(foreign), tenant=TENANT)
        await store.write(a_write(run, opened=(stray,), closed=(closing,)))
        assert (await store.get_pending("other", foreign.pending_call_id))[0].state == "open"
        landed, _ = await store.get_pending(TENANT, stray.pending_call_id)
        assert (landed.tenant, landed.run_id) == (TENANT, run.run_id)
        with pytest.raises(NotFound):
            await store.get_decision(TENANT, closing.decision_id)

    @pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
    async def test_any_text_anywhere(self, store: Store, text: str) -> None:
        await self._round_trip(store, text)

    async def _round_trip(self, store: Store, text: str) -> None:
        tenant = f"t{text}"
        run = a_run(
            tenant=tenant,
            run_id=f"r{text}",
            agent_id=text,
            principal=text,
            thread_id=text,
            resource_id=text,
            agent_version=text,
            owner=f"o{text}",
        )
        spec = RunSpec(
            (
                Message(
                    "user", (TextPart(text), FilePart(data=text.encode()), ImagePart(url=text)), text, text
                ),
            ),
            RunOptions(
                system=(text,),
                request_context=text,
                model_settings=ModelSettings(temperature=0.1, headers={text: text}),
            ),
            (text,),
        )
        request = a_request(
            tenant=tenant, principal=text, method=text, request_id=text, body_hash=text.encode()
        )
        assert (await store.create_run(CreateRun(run, spec, None, request))).made is None
        assert (await store.create_run(CreateRun(run, spec, None, request))).made is not None
        call = a_call(
            run,
            call_id=f"c{text}",
            tool_name=text,
            args=text,
            run_args=text,
            tool_state=text,
            suspend_payload=text,
        )
        pending = a_pending(
            run,
            call,
            pending_call_id=f"p{text}",
            args=text,
            args_digest=text.encode(),
            suspend_payload=text,
            resume_schema=text,
            tool_description=text,
            agent_path=(PathElement(text, text),),
        )
        step = a_step(parts=(TextPart(text),), files=(FileRecord(text, text.encode()),), message_id=text)
        await store.write(
            a_write(run, chunks=chunks(1, 2), steps=(step,), calls=(call,), opened=(pending,), park=a_park(3))
        )
        snapshot = await store.load(tenant, run.run_id)
        assert snapshot.spec == spec
        assert snapshot.steps == (step,)
        assert snapshot.calls == (call,)
        assert snapshot.pending == (pending,)
        assert snapshot.run.agent_id == snapshot.run.thread_id == snapshot.run.resource_id == text
        op = a_decide(
            pending,
            call,
            decision_id=f"d{text}",
            principal=text,
            edited_args=text,
            data=text,
            reason=text,
            reason_json=text,
            comment=text,
            on_behalf_of=text,
            args_digest=text.encode(),
        )
        decided = await store.decide(op)
        assert decided.decision == replace(op.decision, sequence=3)
        assert await store.latest_decision(tenant, run.run_id, call.call_id) == decided.decision
        cancelled = await store.cancel(a_cancel(run, reason=text))
        assert cancelled.run.cancel_reason == text
        done = replace(call, state="done", outcome=Outcome("denied", text, text, text))
        await store.write(a_write(decided.run, calls=(done,), end=an_end()))
        assert (await store.load(tenant, run.run_id)).calls == (done,)
        for where in (RunFilter(agent_id=text, thread_id=text), RunFilter()):
            page, _ = await store.list_runs(tenant, where, cursor="", limit=2)
            assert [found.run_id for found in page] == [run.run_id]
        waits = PendingFilter(
            run_id=run.run_id, agent_id=text, thread_id=text, resource_id=text, include_decided=True
        )
        assert len((await store.list_pending(tenant, waits, cursor="", limit=2))[0]) == 1
        decisions = DecisionFilter(run.run_id, pending.pending_call_id, text)
        assert await store.list_decisions(tenant, decisions, cursor="", limit=2) == ([decided.decision], "")
        await store.delete_run(tenant, run.run_id, force=False, request=None)

    async def test_big_texts_and_logs(self, store: Store) -> None:
        text = '{"a":"' + "ä€🙈" * 560_000 + '"}'  # 5 MB
        run = a_run()
        spec = replace(SPEC, system=(text,))
        await store.create_run(CreateRun(run, spec))
        call = a_call(run, args=text, state="done", outcome=Outcome("result", text))
        row = replace(chunks(1, 1), data=text.encode())
        await store.write(a_write(run, chunks=row, steps=(a_step(parts=(TextPart(text),)),), calls=(call,)))
        snapshot = await store.load(TENANT, run.run_id)
        assert snapshot.spec == spec
        assert snapshot.calls == (call,)
        assert await log_of(store, run) == text.encode()

    async def test_numbers_of_any_size(self, store: Store) -> None:
        """JSON is text: nobody rounds it or puts its keys in order."""
        text = '{"b":9007199254740993,"a":18446744073709551616,"b2":1.0,"c":-0.0,"d":1e400}'
        run = await created(store)
        call = a_call(run, args=text)
        pending = a_pending(run, call)
        await store.write(a_write(run, calls=(call,), opened=(pending,)))
        assert (await store.get_pending(TENANT, pending.pending_call_id))[0].args == text
        assert (await store.load(TENANT, run.run_id)).calls[0].args == text

    async def test_text_that_is_none_fails_alone(self, store: Store) -> None:
        run, other = await created(store), await created(store)
        bad = store.submit(a_write(run, calls=(a_call(run, args="\ud800"),)))
        good = store.submit(a_write(other, chunks=chunks(1, 1)))
        with pytest.raises(UnicodeEncodeError):
            await bad
        await good
        with pytest.raises(UnicodeEncodeError):
            await store.create_run(CreateRun(a_run(run_id="\udfff"), SPEC))
