"""Checking values against JSON Schemas: bounded, and otherwise as `jsonschema` does it."""

import json
from typing import Any

import jsonschema
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from entracte_server.agents import bounded, schemas

OVER = "cannot be checked within the limits of this server"


def messages(schema: Any, value: Any) -> list[str]:
    try:
        schemas.check(json.dumps(schema), value)
    except schemas.InvalidValue as error:
        return [violation.message for violation in error.violations]
    return []


def chain(link: str, keyword: dict[str, Any] | None = None) -> dict[str, Any]:
    """A schema that applies three times as many schemas at each of 30 levels."""
    definitions: dict[str, Any] = {
        f"d{level}": {**(keyword or {}), link: [{"$ref": f"#/$defs/d{level + 1}"}] * 3} for level in range(30)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, "d30": {"type": ["integer", "object"]}}}


def exceeds(schema: Any, value: Any, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether checking takes more than 10,000 steps."""
    schemas.compile_schema(json.dumps(schema))
    monkeypatch.setattr(bounded, "MAX_STEPS", 10_000)
    return messages(schema, value) == [OVER]


@pytest.mark.parametrize(
    ("schema", "wrap"),
    [
        ({"pattern": "^(a+)+$"}, lambda text: text),
        ({"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}, lambda text: {text: 1}),
        ({"propertyNames": {"pattern": "^(a|aa)+$"}}, lambda text: {text: 1}),
    ],
)
def test_patterns_are_matched_in_linear_time(schema: dict[str, Any], wrap: Any) -> None:
    [message] = messages(schema, wrap("a" * 100 + "!"))
    assert "not match" in message
    assert messages(schema, wrap("a" * 100)) == []


@pytest.mark.parametrize("pattern", ["^(?=a)", "(a)\\1", "(?<!b)a"])
def test_a_pattern_that_needs_backtracking_is_refused_by_name(pattern: str) -> None:
    refused: list[dict[str, Any]] = [{"pattern": pattern}, {"patternProperties": {pattern: {}}}]
    for schema in refused:
        with pytest.raises(schemas.InvalidSchema, match="cannot be matched in linear time") as caught:
            schemas.compile_schema(json.dumps({"properties": {"x": schema}}))
        assert repr(pattern) in str(caught.value)


def test_a_pattern_that_only_a_reference_finds_makes_the_value_invalid() -> None:
    [message] = messages({"hidden": {"pattern": "^(?=a)"}, "$ref": "#/hidden"}, "a")
    assert message.startswith("cannot be checked: the pattern '^(?=a)'")


def test_what_is_no_schema_but_looks_like_a_pattern_is_no_pattern() -> None:
    schema: dict[str, Any] = {"default": {"pattern": "("}, "properties": {"pattern": {"type": "string"}}}
    assert messages(schema, {"pattern": "("}) == []


def test_patterns_written_for_other_engines() -> None:
    assert messages({"pattern": "^\\u00e9+\\/\\d$"}, "éé/1") == []
    assert messages({"pattern": "^\\\\u00e9$"}, "\\u00e9") == []
    assert messages({"pattern": "^[\\w-]+$"}, "\ud800") != []


def test_the_schemas_of_pydantic() -> None:
    class Order(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="forbid")
        id: str = pydantic.Field(pattern=r"^[A-Z]{2}-\d+$")
        word: str = pydantic.Field(pattern=r"^\p{L}+$")
        tags: set[str] = set()
        parent: "Order | None" = None

    schema = Order.model_json_schema()
    assert messages(schema, {"id": "AB-1", "word": "thé", "parent": {"id": "AB-2", "word": "x"}}) == []
    assert messages(schema, {"id": "AB1", "word": "thé"}) == ["'AB1' does not match '^[A-Z]{2}-\\\\d+$'"]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (chain("allOf"), 1),
        (chain("anyOf"), "x"),
        (chain("oneOf"), 1),
        (chain("allOf", {"$schema": "https://json-schema.org/draft/2020-12/schema"}), 1),
        ({"unevaluatedProperties": False, **chain("allOf")}, {"a": 1}),
        ({"anyOf": [False] * 150}, "x" * 1_000_000),
        ({"items": {f"unknown{n}": 1 for n in range(2000)}}, [0] * 10_000),
        ({"items": {"enum": list(range(5000))}}, [4999] * 10_000),
        ({"allOf": [{"items": True}] * 150}, [0] * 100_000),
        ({"items": {"pattern": "x{900}"}}, ["x" * 1000] * 1000),
    ],
)
def test_work_is_bounded(schema: dict[str, Any], value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert exceeds(schema, value, monkeypatch)


def test_looking_back_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [{"a": {"$ref": f"#/$defs/d{n}"}, "b": {"$ref": f"#/$defs/d{n}"}} for n in range(1, 31)]
    definitions: dict[str, Any] = {f"d{n}": {"dependentSchemas": both[n]} for n in range(30)}
    schema = {
        "unevaluatedProperties": False,
        "dependentSchemas": both[0],
        "$defs": {**definitions, "d30": {}},
    }
    assert exceeds(schema, {"a": 1, "b": 2}, monkeypatch)


def test_work_that_a_schema_needs_is_granted() -> None:
    schema = {"items": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}
    assert messages(schema, [{"a": n} for n in range(5000)]) == []


def test_a_schema_is_bounded_too() -> None:
    with pytest.raises(schemas.InvalidSchema, match="larger than 256 KiB"):
        schemas.compile_schema(json.dumps({"description": "x" * schemas.MAX_SCHEMA_BYTES}))
    with pytest.raises(schemas.InvalidSchema, match=OVER):
        schemas.compile_schema(json.dumps({"anyOf": [{}] * 60_000}))
    schemas.compile_schema(json.dumps({"properties": {f"p{n}": {"type": "string"} for n in range(1000)}}))


def test_looking_back_over_patterns_is_refused() -> None:
    with pytest.raises(schemas.InvalidSchema, match="unevaluatedProperties together with patternProperties"):
        schemas.compile_schema('{"patternProperties":{"^(a+)+$":{}},"unevaluatedProperties":false}')


def test_anchors_are_found() -> None:
    schema = {"$ref": "#here", "$defs": {"x": {"$anchor": "here", "type": "integer"}}}
    assert messages(schema, "x") == ["'x' is not of type 'integer'"]


@pytest.mark.parametrize(
    ("items", "unique"),
    [
        ([1, 1.0], False),
        ([1, True], True),
        ([0, False], True),
        ([0.0, -0.0], False),
        ([1, "1"], True),
        ([None, "null", False], True),
        ([{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}], False),
        ([{"a": 1}, {"a": True}], True),
        ([[1], [True], [1]], False),
        ([2**53, 2**53 + 1], True),
        ([{"a": n} for n in range(20_000)], True),
    ],
)
def test_unique_items(items: list[Any], unique: bool) -> None:
    expected = [] if unique else [f"{items!r} has non-unique elements"]
    assert messages({"uniqueItems": True}, items) == expected


LEAVES = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3) | st.text("ab1", max_size=4)
VALUES = st.recursive(
    LEAVES,
    lambda part: st.lists(part, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "ab", "c"]), part),
    max_leaves=12,
)
PLAIN: list[dict[str, Any]] = [
    {"type": ["object", "array", "boolean"], "minProperties": 1, "maxItems": 2},
    {"properties": {"a": {"type": "integer"}}, "required": ["b"], "additionalProperties": False},
    {"patternProperties": {"^a": {"type": "string"}, "b$": {"minLength": 2}}, "additionalProperties": False},
    {"properties": {"c": {}}, "additionalProperties": {"pattern": "^a+$"}},
    {"items": {"anyOf": [{"const": 1}, {"enum": [True, "a", None]}, {"pattern": "^[ab]+$"}]}},
    {"prefixItems": [{"type": "number"}], "items": False, "contains": {"minimum": 1}},
    {"oneOf": [{"type": "number"}, {"type": "integer"}, {"items": {"uniqueItems": True}}]},
    {"if": {"type": "object"}, "then": {"maxProperties": 1}, "else": {"not": {"type": "boolean"}}},
    {"allOf": [{"properties": {"a": True}}], "unevaluatedProperties": {"$ref": "#/$defs/s"}},
    {"$ref": "#/$defs/tree"},
    {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}]},
    {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": True},
]
DEFINITIONS: dict[str, Any] = {
    "s": {"type": "string"},
    "tree": {"additionalProperties": {"$ref": "#/$defs/tree"}, "type": ["object", "string"]},
}


@given(st.sampled_from(PLAIN), VALUES)
def test_answers_are_those_of_jsonschema(schema: dict[str, Any], value: Any) -> None:
    schema = {**schema, "$defs": DEFINITIONS}
    plain: Any = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    expected = [error.message[:500] for error in plain(schema).iter_errors(value)]
    # In any order: `jsonschema` goes through a set.
    assert sorted(messages(schema, value)) == sorted(expected)


@pytest.mark.parametrize(
    "schema",
    [{"type": "text"}, {"properties": {"a": 1}}, {"required": "a"}, {"minLength": -1}, {"enum": 1}],
)
def test_what_is_no_schema_is_refused_in_the_words_of_jsonschema(schema: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.SchemaError) as expected:
        jsonschema.Draft202012Validator.check_schema(schema)
    with pytest.raises(schemas.InvalidSchema) as caught:
        schemas.compile_schema(json.dumps(schema))
    assert str(caught.value) == f"{schemas.pointer(expected.value.absolute_path)}: {expected.value.message}"
