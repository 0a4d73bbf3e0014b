"""Tool calls out of pieces, however a provider labels them."""

import json
from typing import Any

import pytest

from tests.models.answers import CALLED, ELM, OAK, ONE, STOP, TWO, Records, args_of, assemble
from tests.models.support import calls, choice, piece


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        pytest.param(
            [
                calls(piece("find", "", id="a", index=0)),
                calls(piece(None, OAK, index=0)),
                calls(piece("find", "", id="b", index=1)),
                calls(piece(None, ELM, index=1)),
            ],
            TWO,
            id="as it should be",
        ),
        pytest.param(
            [calls(piece("find", OAK, id="a")), calls(piece("find", ELM, id="b"))],
            TWO,
            id="no index, whole calls",
        ),
        pytest.param(
            [
                calls(piece("find", "", id="a")),
                calls(piece(None, '{"key":')),
                calls(piece(None, '"oak"}')),
                calls(piece("find", "", id="b")),
                calls(piece(None, ELM)),
            ],
            TWO,
            id="no index, pieces go to the newest",
        ),
        pytest.param(
            [calls(piece("find", OAK)), calls(piece("find", ELM))],
            TWO,
            id="neither index nor id",
        ),
        pytest.param([calls(piece("find", OAK), piece("find", ELM))], TWO, id="both in one delta"),
        pytest.param(
            [calls(piece("find", '{"key":')), calls(piece(None, '"oak"}'))],
            ONE,
            id="one call in pieces with neither index nor id",
        ),
        pytest.param(
            [calls(piece("find", OAK, id="a", index=0)), calls(piece("find", ELM, id="b", index=0))],
            TWO,
            id="every index is 0",
        ),
        pytest.param(
            [calls(piece("find", OAK, id="", index=0)), calls(piece("find", ELM, id="", index=0))],
            TWO,
            id="every index is 0 and every id empty",
        ),
        pytest.param(
            [
                calls(piece("find", '{"key":', id="a", index=0)),
                calls(piece(None, '"oak"}', index=0)),
                calls(piece("find", '{"key":', id="b", index=0)),
                calls(piece(None, '"elm"}', index=1)),
            ],
            TWO,
            id="head and tail disagree about the index",
        ),
        pytest.param(
            [
                calls(piece("find", "", id="a", index=0), piece("find", "", id="b", index=1)),
                calls(piece(None, '{"key":"e', index=1)),
                calls(piece(None, '{"key":"o', index=0)),
                calls(piece(None, 'lm"}', index=1), piece(None, 'ak"}', index=0)),
            ],
            TWO,
            id="interleaved",
        ),
        pytest.param([calls(piece("find", OAK, id="a", index=1))], ONE, id="the only index is 1"),
        pytest.param(
            [calls(piece("find", OAK, id="a", index=0), piece("find", ELM, id="a", index=1))],
            TWO,
            id="one id for two calls",
        ),
        pytest.param(
            [
                calls(piece("find", '{"key"', id="a", index=0)),
                calls(piece("find", ":", id="a", index=0)),
                calls(piece("find", '"oak"}', id="a", index=0)),
                calls(piece("find", "", id="a", index=0)),
            ],
            ONE,
            id="name and id with every piece",
        ),
        pytest.param(
            [calls(piece("find", '{"key"', index=0)), calls(piece("find", ':"oak"}', index=0))],
            ONE,
            id="name with every piece, no id",
        ),
        pytest.param(
            [
                calls(piece(None, '{"key":', index=0)),
                calls(piece(None, '"oa', index=0)),
                calls(piece("find", 'k"}', id="a", index=0)),
            ],
            ONE,
            id="arguments before the name",
        ),
        pytest.param(
            [calls(piece(None, '{"key":')), calls(piece("find", '"oak"}', id="a"))],
            ONE,
            id="arguments before the name, no index",
        ),
        pytest.param(
            [calls(piece("find", "", index=0)), calls(piece(None, OAK, id="late", index=0))],
            ONE,
            id="the id comes late",
        ),
        pytest.param(
            [calls({"index": 0, "id": "a", "name": "find", "arguments": OAK})],
            ONE,
            id="no function object",
        ),
        pytest.param([choice({"tool_calls": piece("find", OAK)})], ONE, id="no list"),
        pytest.param([choice({"function_call": {"name": "find", "arguments": OAK}})], ONE, id="legacy"),
        pytest.param(
            [choice({"tool_calls": [None, "x", piece("find", OAK, id="a", index="0")]})],
            ONE,
            id="rubbish beside it",
        ),
    ],
)
@pytest.mark.parametrize("sizes", [(), (1,), (7, 60)])
def test_calls_are_found(records: Records, expected: list[Any], sizes: tuple[int, ...]) -> None:
    outcome = assemble([choice({"role": "assistant", "content": ""}), *records, CALLED], sizes=sizes)
    assert args_of(outcome) == expected
    assert outcome.finish.reason == "tool-calls"
    assert outcome.finish.dropped_calls == 0


