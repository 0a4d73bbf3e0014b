"""Options of what the model is sent."""

import math
from collections.abc import Mapping
from typing import Any

from entracte_server import Hook, StepInfo, StepOverrides
from entracte_server import ModelSettings as StepSettings
from tests.matrix.course import INPUT, Course, World
from tests.matrix.row import Row, Seen


def constant(**keywords: Any) -> Any:
    """Sets these keywords whatever the course."""
    return lambda _: keywords


def _context(seen: Seen) -> None:
    for texts in seen.texts("user", since=1):
        assert texts[:2] == ["CTX", INPUT]


def _instructions(seen: Seen) -> None:
    for texts in seen.texts("system", since=1):
        assert texts[0].startswith("INS")
        assert "OWN" not in "".join(texts)


def _system(seen: Seen) -> None:
    for texts in seen.texts("system", since=1):
        assert any(text.startswith("SYS") for text in texts[1:])


SETTINGS: dict[str, Any] = {
    "temperature": 0.25,
    "top_p": 0.5,
    "top_k": 3,
    "frequency_penalty": 0.5,
    "max_output_tokens": 99,
    "seed": 7,
    "stop_sequences": ["X"],
    "headers": {"x-a": "b"},
    "max_retries": 4,
}


def _settings(seen: Seen) -> None:
    for request in seen.requests(since=1):
        found = {name: getattr(request.settings, name) for name in SETTINGS}
        assert found == {**SETTINGS, "stop_sequences": ("X",)}


OPTIONS = {"scripted": {"effort": {"level": [1, None]}}}


def _provider_options(seen: Seen) -> None:
    for request in seen.requests(since=1):
        assert request.provider_options == OPTIONS


def _every_step(seen: Seen) -> None:
    for request in seen.requests(since=1):
        assert (request.tool_choice.mode, request.tool_choice.every_step) == ("required", True)


def _once(seen: Seen) -> None:
    assert seen.requests()[0].tool_choice.mode == "required"
    for request in seen.requests(since=1):
        assert request.tool_choice.mode == "auto"


def _until_called(seen: Seen) -> None:
    """It holds over the first suspension, until the tool is called, and not over the second."""
    for request in seen.requests():
        called = any(message.role == "tool" and "plain c2" in str(message) for message in request.messages)
        wanted = ("auto", "") if called else ("tool", "plain")
        assert (request.tool_choice.mode, request.tool_choice.tool_name) == wanted
    assert "tool" in {request.tool_choice.mode for request in seen.requests(since=1)}


def _raw_course(course: Course) -> None:
    for name, parts in course.steps.items():
        if not any("throw" in part for part in parts):
            parts.insert(0, {"raw": {"of": name}})


def _raw(seen: Seen) -> None:
    assert all(request.include_raw for request in seen.requests(since=1))
    shown = [chunk.value["of"] for chunk in seen.of("raw")]
    assert {"first", "plain", "second"} <= set(shown)
    if seen.got_to_the_end:
        assert shown[-1] == "end"


def _request_body(seen: Seen) -> None:
    for result in seen.results:
        assert INPUT in str(result.request.body["messages"])


def _prepare(world: World) -> Mapping[str, Any]:
    def prepare(info: StepInfo) -> StepOverrides:
        return StepOverrides(model_settings=StepSettings(presence_penalty=info.number / 100))

    return {"hooks": [Hook(kind="prepare_step", name="prepare", function=prepare)]}


def _prepared(seen: Seen) -> None:
    for request in seen.requests(since=1):
        step = 1 + sum(message.role == "assistant" for message in request.messages)
        penalty = request.settings.presence_penalty
        assert penalty is not None
        assert math.isclose(penalty, step / 100)


ROWS = [
    Row("context", _context, constant(context="CTX")),
    Row("instructions", _instructions, constant(instructions="INS")),
    Row("system", _system, constant(system="SYS")),
    Row("model_settings", _settings, constant(model_settings=SETTINGS)),
    Row("provider_options", _provider_options, constant(provider_options=OPTIONS)),
    Row("tool_choice:once", _once, constant(tool_choice="required")),
    Row("tool_choice:tool", _until_called, constant(tool_choice={"tool": "plain"})),
    Row(
        "tool_choice:every_step",
        _every_step,
        constant(tool_choice={"mode": "required", "every_step": True}),
    ),
    Row("include_raw_chunks", _raw, constant(include_raw_chunks=True), course=_raw_course),
    Row("include_request_body", _request_body, constant(include_request_body=True)),
    Row("prepare_step", _prepared, constant(prepare_step="prepare"), app=_prepare),
]
