"""The recorded scenarios of the reference, read into the form in which ours are compared with them.

A recording that ran `stream` and `generate` with a fresh agent each is two plays of one scenario.
"""

import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.scenarios.lines import Head, Prompt, Result, compact, join, object_result, tokens

SHARED = pathlib.Path(
    os.environ.get("ENTRACTE_SHARED") or pathlib.Path(__file__).resolve().parents[3] / "shared"
)
FILE = SHARED / "reference" / "scenarios.jsonl"
"""Where the recordings may be; tests that need them are skipped where they are not."""


@dataclass
class Phase:
    """What came of one call. `events` and `result` are None where they were not recorded, or where
    the call was refused: `refusal` then says why."""

    call: str
    events: list[str] | None = None
    result: Result | None = None
    refusal: str = ""


@dataclass
class Course:
    """What came of a whole play: its phases, what the model calls saw, which tools were entered with
    what. The last two are None where they were not recorded."""

    phases: list[Phase]
    prompts: list[Prompt] | None = None
    entered: list[str] | None = None


@dataclass
class Recording:
    """One scenario of the file, with its plays by kind: `stream`, `generate`."""

    name: str
    script: list[list[dict[str, Any]]]
    input: Any
    plays: dict[str, Course] = field(default_factory=dict)


def load() -> dict[str, Recording]:
    """All recordings by name; empty where there is no file."""
    if not FILE.is_file():
        return {}
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return {one.name: one for one in (_recording(json.loads(line)) for line in lines)}


def _recording(raw: Mapping[str, Any]) -> Recording:
    calls, phases = raw["model_calls"], raw["phases"]
    plays = {}
    if isinstance(calls, dict):
        for kind, own in calls.items():
            phase = next(p for p in phases if p["call"].split()[0] == kind)
            plays[kind] = Course([_phase(phase)], [_prompt(call) for call in own], _entered([phase]))
        if "generate" in plays:  # its chunks were not recorded; they are those of the stream
            plays["generate"].phases[0].events = plays["stream"].phases[0].events
    else:
        kind = "generate" if phases[0]["call"].startswith("generate") else "stream"
        prompts = list(_prompts(calls, phases))
        plays[kind] = Course([_phase(p) for p in phases], prompts or None, _entered(phases))
    return Recording(raw["name"], raw["model_script"], raw["input"], plays)


def _phase(raw: Mapping[str, Any]) -> Phase:
    chunks, failure = raw.get("chunks") or [], raw.get("callError") or {}
    if "id" in failure and failure["id"].startswith("AGENT_RESUME"):
        return Phase(raw["call"], refusal=failure["id"])
    is_stream = bool(chunks) or "fullError" in raw
    events = join(_head(chunk) for chunk in chunks) if is_stream else None
    result = raw.get("result")
    outcome = _result(result) if isinstance(result, dict) else None
    failed = raw.get("fullError") or failure
    if failed:
        outcome = Result("error", error=failed["message"])
    return Phase(raw["call"], events, outcome)


# ---- chunks ----


def _head(chunk: Mapping[str, Any]) -> Head:
    kind: str = chunk["type"]
    payload = chunk.get("payload") or {}
    named = f"{kind} {payload.get('toolCallId')} {payload.get('toolName')}"
    if kind in ("text-delta", "reasoning-delta"):
        return kind, payload["text"]
    if kind == "tool-call-delta":
        return f"{kind} {payload['toolCallId']}", payload["argsTextDelta"]
    if kind == "tool-call-input-streaming-end":
        return f"{kind} {payload['toolCallId']}", ""
    if kind in ("step-finish", "finish"):
        goes_on = "continued " if chunk.get("isContinued") else ""
        return f"{kind} {chunk.get('reason')} {goes_on}{_usage(chunk.get('usage'))}", ""
    if kind == "error":
        return f"error {payload['error']['message']}", ""
    if kind in ("object", "object-result"):
        value, extra = compact(chunk["extra"]["object"]), chunk["extra"].get("metadata", {})
        if kind == "object":
            return f"object {value}", ""
        return object_result(value, fallback=extra.get("fallback", False)), ""
    if kind == "raw":
        return f"raw {compact(payload)}", ""
    if kind.startswith("data-"):
        return f"{kind} {compact(chunk['extra']['data'])}", ""
    if kind == "tool-output":
        return f"{named} {compact(payload['output'])}", ""
    if kind == "tool-call-input-streaming-start":
        return named, ""
    if "args" not in payload:
        return kind, ""
    return f"{named} {compact(payload['args'])}{_tail(kind, payload)}", ""


