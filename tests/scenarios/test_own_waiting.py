"""Our own sequences: approval, suspension, questions, client tools, restarts."""

import asyncio
import pathlib
from typing import Any

import grpc
import pytest

from entracte.v1 import agent_service_pb2 as pb
from entracte.v1 import options_pb2 as options
from entracte.v1 import pending_call_pb2, run_pb2, run_service_pb2
from entracte.v1.json_pb2 import Json
from tests.scenarios import lines
from tests.scenarios.own import BEGIN, GO_ON, PAY, ending, events_of, prompt_of, result_of, shop, use
from tests.scenarios.play import Conversation, Decide, Start, Step, conversation, play, refusal_of
from tests.scenarios.table import approve, decline, resume


async def lines_of(talk: Conversation, step: Start | Decide) -> list[str]:
    """The lines of one call that is not refused."""
    answered = await talk.take(step, "stream")
    assert not answered.refusal, answered.refusal
    return lines.lines_of(answered.chunks)


async def waiting(talk: Conversation) -> dict[str, pending_call_pb2.PendingCall]:
    """The open calls, by the ids of the tool calls."""
    return {one.tool_call_id: one for one in (await talk.get()).run.pending_calls}


async def test_approval(tmp_path: pathlib.Path) -> None:
    """The call is announced and the run parks; approved, the tool runs and the run goes on."""
    script = [[{"text": "Paying. "}, use("pay", **PAY)], [{"text": "Paid."}]]
    came = await play(shop(), script, [Start(), approve()], "stream", tmp_path)
    assert events_of(came, 0) == [
        *BEGIN,
        *lines.say("Paying. "),
        *lines.call("c1", "pay", PAY),
        lines.approval("c1", "pay", PAY),
        lines.finish("suspended", 1, "c1"),
    ]
    assert result_of(came, 0) == lines.Result(
        "suspended",
        "Paying. ",
        lines.cost(1),
        tool_calls=['c1 pay {"account":"a","cents":500}'],
        steps=[f'tool-calls {lines.cost(1)} "Paying. "'],
        suspend='c1 pay {"account":"a","cents":500}',
    )
    assert events_of(came, 1) == [
        lines.resolved("c1", "pay", "approve"),
        lines.result("c1", "pay", PAY, {"paid": 500}),
        GO_ON,
        *ending("Paid.", 2),
    ]
    assert came.entered == ['["pay","a",500]']


async def test_a_predicate_that_says_no(tmp_path: pathlib.Path) -> None:
    """A call that the tool's own predicate lets pass runs at once."""
    came = await play(
        shop(), [[use("pay", account="a", cents=5)], [{"text": "ok"}]], [Start()], "stream", tmp_path
    )
    assert result_of(came).finish == "stop"
    assert came.entered == ['["pay","a",5]']


async def test_edited_arguments(tmp_path: pathlib.Path) -> None:
    """A reviewer may change the arguments: those are checked, run, and seen by the model from then on."""
    script = [[use("pay", **PAY)], [{"text": "ok"}]]
    edited = {"account": "b", "cents": 200}
    steps: list[Step] = [Start(), approve(edited={"account": "b", "cents": "many"}), approve(edited=edited)]
    came = await play(shop(), script, steps, "stream", tmp_path)
    assert came.phases[1].refusal == "INVALID_ARGUMENT EDITED_ARGS_INVALID"
    assert events_of(came, 2)[:2] == [
        lines.resolved("c1", "pay", "approve"),
        lines.result("c1", "pay", edited, {"paid": 200}),
    ]
    assert came.entered == ['["pay","b",200]']
    assert prompt_of(came, 1) == [
        f"assistant call c1 pay {lines.compact(edited)}",
        'tool c1 pay json {"paid":200}',
    ]


