"""Chunks, results and prompts as lines of text, so that two runs can be compared and a difference can
be read.

Runs of deltas of one block are one line: how an answer is cut into pieces is the provider's business.
JSON is shown compactly with sorted keys, texts as JSON strings.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from entracte.v1 import chunk_pb2, generate_result_pb2, result_pb2
from entracte_server.domain import messages as m
from entracte_server.models import ModelRequest
from entracte_server.wire import values
from entracte_server.wire.codec import PENDING_KINDS, VERBS

Head = tuple[str, str]
"""The beginning of a line, and what deltas of the same block are joined to."""

OWN_WORDS = frozenset({"unknown-tool", "invalid-args", "not-executed", "invalid-result"})
"""Codes of tool errors whose words are the server's own: the line shows the code only."""

_MINTED = re.compile(r"call_[0-9A-Z]{26}")


def compact(value: Any) -> str:
    """A JSON value as text."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def recompact(text: str) -> str:
    """JSON text in the form of `compact`; empty stays empty."""
    return compact(json.loads(text)) if text else ""


@dataclass
class Result:
    """What a run came to."""

    finish: str
    text: str = ""
    usage: str = "0/0/0"
    tool_calls: list[str] = field(default_factory=list)
    tool_results: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    reasoning: str = ""
    suspend: str = ""
    error: str = ""
    object: str = ""


@dataclass
class Prompt:
    """What one model call saw: the tool choice, the tools on offer (None: not recorded), the
    conversation part by part, the schema it was to answer with."""

    choice: str
    tools: list[str] | None
    messages: list[str]
    schema: str = ""


def tokens(counts: Sequence[int]) -> str:
    """Input, output and total tokens."""
    return "/".join(str(count) for count in counts)


def usage_of(usage: result_pb2.Usage) -> str:
    """The same for a message of ours."""
    return tokens([usage.input_tokens, usage.output_tokens, usage.total_tokens])


# ---- lines that tests write by hand ----


def say(text: str) -> list[str]:
    """The lines of a text."""
    return ["text-start", f"text-delta {compact(text)}", "text-end"]


def think(text: str) -> list[str]:
    """The lines of a piece of thinking."""
    return ["reasoning-start", f"reasoning-delta {compact(text)}", "reasoning-end"]


def call(call_id: str, tool: str, args: Any = None, *, raw: str | None = None) -> list[str]:
    """The lines of a tool call. `raw` is what the model sent when that is no JSON object."""
    text = compact(args or {}) if raw is None else raw
    shown = text if raw is None else f"INVALID {raw}"
    return [
        f"tool-call-input-streaming-start {call_id} {tool}",
        *([f"tool-call-delta {call_id} {text}"] if text else []),
        f"tool-call-input-streaming-end {call_id}",
        f"tool-call {call_id} {tool} {shown}",
    ]


def result(call_id: str, tool: str, args: Any, value: Any) -> str:
    """The line of a tool's result."""
    return f"tool-result {call_id} {tool} {compact(args)} -> {compact(value)}"


def error(call_id: str, tool: str, args: Any, code: str, message: str = "") -> str:
    """The line of a tool's error; `args` None where the model sent no object."""
    shown = "" if args is None else compact(args)
    return f"tool-error {call_id} {tool} {shown} -> {code}{': ' + message if message else ''}"


def denied(call_id: str, tool: str, args: Any, reason: str) -> str:
    """The line of a declined call."""
    return f"tool-output-denied {call_id} {tool} {compact(args)} -> {reason}"


def approval(call_id: str, tool: str, args: Any) -> str:
    """The line of a call that waits for approval."""
    return f"tool-call-approval {call_id} {tool} {compact(args)}"


def suspended(call_id: str, tool: str, args: Any, asks: Any, schema: Any = None) -> str:
    """The line of a call that waits for an answer."""
    expects = "" if schema is None else f" expects {compact(schema)}"
    return f"tool-call-suspended {call_id} {tool} {compact(args)} asks {compact(asks)}{expects}"


def client_call(call_id: str, tool: str, args: Any) -> str:
    """The line of a call that the client executes."""
    return f"tool-call-suspended {call_id} {tool} {compact(args)} client-tool"


def recovery(call_id: str, tool: str, args: Any) -> str:
    """The line of a call about which somebody must say whether it happened."""
    return f"tool-call-suspended {call_id} {tool} {compact(args)} recovery"


