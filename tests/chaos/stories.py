"""What a run's stream tells, without what depends on when and where it was executed."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from entracte.v1 import chunk_pb2, generate_result_pb2, result_pb2
from entracte.v1.chunk_pb2 import Chunk
from tests.cases.support import kind_of

RECOVERY = chunk_pb2.PENDING_CALL_KIND_RECOVERY


def valid(chunks: Sequence[Chunk]) -> list[Chunk]:
    """The chunks without those of attempts that were made again."""
    latest = {chunk.step: chunk.attempt for chunk in chunks if kind_of(chunk) == "step_start"}
    return [chunk for chunk in chunks if chunk.step == 0 or chunk.attempt == latest[chunk.step]]


@dataclass
class StoryOfStep:
    """`said` is what the model said, chunk by chunk; `outcomes` what its calls came to, `reports` what
    tools said while they ran, `verdicts` what people decided, by call."""

    said: list[Any] = field(default_factory=list)
    outcomes: dict[str, Any] = field(default_factory=dict)
    reports: dict[str, set[str]] = field(default_factory=dict)
    verdicts: dict[str, list[Any]] = field(default_factory=dict)
    finish: Any = None


@dataclass
class Story:
    """`end` is how the run ended; `result` what it has come to."""

    steps: dict[int, StoryOfStep]
    end: Any
    result: Any


def story_of(chunks: Sequence[Chunk], result: generate_result_pb2.GenerateResult) -> Story:
    """The story of a run that has ended."""
    steps: dict[int, StoryOfStep] = {}
    recovered = {
        chunk.tool_call_suspended.pending_call_id
        for chunk in chunks
        if kind_of(chunk) == "tool_call_suspended" and chunk.tool_call_suspended.kind == RECOVERY
    }
    for chunk in valid(chunks):
        kind = kind_of(chunk)
        payload = getattr(chunk, kind)
        if kind == "finish":
            continue
        step = steps.setdefault(chunk.step, StoryOfStep())
        if kind in ("tool_result", "tool_error", "tool_output_denied"):
            assert payload.tool_call_id not in step.outcomes, f"two outcomes of {payload.tool_call_id}"
            value = json.loads(payload.result.text) if kind == "tool_result" else None
            step.outcomes[payload.tool_call_id] = (kind, _bare(payload, "result"), value)
        elif kind == "tool_output":
            step.reports.setdefault(payload.tool_call_id, set()).add(_bare(payload))
        elif kind == "tool_call_resolved":
            if payload.pending_call_id not in recovered:
                edited = payload.edited_args.text if payload.HasField("edited_args") else None
                step.verdicts.setdefault(payload.tool_call_id, []).append((payload.verb, edited))
        elif kind == "step_finish":
            step.finish = _bare(payload, "message_id", "response_id")
        elif kind not in ("tool_call_approval", "tool_call_suspended"):
            step.said.append((kind, _bare(payload, "message_id", "id")))
    return Story(steps, _bare(chunks[-1].finish), _result(result))


def _bare(message: Any, *without: str) -> str:
    """A message as text, without some of its fields. JSON is compared as values."""
    bare = type(message)()
    bare.CopyFrom(message)
    for name in without:
        if name in bare.DESCRIPTOR.fields_by_name:
            bare.ClearField(name)
    return str(bare)


def _result(result: generate_result_pb2.GenerateResult) -> dict[str, Any]:
    return {
        "text": result.text,
        "finish": result_pb2.FinishReason.Name(result.finish_reason),
        "cause": result_pb2.StopCause.Name(result.stop_cause),
        "usage": str(result.usage),
        "calls": [(c.tool_call.tool_call_id, c.tool_call.args.text) for c in result.tool_calls],
        "results": Counter(
            (c.tool_result.tool_call_id, json.dumps(json.loads(c.tool_result.result.text)))
            for c in result.tool_results
        ),
        "steps": [step.text for step in result.steps],
    }
