"""The scenarios themselves: that they are what their schema says, and leave nothing out."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema

from entracte.v1 import errors_pb2
from tests.conformance.matching import differences, spoiled
from tests.conformance.scenario import files, scenarios

SCHEMA = json.loads((Path(__file__).parent / "scenario.schema.json").read_text())


def test_files_are_what_their_schema_says() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    validator = jsonschema.Draft202012Validator(SCHEMA)
    for path, file in files():
        wrong = [
            f"{path.name} {error.json_path}: {error.message:.200}" for error in validator.iter_errors(file)
        ]
        assert not wrong, "\n".join(wrong)


def test_names_are_used_once() -> None:
    names = Counter(scenario["name"] for scenario in scenarios())
    assert [name for name, count in names.items() if count > 1] == []


PLAYED_ONLY = {
    "AGENT_DEFINED_IN_CODE",
    "AGENT_NOT_PUBLISHED",
    "AGENT_VERSION_ARCHIVED",
    "AGENT_VERSION_NOT_FOUND",
    "AGENT_VERSION_UNUSABLE",
    "ARGS_DIGEST_MISMATCH",
    "INTERNAL",
    "OPTION_UNSUPPORTED",
    "PENDING_CALL_EXPIRED",
    "PUBLISHED_VERSION_CHANGED",
    "READER_TOO_SLOW",
    "RUN_FINISHED",
    "RUN_LEASE_LOST",
    "SEQUENCE_TRIMMED",
    "SERVER_DRAINING",
    "STORE_UNAVAILABLE",
    "TOOLSET_UNAVAILABLE",
    "TOO_MANY_WORKERS",
    "WORKER_SESSION_REPLACED",
    "WORKER_TOOL_EXISTS",
    "WORKER_TOOL_UNKNOWN",
    "WORK_CANCELLED",
    "WORK_COMPLETED",
    "WORK_NOT_FOUND",
    "WORK_OUTPUT_FULL",
    "WORK_REASSIGNED",
}
"""Reasons that a real server gives for what a scenario cannot bring about, or not at a time of its choice, or
that are about workers or the catalog, which no scenario has."""


def _reasons_in(value: Any) -> Iterator[str]:
    """Reasons that steps say will be met."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key in ("error", "reason") and isinstance(item, str):
                yield item
            yield from _reasons_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from _reasons_in(item)


def test_every_reason_is_met() -> None:
    """Each is sent by a played server, and most by a real one."""
    reasons = {
        name.removeprefix("ERROR_REASON_") for name, number in errors_pb2.ErrorReason.items() if number
    }
    found = scenarios()
    played = {scenario["case"]["case"] for scenario in found if scenario["name"].startswith("refused-")}
    assert played == reasons
    real = [scenario["steps"] for scenario in found if isinstance(scenario["server"], str)]
    assert reasons - set(_reasons_in(real)) == PLAYED_ONLY


def test_patterns_find_what_is_wrong() -> None:
    """The driver's own judgement, for each kind of pattern."""
    value = {"n": 1, "list": [{"a": 1}, {"a": 2}], "text": "abc", "json": {"text": "1.0", "native": "1"}}
    right = [
        {"n": {"$min": 1}},
        {"list": {"$length": 2, "$in_order": [{"a": 1}, {"a": 2}], "$contains": {"a": 2}}},
        {"text": {"$contains": "b", "$not": "ab", "$any_of": ["x", "abc"], "$present": True}},
        {"json": {"$json": "1", "$exactly": "1.0"}, "missing": None, "absent": ""},
    ]
    wrong = [
        {"n": {"$min": 2}},
        {"n": "1"},
        {"n": True},
        {"list": {"$length": 1}},
        {"list": {"$in_order": [{"a": 2}, {"a": 1}]}},
        {"list": [{"a": 1}]},
        {"text": {"$contains": "x"}},
        {"text": {"$not": "abc"}},
        {"text": {"$any_of": ["x"]}},
        {"text": {"$present": False}},
        {"text": ""},
        {"json": {"$json": "2"}},
        {"json": {"$exactly": "1"}},
        {"missing": 1},
    ]
    assert [pattern for pattern in right if list(differences(pattern, value))] == []
    assert [pattern for pattern in wrong if not list(differences(pattern, value))] == []
    assert not list(spoiled(value))
    assert list(spoiled([{"n": {"text": "9007199254740993", "native": "9007199254740992"}}]))
