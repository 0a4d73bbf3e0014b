"""Options of when a run ends, what judges it, and how it is shown."""

from collections.abc import Mapping
from typing import Any

from entracte_server import Hook, Iteration, IterationInfo, Price, Score, ScorerInput, StopInfo
from entracte_server import StructuredOutput as AgentOutput
from entracte_server.agents.scorers import CodeScorer
from entracte_server.testing import scripted
from tests.matrix.course import ANSWER, FOREVER, INPUT, MODEL, Course, World
from tests.matrix.prompt_rows import constant
from tests.matrix.row import Row, Seen

TOKENS_OF_A_STEP = 15

# ---- what ends it early ----


def _stopped(cause: str) -> Any:
    def check(seen: Seen) -> None:
        assert (seen.result.finish_reason, seen.result.stop_cause) == ("tool-calls", cause)
        assert len(seen.result.steps) == seen.course.number("second")
        assert seen.outcome("c3") is not None

    return check


def _stop_at(kind: str, of_a_step: int) -> Any:
    return lambda course: {"stop_when": {kind: of_a_step * course.number("second")}}


def _call_late(course: Course) -> None:
    course.call("second", "extra", "late")


def _predicate(world: World) -> Mapping[str, Any]:
    def stop(info: StopInfo) -> bool:
        return any(use.tool_call_id == "c3" for step in info.steps for use in step.tool_uses)

    return {"hooks": [Hook(kind="stop_when", name="stop", function=stop)]}


def _prices(_: World) -> Mapping[str, Any]:
    return {"prices": {MODEL: Price(input=1.0, output=1.0)}}


def _iterations(world: World, *, stops: bool) -> Mapping[str, Any]:
    def look(info: IterationInfo) -> Iteration:
        world.note("iteration", info.iteration)
        ends = stops and any(use.tool_call_id == "c3" for use in info.tool_uses)
        return Iteration(go_on=False if ends else None, feedback=f"told {info.iteration}")

    return {"hooks": [Hook(kind="iteration_complete", name="look", function=look)]}


def _feedback(seen: Seen) -> None:
    """Each step's, those before the suspension too."""
    for request in seen.requests(since=1):
        steps = sum(message.role == "assistant" for message in request.messages)
        told = [m.text for m in request.messages if m.role == "user" and m.text.startswith("<iteration>")]
        assert told == [f"<iteration>\ntold {n}\n</iteration>" for n in range(1, steps + 1)]
    assert seen.course.number("second") in seen.world.of("iteration", since=2)


def _hang(course: Course) -> None:
    course.steps["end"][-1] = {"text": "wait"}
    course.steps["end"].append({"delay": FOREVER})


def _timed_out(seen: Seen) -> None:
    assert (seen.result.finish_reason, seen.result.stop_cause) == ("error", "timeout")
    assert seen.result.error is not None
    assert seen.result.error.kind == "timeout"
    assert len(seen.requests()) == len(seen.course.steps)


def _left(seen: Seen) -> None:
    assert (seen.result.finish_reason, seen.result.stop_cause) == ("aborted", "cancelled")
    assert len(seen.requests()) == len(seen.course.steps)


# ---- what judges it ----

DRAFT = '{"n": 0}'


def _draft(course: Course) -> None:
    course.insert("second", "draft", {"text": DRAFT})


def _judges(world: World) -> Mapping[str, Any]:
    def done(given: ScorerInput) -> Score:
        world.note("judged", given.text)
        return Score(0.0 if given.text == DRAFT else 1.0, "a draft")

    def shown(info: Any) -> None:
        world.note("verdict", info.verdict)

    return {
        "scorers": [CodeScorer(name="done", function=done)],
        "hooks": [Hook(kind="check_complete", name="shown", function=shown)],
    }


