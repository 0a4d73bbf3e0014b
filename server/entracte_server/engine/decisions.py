"""Decisions: from what a caller sent to the change that is committed, with every check made before.

A decision names a pending call by its own id, by run and tool call, or by the run alone where that
cannot be misunderstood. What is checked here is checked against the frozen pending call; that the
call is still open is checked by the store, in the statement that settles it.
"""

import datetime as dt
import hmac
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from entracte_server.agents import schemas
from entracte_server.agents.agent import Agent
from entracte_server.agents.schemas import InvalidValue
from entracte_server.agents.tools import Tool
from entracte_server.domain import json_text
from entracte_server.domain.chunks import PendingKind, Verb
from entracte_server.domain.data import Data
from entracte_server.domain.errors import FieldViolation, Reason, Refusal
from entracte_server.domain.ids import new_id
from entracte_server.domain.options import ClientTool
from entracte_server.domain.results import Usage
from entracte_server.domain.runs import (
    TERMINAL,
    CallRow,
    DecisionRow,
    Outcome,
    PendingRow,
    Resolution,
    RunRow,
)
from entracte_server.domain.threads import ThreadMessage
from entracte_server.engine import claiming, spending
from entracte_server.engine.runlog import now_ms
from entracte_server.engine.settle import validate
from entracte_server.engine.stored_agents import Lacking
from entracte_server.store.base import Decide, Decided, NotFound, Refused, RequestKey

if TYPE_CHECKING:
    from entracte_server.engine.engine import Engine

MAX_LISTED = 32
"""Ids listed in a refusal; the rest is in the inbox."""

DEFAULT_DECLINE = "The call was declined."

VERBS: dict[PendingKind, tuple[Verb, ...]] = {
    "approval": ("approve", "decline"),
    "suspension": ("resume", "decline"),
    "client-tool": ("submit", "decline"),
    "recovery": ("submit", "approve", "decline"),
}
"""Which verbs fit which kind of call."""


class Ref(Data, frozen=True):
    """How a caller names a pending call; see `CallRef` in the contract."""

    pending_call_id: str = ""
    run_id: str = ""
    tool_call_id: str = ""


class Verdict(Data, frozen=True):
    """What a caller decided. JSON values are text that was checked to be JSON.

    approve: `edited_args`, `args_digest`. decline: `reason`, `reason_json`. resume: `data`.
    submit: `data`, or `error`.
    """

    verb: Verb
    edited_args: str | None = None
    args_digest: bytes = b""
    reason: str = ""
    reason_json: str | None = None
    data: str | None = None
    error: str | None = None
    comment: str = ""
    on_behalf_of: str = ""


async def decide(
    engine: "Engine",
    *,
    tenant: str,
    principal: str,
    ref: Ref,
    verdict: Verdict,
    request: RequestKey | None,
    found: Callable[[str], None] | None = None,
    messages: tuple[ThreadMessage, ...] = (),
    spent: Mapping[str, Usage] | None = None,
) -> Decided:
    """Decide a pending call. Raises `Refusal`; then nothing was changed.

    `found` is called with the run's id before anything is, so that all that follows can be followed.
    `messages` are added to the run's thread with the decision, and what models used to come to it, `spent`,
    by their names, to what the run used.

    A repeated request is recognised by its id. That costs a look only when it would be refused: a
    first one is never refused for having been decided.
    """
    try:
        return await _decide(engine, tenant, principal, ref, verdict, request, found, messages, spent or {})
    except Refusal:
        made = await engine.store.find_request(request) if request is not None else None
        if made is None:
            raise
    decision = await engine.store.get_decision(tenant, made.decision_id)
    return Decided(await engine.store.get_run(tenant, made.run_id), decision, made=made)


