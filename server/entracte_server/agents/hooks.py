"""Hooks: functions that a run calls at its turning points, by name.

Each kind is called with one record that says where the run stands, and answers with one that says what is
to be different, or with None: nothing is. A hook may be called again for the same point after a crash, so
that one with side effects should be ready for that.
"""

import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from entracte_server.agents.scorers import NAME, NAME_RULE, ToolUse
from entracte_server.domain.chunks import FinishReason
from entracte_server.domain.data import Data
from entracte_server.domain.messages import Message
from entracte_server.domain.options import ModelSettings, StepOverrides, ToolChoice
from entracte_server.domain.results import CheckResult, Usage

HookKind = Literal[
    "prepare_step",
    "iteration_complete",
    "stop_when",
    "before_tool_call",
    "after_tool_call",
    "check_complete",
    "delegation_start",
    "delegation_complete",
    "message_filter",
]

OBSERVERS: frozenset[str] = frozenset({"after_tool_call", "check_complete"})
"""Kinds whose answer means nothing, so that an error of theirs is only logged."""


class StepView(Data, frozen=True):
    """A step that was made: its number from 1, what the model said, and what came of its tool calls."""

    number: int
    text: str
    finish_reason: FinishReason
    usage: Usage
    tool_uses: tuple[ToolUse, ...] = ()


class RunView(Data, frozen=True):
    """What every hook is told of its run."""

    run_id: str
    agent_id: str
    request_context: Mapping[str, Any]
    thread_id: str = ""
    resource_id: str = ""


class StepInfo(Data, frozen=True):
    """For `prepare_step`: the step that is about to be made, and what it would be made with.

    `number` counts from 1; `messages` are without system messages, which are in `system`.
    """

    run: RunView
    number: int
    attempt: int
    steps: tuple[StepView, ...]
    messages: tuple[Message, ...]
    system: tuple[Message, ...]
    model: str
    tools: tuple[str, ...]
    tool_choice: ToolChoice
    model_settings: ModelSettings
    provider_options: Mapping[str, Any]


class IterationInfo(Data, frozen=True):
    """For `iteration_complete`: the step that was made. `is_final`: the run would end with it.
    `max_iterations` is None where nobody set a limit."""

    run: RunView
    iteration: int
    max_iterations: int | None
    text: str
    tool_uses: tuple[ToolUse, ...]
    finish_reason: FinishReason
    is_final: bool
    messages: tuple[Message, ...]


class Iteration(Data, frozen=True):
    """What `iteration_complete` answers: `go_on` False ends the run, True has the model go on even where it
    would stop, None leaves it as it is; `feedback` is told to the model if it goes on."""

    go_on: bool | None = None
    feedback: str = ""


class StopInfo(Data, frozen=True):
    """For `stop_when`: the steps so far and the tokens of the run. The answer is whether it ends."""

    run: RunView
    steps: tuple[StepView, ...]
    usage: Usage


class ToolCallInfo(Data, frozen=True):
    """For `before_tool_call`: a call that was validated, and approved where it needs to be. `args` is the
    JSON value the tool will be given."""

    run: RunView
    tool_call_id: str
    tool_name: str
    args: Any


class Skip(Data, frozen=True):
    """What `before_tool_call` answers to have the tool not called: `output`, a JSON value, is its result."""

    output: Any = None


class ToolCallDone(Data, frozen=True):
    """For `after_tool_call`: what came of a tool that was called."""

    run: RunView
    use: ToolUse


class CheckInfo(Data, frozen=True):
    """For `check_complete`: what the checks of completion said of a step."""

    run: RunView
    iteration: int
    verdict: Literal["passed", "failed", "unavailable"]
    results: tuple[CheckResult, ...]
    timed_out: bool


class DelegationInfo(Data, frozen=True):
    """For `delegation_start` and `message_filter`: what a sub-agent is about to be asked. `messages` are the
    turns of the conversation that it is given before the prompt; `step` is that of the run that delegates."""

    run: RunView
    tool_call_id: str
    agent_id: str
    step: int
    prompt: str
    messages: tuple[Message, ...]


