"""The hooks around what an agent delegates: before a sub-agent begins, and when it has come to something."""

from collections.abc import Callable, Iterable, Mapping
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
from entracte_server.engine.authored import as_stored
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
        answer: Delegation | None = await self._call(self._names.on_start, info, _startable, Delegation)
        wanted = Wanted(prompt, messages, context)
        if answer is not None:
            if answer.reject is not None:
                return Wanted(prompt, messages, context, rejected=answer.reject)
            wanted = _changed(wanted, answer)
        info = DelegationInfo(info.run, call.call_id, agent_id, call.step, wanted.prompt, messages)
        chosen: Turns | None = await self._call(self._names.message_filter, info, _turns, tuple, list)
        return wanted if chosen is None else replace(wanted, messages=chosen)

    async def after(self, call: CallRow, child: "SubRun", outcome: Outcome) -> DelegationVerdict:
        """What is to be made of what the sub-agent came to."""
        has_answer = outcome.kind == "result"
        info = DelegationDone(
            run=run_view(self._run),
            tool_call_id=call.call_id,
            agent_id=child.agent.id,
            agent_run_id=child.row.run_id,
            prompt=child.prompt,
            text=json_text.parse_stored(outcome.value)["text"] if has_answer else "",
            error=None if has_answer else outcome.value,
            usage=child.total() if child.steps else Usage(),
        )
        verdict: DelegationVerdict | None = await self._call(
            self._names.on_complete, info, as_stored, DelegationVerdict
        )
        return verdict or DelegationVerdict()

    async def _call(self, name: str, info: Any, usable: Callable[[Any], Any], *answers: type) -> Any:
        if not name:
            return None
        hook: Hook = self._run.services.app.hooks[name]
        strategy = self._names.error_strategy
        closed = {"warn": False, "throw": True}.get(strategy)
        return await self._run.services.hooks.call(hook, info, *answers, fails_closed=closed, usable=usable)


def _startable(answer: Delegation) -> Delegation:
    """What a hook answered as it is stored. Raises `ValueError`."""
    added = answer.request_context
    if not isinstance(added, Mapping):
        raise ValueError(f"its request_context is a {type(added).__name__} and no mapping")
    try:
        added = json_text.parse(json_text.dump(dict(added)))
    except (TypeError, ValueError) as error:
        raise ValueError(f"its request_context is no JSON: {error}") from None
    answer = as_stored(replace(answer, request_context={}))
    for name, limit in (("max_steps", answer.max_steps), ("max_tokens", answer.max_tokens)):
        if limit is not None and limit < 1:
            raise ValueError(f"it gave {name} {limit}: at least 1 is needed")
    if answer.prompt is not None and not answer.prompt.strip():
        raise ValueError("it gave an empty prompt")
    return replace(answer, request_context=added)


def _turns(answer: Iterable[Any]) -> Turns:
    """The turns that a filter chose as they are stored. What a sub-agent must not hear from its parent it
    does not hear from a filter, either. Raises `ValueError`."""
    found = []
    for item in answer:
        if not isinstance(item, Message):
            raise ValueError(f"it answered with a {type(item).__name__} among the messages")
        if item.role in ("user", "assistant"):
            found.append(as_stored(item))
    return tuple(found)


def _changed(wanted: Wanted, answer: Delegation) -> Wanted:
    added = answer.instructions
    return replace(
        wanted,
        prompt=wanted.prompt if answer.prompt is None else answer.prompt,
        instructions=(added,) if isinstance(added, str) and added else tuple(added),
        max_steps=answer.max_steps,
        max_tokens=answer.max_tokens,
        request_context={**wanted.request_context, **answer.request_context},
        changes_context=bool(answer.request_context),
    )