async def _decide(
    engine: "Engine",
    tenant: str,
    principal: str,
    ref: Ref,
    verdict: Verdict,
    request: RequestKey | None,
    found: Callable[[str], None] | None,
    messages: tuple[ThreadMessage, ...],
    spent: Mapping[str, Usage],
) -> Decided:
    run, pending, call = await _find(engine, tenant, ref)
    if found is not None:
        found(run.run_id)
    _check_fits(pending, verdict)
    decision = DecisionRow(
        tenant=tenant,
        decision_id=new_id(),
        pending_call_id=pending.pending_call_id,
        run_id=pending.run_id,
        call_id=pending.call_id,
        tool_name=pending.tool_name,
        verb=verdict.verb,
        principal=principal,
        decide_time=now_ms(),
        args=pending.args,
        edited_args=verdict.edited_args,
        data=verdict.data if verdict.error is None else json_text.dump(verdict.error),
        is_error=verdict.error is not None,
        reason=verdict.reason,
        reason_json=verdict.reason_json,
        comment=verdict.comment,
        on_behalf_of=verdict.on_behalf_of,
        request_id=request.request_id if request is not None else "",
        args_digest=verdict.args_digest,
    )
    decided_call = await _apply(engine, run, pending, call, decision, verdict)
    if spent:
        decided_call = spending.added(decided_call, spent, engine.app.prices)
    started = None
    if decided_call.outcome is None and not decided_call.redefined:
        started = msgspec.structs.replace(decided_call, state="started", key=decided_call.key or new_id())
    op = Decide(decision, decided_call, engine.owner, started, request, messages=messages)
    try:
        return await engine.decide(op)
    except Refused as refused:
        raise refusal_of(pending, refused) from None
    except NotFound:
        raise _not_found(ref) from None


def _not_found(ref: Ref) -> Refusal:
    refusal = Refusal("PENDING_CALL_NOT_FOUND", "There is no such pending call.")
    refusal.metadata.update((k, v) for k, v in msgspec.structs.asdict(ref).items() if v)
    return refusal


def already_decided(pending: PendingRow, decision: DecisionRow | None) -> Refusal:
    """The refusal of a second decision, with who decided what and when."""
    when = who = ""
    if decision is not None:
        who = f" by {decision.principal[:200]} ({decision.verb})"
        moment = dt.datetime.fromtimestamp(decision.decide_time / 1000, dt.UTC)
        when = f" at {moment.isoformat(timespec='seconds')}"
    refusal = Refusal(
        "PENDING_CALL_ALREADY_DECIDED",
        f"The call was decided before{who}{when}.",
        pending_call_id=pending.pending_call_id,
    )
    if decision is not None:
        refusal.metadata.update(
            decision_id=decision.decision_id,
            verb=decision.verb,
            principal=decision.principal,
            decide_time=str(decision.decide_time),
        )
    return refusal


def refusal_of(pending: PendingRow, refused: Refused) -> Refusal:
    """Why a decision on `pending`, or a claim of it, was refused."""
    pending = refused.pending or pending
    pending_call_id = pending.pending_call_id
    if refused.cause == "expired":
        return Refusal(
            "PENDING_CALL_EXPIRED",
            "The call expired before it was decided.",
            pending_call_id=pending_call_id,
            expire_time=str(pending.expire_time),
        )
    if refused.cause == "claimed":
        return Refusal(
            "PENDING_CALL_CLAIMED",
            f"{pending.claimed_by} is deciding this call.",
            pending_call_id=pending_call_id,
            principal=pending.claimed_by,
            expire_time=str(pending.claimed_until),
        )
    if refused.cause == "finished" and refused.run is not None:
        return _finished(refused.run)
    return already_decided(pending, refused.decision)


def _finished(run: RunRow) -> Refusal:
    return Refusal("RUN_FINISHED", f"The run has ended ({run.state}).", run_id=run.run_id, state=run.state)


