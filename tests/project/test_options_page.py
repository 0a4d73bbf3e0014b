"""The page that lists every option and result field is complete, and its tests are there."""

import re

from entracte.v1 import generate_result_pb2, options_pb2
from entracte_server.rpc.options import SUPPORTED
from tests.project.test_docs import ROOT

PAGE = (ROOT / "docs/options.md").read_text("utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and "::" in line]


def test_every_row_has_a_test_that_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) > len(ROWS)
    for path, name in named:
        assert re.search(rf"^ *(async )?def {name}\(", (ROOT / path).read_text("utf-8"), re.MULTILINE), name
    for line in PAGE.splitlines():
        if line.startswith("| ") and "there | here" not in line and not line.startswith("| ---"):
            assert "::" in line, line


def test_every_option_has_a_row() -> None:
    """Those that are supported; the others are named as not there yet."""
    rows = "\n".join(ROWS)
    above = PAGE.partition("### Not there yet")[0]
    for field in options_pb2.GenerateOptions.DESCRIPTOR.fields:
        where = above if field.name in SUPPORTED else PAGE
        assert f"`{field.name}`" in where, field.name
        if field.name in SUPPORTED:
            assert f"`{field.name}`" in rows, field.name


def test_every_field_of_a_result_has_a_row() -> None:
    result = PAGE.partition("## Result")[2]
    for field in generate_result_pb2.GenerateResult.DESCRIPTOR.fields:
        assert any(f"`{field.name}`" in line for line in result.splitlines() if line.startswith("|")), (
            field.name
        )