def _checked(seen: Seen, *, told: bool) -> None:
    """The draft's verdict is told over the second suspension, and the answer is checked after it."""
    verdicts = [chunk.passed for chunk in seen.of("is-task-complete")]
    assert verdicts[0] is False
    assert seen.result.steps[seen.course.number("draft") - 1].is_draft
    assert DRAFT not in seen.result.text
    for texts, names in zip(seen.texts("user", since=1), seen.texts("assistant", since=1), strict=True):
        feedback = [text for text in texts if text.startswith("<completion-check>")]
        assert len(feedback) == (1 if told and DRAFT in names else 0)
    assert seen.world.of("verdict", since=1)[0] == "failed"
    if seen.got_to_the_end:
        assert verdicts == [False, True]
        assert seen.world.of("verdict", since=seen.answered["c3"]) == ["passed"]


def _scorers(world: World) -> Mapping[str, Any]:
    def tone(given: ScorerInput) -> Score:
        return Score(0.5, given.input_text)

    return {"scorers": [CodeScorer(name="tone", function=tone)]}


def _scored(seen: Seen) -> None:
    [found] = seen.follow_ups
    assert (found.name, found.state, found.score) == ("tone", "succeeded", 0.5)
    assert found.reason.endswith(INPUT)


def _scoring_data(seen: Seen) -> None:
    data = seen.result.scoring_data
    assert data is not None
    assert INPUT in str(data.input)
    assert "gated c1" in str(data.output)


# ---- what it answers ----

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}


def _object(value: Any, *, fallback: bool = False) -> Any:
    def check(seen: Seen) -> None:
        assert (seen.result.object, seen.result.used_fallback_value) == (value, fallback)
        if value is not None:
            chunk = seen.of("object-result")[-1]  # a draft has one of its own
            assert (chunk.object, chunk.is_fallback) == (value, fallback)

    return check


def _native(seen: Seen) -> None:
    for request in seen.requests(since=1):
        assert request.response_format is not None
        assert '"n"' in request.response_format.schema
    _object({"n": 1})(seen)


def _injected(seen: Seen) -> None:
    for texts in seen.texts("system", since=1):
        assert any('"additionalProperties":false' in text for text in texts)
    assert all(request.response_format is None for request in seen.requests())
    _object({"n": 1})(seen)


def _prose(course: Course) -> None:
    course.steps["end"][-1] = {"text": "no object"}


def _second_model(world: World) -> Mapping[str, Any]:
    second = scripted([[{"text": '{"n": 2}'}]], name="scripted/second")
    return {"structured_output": AgentOutput(SCHEMA, model=second)}


def _warned(seen: Seen) -> None:
    _object(None)(seen)
    assert seen.result.warnings
    assert seen.result.finish_reason == "stop"


def _structured(name: str, check: Any, *, course: Any = None, **more: Any) -> Row:
    options = constant(structured_output={"schema": SCHEMA, **more})
    return Row(name, check, options, course=course or (lambda _: None), needs="answer")


# ---- how it is shown ----


def _limits(course: Course) -> None:
    limit = {"throw": "slow down", "status": 429, "retryable": True, "retryAfter": 0.01}
    course.insert("plain", "limit1", limit, counts=False)
    course.insert("end", "limit2", limit, counts=False)


def _waited(seen: Seen) -> None:
    waits = [chunk for chunk in seen.of("custom") if chunk.name == "rate-limit-wait"]
    assert len(waits) == (1 if seen.result.stop_cause in ("max-steps", "stop-when", "hook") else 2)
    assert all(request.rate_limit_wait == 60 for request in seen.requests(since=1))


def _run_id(seen: Seen) -> None:
    assert {result.run_id for result in seen.results} == {"run-of-the-matrix"}


def _segments(seen: Seen) -> list[Any]:
    return [span for span in seen.spans if span.name.startswith("invoke_agent")]


def _telemetry(seen: Seen) -> None:
    segments = _segments(seen)
    assert len(segments) == len({span.attributes["entracte.segment"] for span in segments}) >= 3
    asked = [span for span in seen.spans if span.name.startswith("chat ")]
    assert len(asked) >= len(seen.result.steps)
    for span in (*segments, *asked):
        assert span.attributes["entracte.function_id"] == "fn"
    for span in asked:
        assert "gen_ai.input.messages" in span.attributes


def _untraced(seen: Seen) -> None:
    assert seen.spans == []
    assert {result.trace_id for result in seen.results} == {""}