async def _find(engine: "Engine", tenant: str, ref: Ref) -> tuple[RunRow, PendingRow, CallRow]:
    """The pending call that is meant, open."""
    store = engine.store
    if ref.pending_call_id:
        try:
            it = await store.find_pending(tenant, ref.pending_call_id)
        except NotFound:
            raise _not_found(ref) from None
        if ref.run_id not in ("", it.pending.run_id) or ref.tool_call_id not in ("", it.pending.call_id):
            raise _not_found(ref)
        if it.pending.state != "open":
            raise already_decided(it.pending, it.decision)
        return it.run, it.pending, it.call
    try:
        run, found, decided = await store.pending_of_run(tenant, ref.run_id, ref.tool_call_id)
    except NotFound:
        raise Refusal("RUN_NOT_FOUND", "There is no such run.", run_id=ref.run_id) from None
    if len(found) == 1 and (ref.tool_call_id or decided == 0):
        return run, *found[0]
    if not found:
        if ref.tool_call_id:
            last = await store.latest_decision(tenant, ref.run_id, ref.tool_call_id)
            if last is not None:
                pending, _ = await store.get_pending(tenant, last.pending_call_id)
                raise already_decided(pending, last)
            raise _not_found(ref)
        if run.state in TERMINAL:
            raise _finished(run)
        raise _not_found(ref)
    raise Refusal(
        "PENDING_CALL_AMBIGUOUS",
        "More than one call could be meant: name it by pending_call_id.",
        run_id=ref.run_id,
        pending_call_ids=",".join(row.pending_call_id for row, _ in found[:MAX_LISTED]),
    )


def _check_fits(pending: PendingRow, verdict: Verdict) -> None:
    if verdict.verb not in VERBS[pending.kind]:
        raise Refusal(
            "VERB_MISMATCH",
            f"A call that waits for {pending.kind} takes {' or '.join(VERBS[pending.kind])}, "
            f"not {verdict.verb}.",
            pending_call_id=pending.pending_call_id,
            kind=pending.kind,
            verbs=",".join(VERBS[pending.kind]),
        )
    if verdict.args_digest and not hmac.compare_digest(verdict.args_digest, pending.args_digest):
        raise Refusal(
            "ARGS_DIGEST_MISMATCH",
            "The arguments are not those that were shown.",
            pending_call_id=pending.pending_call_id,
        )


def _violating(reason: Reason, field: str, error: Exception) -> Refusal:
    violations = (
        tuple(FieldViolation(field + v.pointer, v.message) for v in error.violations)
        if isinstance(error, InvalidValue)
        else (FieldViolation(field, str(error)),)
    )
    first = violations[0]
    return Refusal(reason, f"{first.field}: {first.description}", violations=violations)


async def _apply(
    engine: "Engine",
    run: RunRow,
    pending: PendingRow,
    call: CallRow,
    decision: DecisionRow,
    verdict: Verdict,
) -> CallRow:
    """The call's row after the decision. Raises `Refusal` when the decision does not fit it, or when
    nobody here could go on with the run."""
    agent = await agent_of(engine, run, pending)
    call = msgspec.structs.replace(
        call,
        state="decided",
        resolution=Resolution(
            pending.pending_call_id,
            decision.decision_id,
            verdict.verb,
            decision.principal,
            edited=verdict.edited_args is not None,
            kind=pending.kind,
            opened=pending.create_time,
            decided=decision.decide_time,
        ),
    )
    if verdict.verb == "decline":
        reason = verdict.reason if verdict.reason.strip() else DEFAULT_DECLINE
        outcome = Outcome("denied", reason, reason_json=verdict.reason_json)
        return msgspec.structs.replace(call, outcome=outcome)
    if verdict.verb == "submit":
        if verdict.error is not None:
            return msgspec.structs.replace(call, outcome=Outcome("error", verdict.error, "exception"))
        return msgspec.structs.replace(call, outcome=Outcome("result", verdict.data or "null"))
    if verdict.verb == "resume":
        tool = await tool_of(engine, agent, run, pending, call)
        return resumed(tool, run, pending, call, verdict.data or "null")
    tool = await tool_of(engine, agent, run, pending, call)
    return _approved(tool, run, pending, call, verdict.edited_args)


