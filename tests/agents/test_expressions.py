"""Conditions in CEL: what they say, what is no condition, and that nothing gets by when one fails."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from entracte_server.agents.expressions import (
    MAX_INPUT,
    MAX_LENGTH,
    ExpressionFailed,
    InvalidExpression,
    Values,
    compile_expression,
)


def holds(expression: str, args: Any, context: Any = None) -> bool:
    values = Values("refund", json.dumps(args), None if context is None else json.dumps(context))
    return compile_expression(expression).holds(values)


SAID: list[tuple[str, dict[str, Any], bool]] = [
    ("args.cents > 5000", {"cents": 5001}, True),
    ("args.cents > 5000", {"cents": 5000}, False),
    ("args.cents > 5000", {"cents": 5000.5}, True),
    ("args.cents > 9007199254740992", {"cents": 9007199254740993}, True),
    ("args.cents > 5000", {"cents": 2**64 - 1}, True),
    ("args.ok", {"ok": False}, False),
    ("args['the key'] == 'a'", {"the key": "a"}, True),
    ("args.to.endsWith('@example.com')", {"to": "a@example.com"}, True),
    ("!args.to.endsWith('@example.com')", {"to": "a@example.org"}, True),
    ("args.path.matches('^/etc/')", {"path": "/etc/passwd"}, True),
    (r"args.path.matches(r'^\w+$')", {"path": "a b"}, False),
    ("args.kind in ['wipe', 'drop']", {"kind": "drop"}, True),
    ("has(args.cents) && args.cents > 5", {}, False),
    ("has(args.deep) && args.deep[1].x == null", {"deep": [0, {"x": None}]}, True),
    ("size(args.names) > 1", {"names": ["a", "b"]}, True),
    ("args.text.size() == 2", {"text": "aé"}, True),
    ("tool == 'refund' && request_context.vip == false", {}, False),
    ("timestamp(args.at) > timestamp('2020-01-01T00:00:00Z')", {"at": "2021-01-01T00:00:00Z"}, True),
]


@pytest.mark.parametrize(("expression", "args", "said"), SAID)
def test_what_is_said(expression: str, args: dict[str, Any], said: bool) -> None:
    assert holds(expression, args, {"vip": True}) is said


FAILING: list[tuple[str, Any]] = [
    ("args.cents > 5000", {}),
    ("args.cents > 5000", {"cents": "9000"}),
    ("args.cents > 5000", {"cents": None}),
    ("args.cents > 5000", {"cents": 2**64}),
    ("args.cents > 5000", {"cents": -(2**70)}),
    ("args.cents / args.by > 1", {"cents": 1, "by": 0}),
    ("args.cents * 9223372036854775807 > 1", {"cents": 3}),
    ("args.cents", {"cents": 1}),
    ("args.cents", {"cents": "true"}),
    ("args.list[3] == 1", {"list": [1]}),
    ("args.text.startsWith('a')", {"text": "\ud800"}),
    ("args.path.contains('etc')", {"path": "a\x00/etc"}),
    ("args['a'] == 1", {"a\x00": 2, "a": 1}),
    ("timestamp(args.at) > timestamp('2020-01-01T00:00:00Z')", {"at": "yesterday"}),
]


@pytest.mark.parametrize(("expression", "args"), FAILING)
def test_what_fails(expression: str, args: Any) -> None:
    with pytest.raises(ExpressionFailed):
        holds(expression, args)


def test_values_that_are_too_large_are_not_looked_at() -> None:
    small = {"x": "a" * (MAX_INPUT - 11)}  # and {"x":""} and {}
    assert not holds("args.x == 'a'", small)
    for args, context in (({"x": small["x"] + "a"}, None), (small, {"y": 1})):
        with pytest.raises(ExpressionFailed, match="more than"):
            holds("args.x == 'a'", args, context)


def test_all_matching_over_a_call_is_bounded() -> None:
    """By what it may cost, whether in one expression or in several."""
    text = json.dumps({"s": "ab" * 8000})
    slow = "args.s.matches('[ab]*a[ab]{200}c')"
    values = Values("t", text, None)
    assert not compile_expression(slow).holds(values)
    with pytest.raises(ExpressionFailed, match="patterns that take too long"):
        compile_expression(f"{slow} || args.s == 'x'").holds(values)
    with pytest.raises(ExpressionFailed, match="patterns that take too long"):
        compile_expression(" || ".join([slow] * 20)).holds(Values("t", text, None))
    short = Values("t", '{"s": "abc"}', None)
    assert not compile_expression(" || ".join([slow] * 20)).holds(short)


REFUSED = {
    "": "empty",
    "  ": "empty",
    "args.x >": "character 9: mismatched input '<EOF>'",
    "arg.x > 1": "undeclared reference to 'arg.x'",
    "args.x > 1; true": "character",
    "1 + 1": "of type int",
    "tool": "of type string",
    "args.all(k, k == 'a')": "undeclared reference to 'k'",
    "args.list.exists(x, x > 1)": "undeclared reference to 'x'",
    "args.list.exists_one(x, x > 1)": "undeclared reference to 'x'",
    "args.list.map(x, x).size() > 1": "undeclared reference to 'x'",
    "args.list.filter(x, x).size() > 1": "undeclared reference to 'x'",
    "args.list. // c\n all (x, x > 1)": "undeclared reference to 'x'",
    "(" * 40 + "true" + ")" * 40: "too deeply",
    "[" * 40 + "]" * 40 + " == []": "too deeply",
    "true" + " " * MAX_LENGTH: "at most 1000",
    "args.path.matches('(')": "cannot be matched",
    "args.path.matches(r'(a)\\1')": "cannot be matched",
    "args.path.matches('(.{1,100}){1,10}')": "too large",
    "args.path.matches(args.pattern)": "write a pattern out",
    "matches(args.path, 'a')": "write a pattern out",
    "args.path.matches('a' + args.pattern)": "write a pattern out",
    "args.path.matches /* */ (args.pattern)": "character",
    "args.path.matches // c\n (args.pattern)": "write a pattern out",
    # A text that ends where a backslash stands before its quote is not the same text to everybody.
    "args.path.matches(r'\\' + args.y + \"') || tool == '\" )": "Invalid string literal",
}


@pytest.mark.parametrize("expression", REFUSED)
def test_what_is_no_condition(expression: str) -> None:
    with pytest.raises(InvalidExpression) as refused:
        compile_expression(expression)
    assert REFUSED[expression] in str(refused.value)
    assert "\n" not in str(refused.value)


TEXTS = st.text(st.sampled_from("args.xmatches()'\"\\r[]{}!&|=<>?:+-*/, 01\né"), max_size=60)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_any_text_is_a_condition_or_is_refused(text: str) -> None:
    try:
        expression = compile_expression(text)
    except InvalidExpression:
        return
    with contextlib.suppress(ExpressionFailed):
        expression.holds(Values("t", '{"x":1}', None))


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.sampled_from(["x", "y", "cents"]), VALUES, max_size=3))
def test_any_value_is_judged_or_fails(args: dict[str, Any]) -> None:
    for expression in ("args.cents > 10", "args.x == args.y", "size(args.x) > 1", "args.y in args.x"):
        with contextlib.suppress(ExpressionFailed):
            assert isinstance(holds(expression, args), bool)


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x00"), max_size=20))
def test_no_part_of_a_text_goes_unseen(text: str) -> None:
    assert holds(
        "size(args.x) == args.size && args.x.endsWith(args.end)", {"x": text, "size": len(text), "end": text}
    )


@settings(max_examples=100, deadline=None)
@given(st.integers(-(2**63), 2**64 - 1))
def test_numbers_are_compared_as_they_are(number: int) -> None:
    assert holds("args.x > 9007199254740992", {"x": number}) is (number > 9007199254740992)
