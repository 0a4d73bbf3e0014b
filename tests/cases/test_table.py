"""The failure cases this service is held to, and where each is tested.

The cases were collected from public trackers of systems like this one. Each has a test in this folder
whose docstring begins with its id.
"""

import ast
import functools
import re
from collections import Counter
from pathlib import Path

import pytest

NUMBERS = {
    "SR": "01 02 03 04 05 06 07 08 09 10 12 16 18 19 20 22 23 24 27 28 29 30 31 32",
    "AP": "01 02 03 04 07 08 09 11 12 15 16 17 18",
    "AQ": "01 02",
    "ST": "01 02 04 05 06 07 10 11 12",
    "MW": "01 03 04 05 06 07 08 09 10 11 12 14 15 16 17 18 19 21 22 26 27 28 29 30",
    "CT": "01 02 03 04 05 07 08 09",
    "TO": "01 03 04",
    "PS": "02 03 04 06 07 08 10",
    "ME": "01 02 03 04",
    "AU": "01 02",
    "SO": "02 03",
    "GR": "01 05 06 07 08 09 10",
}
DUE = [f"{family}-{number}" for family, numbers in NUMBERS.items() for number in numbers.split()]
"""The cases, each with a test here."""

ID = re.compile(r"\b(?:SR|AP|AQ|ST|MW|CT|TO|PS|ME|AU|GR|SO)-\d\d\b")


@functools.cache
def named() -> Counter[str]:
    """How many tests name each case at the beginning of their docstring."""
    found: Counter[str] = Counter()
    for file in Path(__file__).parent.glob("test_*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"):
                head = (ast.get_docstring(node) or "").partition(":")[0]
                found.update(ID.findall(head))
    return found


def test_the_table_is_complete() -> None:
    """All hundred and five cases are in the table, each once."""
    assert len(DUE) == 105
    assert len(set(DUE)) == 105
    assert all(ID.fullmatch(case) for case in DUE)


@pytest.mark.parametrize("case", DUE)
def test_a_case_has_a_test(case: str) -> None:
    """At least one."""
    assert named()[case] >= 1


def test_every_test_names_its_case() -> None:
    """A test of this folder that names no case, or one that does not exist, is in the wrong place."""
    unknown = set(named()) - set(DUE)
    assert not unknown
    for file in Path(__file__).parent.glob("test_*.py"):
        if file.name == Path(__file__).name:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"):
                head = (ast.get_docstring(node) or "").partition(":")[0]
                assert ID.findall(head), f"{file.name}: {node.name}"
