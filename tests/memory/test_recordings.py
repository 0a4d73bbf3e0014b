"""Recorded conversations with real providers, had again on threads: what is sent is what was sent then.

What is different is listed here, with the reason, and nothing of it is something a provider needs back.
"""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from entracte import Client
from entracte_server import App
from entracte_server.testing import serve
from tests.memory.recorded import Conversation, back_ends, conversations
from tests.models.support import SHARED
from tests.stores import default_store

pytestmark = pytest.mark.usefixtures("each_store")

OWN = Path(__file__).parent / "recordings"
OTHERS = SHARED / "recordings"

_SPACES = "The client wrote the arguments anew; here they go back as the model wrote them."
_COPY = "The client sends the same thinking a second time in another field."
_LOST = "The client left out a part of the answer, which goes back here."
_OWN_ID = "The answer has no id, so that each client makes one up."

DIFFERENT: dict[str, dict[str, str]] = {
    "006": {"messages.2.content": "Of three spaces, each a piece of the answer, the client kept one."},
    "028": {
        "messages.2.tool_calls.0.function.arguments": _SPACES,
        "messages.2.tool_calls.0.index": "The place of a call in a stream; the list itself says it.",
    },
    "052": {"messages.1.tool_calls.0.id": _OWN_ID, "messages.2.tool_call_id": _OWN_ID},
    "060": {"messages.2.content": "The client sends thinking as text, which the provider did not ask for."},
    "108": {"messages.2.reasoning_content": _COPY},
    "110": {"messages.1.reasoning_content": _COPY, "messages.5.reasoning_content": _COPY},
    "148": {"messages.2.reasoning_details.0.text": _LOST},
    "150": {"messages.2.reasoning": _COPY},
    "164": {
        "messages.2.reasoning_details.0.format": _LOST,
        "messages.2.tool_calls.0.function.arguments": _SPACES,
    },
    "170": {"messages.1.tool_calls.0.function.arguments": _SPACES},
    "188": {"messages.2.tool_calls.0.function.arguments": _SPACES},
    "198": {"messages.2.reasoning_details.0.id": _LOST},
}
"""By recording: where requests differ, and why."""

LEFT_OUT = {"060": (2, 3)}
"""By recording: recorded messages that are not sent. The provider refused the call that the model made, in
the middle of the answer. The client shows the model that call and what was wrong with it; here the answer
failed, and of that models are told nothing."""


async def differences(recorded: Sequence[Conversation]) -> dict[str, dict[str, Any]]:
    """Have all of them at once, and see where requests differ."""
    async with back_ends(list(recorded)) as providers:
        settings = {one.key: one.settings(providers[one.key].url) for one in recorded}
        app = App(agents=[one.agent() for one in recorded])
        where: dict[str, Any] = default_store()
        async with (
            serve(app, providers=settings, **where) as server,
            Client(server.address) as client,
            asyncio.TaskGroup() as group,
        ):
            for one in recorded:
                group.create_task(one.replay(providers[one.key], client))
        found = {one.key: one.differences(providers[one.key], LEFT_OUT.get(one.key, ())) for one in recorded}
    return {key: different for key, different in found.items() if different}


async def test_own() -> None:
    own = list(conversations(OWN))
    assert len(own) == 1
    assert await differences(own) == {}


@pytest.mark.skipif(not OTHERS.is_dir(), reason="the shared recordings are not here")
async def test_others() -> None:
    others = list(conversations(OTHERS))
    assert len(others) >= 25
    found = await differences(others)
    unexpected = {
        f"{key} {path}": values
        for key, paths in found.items()
        for path, values in paths.items()
        if path not in DIFFERENT.get(key, {})
    }
    assert unexpected == {}
    for values in (values for paths in found.values() for p, values in paths.items() if "arguments" in p):
        assert json.loads(values[0]) == json.loads(values[1])
    assert {key: set(paths) for key, paths in found.items()} == {k: set(p) for k, p in DIFFERENT.items()}
