"""Spans, as a collector gets them when the server has stopped."""

import json
from pathlib import Path
from typing import Any

import pytest
import structlog
import structlog.testing
from opentelemetry import trace as otel

from entracte import Client
from entracte_server import Agent, App, LlmScorer, TelemetryOptions, ToolContext, TracingOptions, tool
from entracte_server.testing import scripted, serve
from tests.rpc.support import once
from tests.stores import default_store
from tests.telemetry.collector import Collector

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
DECIDER = "00-1af7651916cd43dd8448eb211c80319c-a7ad6b7169203331-01"


@tool
async def look(order: str) -> dict[str, str]:
    """Looks an order up."""
    return {"order": order, "state": "lost"}


@tool(requires_approval=True)
async def pay(amount: int) -> dict[str, int]:
    """Pays."""
    return {"paid": amount}


def agent(*steps: Any, **fields: Any) -> Agent:
    """An agent with a script and the tools of this module."""
    return Agent(id="support", model=scripted(list(steps)), tools=[look, pay], **fields)


def looking(**fields: Any) -> App:
    """It looks an order up, then answers."""
    first = [
        {"text": "Let me see. "},
        {"tool": "look", "id": "c1", "args": {"order": "7"}},
        {"finish": {"reason": "tool-calls", "usage": {"input": 11, "output": 3}}},
    ]
    second = [{"text": "It is lost."}, {"finish": {"reason": "stop", "usage": {"input": 20, "output": 5}}}]
    return App(agents=[agent(first, second, **fields)])


def paying() -> App:
    """It pays, which needs approval."""
    model = once({"tool": "pay", "id": "c1", "args": {"amount": 7}}, then="Paid.")
    return App(agents=[Agent(id="support", model=model, tools=[pay])])


async def ask(app: App, collector: Collector, **options: Any) -> Any:
    """The result of one run on a server that traces and has stopped since."""
    settings: dict[str, Any] = {**default_store(), "telemetry": True, **options.pop("settings", {})}
    async with serve(app, **settings) as server, Client(server.address) as client:
        return await client.agent("support").generate("Where is order 7?", **options)


async def test_a_run_its_model_calls_and_its_tools_are_spans(collector: Collector) -> None:
    result = await ask(looking(), collector)
    root = collector.one("invoke_agent support")
    first, second = collector.named("chat ")
    execution = collector.one("execute_tool look")
    assert len(collector.spans) == 4
    assert (result.trace_id, result.span_id) == (root.trace_id, root.span_id)
    assert root.parent_id == ""
    assert {span.parent_id for span in (first, second, execution)} == {root.span_id}
    assert {span.trace_id for span in collector.spans} == {root.trace_id}
    assert (
        root.attributes.items()
        >= {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.id": "support",
            "gen_ai.agent.name": "support",
            "gen_ai.usage.input_tokens": 31,
            "gen_ai.usage.output_tokens": 8,
            "gen_ai.response.finish_reasons": ["stop"],
            "entracte.run.id": result.run_id,
            "entracte.run.state": "succeeded",
            "entracte.stop_cause": "model-finished",
            "entracte.tenant": "local",
            "entracte.segment": 1,
        }.items()
    )
    assert (
        first.attributes.items()
        >= {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "scripted",
            "gen_ai.request.stream": True,
            "gen_ai.response.finish_reasons": ["tool-calls"],
            "gen_ai.usage.input_tokens": 11,
            "gen_ai.usage.output_tokens": 3,
        }.items()
    )
    assert first.attributes["gen_ai.response.time_to_first_chunk"] >= 0
    assert first.kind == otel.SpanKind.CLIENT.value + 1
    assert (
        execution.attributes.items()
        >= {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "look",
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": "c1",
            "gen_ai.tool.description": "Looks an order up.",
            "entracte.tool.outcome": "result",
        }.items()
    )
    assert not any(span.failed for span in collector.spans)
    assert root.resource["service.name"] == "entracte"


async def test_nothing_that_is_said_is_recorded_unless_asked_for(collector: Collector) -> None:
    await ask(looking(), collector)
    seen = json.dumps([[span.name, span.attributes, span.events] for span in collector.spans])
    for said in ("Where is", "Let me see", "lost", '"7"'):
        assert said not in seen


