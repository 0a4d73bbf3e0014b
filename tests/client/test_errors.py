"""Errors: one class for each reason of the contract, below the class of its code."""

import re
from datetime import timedelta
from pathlib import Path

import grpc
import pytest

import entracte
from entracte import Client, EntracteError
from entracte.v1 import errors_pb2
from tests.client.fake import FakeServer, Refuse

PROTO = Path(__file__).parents[2] / "proto" / "entracte" / "v1" / "errors.proto"


def codes() -> dict[str, str]:
    """The status code of each reason, from the comments of the contract."""
    found: dict[str, str] = {}
    comment = ""
    for line in PROTO.read_text().splitlines():
        text = line.strip()
        if text.startswith("//"):
            comment += text.removeprefix("//")
        elif value := re.match(r"ERROR_REASON_([A-Z_]+) = [1-9]", text):
            code = re.match(r" ([A-Z_]+)\.", comment)
            assert code is not None, comment
            found[value.group(1)] = code.group(1)
        if not text.startswith("//"):
            comment = ""
    return found


def test_every_reason_is_in_the_table() -> None:
    reasons = {name.removeprefix("ERROR_REASON_") for name in dict(errors_pb2.ErrorReason.items())}
    assert set(codes()) == reasons - {"UNSPECIFIED"}


@pytest.mark.parametrize(("reason", "code"), codes().items())
async def test_each_reason_has_its_class(reason: str, code: str) -> None:
    name = "".join(word.capitalize() for word in reason.split("_"))
    cls = getattr(entracte, name)
    async with FakeServer().running() as server, Client(server.address) as client:
        server.plans["GetRun"] = [Refuse(grpc.StatusCode[code], reason, "words", {"run_id": "r1"})] * 4
        with pytest.raises(EntracteError) as caught:
            await client.runs.get("r1")
    error = caught.value
    assert type(error) is cls
    assert (error.code, error.reason, error.message) == (code, reason, "words")
    assert error.metadata == {"run_id": "r1"}
    assert str(error) == f"{reason}: words"
    assert cls.code == code


async def test_details_are_attached(server: FakeServer, client: Client) -> None:
    server.plans["GetRun"] = [
        Refuse(
            grpc.StatusCode.INVALID_ARGUMENT,
            "REQUEST_INVALID",
            "look at the fields",
            violations={"run_id": "is required", "omit_result": "is odd"},
            retry_after=1.5,
        )
    ]
    with pytest.raises(entracte.RequestInvalid) as caught:
        await client.runs.get("")
    error = caught.value
    assert [(violation.field, violation.description) for violation in error.violations] == [
        ("run_id", "is required"),
        ("omit_result", "is odd"),
    ]
    assert error.retry_after == timedelta(seconds=1.5)
    assert "run_id: is required" in str(error)
    assert isinstance(error.__cause__, grpc.aio.AioRpcError)


@pytest.mark.parametrize(
    ("code", "reason", "cls"),
    [
        ("NOT_FOUND", "WORKER_NOT_FOUND", entracte.NotFound),  # of a later version
        ("FAILED_PRECONDITION", "", entracte.FailedPrecondition),
        ("INTERNAL", "", entracte.Internal),
        ("UNKNOWN", "", EntracteError),
        ("DATA_LOSS", "", EntracteError),
        ("NOT_FOUND", "RUN_FINISHED", entracte.NotFound),  # a code that the reason does not have
        ("UNAVAILABLE", "", entracte.ServerUnreachable),
        ("UNAVAILABLE", "SOMETHING_NEW", entracte.Unavailable),
        ("UNIMPLEMENTED", "", entracte.Unimplemented),
    ],
)
async def test_what_is_not_known_is_the_closest_class(
    server: FakeServer, client: Client, code: str, reason: str, cls: type[EntracteError]
) -> None:
    server.plans["GetRun"] = [Refuse(grpc.StatusCode[code], reason)] * 4
    with pytest.raises(EntracteError) as caught:
        await client.runs.get("r1")
    assert type(caught.value) is cls
    assert (caught.value.code, caught.value.reason) == (code, reason)


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = re.findall(r"[├└]─ (\w+)", entracte._errors.__doc__ or "")

    def names(cls: type[EntracteError]) -> list[str]:
        return [name for child in cls.__subclasses__() for name in (child.__name__, *names(child))]

    assert sorted(drawn) == sorted(names(EntracteError))
    assert all(getattr(entracte, name).__doc__ for name in drawn)
