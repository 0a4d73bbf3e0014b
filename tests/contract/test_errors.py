"""The reasons of refusals: contract, server, documentation and SDK name the same ones with the same codes."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import grpc
import pytest

import entracte
from entracte import _errors
from entracte.v1 import errors_pb2
from entracte_server.domain.errors import Reason, Refusal
from entracte_server.rpc import status

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "ERROR_REASON_"
REASONS = [
    value.name.removeprefix(PREFIX) for value in errors_pb2.ErrorReason.DESCRIPTOR.values if value.number
]

OF_THE_SDK = {"ServerUnreachable", "DeadlineExceeded"}
"""Errors that no server sends: they are found out by the SDK itself."""


def in_the_contract() -> dict[str, tuple[str, set[str]]]:
    """The code and the names of the metadata of each reason, from the comments of the contract."""
    text = (ROOT / "proto" / "entracte" / "v1" / "errors.proto").read_text("utf-8")
    found = {}
    for comment, name in re.findall(rf"((?:^ *//.*\n)+) *{PREFIX}(\w+) = [1-9]", text, re.MULTILINE):
        words = " ".join(line.strip().removeprefix("//").strip() for line in comment.splitlines())
        metadata = re.search(r"Metadata: (.*?)\.(?: |$)", words)
        names = re.findall(r"`(\w+)`", metadata.group(1)) if metadata else []
        found[name] = (words.split(".")[0], set(names))
    return found


def in_the_docs() -> dict[str, tuple[str, set[str]]]:
    """The same from the table in the documentation."""
    text = (ROOT / "docs" / "errors.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (.*?) \| (.*?) \| (.*?) \|$", text, re.MULTILINE)
    return {reason: (code, set(re.findall(r"`(\w+)`", names))) for reason, code, _, names, _ in rows}


def below(cls: type[entracte.EntracteError]) -> Iterator[type[entracte.EntracteError]]:
    """All error classes below one."""
    for sub in cls.__subclasses__():
        if sub.__module__ == _errors.__name__:
            yield sub
            yield from below(sub)


def class_name(reason: str) -> str:
    """What a reason's class is called."""
    return "".join(word.capitalize() for word in reason.split("_"))


def test_the_domain_knows_the_reasons_of_the_contract() -> None:
    """All of them and no others, in the same order."""
    assert list(get_args(Reason)) == REASONS


def test_every_reason_has_one_code() -> None:
    """The server's codes are those that the contract and the documentation name."""
    codes = {reason: code.name for reason, code in status.CODES.items()}
    assert list(codes) == REASONS
    assert codes == {reason: code for reason, (code, _) in in_the_contract().items()}
    assert codes == {reason: code for reason, (code, _) in in_the_docs().items()}


def test_the_documentation_names_the_metadata_of_the_contract() -> None:
    """For each reason, the same names."""
    assert list(in_the_docs()) == REASONS
    assert in_the_docs() == in_the_contract()


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_has_its_class_in_the_sdk(reason: str) -> None:
    """Named after it, public, below the class of its code, which is the class's own."""
    code = status.CODES[reason].name
    cls = getattr(entracte, class_name(reason))
    parent = getattr(entracte, class_name(code))
    assert issubclass(cls, parent)
    assert cls.code == parent.code == code
    assert class_name(reason) in entracte.__all__


def test_the_sdk_has_no_class_for_what_cannot_happen() -> None:
    """Each class is a reason's, a code's that a reason has, or of the SDK alone."""
    known = {class_name(reason) for reason in REASONS}
    known |= {class_name(code.name) for code in status.CODES.values()}
    of_streams = {"StreamError", *(cls.__name__ for cls in below(_errors.StreamError))}
    assert {cls.__name__ for cls in below(entracte.EntracteError)} == known | of_streams | OF_THE_SDK


def test_the_tree_in_the_sdk_is_the_tree_of_its_classes() -> None:
    """The documentation at the head of the module shows every class below its parent."""
    shown: dict[str, str] = {}
    above: list[str] = []
    for line in (_errors.__doc__ or "").splitlines():
        if match := re.match(r"( +[│ ]*(?:[├└]─ )?)([A-Z]\w+)", line):
            depth = (len(match.group(1)) - 4) // 4
            above[depth:] = [match.group(2)]
            shown[match.group(2)] = above[depth - 1] if depth else ""
    assert shown.pop("EntracteError") == ""
    assert shown == {cls.__name__: cls.__mro__[1].__name__ for cls in below(entracte.EntracteError)}


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_makes_a_status(reason: Reason) -> None:
    """With its code, its name and the domain, whatever else is in it."""
    made = status.status(Refusal(reason, "words", retry_after=1.5, run_id="r"))
    [info, retry] = made.details
    assert grpc.StatusCode[status.CODES[reason].name].value[0] == made.code
    assert info.TypeName() == "google.rpc.ErrorInfo"
    assert retry.TypeName() == "google.rpc.RetryInfo"
    assert reason.encode() in info.value
    assert status.DOMAIN.encode() in info.value