async def test_inputs_and_outputs_are_recorded_where_the_request_says_so(collector: Collector) -> None:
    telemetry = {"record_inputs": True, "record_outputs": True, "function_id": "lookup"}
    await ask(looking(instructions="Be kind."), collector, telemetry=telemetry)
    root = collector.one("invoke_agent")
    first, second = collector.named("chat ")
    execution = collector.one("execute_tool")
    assert {span.attributes["entracte.function_id"] for span in collector.spans} == {"lookup"}
    question = {"role": "user", "parts": [{"type": "text", "content": "Where is order 7?"}]}
    call = {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"order": "7"}}
    answer = {"order": "7", "state": "lost"}
    assert json.loads(root.attributes["gen_ai.input.messages"]) == [question]
    assert json.loads(root.attributes["gen_ai.system_instructions"]) == [
        {"type": "text", "content": "Be kind."}
    ]
    assert json.loads(first.attributes["gen_ai.output.messages"]) == [
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": "Let me see. "}, call],
            "finish_reason": "tool-calls",
        }
    ]
    assert json.loads(second.attributes["gen_ai.input.messages"]) == [
        question,
        {"role": "assistant", "parts": [{"type": "text", "content": "Let me see. "}, call]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": answer}]},
    ]
    tools = json.loads(first.attributes["gen_ai.tool.definitions"])
    assert [item["name"] for item in tools] == ["look", "pay"]
    assert json.loads(execution.attributes["gen_ai.tool.call.arguments"]) == {"order": "7"}
    assert json.loads(execution.attributes["gen_ai.tool.call.result"]) == answer
    assert root.attributes["gen_ai.output.messages"] == second.attributes["gen_ai.output.messages"]


@pytest.mark.parametrize(
    ("server", "of_agent", "request_", "inputs", "outputs"),
    [
        (True, {}, {}, True, True),
        (True, {"record_inputs": False}, {}, False, True),
        (False, {"record_outputs": True}, {}, False, True),
        (False, {"record_outputs": True}, {"record_outputs": False, "record_inputs": True}, True, False),
    ],
)
async def test_the_request_comes_before_the_agent_and_the_agent_before_the_server(
    collector: Collector, server: bool, of_agent: Any, request_: Any, inputs: bool, outputs: bool
) -> None:
    app = looking(telemetry=TelemetryOptions(**of_agent))
    await ask(app, collector, telemetry=request_, settings={"telemetry_content": server})
    for span in collector.named("chat "):
        assert ("gen_ai.input.messages" in span.attributes) is inputs
        assert ("gen_ai.output.messages" in span.attributes) is outputs


async def test_a_run_that_is_not_to_be_traced_has_no_spans_and_no_trace(collector: Collector) -> None:
    result = await ask(looking(), collector, telemetry={"is_enabled": False}, traceparent=PARENT)
    assert (result.trace_id, result.span_id) == ("", "")
    assert collector.spans == []
    assert collector.total("entracte.runs.ended") == 1


async def test_without_the_setting_nothing_is_sent_and_results_have_no_trace(collector: Collector) -> None:
    result = await ask(looking(), collector, settings={"telemetry": False}, traceparent=PARENT)
    assert (result.trace_id, result.span_id) == ("", "")
    assert (collector.spans, collector.metrics) == ([], set())


async def test_the_callers_span_is_the_parent_whatever_the_options_say(collector: Collector) -> None:
    wanted = {"trace_id": "abc", "parent_span_id": "def"}
    result = await ask(looking(), collector, traceparent=PARENT, tracing_options=wanted)
    root = collector.one("invoke_agent")
    assert (root.trace_id, root.parent_id) == (PARENT.split("-")[1], PARENT.split("-")[2])
    assert result.trace_id == root.trace_id


async def test_a_caller_that_is_not_sampled_is_not_traced_but_named(collector: Collector) -> None:
    result = await ask(looking(), collector, traceparent=PARENT[:-2] + "00")
    assert collector.spans == []
    assert result.trace_id == PARENT.split("-")[1]


@pytest.mark.parametrize("parent", ["", "not a span", "00-" + "0" * 32 + "-b7ad6b7169203331-01"])
async def test_a_parent_that_is_none_is_as_good_as_no_parent(collector: Collector, parent: str) -> None:
    result = await ask(looking(), collector, traceparent=parent)
    root = collector.one("invoke_agent")
    assert root.parent_id == ""
    assert result.trace_id == root.trace_id


async def test_the_options_say_how_a_run_appears(collector: Collector) -> None:
    of_agent = TracingOptions(metadata={"team": "returns", "tier": "agent"}, tags=("all",))
    wanted = {
        "metadata": {
            "tier": "gold",
            "session.id": "s1",
            "retries": 2,
            "big": 2**70,
            "flags": [True, False],
            "mixed": [1, "a"],
            "nested": {"a": [1]},
            "gen_ai.agent.id": "another",
            "entracte.run.id": "another",
        },
        "request_context_keys": ["user.id", "plain", "absent.key"],
        "trace_id": "ABC",
        "parent_span_id": "d",
        "tags": ["vip"],
    }
    context = {"user": {"id": "u1", "name": "Ada"}, "plain": {"x": 1}, "secret": "s"}
    result = await ask(
        looking(tracing_options=of_agent), collector, tracing_options=wanted, request_context=context
    )
    root = collector.one("invoke_agent")
    assert (root.trace_id, root.parent_id) == ("abc".zfill(32), "d".zfill(16))
    assert (result.trace_id, result.span_id) == (root.trace_id, root.span_id)
    assert (
        root.attributes.items()
        >= {
            "team": "returns",
            "tier": "gold",
            "session.id": "s1",
            "retries": 2,
            "big": str(2**70),
            "flags": [True, False],
            "mixed": '[1,"a"]',
            "nested": '{"a":[1]}',
            "user.id": "u1",
            "plain": '{"x":1}',
            "entracte.tags": ["all", "vip"],
            "gen_ai.agent.id": "support",
            "entracte.run.id": result.run_id,
        }.items()
    )
    assert not {"absent.key", "secret"} & root.attributes.keys()


async def test_a_trace_can_be_chosen_without_a_parent(collector: Collector) -> None:
    await ask(looking(), collector, tracing_options={"trace_id": "f" * 32})
    root = collector.one("invoke_agent")
    assert (root.trace_id, root.parent_id) == ("f" * 32, "")
    assert {span.trace_id for span in collector.spans} == {"f" * 32}


@pytest.mark.usefixtures("each_store")
async def test_a_run_is_one_trace_over_parkings_and_processes(collector: Collector, tmp_path: Path) -> None:
    store: Any = default_store() or {"store": tmp_path / "entracte.db"}
    options: Any = {"tracing_options": {"tags": ["vip"]}, "traceparent": PARENT}
    async with serve(paying(), telemetry=True, **store) as server, Client(server.address) as client:
        parked = await client.agent("support").generate("Pay.", **options)
    async with serve(paying(), telemetry=True, **store) as server, Client(server.address) as client:
        before = (await client.runs.get(parked.run_id)).result
        call = parked.pending_calls[0]
        done = await client.agent("support").approve(call, traceparent=DECIDER)
        after = (await client.runs.get(parked.run_id)).result
    first, second = collector.named("invoke_agent")
    trace, caller = PARENT.split("-")[1:3]
    assert {span.trace_id for span in collector.spans} == {trace}
    assert (first.parent_id, second.parent_id) == (caller, first.span_id)
    assert first.links == []
    assert second.links == [
        (trace, first.span_id, "previous_segment"),
        (DECIDER[3:35], DECIDER[36:52], "caller"),
    ]
    for found in (parked, before, done, after):
        assert found is not None
        assert (found.trace_id, found.span_id) == (trace, first.span_id)
    assert first.attributes["entracte.run.state"] == "suspended"
    assert second.attributes["entracte.run.state"] == "succeeded"
    assert second.attributes["entracte.tags"] == ["vip"]
    assert [span.attributes["entracte.segment"] for span in (first, second)] == [1, 2]
    [(event, named)] = first.events
    assert (event, named["gen_ai.tool.name"]) == ("entracte.pending_call.opened", "pay")
    wait = collector.one("wait pay")
    assert wait.parent_id == first.span_id
    assert wait.attributes["entracte.decision.verb"] == "approve"
    assert wait.links == [(DECIDER[3:35], DECIDER[36:52], "caller")]
    assert first.start <= wait.start <= wait.end <= second.end
    executed = collector.one("execute_tool pay")
    assert executed.parent_id == second.span_id
    assert len(collector.instances) == 2


async def test_a_third_segment_names_the_second(collector: Collector) -> None:
    steps = [[{"tool": "pay", "id": f"c{i}", "args": {"amount": i}}] for i in (1, 2)]
    app = App(agents=[agent(*steps, [{"text": "Paid."}])])
    async with serve(app, telemetry=True) as server, Client(server.address) as client:
        result = await client.agent("support").generate("Pay.")
        while result.finish_reason == "suspended":
            result = await client.agent("support").approve(result.pending_calls[0])
    first, second, third = collector.named("invoke_agent")
    assert [span.parent_id for span in (second, third)] == [first.span_id] * 2
    assert third.links == [(first.trace_id, second.span_id, "previous_segment")]


async def test_what_fails_says_so(collector: Collector) -> None:
    @tool
    async def broken() -> None:
        """Breaks."""
        raise RuntimeError("a secret of the tool")

    steps: Any = [
        [{"tool": "broken", "id": "c1", "args": {}}],
        [{"text": "Well"}, {"error": {"message": "a secret of the provider", "status": 500}}],
    ]
    app = App(agents=[Agent(id="support", model=scripted(steps), tools=[broken])])
    result = await ask(app, collector)
    assert result.error is not None
    root, execution = collector.one("invoke_agent"), collector.one("execute_tool")
    good, bad = collector.named("chat ")
    assert (execution.failed, execution.attributes["error.type"]) == (True, "exception")
    assert (bad.failed, bad.attributes["error.type"]) == (True, result.error.kind)
    assert (root.failed, root.attributes["error.type"]) == (True, result.error.kind)
    assert not good.failed
    assert root.attributes["entracte.run.state"] == "failed"
    assert "secret" not in "".join(span.status for span in collector.spans)


@pytest.mark.parametrize("in_thread", [False, True])
async def test_what_a_tool_records_itself_is_a_part_of_its_span(
    collector: Collector, in_thread: bool
) -> None:
    found: list[otel.SpanContext] = []

    def note(ctx: ToolContext) -> str:
        """Notes."""
        found.append(otel.get_current_span().get_span_context())
        return "noted"

    async def note_async(ctx: ToolContext) -> str:
        """Notes."""
        return note(ctx)

    noting = tool(note if in_thread else note_async)
    steps: Any = [[{"tool": noting.name, "id": "c1", "args": {}}], [{"text": "Noted."}]]
    await ask(App(agents=[Agent(id="support", model=scripted(steps), tools=[noting])]), collector)
    execution = collector.one("execute_tool")
    assert [f"{context.span_id:016x}" for context in found] == [execution.span_id]


def judge(name: str) -> LlmScorer:
    """A scorer that asks a model."""
    answer = [
        {"text": '{"score": 1, "reason": "It says so."}'},
        {"finish": {"reason": "stop", "usage": {"input": 3, "output": 2}}},
    ]
    return LlmScorer(name=name, model=scripted([answer]), criteria="Is it good?")


async def test_scorers_are_parts_of_the_run_during_it_and_after_it(collector: Collector) -> None:
    answer: Any = [{"text": "Good."}, {"finish": {"reason": "stop", "usage": {"input": 10, "output": 5}}}]
    app = App(agents=[agent(answer)], scorers=[judge("done"), judge("later")])
    asked: Any = {
        "is_task_complete": {"scorers": ["done"]},
        "scorers": ["later"],
        "telemetry": {"record_outputs": True},
    }
    async with serve(app, telemetry=True) as server, Client(server.address) as client:
        result = await client.agent("support").generate("Hi", **asked)
        await client.runs.follow_ups(result.run_id, timeout=20)
    root = collector.one("invoke_agent")
    inline, late = collector.one("evaluate done"), collector.one("evaluate later")
    assert (inline.parent_id, late.parent_id) == (root.span_id, root.span_id)
    assert {span.trace_id for span in collector.spans} == {root.trace_id}
    assert [call.parent_id for call in collector.named("chat ")] == [
        root.span_id,
        inline.span_id,
        late.span_id,
    ]
    for span in (inline, late):
        assert span.attributes["gen_ai.evaluation.score.value"] == 1
        assert span.attributes["gen_ai.evaluation.explanation"] == "It says so."
        assert span.attributes["entracte.run.id"] == result.run_id
    # The tokens of the check are the segment's, its answer is not.
    assert root.attributes["gen_ai.usage.input_tokens"] == 13
    assert json.loads(root.attributes["gen_ai.output.messages"])[0]["parts"][0]["content"] == "Good."
    assert collector.total("entracte.scorer.duration") == 2


async def test_a_call_that_is_cut_says_so_and_is_no_failure(collector: Collector) -> None:
    app = App(agents=[agent([{"text": "Well, "}, {"delay": 3_600_000}])])
    async with serve(app, telemetry=True) as server, Client(server.address) as client:
        stream = client.agent("support").stream("Hi", run_id="r1")
        async for chunk in stream:
            if chunk.type == "text-delta":
                await client.runs.cancel("r1")
        async for chunk in client.agent("support").stream("Hi", run_id="r2"):
            if chunk.type == "text-delta":
                break
    first, second = collector.named("invoke_agent")
    assert first.attributes["entracte.run.state"] == "cancelled"
    assert second.attributes["entracte.run.state"] == "given-up"
    for call in collector.named("chat "):
        assert (call.failed, call.attributes["error.type"]) == (False, "cancelled")


async def test_lines_of_the_log_name_the_trace(collector: Collector) -> None:
    structlog.reset_defaults()
    entries = structlog.testing.LogCapture()
    structlog.configure(processors=[structlog.contextvars.merge_contextvars, entries])
    result = await ask(looking(), collector)
    [ended] = [entry for entry in entries.entries if entry["event"] == "run_ended"]
    assert (ended["run_id"], ended["trace_id"]) == (result.run_id, result.trace_id)
