"""The failure cases this service is held to, and where each is tested.

The cases were collected from public trackers of systems like this one. Each has a test in this folder
whose docstring begins with its id; those whose feature does not exist yet say what they wait for.
"""

import ast
import functools
import re
from collections import Counter
from pathlib import Path

import pytest

SUB_AGENTS = "waits for sub-agents"

NUMBERS = {
    "SR": "01 02 03 04 05 06 07 08 09 10 12 16 18 19 22 23 24 27 28 29 30 31 32",
    "AP": "01 02 03 04 07 08 15 16 17 18",
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
"""Cases with a test here. Of some a part waits as well; the docstring of their test says which."""

NOT_DUE = {
    "SR-20": SUB_AGENTS,
    "AP-09": SUB_AGENTS,
    "AP-11": SUB_AGENTS,
    "AP-12": SUB_AGENTS,
}
"""Cases without a test, and why."""

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
    assert len(DUE) + len(NOT_DUE) == 105
    assert len({*DUE, *NOT_DUE}) == 105
    assert all(ID.fullmatch(case) for case in (*DUE, *NOT_DUE))


@pytest.mark.parametrize("case", DUE)
def test_a_case_that_is_due_has_a_test(case: str) -> None:
    """A case is due when what it is about exists."""
    assert named()[case] >= 1


@pytest.mark.parametrize("case", NOT_DUE)
def test_a_case_that_is_not_due_has_none(case: str) -> None:
    """The day it has a test, it belongs to the others."""
    assert NOT_DUE[case]
    assert not named()[case]


def test_every_test_names_its_case() -> None:
    """A test of this folder that names no case, or one that does not exist, is in the wrong place."""
    unknown = set(named()) - {*DUE, *NOT_DUE}
    assert not unknown
    for file in Path(__file__).parent.glob("test_*.py"):
        if file.name == Path(__file__).name:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"):
                head = (ast.get_docstring(node) or "").partition(":")[0]
                assert ID.findall(head), f"{file.name}: {node.name}"
