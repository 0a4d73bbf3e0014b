"""Structured output that is none: a failure that says what is wrong, never a success without an object."""

from typing import Any

import pytest

from tests.loop.support import serving

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}


@pytest.mark.parametrize(
    ("answer", "kind", "asked"),
    [
        ([{"text": '{"name": "Ada"}'}], "structured_output_invalid", 2),
        # The limit would cut the next one as well.
        ([{"text": '{"name": "Ada", "age": 3'}, {"finish": "length"}], "structured_output_truncated", 1),
    ],
)
async def test_what_does_not_fit_is_a_failure(answer: list[dict[str, Any]], kind: str, asked: int) -> None:
    """SO-02: with the text, and with what is wrong with it, after it was asked for again."""
    async with serving([answer]) as served:
        result = await served.both(structured_output={"schema": SCHEMA}, max_processor_retries=1)
        assert (result.finish_reason, result.object) == ("error", None)
        assert result.error is not None
        assert result.error.kind == kind
        assert result.text == answer[0]["text"]
        assert len(served.model.requests) == asked


@pytest.mark.parametrize("text", ["[1, 2]", '{"name": "Ada"}{"age": 3}', "null", "{"])
async def test_json_of_the_wrong_kind_is_no_crash(text: str) -> None:
    """SO-03: a list, two objects, null, a beginning."""
    async with serving([[{"text": text}]]) as served:
        result = await served.both(structured_output={"schema": SCHEMA})
        assert (result.finish_reason, result.object) == ("error", None)
        assert result.error is not None
        assert result.error.kind == "structured_output_invalid"


async def test_words_around_the_object_are_no_part_of_it() -> None:
    """SO-03: what models say beside the object."""
    async with serving([[{"text": 'Here: {"name": "Ada", "age": 3} and so on'}]]) as served:
        result = await served.both(structured_output={"schema": SCHEMA})
        assert (result.finish_reason, result.object) == ("stop", {"name": "Ada", "age": 3})