def resolved(call_id: str, tool: str, verb: str) -> str:
    """The line of a decision."""
    return f"tool-call-resolved {call_id} {tool} {verb}"


def object_result(value: str, *, fallback: bool = False) -> str:
    """The line of a structured output."""
    return f"object-result {value}{' fallback' if fallback else ''}"


def step_finish(reason: str, steps: int, *, goes_on: bool = False) -> str:
    """The line of the end of a step. `steps` is how many scripted calls were paid for so far."""
    return f"step-finish {reason} {'continued ' if goes_on else ''}{cost(steps)}"


def finish(reason: str, steps: int, *open_calls: str) -> str:
    """The line of the end of a run, or of its parking with the calls that wait."""
    return f"finish {reason} {cost(steps)}{' open ' + ' '.join(open_calls) if open_calls else ''}"


def cost(steps: int) -> str:
    """What so many calls of the scripted model cost."""
    return tokens([10 * steps, 5 * steps, 15 * steps])


# ---- chunks of ours ----


def _head(chunk: chunk_pb2.Chunk) -> Head:
    match chunk.WhichOneof("payload"):
        case "text_delta":
            return "text-delta", chunk.text_delta.text
        case "reasoning_delta":
            return "reasoning-delta", chunk.reasoning_delta.text
        case "tool_call_delta":
            return f"tool-call-delta {chunk.tool_call_delta.tool_call_id}", (
                chunk.tool_call_delta.args_text_delta
            )
        case "tool_call_input_streaming_start":
            begun = chunk.tool_call_input_streaming_start
            return f"tool-call-input-streaming-start {begun.tool_call_id} {begun.tool_name}", ""
        case "tool_call_input_streaming_end":
            return f"tool-call-input-streaming-end {chunk.tool_call_input_streaming_end.tool_call_id}", ""
        case "tool_call_approval":
            asked = chunk.tool_call_approval
            return f"tool-call-approval {asked.tool_call_id} {asked.tool_name} {_json(asked.args)}", ""
        case "tool_call_suspended":
            return f"tool-call-suspended {_waiting(chunk.tool_call_suspended)}", ""
        case "tool_call_resolved":
            decided = chunk.tool_call_resolved
            verb = VERBS.texts[decided.verb]
            return f"tool-call-resolved {decided.tool_call_id} {decided.tool_name} {verb}", ""
        case "step_finish":
            end = chunk.step_finish
            goes_on = "continued " if end.is_continued else ""
            return f"step-finish {_reason(end.reason)} {goes_on}{usage_of(end.total_usage)}", ""
        case "finish":
            waits = " ".join(call.tool_call_id for call in chunk.finish.open_calls)
            tail = f" open {waits}" if waits else ""
            return f"finish {_reason(chunk.finish.reason)} {usage_of(chunk.finish.usage)}{tail}", ""
        case "error":
            return f"error {chunk.error.error.message}", ""
        case "object":
            return f"object {_json(chunk.object.object)}", ""
        case "object_result":
            made = chunk.object_result
            return object_result(_json(made.object), fallback=made.is_fallback), ""
        case "raw":
            return f"raw {_json(chunk.raw.value)}", ""
        case "custom":
            return f"data-{chunk.custom.name} {_json(chunk.custom.data)}", ""
        case "tool_call" | "tool_result" | "tool_error" | "tool_output" | "tool_output_denied" as kind:
            return f"{kind.replace('_', '-')} {_outcome(chunk)}", ""
        case kind:
            return str(kind).replace("_", "-"), ""


def _json(message: Any) -> str:
    return recompact(message.text)


def _reason(number: int) -> str:
    return str(values.FINISH_REASONS.texts[number])


def _waiting(asked: chunk_pb2.ToolCallSuspendedChunk) -> str:
    line = f"{asked.tool_call_id} {asked.tool_name} {_json(asked.args)}"
    if asked.kind != chunk_pb2.PENDING_CALL_KIND_SUSPENSION:
        return f"{line} {PENDING_KINDS.texts[asked.kind]}"
    expects = f" expects {_json(asked.resume_schema)}" if asked.HasField("resume_schema") else ""
    return f"{line} asks {_json(asked.suspend_payload)}{expects}"