async def agent_of(engine: "Engine", run: RunRow, pending: PendingRow) -> Agent:
    """The agent whose call waits, in a process that can go on with all of its run. Raises `Refusal`
    AGENT_UNAVAILABLE, STORE_UNAVAILABLE."""
    try:
        tree = await engine.agents.tree_of(run, pending)
    except Lacking as lacking:
        raise _agent_unavailable(run, run.agent_id, f"The run cannot go on here: {lacking}") from None
    agent = tree.agents.get(pending.agent_id)
    if agent is None:
        what = f"The agent {pending.agent_id!r} is not registered here"
        raise _agent_unavailable(run, pending.agent_id, what)
    missing = engine.lacks(pending.needs)
    if missing is None:  # others of the tree may wait, too
        missing = await claiming.lacking_below(engine, run, tree.agent)
    if missing is not None:
        what = f"The run needs the {missing}, which is not registered here"
        raise _agent_unavailable(run, run.agent_id, what)
    return agent


def _agent_unavailable(run: RunRow, agent_id: str, what: str) -> Refusal:
    return Refusal(
        "AGENT_UNAVAILABLE", f"{what}; the run stays parked.", run_id=run.run_id, agent_id=agent_id
    )


async def tool_of(
    engine: "Engine", agent: Agent, run: RunRow, pending: PendingRow, call: CallRow
) -> Tool | ClientTool | None:
    """The tool of a pending call as it is registered here now. Whether that of an MCP server is still the
    same is seen to when it is called."""
    if call.definition is not None:
        return engine.toolsets.remote(call.definition)
    tool = agent.tools.get(pending.tool_name)
    if tool is not None:
        return tool
    snapshot = await engine.store.load(run.tenant, call.run_id or run.run_id)
    return engine.toolsets.tools_of(agent, snapshot.spec.options).get(pending.tool_name)


def _unavailable(run: RunRow, pending: PendingRow) -> Refusal:
    return Refusal(
        "TOOL_UNAVAILABLE",
        f"The tool {pending.tool_name!r} is not registered here; the run stays parked.",
        run_id=run.run_id,
        agent_id=pending.agent_id,
        tool_name=pending.tool_name,
    )


def resumed(
    tool: Tool | ClientTool | None, run: RunRow, pending: PendingRow, call: CallRow, data: str
) -> CallRow:
    """The call's row with an answer. Raises `Refusal` TOOL_UNAVAILABLE, RESUME_DATA_INVALID."""
    if not isinstance(tool, Tool):
        raise _unavailable(run, pending)
    try:
        if pending.resume_schema is not None:
            schemas.check(pending.resume_schema, json_text.parse(data))
        tool.parse_resume(data)
    except (InvalidValue, json_text.InvalidJson) as error:
        raise _violating("RESUME_DATA_INVALID", "resume_data", error) from None
    changed = tool.digest != pending.tool_digest
    approved = call.approved and not changed
    return msgspec.structs.replace(call, resumed=True, resume_data=data, approved=approved, redefined=changed)


def _approved(
    tool: Tool | ClientTool | None, run: RunRow, pending: PendingRow, call: CallRow, edited: str | None
) -> CallRow:
    if tool is None:
        raise _unavailable(run, pending)
    args = pending.args
    if edited is not None:
        try:
            args = validate(tool, edited).text
        except (InvalidValue, json_text.InvalidJson) as error:
            raise _violating("EDITED_ARGS_INVALID", "edited_args", error) from None
    changed = isinstance(tool, Tool) and tool.digest != pending.tool_digest
    return msgspec.structs.replace(
        call,
        approved=not changed,
        redefined=changed,
        run_args=args,
        edited=call.edited or edited is not None,
    )
