"""What a caller may say about expiry, what is refused, and who may declare an answer."""

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from entracte.v1 import json_pb2, options_pb2, pending_call_pb2
from entracte_server.app.settings import ApiKey
from tests.rpc.support import THEIRS, Refusal, generate, js, peer_of, serving, stream

ANSWER = pending_call_pb2.EXPIRY_ACTION_ANSWER


def expiring(seconds: float | None = 60, action: int = 0, **answers: str) -> options_pb2.PendingCallExpiry:
    expiry = options_pb2.PendingCallExpiry(action=action)  # type: ignore[arg-type]
    if seconds is not None:
        expiry.after.CopyFrom(Duration(seconds=int(seconds), nanos=round(seconds % 1 * 10**9)))
    for name, text in answers.items():
        expiry.default_answers[name].CopyFrom(json_pb2.Json(text=text))
    return expiry


FIELD = "options.pending_call_expiry"
WRONG: dict[str, tuple[options_pb2.PendingCallExpiry, str, str]] = {
    "no time": (expiring(None), f"{FIELD}.after", "is required"),
    "too short": (expiring(0.0001), f"{FIELD}.after", "must be from 0.001 s to 3.16224e+07 s"),
    "too long": (expiring(400 * 86400), f"{FIELD}.after", "must be from"),
    "an action of tomorrow": (expiring(60, 99), f"{FIELD}.action", "is not an action this server knows"),
    "answers without the action": (expiring(ask_user='"a"'), f"{FIELD}.default_answers", "goes with"),
    "the action without answers": (expiring(60, ANSWER), f"{FIELD}.default_answers", "goes with"),
    "no such tool": (
        expiring(60, ANSWER, nobody="1"),
        f"{FIELD}.default_answers.nobody",
        "the agent has no such tool",
    ),
    "no answer of that tool": (
        expiring(60, ANSWER, confirm='{"ok":"perhaps"}'),
        f"{FIELD}.default_answers.confirm",
        "does not fit the resume schema",
    ),
    "an approval": (
        expiring(60, ANSWER, pay="true"),
        f"{FIELD}.default_answers.pay",
        "an expiry approves nothing",
    ),
}


async def test_what_is_refused() -> None:
    async with serving() as (_, peer):
        for case, (expiry, field, words) in WRONG.items():
            refusal = await peer.refuse("Generate", generate("gate", pending_call_expiry=expiry))
            assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "REQUEST_INVALID"), case
            assert words in refusal.violations[field], (case, refusal)
        broken = expiring(60, ANSWER, ask_user="{")
        refusal = await peer.refuse("Stream", stream("gate", pending_call_expiry=broken))
        assert (refusal.reason, list(refusal.violations)) == (
            "JSON_INVALID",
            [f"{FIELD}.default_answers.ask_user.text"],
        )


async def test_fields_of_tomorrow_are_refused() -> None:
    async with serving() as (_, peer):
        expiry = options_pb2.PendingCallExpiry.FromString(expiring().SerializeToString() + b"\x98\x06\x01")
        refusal = await peer.refuse("Generate", generate("gate", pending_call_expiry=expiry))
        assert (refusal.code, refusal.reason) == ("UNIMPLEMENTED", "OPTION_UNSUPPORTED")
        assert refusal.metadata["field"] == f"{FIELD}.99"


async def test_what_is_shown() -> None:
    """With the pending call, from the moment it waits."""
    async with serving() as (_, peer):
        expiry = expiring(90, ANSWER, theirs='{"n": 1.0}')
        _, [call] = await peer.parked("hands-out", pending_call_expiry=expiry, client_tools=[THEIRS])
        assert call.on_expiry == ANSWER
        assert call.default_answer == js('{"n": 1.0}')
        assert call.expire_time.ToMilliseconds() - call.create_time.ToMilliseconds() == 90_000
        fail = expiring(0.001 * 90_000, pending_call_pb2.EXPIRY_ACTION_FAIL)
        _, [call] = await peer.parked("gate", pending_call_expiry=fail)
        assert call.on_expiry == pending_call_pb2.EXPIRY_ACTION_FAIL
        assert not call.HasField("default_answer")
        _, [call] = await peer.parked("gate")
        assert not call.HasField("expire_time")
        assert call.on_expiry == pending_call_pb2.EXPIRY_ACTION_UNSPECIFIED


@pytest.mark.parametrize(
    ("roles", "allowed"), [(["run"], False), (["run", "decide"], True)], ids=["may run", "may decide"]
)
async def test_an_answer_needs_the_role_to_decide(roles: Any, allowed: bool) -> None:
    """It is a decision, only later. To shorten the wait is not: a caller may cancel the run as well."""
    key = ApiKey.model_validate({"key": "key-of-alice", "principal": "alice", "roles": roles})
    async with serving(api_keys=[key]) as (server, _), peer_of(server.address, "key-of-alice") as peer:
        await peer.parked("suspends", pending_call_expiry=expiring())
        answering = generate("suspends", pending_call_expiry=expiring(60, ANSWER, confirm='{"ok":true}'))
        if allowed:
            response = await peer.one("Generate", answering)
            assert response.result.pending_calls[0].on_expiry == ANSWER
        else:
            refusal: Refusal = await peer.refuse("Generate", answering)
            assert (refusal.code, refusal.reason) == ("PERMISSION_DENIED", "ROLE_REQUIRED")
            assert refusal.metadata == {"role": "decide"}
