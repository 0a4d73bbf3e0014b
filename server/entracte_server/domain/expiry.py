"""What becomes of a pending call that nobody decides in time.

An expiry may decline a call, fail its run, or give an answer that was declared beforehand. It never
approves anything.
"""

from collections.abc import Mapping
from typing import Literal

from entracte_server.domain.data import Data

ExpiryAction = Literal["decline", "fail", "answer"]
ExpirySource = Literal["tool", "agent", "request"]

SYSTEM = "system"
"""The principal of what the server decides by itself."""


class Expiry(Data, frozen=True):
    """How long a call may wait, in seconds from when it is shown, and what happens then. `answer` is
    JSON text, with action `answer`."""

    after: float
    action: ExpiryAction = "decline"
    answer: str | None = None


class RunExpiry(Data, frozen=True):
    """What a caller declares for all pending calls of a run. `answers` are JSON texts by tool name, with
    action `answer`: resume data for a tool of the agent, a result for a client tool. Calls without one
    are declined."""

    after: float
    action: ExpiryAction = "decline"
    answers: Mapping[str, str] = {}


class OnExpiry(Data, frozen=True):
    """What happens to one pending call when it expires, settled when it was shown: who declared it, what
    it is, and with action `answer` the answer."""

    action: ExpiryAction
    source: ExpirySource
    answer: str | None = None