def _tail(kind: str, payload: Mapping[str, Any]) -> str:
    match kind:
        case "tool-result":
            return f" -> {compact(payload['result'])}"
        case "tool-error":
            failure = payload["error"]
            if failure["__error"] == "ToolNotFoundError":
                return " -> unknown-tool"
            return f" -> exception: {failure['message']}"
        case "tool-output-denied":
            return f" -> {payload['approval']['reason']}"
        case "tool-call-approval" | "tool-call-suspended":
            asks = f" asks {compact(payload['suspendPayload'])}" if "suspendPayload" in payload else ""
            return asks + _expects(payload.get("resumeSchema"))
        case _:
            return ""


def _expects(schema: Any) -> str:
    if schema is None:
        return ""
    read = json.loads(schema) if isinstance(schema, str) else dict(schema)
    read.pop("$schema", None)
    return f" expects {compact(read)}"


def _usage(raw: Mapping[str, Any] | None) -> str:
    raw = raw or {}
    return tokens([raw.get(name, 0) for name in ("inputTokens", "outputTokens", "totalTokens")])


# ---- results ----


def _result(raw: Mapping[str, Any]) -> Result:
    suspend = ""
    if "suspendPayload" in raw:
        first = raw["suspendPayload"]
        suspend = f"{first['toolCallId']} {first['toolName']} {compact(first['args'])}"
        suspend += _tail("tool-call-suspended", first)
    return Result(
        finish=raw.get("finishReason", ""),
        text=raw.get("text", ""),
        usage=_usage(raw.get("usage")),
        tool_calls=[_call(item) for item in raw["toolCalls"]],
        tool_results=[f"{_call(item)} -> {compact(item['result'])}" for item in raw["toolResults"]],
        steps=[f"{s['finishReason']} {_usage(s['usage'])} {compact(s['text'])}" for s in raw["steps"]],
        reasoning=raw.get("reasoningText", ""),
        suspend=suspend,
        object=(compact(raw["object"]) if "object" in raw else "")
        + (" fallback" if raw.get("usedFallbackValue") else ""),
    )


def _call(raw: Mapping[str, Any]) -> str:
    return f"{raw['toolCallId']} {raw['toolName']} {compact(raw['args'])}"


# ---- prompts and tools ----


def _prompts(calls: Sequence[Mapping[str, Any]] | None, phases: Sequence[Any]) -> Iterator[Prompt]:
    for call in calls or ():
        yield _prompt(call)
    if calls is None:  # the recordings over a restart keep them with each process
        for phase in phases:
            for shown in phase.get("extra", {}).get("prompts", ()):
                system = [{"role": "system", "content": text} for text in shown["sys"]]
                yield _prompt({"prompt": system + shown["rest"]})


def _prompt(raw: Mapping[str, Any]) -> Prompt:
    choice = raw.get("toolChoice") or {"type": "auto"}
    lines: list[str] = []
    for message in raw["prompt"]:
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for index, part in enumerate(parts):
            lines.append(f"{message['role']} {'+ ' if index else ''}{_part(part)}")
    named = f"{choice['type']} {choice.get('toolName', '')}".strip()
    schema = (raw.get("responseFormat") or {}).get("schema")
    return Prompt(named, raw.get("tools"), lines, compact(schema) if schema else "")


def _part(part: Mapping[str, Any]) -> str:
    if part["type"] == "text":
        return f"text {compact(part['text'])}"
    named = f"{part['toolCallId']} {part['toolName']}"
    if part["type"] == "tool-call":
        return f"call {named} {compact(part['input'])}"
    output = part["output"]
    if output["type"] == "error-text":
        is_unknown = output["value"].startswith('Tool "')
        return f"{named} error {'unknown-tool' if is_unknown else output['value']}"
    return f"{named} {output['type']} {compact(output['value'])}"


def _entered(phases: Sequence[Mapping[str, Any]]) -> list[str] | None:
    """The log of the scenario's own tools. It goes on over the phases of one process."""
    logs = [phase["extra"]["toolLog"] for phase in phases if "toolLog" in (phase.get("extra") or {})]
    if not logs:
        return None
    restarted = any(phase["call"].startswith("NEW PROCESS") for phase in phases)
    entries = [entry for log in logs for entry in log] if restarted else logs[-1]
    return [_entry(entry) for entry in entries]


def _entry(entry: Sequence[Any]) -> str:
    name, *values = entry
    if name == "slow":  # the rest is when
        values = values[:1]
    return compact([name, *(value for value in values if value is not None)])
