"""The basic contract of a server with credentials: who is let in, to what, and who holds a call."""

from collections.abc import Callable
from typing import Any

import grpc
import pytest

from entracte.v1 import agent_service_pb2 as agents
from entracte.v1 import inbox_service_pb2 as inbox
from entracte.v1 import run_service_pb2 as runs
from tests.contract.support import Client
from tests.rpc.support import generate, ref

KEYS: list[dict[str, Any]] = [
    {"key": "key-of-ada-0123", "principal": "ada"},
    {"key": "key-of-bob-0123", "principal": "bob", "roles": ["decide"]},
    {"key": "key-of-eve-0123", "principal": "eve", "tenant": "elsewhere"},
]
ADA, BOB, EVE = (key["key"] for key in KEYS)


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    """A server that wants credentials."""
    return {"api_keys": KEYS}


Connect = Callable[[str], Client]


@pytest.fixture
def connect(grpc_channel: grpc.Channel) -> Connect:
    """Clients with a key, on the plugin's channel."""
    return lambda key: Client(grpc_channel, key)


@pytest.mark.parametrize("key", ["", "key-of-nobody"])
def test_without_a_valid_key_nothing_is_served(connect: Connect, key: str) -> None:
    """UNAUTHENTICATED, without a word about what is wrong."""
    refusal = connect(key).refuse("Generate", generate())
    assert (refusal.code, refusal.reason, refusal.metadata) == ("UNAUTHENTICATED", "UNAUTHENTICATED", {})


def test_a_principal_without_the_role_is_refused(connect: Connect) -> None:
    """Who may decide may not start runs: PERMISSION_DENIED, with the role that is missing."""
    refusal = connect(BOB).refuse("Generate", generate())
    assert (refusal.code, refusal.reason) == ("PERMISSION_DENIED", "ROLE_REQUIRED")
    assert refusal.metadata == {"role": "run"}


def test_another_tenant_sees_nothing(connect: Connect) -> None:
    """What belongs to another tenant is refused exactly as what does not exist."""
    pending = connect(ADA).parked()
    eve = connect(EVE)
    request = runs.GetRunRequest(run_id=pending.run_id)
    assert eve.refuse("GetRun", request).reason == "RUN_NOT_FOUND"
    call = ref(pending.pending_call_id)
    assert eve.refuse("Approve", agents.ApproveRequest(call=call)).reason == "PENDING_CALL_NOT_FOUND"
    assert not eve.one("ListPendingCalls", inbox.ListPendingCallsRequest()).pending_calls


def test_a_claimed_call_is_decided_by_who_claimed_it(connect: Connect) -> None:
    """Others can neither claim nor decide it, and are told who can, until it is released."""
    ada, bob = connect(ADA), connect(BOB)
    name = ada.parked().pending_call_id
    ada.one("ClaimPendingCall", inbox.ClaimPendingCallRequest(pending_call_id=name))
    approve = agents.ApproveRequest(call=ref(name), wait=True)
    for refusal in (
        bob.refuse("ClaimPendingCall", inbox.ClaimPendingCallRequest(pending_call_id=name)),
        bob.refuse("ReleasePendingCall", inbox.ReleasePendingCallRequest(pending_call_id=name)),
        bob.refuse("Approve", approve),
    ):
        assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "PENDING_CALL_CLAIMED")
        assert (refusal.metadata["pending_call_id"], refusal.metadata["principal"]) == (name, "ada")
    ada.one("ReleasePendingCall", inbox.ReleasePendingCallRequest(pending_call_id=name))
    assert bob.one("Approve", approve).decision.principal == "bob"
