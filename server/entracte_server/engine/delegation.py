"""What a sub-agent is asked, and what its parent's model is told came of it."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import structlog
from msgspec.structs import replace

from entracte_server.agents.agent import Agent
from entracte_server.agents.delegating import MAX_DEPTH, PREFIX, AgentTool
from entracte_server.agents.hooks import DelegationVerdict
from entracte_server.agents.tools import Arguments
from entracte_server.domain import json_text
from entracte_server.domain.errors import Refusal
from entracte_server.domain.messages import Message, ReasoningPart, ToolCallPart, text_message
from entracte_server.domain.options import PinnedTool, RunOptions, StopCondition
from entracte_server.domain.runs import CallRow, Outcome, RunSpec
from entracte_server.engine import below
from entracte_server.engine.delegation_hooks import DelegationHookCalls, Wanted
from entracte_server.engine.endings import Ending
from entracte_server.engine.hooking import HookFailed
from entracte_server.engine.questions import step_text

if TYPE_CHECKING:
    from entracte_server.engine.run import RunExecution
    from entracte_server.engine.subrun import SubRun

_log = structlog.get_logger(__name__)

CODE = "delegation"
"""The code of a call whose sub-agent did not come to an answer."""


async def asked(
    run: "RunExecution", call: CallRow, tool: AgentTool, arguments: Arguments
) -> RunSpec | Outcome:
    """What the sub-agent is asked by a call with these arguments, but for what only its run has; or what
    comes of a call that does not begin one."""
    agent = tool.agent
    if len(run.path) >= MAX_DEPTH:
        return Outcome(
            "error",
            f"The task was not delegated: at most {MAX_DEPTH} agents may stand between it and the run's own. "
            "Do it yourself.",
            CODE,
        )
    if agent.id not in run.family.agents:  # as when its parent was given it after the app was made
        return Outcome("error", f"The sub-agent {agent.name} is not registered here.", CODE)
    prompt = json_text.parse(arguments.text)["prompt"]
    said = tuple(turns(run.spec))
    try:
        wanted = await DelegationHookCalls(run).before(call, agent.id, prompt, said)
        if wanted.rejected is not None:
            return Outcome("result", json_text.dump(f"[Delegation Rejected] {wanted.rejected}"))
        pinned = await run.toolsets.pin(agent, (), run.home.tenant)
        options = _options(run.spec.options, agent, pinned, wanted)
        key = call.tool_name.removeprefix(PREFIX)
        options = replace(options, memory=below.memory(run.spec.options.memory, key))
        system = (*agent.system_texts(wanted.request_context), *wanted.instructions)
    except HookFailed as failure:
        return Outcome("error", str(failure), "hook")
    except Refusal as refusal:
        return Outcome("error", f"The sub-agent {agent.name} cannot begin: {refusal}", CODE)
    except Exception as error:  # an author's code may raise anything
        _log.exception("delegation_failed", run_id=run.log.key[1], agent_id=agent.id)
        return Outcome("error", _with_cause(run, f"The sub-agent {agent.name} cannot begin", error), CODE)
    return RunSpec((text_message("user", wanted.prompt),), options, system)


def turns(spec: RunSpec) -> Iterable[Message]:
    """What users and assistants said in the conversation. What systems said is their own agent's, and so is
    what tools did."""
    for message in (*spec.history, *spec.options.context, *spec.input):
        if message.role not in ("user", "assistant"):
            continue
        parts = tuple(it for it in message.parts if not isinstance(it, (ReasoningPart, ToolCallPart)))
        if parts:
            yield Message(message.role, parts)


def _options(options: RunOptions, agent: Agent, pinned: tuple[PinnedTool, ...], wanted: Wanted) -> RunOptions:
    """Of what the caller said about the run, that which holds for all of its tree; and what hooks want."""
    structured = agent.structured_output
    context = options.request_context
    limits: tuple[StopCondition, ...] = ()
    if wanted.max_tokens is not None:
        limits = (*agent.stop_when, StopCondition("tokens", wanted.max_tokens))
    return RunOptions(
        max_steps=wanted.max_steps,
        context=wanted.messages,
        save_per_step=options.save_per_step,
        stop_when=limits,
        require_tool_approval=options.require_tool_approval,
        pending_call_expiry=options.pending_call_expiry,
        request_context=json_text.dump(wanted.request_context) if wanted.changes_context else context,
        include_raw_chunks=options.include_raw_chunks or agent.include_raw_chunks,
        rate_limit_wait=options.rate_limit_wait,
        telemetry=options.telemetry,
        tracing_options=options.tracing_options,
        structured_output=None if structured is None else structured.options,
        pinned_tools=pinned,
        versions=options.versions,
    )


async def concluded(
    run: "RunExecution", call: CallRow, child: "SubRun", ending: Ending
) -> tuple[Outcome, DelegationVerdict]:
    """What the parent's model is told of a run that has ended, and what else a hook wants."""
    outcome = came_to(child, ending)
    hooks = DelegationHookCalls(run)
    try:
        verdict = await hooks.after(call, child, outcome)
    except HookFailed as failure:
        return Outcome("error", str(failure), "hook"), DelegationVerdict()
    if verdict.result_text is not None:
        told = json_text.parse_stored(outcome.value) if outcome.kind == "result" else {}
        told = {"text": verdict.result_text, "run_id": child.row.run_id, **_without(told, "text", "run_id")}
        outcome = _fitting(child, told)
    return outcome, verdict


def _fitting(child: "SubRun", answer: dict[str, Any]) -> Outcome:
    try:
        text = json_text.dump_for_storage(answer)
    except ValueError:  # larger than any JSON may be
        text = None
    if text is None or len(text.encode()) > child.services.settings.max_result:
        return Outcome("error", f"The answer of the sub-agent {child.agent.name} is too large.", CODE)
    return Outcome("result", text)


def _without(value: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key not in keys}


def came_to(child: "SubRun", ending: Ending) -> Outcome:
    """What the parent's model is told of a run that has ended: its answer, or why there is none."""
    name = child.agent.name
    if ending.state == "cancelled":
        return Outcome("cancelled", f"The sub-agent {name} was cancelled.", "cancelled")
    if ending.error is not None:
        return Outcome(
            "error", _with_cause(child, f"The sub-agent {name} failed", ending.error.message), CODE
        )
    last = child.steps[-1] if child.steps else None
    if last is not None and last.tripwire is not None:
        cause = f"The sub-agent {name} was stopped by a check"
        return Outcome("error", _with_cause(child, cause, last.tripwire.reason), CODE)
    said = "".join(
        step_text(record) for record in child.steps if not (record.is_draft or record.again or record.held)
    )
    made = last.structured if last is not None else None
    if not said and ending.cause != "model-finished":
        return Outcome(
            "error", f"The sub-agent {name} came to no answer: {_WHY.get(ending.cause, '')}.", CODE
        )
    told: dict[str, Any] = {"text": said, "run_id": child.row.run_id}
    if made is not None and made.object is not None:
        told["object"] = json_text.parse_stored(made.object)
    return _fitting(child, told)


_WHY = {
    "max-steps": "it made as many steps as it may",
    "stop-when": "a limit was reached",
    "hook": "a hook ended it",
    "task-incomplete": "its task was not complete",
    "check-unavailable": "its answer could not be checked",
}


def _with_cause(run: "RunExecution", what: str, cause: object) -> str:
    if run.services.settings.tool_errors == "generic":
        return f"{what}."
    return json_text.scrub(f"{what}: {cause}")[:4096]