def _tracing(seen: Seen) -> None:
    assert {result.trace_id for result in seen.results} == {"abc".zfill(32)}
    segments = _segments(seen)
    assert len(segments) >= 3
    for span in segments:
        assert span.trace_id == "abc".zfill(32)
        assert (span.attributes["team"], span.attributes["entracte.tags"]) == ("returns", ["vip"])


TRACED = {"telemetry": True}

ROWS = [
    Row("max_steps", _stopped("max-steps"), lambda c: {"max_steps": c.number("second")}, ending="early"),
    Row("stop_when:steps", _stopped("stop-when"), _stop_at("step_count", 1), ending="early"),
    Row(
        "stop_when:tokens",
        _stopped("stop-when"),
        _stop_at("total_tokens", TOKENS_OF_A_STEP),
        ending="early",
    ),
    Row(
        "stop_when:cost",
        _stopped("stop-when"),
        _stop_at("cost_micros", TOKENS_OF_A_STEP),
        app=_prices,
        ending="early",
    ),
    Row(
        "stop_when:tool",
        _stopped("stop-when"),
        constant(stop_when={"tool_called": "extra"}),
        course=_call_late,
        ending="early",
    ),
    Row(
        "stop_when:text",
        _stopped("stop-when"),
        constant(stop_when=[{"step_count": 19}, {"text_contains": "s3"}]),
        ending="early",
    ),
    Row(
        "stop_when:predicate",
        _stopped("stop-when"),
        constant(stop_when={"predicate": "stop"}),
        app=_predicate,
        ending="early",
    ),
    Row(
        "on_iteration_complete",
        _feedback,
        constant(on_iteration_complete="look"),
        app=lambda world: _iterations(world, stops=False),
    ),
    Row(
        "on_iteration_complete:stop",
        _stopped("hook"),
        constant(on_iteration_complete="look"),
        app=lambda world: _iterations(world, stops=True),
        ending="early",
    ),
    Row(
        "execution_timeout",
        _timed_out,
        constant(execution_timeout=3),
        course=_hang,
        ending="failed",
        slow=True,
    ),
    Row(
        "cancel_on_disconnect",
        _left,
        constant(cancel_on_disconnect=True),
        course=_hang,
        ending="cancelled",
        settings={"disconnect_grace": 0.3},
        slow=True,
    ),
    Row(
        "is_task_complete",
        lambda seen: _checked(seen, told=True),
        constant(is_task_complete={"scorers": ["done"], "on_complete": "shown"}),
        course=_draft,
        app=_judges,
    ),
    Row(
        "is_task_complete:suppressed",
        lambda seen: _checked(seen, told=False),
        constant(is_task_complete={"scorers": ["done"], "on_complete": "shown", "suppress_feedback": True}),
        course=_draft,
        app=_judges,
    ),
    Row("scorers", _scored, constant(scorers=["tone"]), app=_scorers, needs="success"),
    Row("return_scorer_data", _scoring_data, constant(return_scorer_data=True), needs="success"),
    _structured("structured_output", _native),
    _structured("structured_output:system", _injected, json_prompt_injection="system"),
    _structured(
        "structured_output:fallback",
        _object({"n": 9}, fallback=True),
        course=_prose,
        error_strategy="fallback",
        fallback_value={"n": 9},
    ),
    _structured("structured_output:warn", _warned, course=_prose, error_strategy="warn"),
    Row(
        "structured_output:second_model",
        _object({"n": 2}),
        agent=_second_model,
        course=_prose,
        needs="answer",
    ),
    Row("output", _native, constant(output=SCHEMA), needs="answer"),
    Row("rate_limit_wait", _waited, constant(rate_limit_wait=60), course=_limits),
    Row("run_id", _run_id, constant(run_id="run-of-the-matrix")),
    Row(
        "telemetry",
        _telemetry,
        constant(telemetry={"function_id": "fn", "record_inputs": True}),
        settings=TRACED,
    ),
    Row("telemetry:off", _untraced, constant(telemetry={"is_enabled": False}), settings=TRACED),
    Row(
        "tracing_options",
        _tracing,
        constant(tracing_options={"trace_id": "abc", "tags": ["vip"], "metadata": {"team": "returns"}}),
        settings=TRACED,
    ),
]
assert ANSWER != DRAFT
