"""Deciding a pending call that has expired, in the name of the server."""

from typing import TYPE_CHECKING

import msgspec
import structlog

from entracte_server.agents.tools import Tool
from entracte_server.domain.chunks import PendingKind
from entracte_server.domain.errors import Refusal
from entracte_server.domain.expiry import SYSTEM, OnExpiry
from entracte_server.domain.ids import new_id
from entracte_server.domain.options import ClientTool
from entracte_server.domain.runs import CallRow, DecisionRow, Outcome, PendingRow, Resolution, RunRow
from entracte_server.engine import decisions
from entracte_server.engine.expiry import EXPIRED
from entracte_server.store.base import Decide, NotFound

if TYPE_CHECKING:
    from entracte_server.engine.engine import Engine

_log = structlog.get_logger(__name__)

PATIENCE = 600.0
"""Seconds for which a declared answer is left to a process that has the tool. Then the call is declined."""

_DECLINED: dict[PendingKind, str] = {
    "approval": "Nobody approved the call in time. It was declined and not executed.",
    "suspension": "Nobody answered in time. The call was declined.",
    "client-tool": "The client did not execute the call in time. It was declined.",
    "recovery": "The server stopped while the tool ran, and nobody said in time whether it had taken "
    "effect. It may have.",
}


async def decide_expired(engine: "Engine", pending: PendingRow, now: int) -> bool:
    """Decide a call that has expired, as of `now` (ms), in the name of the server. False when it has to
    be left to another process.

    Raises `Refusal` and what the store raises: `Refused` or `NotFound` when somebody was quicker.
    """
    run, found, _ = await engine.store.pending_of_run(pending.tenant, pending.run_id, pending.call_id)
    call = next((call for row, call in found if row.pending_call_id == pending.pending_call_id), None)
    if call is None:
        raise NotFound(f"pending call {pending.pending_call_id} was decided meanwhile")
    try:
        agent = await decisions.agent_of(engine, run, pending)
    except Refusal:
        return False
    tool = await decisions.tool_of(engine, agent, run, pending, call)
    decision_id = new_id()
    call = msgspec.structs.replace(
        call,
        state="decided",
        resolution=Resolution(
            pending.pending_call_id,
            decision_id,
            "expire",
            SYSTEM,
            kind=pending.kind,
            opened=pending.create_time,
            decided=now,
        ),
    )
    on_expiry = pending.on_expiry or OnExpiry("decline", "agent")
    settled, done = _settled(tool, run, pending, call, on_expiry)
    if settled is None:
        if now < pending.expire_time + PATIENCE * 1000:
            return False
        on_expiry = OnExpiry("decline", on_expiry.source)
        settled, done = _declined(pending, call), "declined, because nobody has the tool for the answer"
    who = f"the request of {run.principal}" if on_expiry.source == "request" else f"the {on_expiry.source}"
    decision = DecisionRow(
        tenant=pending.tenant,
        decision_id=decision_id,
        pending_call_id=pending.pending_call_id,
        run_id=pending.run_id,
        call_id=pending.call_id,
        tool_name=pending.tool_name,
        verb="expire",
        principal=SYSTEM,
        decide_time=now,
        args=pending.args,
        data=on_expiry.answer,
        reason=f"Expired: {done}. The expiry was declared by {who}.",
    )
    started = None
    if settled.outcome is None and not settled.redefined:
        started = msgspec.structs.replace(settled, state="started", key=settled.key or new_id())
    await engine.decide(Decide(decision, settled, engine.owner, started, expiry=True))
    return True


def _settled(
    tool: Tool | ClientTool | None, run: RunRow, pending: PendingRow, call: CallRow, on_expiry: OnExpiry
) -> tuple[CallRow | None, str]:
    """The call after what was declared, and what that is in words; None when an answer cannot be given
    here, because the tool is not there."""
    if on_expiry.action == "fail":
        outcome = Outcome("error", f"Nobody decided the call of {pending.tool_name} in time.", EXPIRED)
        return msgspec.structs.replace(call, outcome=outcome), "the run fails"
    if on_expiry.action == "answer" and on_expiry.answer is not None:
        if pending.kind == "client-tool":
            return msgspec.structs.replace(call, outcome=Outcome("result", on_expiry.answer)), "answered"
        try:
            answered = decisions.resumed(tool, run, pending, call, on_expiry.answer)
            return msgspec.structs.replace(answered, defaulted=True), "answered"
        except Refusal as refusal:
            if refusal.reason == "TOOL_UNAVAILABLE":
                return None, ""
        except BaseException:  # a validator is its author's code, which may raise anything
            _log.exception("default_answer_refused", run_id=run.run_id, tool=pending.tool_name)
        return _declined(pending, call), "declined, because the answer does not fit the tool any more"
    return _declined(pending, call), "declined"


def _declined(pending: PendingRow, call: CallRow) -> CallRow:
    told = _DECLINED[pending.kind]
    outcome = (
        Outcome("error", told, "recovery")
        if pending.kind == "recovery"
        else Outcome("denied", told, reason_json='{"expired":true}')
    )
    return msgspec.structs.replace(call, outcome=outcome)