async def test_declined(tmp_path: pathlib.Path) -> None:
    """A declined tool is not entered; the model is told why, in words and as data."""
    script = [[use("pay", **PAY)], [{"text": "Then not."}]]
    async with conversation(shop(), script, tmp_path) as talk:
        await lines_of(talk, Start())
        response = await talk.agents.Decline(
            pb.DeclineRequest(
                call=pending_call_pb2.CallRef(run_id=talk.run_id),
                reason="too much",
                reason_json=Json(text='{"limit":100}'),
                comment="for the audit",
            )
        )
        assert lines.lines_of(await talk.watch(response.run.last_sequence)) == [
            lines.resolved("c1", "pay", "decline"),
            lines.denied("c1", "pay", PAY, "too much"),
            GO_ON,
            *ending("Then not.", 2),
        ]
        assert talk.log == []
        told = lines.prompt_of(talk.model.requests[1], {}).messages[-1]
        assert told == 'tool c1 pay denied {"data":{"limit":100},"reason":"too much","status":"declined"}'
        result = (await talk.get()).result
        assert [chunk.tool_call.tool_call_id for chunk in result.tool_calls] == ["c1"]
        assert not result.tool_results


async def test_policies_add_up(tmp_path: pathlib.Path) -> None:
    """Names and patterns of the caller add to what the tools demand, in every step, and lift nothing."""
    rules = options.ToolApprovalRules(names=["nothing"], patterns=["wea*", "?a?"])
    setup = shop(require_tool_approval=options.ToolApproval(rules=rules))
    script = [
        [
            use("nothing", "c1"),
            use("weather", "c2", city="Oslo"),
            use("wait", "c3", ms=1),
            use("pay", "c4", account="a", cents=1),
        ],
        [{"text": "ok"}],
    ]
    came = await play(setup, script, [Start()], "stream", tmp_path)
    asked = [line.split()[1] for line in events_of(came) if line.startswith("tool-call-approval")]
    assert asked == ["c1", "c2", "c4"]
    assert came.entered == ['["wait",1]']
    nobody = shop(require_tool_approval=options.ToolApproval(all=False))
    came = await play(nobody, [[use("pay", **PAY)]], [Start()], "stream", tmp_path / "lifted")
    assert events_of(came)[-1] == lines.finish("suspended", 1, "c1")


async def test_many_calls_of_one_step(tmp_path: pathlib.Path) -> None:
    """Everything that needs nobody runs, everything else is announced once; answers come in any order and
    each takes effect at once; the next step has all results, in the order of the calls."""
    other = {"account": "b", "cents": 900}
    script = [
        [
            use("pay", "c1", **PAY),
            use("weather", "c2", city="Oslo"),
            use("choose", "c3"),
            use("pay", "c4", **other),
        ],
        [{"text": "ok"}],
    ]
    async with conversation(shop(), script, tmp_path) as talk:
        begun = await lines_of(talk, Start())
        assert begun[:-3] == [
            *BEGIN,
            *lines.call("c1", "pay", PAY),
            *lines.call("c2", "weather", {"city": "Oslo"}),
            *lines.call("c3", "choose"),
            *lines.call("c4", "pay", other),
            lines.approval("c1", "pay", PAY),
            lines.approval("c4", "pay", other),
        ]
        assert set(begun[-3:-1]) == {  # these two run side by side
            lines.result("c2", "weather", {"city": "Oslo"}, {"city": "Oslo", "days": 1}),
            lines.suspended("c3", "choose", {}, "which?", {"enum": [0, 1]}),
        }
        assert begun[-1] == lines.finish("suspended", 1, "c1", "c3", "c4")
        assert set(await waiting(talk)) == {"c1", "c3", "c4"}
        assert await lines_of(talk, resume(0, "c3")) == [
            lines.resolved("c3", "choose", "resume"),
            lines.result("c3", "choose", {}, 0),
            lines.finish("suspended", 1, "c1", "c4"),
        ]
        assert await lines_of(talk, decline("c4")) == [
            lines.resolved("c4", "pay", "decline"),
            lines.denied("c4", "pay", other, "The call was declined."),
            lines.finish("suspended", 1, "c1"),
        ]
        assert talk.model.calls == 1
        assert await lines_of(talk, approve("c1")) == [
            lines.resolved("c1", "pay", "approve"),
            lines.result("c1", "pay", PAY, {"paid": 500}),
            GO_ON,
            *ending("ok", 2),
        ]
        told = lines.prompt_of(talk.model.requests[1], {}).messages[6:]
        assert [line.removeprefix("tool ").removeprefix("+ ").split()[0] for line in told] == [
            "c1",
            "c2",
            "c3",
            "c4",
        ]
        assert sorted(talk.log) == ['["pay","a",500]', '["weather","Oslo",1]']


