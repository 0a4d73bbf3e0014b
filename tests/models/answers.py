"""Answers assembled from bodies written in place, without a connection."""

import json
from typing import Any

from entracte_server.domain.messages import text_message
from entracte_server.domain.results import RunError
from entracte_server.models import ModelError, ModelRequest
from entracte_server.models.assembler import AnswerAssembler
from entracte_server.models.response_body import BodyReader
from tests.models.support import Outcome, check_shape, choice, sse

Records = list[dict[str, Any]]
STOP = choice({}, "stop")
CALLED = choice({}, "tool_calls")


def assemble(
    body: Records | bytes,
    *,
    reserved: tuple[str, ...] = (),
    sizes: tuple[int, ...] = (),
    done: bool = True,
    **options: Any,
) -> Outcome:
    """The outcome of a body, fed whole or in reads of these sizes, repeated."""
    data = body if isinstance(body, bytes) else sse(body, done=done)
    ids = frozenset(reserved)
    answer = AnswerAssembler(ids, **options)
    reader = BodyReader(answer)
    batches = []
    error: RunError | None = None
    position = turn = 0
    try:
        while position < len(data):
            size = sizes[turn % len(sizes)] if sizes else len(data)
            turn += 1
            reader.feed(data[position : position + size])
            position += size
            batches.append(answer.take())
        reader.end()
        answer.end()
    except ModelError as failure:
        error = failure.error
        answer.close()
    batches.append(answer.take())
    outcome = Outcome([batch for batch in batches if batch], error)
    check_shape(outcome, ModelRequest([text_message("user", "hi")], reserved_ids=ids))
    return outcome


def args_of(outcome: Outcome) -> list[tuple[str, Any]]:
    return [(call.tool_name, json.loads(call.args) if call.args else None) for call in outcome.calls]


OAK = '{"key":"oak"}'
ELM = '{"key":"elm"}'
TWO = [("find", {"key": "oak"}), ("find", {"key": "elm"})]
ONE = TWO[:1]
