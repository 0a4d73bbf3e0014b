"""The hooks around what an agent delegates: before a sub-agent begins, and when it has come to something."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from entracte_server.agents.hooks import (
    Delegation,
    DelegationDone,
    DelegationInfo,
    DelegationVerdict,
    Hook,
)
from entracte_server.domain import json_text
from entracte_server.domain.data import Data
from entracte_server.domain.messages import Message
from entracte_server.domain.results import Usage
from entracte_server.domain.runs import CallRow, Outcome
from entracte_server.engine.hooking import HookFailed
from entracte_server.engine.views import run_view

if TYPE_CHECKING:
    from entracte_server.engine.run import RunExecution
    from entracte_server.engine.subrun import SubRun

Turns = tuple[Message, ...]


class Wanted(Data, frozen=True):
    """What a sub-agent is to be asked, and how, after the hooks. `rejected` is why it is not, if so."""

    prompt: str
    messages: Turns
    request_context: Mapping[str, Any]
    changes_context: bool = False
    instructions: tuple[str, ...] = ()
    max_steps: int | None = None
    max_tokens: int | None = None
    rejected: str | None = None


class DelegationHookCalls:
    """Calls those of one run: the caller's, else its agent's. Raises `HookFailed` where an error means that
    the call that delegates fails."""

    def __init__(self, run: "RunExecution") -> None:
        self._run = run
        self._names = run.spec.options.delegation or run.agent.delegation

    async def before(self, call: CallRow, agent_id: str, prompt: str, messages: Turns) -> Wanted:
        """What the sub-agent is to be asked."""
        context = self._run.request_context
        info = DelegationInfo(run_view(self._run), call.call_id, agent_id, call.step, prompt, messages)
        answer: Delegation | None = await self._call(self._names.on_start, info, Delegation)
        wanted = Wanted(prompt, messages, context)
        if answer is not None:
            if answer.reject is not None:
                return Wanted(prompt, messages, context, rejected=answer.reject)
            wanted = self._changed(wanted, answer)
        info = DelegationInfo(info.run, call.call_id, agent_id, call.step, wanted.prompt, messages)
        chosen: Any = await self._call(self._names.message_filter, info, tuple, list)
        if chosen is None:
            return wanted
        fault = next((item for item in chosen if not isinstance(item, Message)), None)
        if fault is not None:
            raise HookFailed(
                f"The hook {self._names.message_filter} answered with a {type(fault).__name__} among the "
                "messages."
            )
        # What the sub-agent must not hear from its parent it does not hear from a filter, either.
        kept = tuple(item for item in chosen if item.role in ("user", "assistant"))
        return replace(wanted, messages=kept)

    def _changed(self, wanted: Wanted, answer: Delegation) -> Wanted:
        added = answer.instructions
        for name, limit in (("max_steps", answer.max_steps), ("max_tokens", answer.max_tokens)):
            if limit is not None and limit < 1:
                raise HookFailed(
                    f"The hook {self._names.on_start} gave {name} {limit}: at least 1 is needed."
                )
        context = {**wanted.request_context, **answer.request_context}
        try:
            json_text.dump(context)
        except (TypeError, ValueError) as error:
            raise HookFailed(
                f"The request_context of the hook {self._names.on_start} is no JSON: {error}"
            ) from None
        return replace(
            wanted,
            prompt=wanted.prompt if answer.prompt is None else answer.prompt,
            instructions=(added,) if isinstance(added, str) and added else tuple(added),
            max_steps=answer.max_steps,
            max_tokens=answer.max_tokens,
            request_context=context,
            changes_context=bool(answer.request_context),
        )

    async def after(self, call: CallRow, child: "SubRun", outcome: Outcome) -> DelegationVerdict:
        """What is to be made of what the sub-agent came to."""
        has_answer = outcome.kind == "result"
        args = json_text.parse(call.run_args or call.args or "{}")
        info = DelegationDone(
            run=run_view(self._run),
            tool_call_id=call.call_id,
            agent_id=child.agent.id,
            agent_run_id=child.row.run_id,
            prompt=args.get("prompt", ""),
            text=json_text.parse_stored(outcome.value)["text"] if has_answer else "",
            error=None if has_answer else outcome.value,
            usage=child.total() if child.steps else Usage(),
        )
        verdict: DelegationVerdict | None = await self._call(self._names.on_complete, info, DelegationVerdict)
        return verdict or DelegationVerdict()

    async def _call(self, name: str, info: Any, *answers: type) -> Any:
        if not name:
            return None
        hook: Hook = self._run.services.app.hooks[name]
        strategy = self._names.error_strategy
        closed = {"warn": False, "throw": True}.get(strategy)
        return await self._run.services.hooks.call(hook, info, *answers, fails_closed=closed)