async def test_deciding_while_others_run(tmp_path: pathlib.Path) -> None:
    """A waiting call can be decided, and is executed, while a tool of the same step still runs: the run
    does not park in between."""
    script = [[use("pay", "c1", **PAY), use("wait", "c2", ms=700)], [{"text": "ok"}]]
    async with conversation(shop(), script, tmp_path) as talk:
        stream = asyncio.create_task(talk.take(Start(), "stream"))
        await talk.until(lambda one: any(chunk.HasField("tool_call_approval") for chunk in one.chunks))
        ref = pending_call_pb2.CallRef(run_id=talk.run_id, tool_call_id="c1")
        await talk.agents.Approve(pb.ApproveRequest(call=ref))
        told = lines.lines_of((await stream).chunks)
    assert told == [
        *BEGIN,
        *lines.call("c1", "pay", PAY),
        *lines.call("c2", "wait", {"ms": 700}),
        lines.approval("c1", "pay", PAY),
        lines.resolved("c1", "pay", "approve"),
        lines.result("c1", "pay", PAY, {"paid": 500}),
        lines.result("c2", "wait", {"ms": 700}, 700),
        GO_ON,
        *ending("ok", 2),
    ]


async def test_two_approvals_race(tmp_path: pathlib.Path) -> None:
    """Of many decisions on one call exactly one is taken and the tool runs once; the others are told who
    decided."""
    script = [[use("pay", **PAY)], [{"text": "ok"}]]
    async with conversation(shop(), script, tmp_path) as talk:
        await lines_of(talk, Start())
        call = pending_call_pb2.CallRef(pending_call_id=(await waiting(talk))["c1"].pending_call_id)
        outcomes = await asyncio.gather(
            *(talk.agents.Approve(pb.ApproveRequest(call=call, wait=True)) for _ in range(8)),
            return_exceptions=True,
        )
        refusals = [one for one in outcomes if isinstance(one, grpc.aio.AioRpcError)]
        assert len(refusals) == 7
        assert {refusal_of(one) for one in refusals} == {"FAILED_PRECONDITION PENDING_CALL_ALREADY_DECIDED"}
        assert talk.log == ['["pay","a",500]']
        assert talk.model.calls == 2


async def test_a_tool_that_asks_twice(tmp_path: pathlib.Path) -> None:
    """A tool is entered from its start with each answer; what it keeps, and its idempotency key, are the
    same each time; each round of waiting is a new one."""
    script = [[use("wipe", path="/x")], [{"text": "ok"}]]
    yes = resume({"ok": True})
    steps: list[Step] = [Start(), resume({"ok": "perhaps"}), resume({"ok": True, "path": "x"}), yes, yes]
    came = await play(shop(), script, steps, "stream", tmp_path)
    args = {"path": "/x"}
    first = lines.suspended("c1", "wipe", args, {"question": "Wipe /x?"})
    assert events_of(came, 0)[-2].startswith(first + " expects {")
    for phase in (1, 2):  # the tool's model is asked, too, not its schema alone
        assert came.phases[phase].refusal == "INVALID_ARGUMENT RESUME_DATA_INVALID"
    again = events_of(came, 3)
    assert again[0] == lines.resolved("c1", "wipe", "resume")
    asks = {"before": {"question": "Wipe /x?"}, "question": "Really?"}
    assert again[1].startswith(lines.suspended("c1", "wipe", args, asks) + " expects {")
    assert again[2:] == [lines.finish("suspended", 1, "c1")]
    assert events_of(came, 4) == [
        lines.resolved("c1", "wipe", "resume"),
        lines.result("c1", "wipe", args, {"wiped": True}),
        GO_ON,
        *ending("ok", 2),
    ]
    assert came.entered == ['["wipe","/x"]', '["wipe","/x",true,1]', '["wipe","/x",true,2]']


@pytest.mark.parametrize(("wrong", "right"), [(2, 0), (None, 1), ("0", 0)])
async def test_the_schema_of_one_question(tmp_path: pathlib.Path, wrong: Any, right: Any) -> None:
    """A question may narrow what it takes as an answer; a falsy answer is an answer."""
    script = [[use("choose")], [{"text": "ok"}]]
    came = await play(shop(), script, [Start(), resume(wrong), resume(right)], "stream", tmp_path)
    assert came.phases[1].refusal == "INVALID_ARGUMENT RESUME_DATA_INVALID"
    assert events_of(came, 2)[1] == lines.result("c1", "choose", {}, right)