class Delegation(Data, frozen=True):
    """What `delegation_start` answers; None leaves it as it is.

    `instructions` are added to the sub-agent's own. `max_steps` and `max_tokens` limit its run.
    `request_context` has entries for its run, in place of the run's or beside them. `reject`: it does not
    begin, and this reason is the result of the call.
    """

    prompt: str | None = None
    instructions: str | tuple[str, ...] = ()
    max_steps: int | None = None
    max_tokens: int | None = None
    request_context: Mapping[str, Any] = {}
    reject: str | None = None


class DelegationDone(Data, frozen=True):
    """For `delegation_complete`: what a sub-agent came to. `agent_run_id` is its run, `text` its answer,
    `error` why there is none."""

    run: RunView
    tool_call_id: str
    agent_id: str
    agent_run_id: str
    prompt: str
    text: str
    error: str | None
    usage: Usage


class DelegationVerdict(Data, frozen=True):
    """What `delegation_complete` answers: `result_text` is the sub-agent's answer in place of its own, also
    where it had none; `feedback` is told to the model after the results of the step; `bail` ends the run
    with them."""

    result_text: str | None = None
    feedback: str = ""
    bail: bool = False


class Hook:
    """A function that runs call by name. Made by `hook`.

    Args:
        kind: The point at which it is called.
        name: What options name it by: letters, digits, `_`, `.` and `-`, at most 64.
        function: From the record of its kind to its answer; a coroutine function, or a plain one, which
            gets a thread of its own.
        timeout: Seconds it may take; 30 unless given.
        on_error: What an error or a late answer means: `fail` the run (for `before_tool_call` and those of
            delegations: the call fails, and the model is told), or `continue` as if it had answered None.
            Observers (`after_tool_call`, `check_complete`) always continue.
    """

    def __init__(
        self,
        *,
        kind: HookKind,
        name: str,
        function: Callable[[Any], Any],
        timeout: float = 30.0,
        on_error: Literal["fail", "continue"] = "fail",
    ) -> None:
        if kind not in typing.get_args(HookKind):
            kinds = ", ".join(typing.get_args(HookKind))
            raise ValueError(f"hook {name}: there is no kind {kind!r}; use {kinds}")
        if not NAME.fullmatch(name):
            raise ValueError(f"{name[:80]!r} cannot name a hook: {NAME_RULE}")
        if not timeout > 0:
            raise ValueError(f"hook {name}: timeout must be over 0")
        self.kind = kind
        self.name = name
        self.function = function
        self.timeout = timeout
        self.fails_closed = on_error == "fail" and kind not in OBSERVERS
        self.is_async = inspect.iscoroutinefunction(function)

    def __call__(self, info: Any) -> Any:
        """Call the function itself, outside any run."""
        return self.function(info)

    def __repr__(self) -> str:
        return f"<Hook {self.name} ({self.kind})>"


def hook(
    kind: HookKind,
    *,
    name: str | None = None,
    timeout: float = 30.0,
    on_error: Literal["fail", "continue"] = "fail",
) -> Callable[[Callable[[Any], Any]], Hook]:
    """Make a function a hook; see `Hook`. The name defaults to the function's."""

    def decorate(body: Callable[[Any], Any]) -> Hook:
        return Hook(kind=kind, name=name or body.__name__, function=body, timeout=timeout, on_error=on_error)

    return decorate


def by_name(hooks: Iterable[Hook]) -> dict[str, Hook]:
    """Raises `ValueError` for two hooks of one name."""
    found: dict[str, Hook] = {}
    for item in hooks:
        if found.setdefault(item.name, item) is not item:
            raise ValueError(f"two hooks are called {item.name!r}")
    return found


def find(hooks: Mapping[str, Hook], name: str, kind: HookKind) -> Hook:
    """Raises `ValueError` where there is no hook of this name and kind."""
    found = hooks.get(name)
    if found is None or found.kind != kind:
        names = ", ".join(sorted(item.name for item in hooks.values() if item.kind == kind)) or "none"
        raise ValueError(f"there is no {kind} hook {name[:80]!r}; there are: {names}")
    return found


__all__ = [
    "CheckInfo",
    "Delegation",
    "DelegationDone",
    "DelegationInfo",
    "DelegationVerdict",
    "Hook",
    "Iteration",
    "IterationInfo",
    "RunView",
    "Skip",
    "StepInfo",
    "StepOverrides",
    "StepView",
    "StopInfo",
    "ToolCallDone",
    "ToolCallInfo",
    "hook",
]
