"""Several calls in one turn: all are shown, each runs once, none disturbs another."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from entracte_server import ToolContext, tool
from entracte_server.testing import scripted
from tests.cases.support import (
    announced,
    app_of,
    finish_of,
    gap_free,
    kind_of,
    paired,
    payloads,
    serving,
    told_calls,
    told_results,
    value_of,
)

pytestmark = pytest.mark.usefixtures("each_store")

entered: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def _nobody_entered() -> None:
    entered.clear()


@tool(requires_approval=True)
async def transfer(to: str, cents: int, ctx: ToolContext) -> dict[str, Any]:
    entered[ctx.tool_call_id] += 1
    return {"to": to, "cents": cents}


@tool
async def balance(ctx: ToolContext) -> int:
    entered[ctx.tool_call_id] += 1
    return 100


@tool
async def ask(about: str, ctx: ToolContext) -> Any:
    entered[ctx.tool_call_id] += 1
    if not ctx.resumed:
        ctx.suspend({"about": about})
    return ctx.resume_data


def transferring(id: str, cents: int) -> dict[str, Any]:
    return {"tool": "transfer", "id": id, "args": {"to": id, "cents": cents}}


async def test_every_waiting_call_is_shown_everywhere(tmp_path: Path) -> None:
    """SR-06: three calls wait: the stream, the run, the result and the inbox show all three, with name,
    arguments and id, also after a restart."""
    expected = [(f"c{i}", "transfer", {"to": f"c{i}", "cents": i}) for i in (1, 2, 3)]
    model = scripted([[transferring(f"c{i}", i) for i in (1, 2, 3)], [{"text": "end"}]])
    app = app_of(model, [transfer])
    store = tmp_path / "db"

    def shown(calls: Any) -> list[Any]:
        return [(c.tool_call_id, c.tool_name, value_of(c.args)) for c in calls]

    async with serving(app, store=store) as caller:
        chunks = await caller.stream()
        assert shown(announced(chunks)) == expected
        run_id = chunks[0].run_id
        ids = [c.pending_call_id for c in announced(chunks)]
        assert len(set(ids)) == 3
        listed = [(c.tool_call_id, c.pending_call_id) for c in finish_of(chunks).open_calls]
        assert listed == [(c, i) for (c, _, _), i in zip(expected, ids, strict=True)]
    for _ in range(2):
        async with serving(app, store=store) as caller:
            status = await caller.get_run(run_id)
            for calls in (
                status.run.pending_calls,
                status.result.pending_calls,
                await caller.pending(run_id),
                await caller.pending(),
            ):
                assert shown(calls) == expected
                assert [c.pending_call_id for c in calls] == ids
            assert value_of(status.result.suspend_payload.args) == expected[0][2]


async def test_answering_one_call_leaves_its_siblings_alone() -> None:
    """SR-07: six questions and a plain tool; answered one by one in another order, each question is
    entered twice in all, the plain tool once, and no waiting sibling meanwhile."""
    order = [3, 1, 6, 2, 5, 4]
    calls = [{"tool": "ask", "id": f"c{i}", "args": {"about": str(i)}} for i in range(1, 7)]
    model = scripted([[*calls[:3], {"tool": "balance", "id": "plain"}, *calls[3:]], [{"text": "end"}]])
    async with serving(app_of(model, [ask, balance])) as caller:
        waiting = {c.tool_call_id: c for c in (await caller.generate()).result.pending_calls}
        expected = Counter({"plain": 1, **dict.fromkeys(waiting, 1)})
        assert entered == expected
        for number, i in enumerate(order):
            expected[f"c{i}"] += 1
            answer = await caller.resume(waiting[f"c{i}"], i)
            assert entered == expected
            left = {c.tool_call_id: c.pending_call_id for c in answer.result.pending_calls}
            assert left == {f"c{j}": waiting[f"c{j}"].pending_call_id for j in order[number + 1 :]}
        assert paired(model.requests[1])
        results = {i: json.loads(output) for i, output in told_results(model.requests[1])}
        assert results == {"plain": 100, **{f"c{i}": i for i in order}}


async def test_the_result_beside_a_pause_is_kept(tmp_path: Path) -> None:
    """SR-08: a plain tool beside a gated one runs once, before the pause; after the approval the model
    has exactly one result for each call, in the order of the calls."""
    calls = [transferring("c1", 5), {"tool": "balance", "id": "c2"}]
    model = scripted([calls, [{"text": "end"}]], position="transcript")
    app = app_of(model, [transfer, balance])
    async with serving(app, store=tmp_path / "db") as caller:
        chunks = await caller.stream()
        assert [r.tool_call_id for r in payloads(chunks, "tool_result")] == ["c2"]
        assert entered == {"c2": 1}
    async with serving(app, store=tmp_path / "db") as caller:
        await caller.approve(announced(chunks)[0])
    assert entered == {"c1": 1, "c2": 1}
    assert paired(model.requests[-1])
    assert told_results(model.requests[-1]) == [("c1", '{"to":"c1","cents":5}'), ("c2", "100")]


async def test_equal_runs_do_not_mix() -> None:
    """SR-22: two runs wait on equal calls, same tool, arguments and call id; resumed at once in one
    process, each gets its own answer."""
    model = scripted(
        [[{"tool": "ask", "id": "c1", "args": {"about": "x"}}], [{"text": "end"}]], position="transcript"
    )
    async with serving(app_of(model, [ask])) as caller:
        runs = await asyncio.gather(*(caller.generate() for _ in range(8)))
        waiting = [run.result.pending_calls[0] for run in runs]
        assert len({c.pending_call_id for c in waiting}) == 8
        done = await asyncio.gather(*(caller.resume(c, i) for i, c in enumerate(waiting)))
        for i, (run, answer) in enumerate(zip(runs, done, strict=True)):
            assert answer.run.run_id == run.run.run_id
            assert value_of(answer.result.tool_results[0].tool_result.result) == i


@pytest.mark.parametrize("named", [True, False], ids=["the model's id", "an id of ours"])
async def test_a_call_has_one_id_everywhere(named: bool, tmp_path: Path) -> None:
    """SR-23: one id in the pieces, the call, the announcement, the finish, the lists, the history, the
    result and the next request, whether or not the model gave one."""
    call = transferring("c1", 5)
    if not named:
        del call["id"]
    model = scripted([[call], [{"text": "end"}]], position="transcript")
    app = app_of(model, [transfer])
    async with serving(app, store=tmp_path / "db") as caller:
        chunks = await caller.stream()
        run_id = chunks[0].run_id
    async with serving(app, store=tmp_path / "db") as caller:
        ids = {c.tool_call_id for c in await caller.pending()}
        done = await caller.approve(announced(chunks)[0])
        chunks = await caller.watch(run_id)
    assert gap_free(chunks)
    for chunk in chunks:
        payload = getattr(chunk, kind_of(chunk))
        if hasattr(payload, "tool_call_id"):
            ids.add(payload.tool_call_id)
        if kind_of(chunk) == "finish":
            ids.update(c.tool_call_id for c in payload.open_calls)
    for message in done.result.messages:
        for part in message.parts:
            which = part.WhichOneof("part")
            if which in ("tool_call", "tool_result"):
                ids.add(getattr(part, which).tool_call_id)
    ids.update(c.tool_call.tool_call_id for c in done.result.tool_calls)
    ids.update(i for i, _ in [*told_calls(model.requests[-1]), *told_results(model.requests[-1])])
    assert len(ids) == 1
    if named:
        assert ids == {"c1"}


async def test_arguments_are_the_same_after_a_pause(tmp_path: Path) -> None:
    """PS-10: the text of a call's arguments is the same, byte for byte, in the request before and after
    a suspension, a restart and a resume."""
    raw = '{ "about" : "x\\u00e9\\n",\t"n":1.0, "big": 9007199254740993 }'
    open_schema = {"type": "object", "properties": {"about": {"type": "string"}}}

    async def execute(args: Any, ctx: ToolContext) -> Any:
        if not ctx.resumed:
            ctx.suspend(args)
        return args

    from entracte_server import Tool

    probe = Tool(name="probe", execute=execute, input_schema=open_schema)
    first = [{"tool": "probe", "id": "c1", "rawArgs": raw}]
    model = scripted([first, [{"tool": "balance", "id": "c2"}], [{"text": "end"}]], position="transcript")
    app = app_of(model, [probe, balance])
    async with serving(app, store=tmp_path / "db") as caller:
        waiting = (await caller.generate()).result.pending_calls[0]
        assert waiting.args.text == raw
    async with serving(app, store=tmp_path / "db") as caller:
        done = await caller.resume(waiting, "yes")
    for request in model.requests[1:]:
        texts = [p.args for m in request.messages for p in m.parts if hasattr(p, "args")]
        assert texts[0] == raw
    assert done.result.tool_calls[0].tool_call.args.text == raw
    parts = [p.tool_call for m in done.result.messages for p in m.parts if p.HasField("tool_call")]
    assert parts[0].args.text == raw