_TWO = [{"label": "Tests"}, {"label": "Docs"}]


@pytest.mark.parametrize(
    ("question", "wrong", "right", "said"),
    [
        ({}, [7, None, ["a"]], "  the main one ", "  the main one "),
        ({"options": _TWO}, ["Code", ["Tests"], None, ""], "Docs", "Docs"),
        (
            {"options": _TWO, "selection_mode": "multi_select"},
            ["Tests", ["Code"], ["Tests", "Tests"], [["Tests"]]],
            ["Docs", "Tests"],
            "Docs, Tests",
        ),
        ({"options": _TWO, "allow_free_text": True}, [["Tests"], 3], "Code", "Code"),
    ],
    ids=["text", "one", "many", "one-or-text"],
)
async def test_ask_user(
    tmp_path: pathlib.Path, question: dict[str, Any], wrong: list[Any], right: Any, said: str
) -> None:
    """The question's own choices decide what is an answer; anything else leaves it open."""
    script = [[use("ask_user", question="Which?", **question)], [{"text": "ok"}]]
    async with conversation(shop(), script, tmp_path) as talk:
        await lines_of(talk, Start())
        shown = lines.recompact((await waiting(talk))["c1"].suspend_payload.text)
        mode = {} if "options" not in question else {"selection_mode": "single_select"}
        assert shown == lines.compact({"question": "Which?", **mode, **question})
        for answer in wrong:
            refused = await talk.take(resume(answer, "c1"), "stream")
            assert refused.refusal == "INVALID_ARGUMENT RESUME_DATA_INVALID"
        came = await lines_of(talk, resume(right, "c1"))
        assert came[1].startswith("tool-result c1 ask_user ")
        assert came[1].endswith(
            lines.compact({"answer": right, "content": f"User answered: {said}", "isError": False})
        )
        assert came[-1] == lines.finish("stop", 2)


@pytest.mark.parametrize(
    "question",
    [
        {"question": " "},
        {"question": "Q", "selection_mode": "multi_select"},
        {"question": "Q", "options": [{"label": "A"}, {"label": "A"}]},
        {"question": "Q", "options": [{"label": "A"}], "selection_mode": "any"},
    ],
    ids=["blank", "no-options", "same-labels", "no-mode"],
)
async def test_questions_that_are_none(tmp_path: pathlib.Path, question: dict[str, Any]) -> None:
    """A bad question goes back to the model; nobody is asked."""
    came = await play(
        shop(), [[use("ask_user", **question)], [{"text": "ok"}]], [Start()], "stream", tmp_path
    )
    assert lines.error("c1", "ask_user", question, "invalid-args") in events_of(came)
    assert result_of(came).finish == "stop"


_CLIENT = options.ClientTool(
    name="locate",
    description="Where the user is.",
    input_schema=Json(text='{"type":"object","properties":{"exact":{"type":"boolean"}}}'),
)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_client_tool(tmp_path: pathlib.Path, fails: bool) -> None:
    """The run parks for the client, whose result or error goes to the model as any tool's does; arguments
    that do not fit never reach the client."""
    script = [[use("locate", exact="yes")], [use("locate", "c2", exact=True)], [{"text": "ok"}]]
    answer = Decide("submit", reason="no signal") if fails else Decide("submit", data={"at": [1, 2]})
    came = await play(shop(client_tools=[_CLIENT]), script, [Start(), answer], "stream", tmp_path)
    args = {"exact": True}
    assert events_of(came, 0)[6:] == [
        lines.error("c1", "locate", {"exact": "yes"}, "invalid-args"),
        GO_ON,
        "step-start",
        *lines.call("c2", "locate", args),
        lines.client_call("c2", "locate", args),
        lines.finish("suspended", 2, "c2"),
    ]
    outcome = (
        lines.error("c2", "locate", args, "exception", "no signal")
        if fails
        else lines.result("c2", "locate", args, {"at": [1, 2]})
    )
    assert events_of(came, 1) == [
        lines.resolved("c2", "locate", "submit"),
        outcome,
        lines.step_finish("tool-calls", 2, goes_on=True),
        *ending("ok", 3),
    ]
    told = "error no signal" if fails else 'json {"at":[1,2]}'
    assert prompt_of(came, 2)[-1] == f"tool c2 locate {told}"
    assert came.prompts is not None
    assert came.prompts[0].tools is not None
    assert came.prompts[0].tools[-1] == "locate"


