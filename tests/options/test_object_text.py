"""Finding an object in a text: never in half of one, whatever surrounds it."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from entracte_server.domain import chunks as c
from entracte_server.engine.object_text import PartialObject, Unfit, read_object

EXAMPLES = settings(max_examples=60, deadline=None, derandomize=True)

ANY_OBJECT = '{"type":"object"}'

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.sampled_from(["}", "```", "\n```\n", '{"a":1}', "[", '"', "\\"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(max_size=6), VALUES, max_size=5)
PROSE = st.text(alphabet=st.characters(exclude_characters="{}[]`~", codec="utf-8"), max_size=30)


def dump(value: Any, indent: int | None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


@EXAMPLES
@given(OBJECTS, st.sampled_from([None, 2]), PROSE, PROSE)
def test_what_surrounds_an_object_is_left_out(
    value: Any, indent: int | None, before: str, after: str
) -> None:
    """The text of the object comes back as it was written."""
    text = dump(value, indent)
    for whole in (
        text,
        f" \n{text}\n",
        f"{before}{text}{after}",
        f"{before}\n```json\n{text}\n```\n{after}",
        f"{before}\n~~~\n{text}\n~~~\n{after}",
        f"{before} {{}} {text}",
    ):
        assert read_object(whole, ANY_OBJECT) == text


@EXAMPLES
@given(OBJECTS, PROSE, st.data())
def test_half_an_object_is_none(value: Any, before: str, data: st.DataObject) -> None:
    """Nor is anything that is inside of it."""
    text = dump({"deep": {"inner": value}, "end": 1}, None)
    cut = data.draw(st.integers(1, len(text) - 1))
    for half in (text[:cut], f"{before}{text[:cut]}", f"```json\n{text[:cut]}", f"{before}```\n{text[:cut]}"):
        with pytest.raises(Unfit):
            read_object(half, ANY_OBJECT)


@EXAMPLES
@given(st.lists(VALUES, max_size=5), st.sampled_from([None, 2]))
def test_what_is_in_a_wrapper_is_as_it_was_written(value: Any, indent: int | None) -> None:
    inner = dump(value, indent)
    assert read_object(f'{{ "elements" : {inner} }}', '{"type":"array"}', "elements") == inner


@EXAMPLES
@given(OBJECTS, st.integers(1, 9))
def test_a_growing_object_is_shown_without_what_is_wrong(value: Any, size: int) -> None:
    """Every part that is shown is JSON, and the last one is the whole when the text ends where it is due."""
    text = dump(value, None)
    partial = PartialObject("")
    for start in range(0, len(text), size):
        shown = partial.add([c.TextDelta("t", text[start : start + size])])
        if shown is not None:
            assert isinstance(json.loads(shown.object), dict)
    whole = PartialObject("").add([c.TextDelta("t", text)])
    assert whole is not None
    assert json.loads(whole.object) == value


@pytest.mark.parametrize(
    "text",
    ["{" * 200_000, '{"a":[' * 60_000, "```a\n" * 60_000, "[1," * 100_000 + "x", '{"a":"' + "x" * 300_000],
)
def test_hostile_texts_are_given_up(text: str) -> None:
    with pytest.raises(Unfit):
        read_object(text, ANY_OBJECT)
    assert PartialObject("").add([c.TextDelta("t", text)]) is None or text.startswith('{"a":')


def test_a_text_that_is_too_large_is_none() -> None:
    with pytest.raises(Unfit, match="larger than"):
        read_object(json.dumps({"a": "x" * 4_200_000}), ANY_OBJECT)