def _outcome(chunk: chunk_pb2.Chunk) -> str:
    kind = chunk.WhichOneof("payload")
    assert kind is not None
    payload: Any = getattr(chunk, kind)
    line = f"{payload.tool_call_id} {payload.tool_name} "
    if kind == "tool_output":
        return line + _json(payload.output)
    line += _json(payload.args)
    if kind == "tool_call":
        return line + (f"INVALID {payload.invalid_args}" if payload.HasField("invalid_args") else "")
    if kind == "tool_result":
        return f"{line} -> {_json(payload.result)}"
    if kind == "tool_output_denied":
        return f"{line} -> {payload.reason}"
    words = "" if payload.code in OWN_WORDS else f": {payload.message}"
    return f"{line} -> {payload.code}{words}"


def join(heads: Iterable[Head]) -> list[str]:
    """Lines, with the deltas of one block joined."""
    joined: list[list[str]] = []
    for head, tail in heads:
        is_delta = head.split(" ", 1)[0] in ("text-delta", "reasoning-delta", "tool-call-delta")
        if is_delta and joined and joined[-1][0] == head:
            joined[-1][1] += tail
        else:
            joined.append([head, tail])
    return [
        f"{head} {compact(tail)}" if head in ("text-delta", "reasoning-delta") else f"{head} {tail}".rstrip()
        for head, tail in joined
    ]


class Names:
    """Gives ids that the server made short names, in the order they are first seen."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def _name(self, match: re.Match[str]) -> str:
        return self._names.setdefault(match[0], f"new{len(self._names) + 1}")

    def short(self, line: str) -> str:
        """The line with the short names."""
        return _MINTED.sub(self._name, line)


def lines_of(chunks: Iterable[chunk_pb2.Chunk]) -> list[str]:
    """The lines of a run's chunks."""
    return join(_head(chunk) for chunk in chunks)


def result_of(result: generate_result_pb2.GenerateResult) -> Result:
    """The result of a run."""
    suspend = ""
    if result.HasField("suspend_payload"):
        first = result.suspend_payload
        suspend = f"{first.tool_call_id} {first.tool_name} {_json(first.args)}"
        if first.HasField("suspend_payload"):
            suspend += f" asks {_json(first.suspend_payload)}"
        if first.HasField("resume_schema"):
            suspend += f" expects {_json(first.resume_schema)}"
    return Result(
        finish=_reason(result.finish_reason),
        text=result.text,
        usage=usage_of(result.usage),
        tool_calls=[_outcome(chunk) for chunk in result.tool_calls],
        tool_results=[_outcome(chunk) for chunk in result.tool_results],
        steps=[f"{_reason(s.finish_reason)} {usage_of(s.usage)} {compact(s.text)}" for s in result.steps],
        reasoning=result.reasoning_text,
        suspend=suspend,
        error=result.error.message,
        object=_json(result.object) + (" fallback" if result.used_fallback_value else ""),
    )


# ---- prompts of ours ----


def prompt_of(request: ModelRequest, own_words: Mapping[str, str]) -> Prompt:
    """What a model call saw. `own_words` maps messages of tool errors to their codes, for those in
    `OWN_WORDS`: in a prompt they stand for the code, too. With the tool choice `none` no tool is on
    offer: a provider is not sent any."""
    choice = request.tool_choice
    lines: list[str] = []
    for message in request.messages:
        for index, part in enumerate(message.parts):
            lines.append(f"{message.role} {'+ ' if index else ''}{_part(part, own_words)}")
    return Prompt(
        choice=f"{choice.mode} {choice.tool_name}".strip(),
        tools=[] if choice.mode == "none" else [tool.name for tool in request.tools],
        messages=lines,
        schema=recompact(request.response_format.schema) if request.response_format is not None else "",
    )


def _part(part: m.AnyPart, own_words: Mapping[str, str]) -> str:
    match part:
        case m.TextPart(text):
            return f"text {compact(text)}"
        case m.ReasoningPart(text):
            return f"reasoning {compact(text)}"
        case m.ToolCallPart(call_id, name, args):
            return f"call {call_id} {name} {recompact(args)}"
        case m.ToolResultPart(call_id, name, output, kind):
            if kind == "error":
                return f"{call_id} {name} error {own_words.get(output, output)}"
            return f"{call_id} {name} {kind} {recompact(output)}"
        case _:
            return type(part).__name__
