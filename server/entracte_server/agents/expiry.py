"""How authors say what becomes of a call that nobody decides in time."""

import math
from datetime import timedelta
from typing import Any, Literal

from entracte_server.agents import schemas
from entracte_server.domain import json_text
from entracte_server.domain.expiry import Expiry

MAX_SECONDS = 366 * 86400.0
"""The longest a call may be told to wait; without an expiry it waits for ever."""


class DefaultAnswer:
    """The answer a tool is given when nobody answers in time: `on_expiry=DefaultAnswer({"ok": False})`.

    `value` is JSON, or a pydantic model. Raises `TypeError` or `ValueError` when it is not.
    """

    def __init__(self, value: Any) -> None:
        self.text = json_text.dump(value)
        json_text.parse(self.text)

    def __repr__(self) -> str:
        return f"DefaultAnswer({self.text[:200]})"


WhatThen = Literal["decline", "fail"] | DefaultAnswer
"""What happens to a call that expires: it is declined, its run fails, or an answer is given."""


def expiry_from(expires_after: float | timedelta | None, on_expiry: WhatThen) -> Expiry | None:
    """What an author declared; None for nothing. `expires_after` is in seconds, or a `timedelta`.

    Raises `ValueError` for a time that is none, and for an `on_expiry` without it.
    """
    if expires_after is None:
        if on_expiry != "decline":
            raise ValueError("on_expiry needs expires_after: without it a call waits for ever")
        return None
    after = expires_after.total_seconds() if isinstance(expires_after, timedelta) else float(expires_after)
    if not math.isfinite(after) or not 0 < after <= MAX_SECONDS:
        raise ValueError(f"expires_after must be more than 0 and at most {MAX_SECONDS:.0f} seconds")
    if isinstance(on_expiry, DefaultAnswer):
        return Expiry(after, "answer", on_expiry.text)
    if on_expiry not in ("decline", "fail"):
        raise ValueError(f"on_expiry is 'decline', 'fail' or a DefaultAnswer, not {on_expiry!r}")
    return Expiry(after, on_expiry)


def check_answer(resume_schema: str | None, answer: str) -> None:
    """Raises `ValueError` when the default answer `answer` does not fit the schema of answers."""
    if resume_schema is None:
        return
    try:
        schemas.check(resume_schema, json_text.parse(answer))
    except schemas.InvalidValue as error:
        raise ValueError(f"the default answer does not fit the resume schema: {error}") from None