@pytest.mark.parametrize(
    ("call", "fitting"),
    [
        (use("pay", **PAY), {"approve", "decline"}),
        (use("choose"), {"resume", "decline"}),
        (use("locate"), {"submit", "decline"}),
    ],
    ids=["approval", "suspension", "client-tool"],
)
async def test_which_verb_fits(tmp_path: pathlib.Path, call: dict[str, Any], fitting: set[str]) -> None:
    """Each kind of waiting call takes its own verbs; any other is refused and changes nothing."""
    async with conversation(shop(client_tools=[_CLIENT]), [[call], [{"text": "ok"}]], tmp_path) as talk:
        await lines_of(talk, Start())
        for verb in ("approve", "resume", "submit"):
            if verb not in fitting:
                refused = await talk.take(Decide(verb, data=0), "stream")
                assert refused.refusal == "FAILED_PRECONDITION VERB_MISMATCH"
        assert (await lines_of(talk, decline()))[-1] == lines.finish("stop", 2)


async def test_a_restart_keeps_everything(tmp_path: pathlib.Path) -> None:
    """Another process on the same database goes on where the first one parked: the caller's policy, limit,
    instructions and request context hold, what has run is not run again."""
    script = [
        [use("weather", "c1", city="Oslo"), use("nothing", "c2")],
        [use("report", "c3")],
        [use("nothing", "c4")],
        [{"text": "never"}],
    ]
    rules = options.ToolApprovalRules(names=["nothing", "report"])
    setup = shop(
        require_tool_approval=options.ToolApproval(rules=rules),
        max_steps=2,
        request_context=Json(text='{"user":"bob"}'),
    )
    steps: list[Step] = [Start(), approve(new_process=True), approve("c3", new_process=True)]
    came = await play(setup, script, steps, "stream", tmp_path)
    assert events_of(came, 0)[-1] == lines.finish("suspended", 1, "c2")
    assert events_of(came, 1) == [
        lines.resolved("c2", "nothing", "approve"),
        lines.result("c2", "nothing", {}, None),
        GO_ON,
        "step-start",
        *lines.call("c3", "report"),
        lines.approval("c3", "report", {}),
        lines.finish("suspended", 2, "c3"),
    ]
    last = events_of(came, 2)
    assert last[-3:] == [
        lines.result("c3", "report", {}, {"user": "bob"}),
        lines.step_finish("tool-calls", 2),
        lines.finish("tool-calls", 2),
    ]
    assert came.entered == ['["weather","Oslo",1]', '["nothing"]']


async def test_an_id_names_one_run(tmp_path: pathlib.Path) -> None:
    """Asked again with the same request id, the run is joined: the same chunks, no second run."""
    async with conversation(shop(run_id="mine"), [[use("pay", **PAY)]], tmp_path) as talk:
        begun = await talk.take(Start(), "stream")
        fields: dict[str, Any] = {
            "agent_id": "agent-1",
            "messages": Start().input,
            "options": options.GenerateOptions(run_id="other"),
            "request_id": "r1",
        }
        first = await talk.agents.Generate(pb.GenerateRequest(**fields))
        second = await talk.agents.Generate(pb.GenerateRequest(**fields))
        assert (first.replayed, second.replayed) == (False, True)
        assert first.result == second.result
        fields["messages"] = []
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await talk.agents.Generate(pb.GenerateRequest(**fields))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        runs = (await talk.runs.ListRuns(run_service_pb2.ListRunsRequest())).runs
        assert [(one.run_id, one.state) for one in runs] == [
            ("other", run_pb2.RUN_STATE_SUSPENDED),
            ("mine", run_pb2.RUN_STATE_SUSPENDED),
        ]
        assert begun.chunks == await talk.watch(0)