@pytest.mark.parametrize(
    ("arguments", "args"),
    [
        (None, "{}"),
        ("", "{}"),
        ("  ", "{}"),
        ("null", "{}"),
        ({}, "{}"),
        (' {"a": 1} ', '{"a": 1}'),
        ({"b": 1, "a": [1.0, None]}, '{"b":1,"a":[1.0,null]}'),
        ({"n": 123456789012345678901234567890}, '{"n":123456789012345678901234567890}'),
        ('{"n": 18446744073709551616, "x": 1.10}', '{"n": 18446744073709551616, "x": 1.10}'),
    ],
)
def test_arguments_are_kept(arguments: Any, args: str) -> None:
    outcome = assemble([calls(piece("find", arguments, id="a", index=0)), CALLED])
    assert [call.args for call in outcome.calls] == [args]


def test_null_arguments_are_no_arguments() -> None:
    outcome = assemble(
        [calls({"index": 0, "id": "a", "function": {"name": "now", "arguments": None}}), CALLED]
    )
    assert args_of(outcome) == [("now", {})]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ('{"key": oak', "not valid JSON"),
        ('{"key":"oa', "not valid JSON"),
        ('["oak"]', "an array"),
        ('"oak"', "a string"),
        ("7", "a number"),
        ("true", "a boolean"),
        (["oak"], "an array"),
        ('{"a":1,"a":2}', "duplicate key"),
        ('{"a":NaN}', "NaN"),
        ('{"a":' + "[" * 200 + "]" * 200 + "}", "nested"),
        ("{}{}", "not valid JSON"),
    ],
)
@pytest.mark.parametrize("finish", ["tool_calls", "length"])
def test_bad_arguments_are_reported(arguments: Any, problem: str, finish: str) -> None:
    outcome = assemble([calls(piece("find", arguments, id="a", index=0)), choice({}, finish)])
    (call,) = outcome.calls
    assert call.args is None
    assert call.args_error is not None
    assert problem in call.args_error


def test_endless_arguments_are_not_kept() -> None:
    big = calls(piece(None, "x" * (1 << 20), index=0))
    outcome = assemble([calls(piece("find", '{"a":"', id="a", index=0)), *([big] * 8), CALLED])
    (call,) = outcome.calls
    assert call.args_error is not None
    assert "larger" in call.args_error
    assert call.invalid_args is not None
    assert len(call.invalid_args) < 6 << 20


def test_missing_and_used_ids_are_replaced_once() -> None:
    outcome = assemble(
        [
            calls(piece("find", OAK, index=0)),
            calls(piece("find", OAK, id="used", index=1)),
            calls(piece("find", OAK, id="fine", index=2)),
            calls(piece("find", OAK, id="fine", index=3)),
            CALLED,
        ],
        reserved=("used", "other"),
    )
    ids = [call.tool_call_id for call in outcome.calls]
    assert len(set(ids)) == 4
    assert ids[2] == "fine"
    assert all(id.startswith("call_") for id in (ids[0], ids[1], ids[3]))


def test_calls_without_a_name_are_counted() -> None:
    outcome = assemble(
        [calls(piece("", OAK, id="", index=0)), calls(piece("", OAK, id="x", index=1)), CALLED]
    )
    assert outcome.calls == []
    assert outcome.finish.dropped_calls == 2


def test_an_empty_piece_is_no_call() -> None:
    outcome = assemble([calls({"index": 0}), calls({}), STOP])
    assert outcome.finish.dropped_calls == 0


def test_what_a_provider_adds_to_a_call_is_kept() -> None:
    extra = {"google": {"thought_signature": "abc"}}
    outcome = assemble([calls({**piece("find", OAK, id="a", index=0), "extra_content": extra}), CALLED])
    metadata = outcome.calls[0].provider_metadata
    assert metadata is not None
    assert json.loads(metadata) == {"extra_content": extra}
