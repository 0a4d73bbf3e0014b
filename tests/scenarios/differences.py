"""The named differences between the reference and this server.

Each is an explicit change of what was recorded into what is right here, with the rule it follows. A
difference that changes nothing in a scenario that lists it fails that scenario: the list of each
scenario is exactly what differs. What is not named here must be as it was recorded.
"""

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.scenarios import lines
from tests.scenarios.lines import Prompt, Result, compact
from tests.scenarios.recording import Course, Phase

Change = Callable[[Course], None]


@dataclass(frozen=True)
class Difference:
    """A change of a recorded course, in place."""

    name: str
    rule: str
    change: Change

    def apply(self, course: Course) -> Course:
        """The changed course."""
        changed = copy.deepcopy(course)
        self.change(changed)
        return changed


def _results(course: Course) -> list[Result]:
    return [phase.result for phase in course.phases if phase.result is not None]


def _each_line(course: Course, change: Callable[[str], str]) -> None:
    """Change every line of events, results and prompts."""
    for phase in course.phases:
        if phase.events is not None:
            phase.events = [change(line) for line in phase.events]
    for result in _results(course):
        result.suspend = change(result.suspend)
        result.tool_calls = [change(line) for line in result.tool_calls]
        result.tool_results = [change(line) for line in result.tool_results]
    for prompt in course.prompts or ():
        prompt.messages = [change(line) for line in prompt.messages]


def _steps_so_far(course: Course, phase: int) -> int:
    """How many model calls were made up to a phase's end."""
    every = [line for one in course.phases[: phase + 1] for line in one.events or ()]
    return every.count("step-start")


def _open_calls(course: Course, phase: int) -> list[str]:
    """The calls that wait at a phase's end."""
    waiting: list[str] = []
    for one in course.phases[: phase + 1]:
        for line in one.events or ():
            kind, _, rest = line.partition(" ")
            call_id = rest.partition(" ")[0]
            if kind in ("tool-call-approval", "tool-call-suspended"):
                waiting.append(call_id)
            elif kind in ("tool-call-resolved", "abort"):
                waiting = [] if kind == "abort" else [one for one in waiting if one != call_id]
    return waiting


# ---- parking ----


def _park(course: Course) -> None:
    for index, phase in enumerate(course.phases):
        if phase.events is not None and not (phase.events and phase.events[-1].startswith("finish")):
            steps = _steps_so_far(course, index)
            phase.events.append(lines.finish("suspended", steps, *_open_calls(course, index)))


PARKING_ENDS_WITH_FINISH = Difference(
    "parking ends with finish",
    "Every stream ends with a reason: a parking with `finish` `suspended`, listing all calls still open.",
    _park,
)


def kept(text: str = "") -> Difference:
    """`text` is what the parked step said."""

    def change(course: Course) -> None:
        for result in _results(course):
            if result.finish == "suspended":
                result.text += text
                result.steps.append(f"tool-calls {lines.cost(1)} {compact(text)}")
                result.usage = lines.cost(len(result.steps))

    return Difference(
        "a parked result keeps what there is",
        "Suspended and aborted results keep the text and usage produced so far.",
        change,
    )


def resolved(*decided: tuple[int, str]) -> Difference:
    """Phase by phase: `c1 confirm resume`."""

    def change(course: Course) -> None:
        for phase, line in decided:
            events = course.phases[phase].events
            if events is not None:
                events.insert(0, f"tool-call-resolved {line}")

    return Difference(
        "tool-call-resolved",
        "A chunk of ours says who decided what, before anything comes of it.",
        change,
    )


def _approve_is_a_verb(course: Course) -> None:
    def change(line: str) -> str:
        return re.sub(r' expects \{"additionalProperties":false,"properties":\{"approved".*', "", line)

    _each_line(course, change)


APPROVE_IS_A_VERB = Difference(
    "an approval is no resume",
    "Approve and Decline are verbs with fields of their own, so no schema of `approved` is shown.",
    _approve_is_a_verb,
)


def first_open(line: str, *phases: int) -> Difference:
    """What the suspended results of these phases show."""

    def change(course: Course) -> None:
        for phase in phases:
            result = course.phases[phase].result
            if result is not None:
                result.suspend = line

    return Difference(
        "the first open call",
        "`suspend_payload` has the details of the first open call; `pending_calls` has them all.",
        change,
    )


# ---- when things are told ----


def _move(course: Course, pattern: str, source: int, target: int, ahead: bool) -> None:
    """Move the events that match; `ahead` puts them before the first outcome of the target phase."""
    given, taken = course.phases[source].events, course.phases[target].events
    assert given is not None
    assert taken is not None
    moved = [line for line in given if re.match(pattern, line)]
    course.phases[source].events = [line for line in given if line not in moved]
    parked = [line for line in taken if line.startswith("finish")]
    rest = [line for line in taken if line not in parked]
    at = len(rest)
    if ahead:
        outcomes = ("tool-result", "tool-error", "tool-output-denied")
        at = next((i for i, line in enumerate(rest) if line.startswith(outcomes)), at)
    course.phases[target].events = [*rest[:at], *moved, *rest[at:], *parked]


def told_when_there(call: str, source: int, target: int) -> Difference:
    """The outcome of `call` moves from phase `source` to phase `target`."""

    def change(course: Course) -> None:
        if course.phases[source].events is not None and course.phases[target].events is not None:
            _move(course, rf"tool-(result|error) {call} ", source, target, ahead=False)
        ended = course.phases[source].result
        told = [] if ended is None else [t for t in ended.tool_results if t.startswith(f"{call} ")]
        for phase in course.phases[target:source]:
            if phase.result is not None:
                phase.result.tool_results = sorted([*phase.result.tool_results, *told])

    return Difference(
        "results are told when they are there",
        "Each tool result is emitted and committed when it is there; the prompt has them in call order.",
        change,
    )


def announced_at_once(call: str, source: int, target: int = 0) -> Difference:
    """The announcement of `call` moves from phase `source` to phase `target`."""
    return Difference(
        "all waiting calls are announced at once",
        "Gated calls are all announced at once, may be answered in any order, and each executes as soon "
        "as it is answered. Calls that need no decision run concurrently beside them.",
        lambda course: _move(course, rf"tool-call-(approval|suspended) {call} ", source, target, True),
    )


def completed(*order: str) -> Difference:
    """The order in which the results of the first step come."""

    def change(course: Course) -> None:
        for phase in course.phases:
            if phase.events is None:
                continue
            told = {line.split()[1]: line for line in phase.events if line.startswith("tool-result")}
            at = min(i for i, line in enumerate(phase.events) if line.startswith("tool-result"))
            rest = [line for line in phase.events if not line.startswith("tool-result")]
            phase.events = [*rest[:at], *(told[call] for call in order), *rest[at:]]

    return Difference(
        "results come in the order of completion",
        "Each tool result is emitted and committed when it is there; the prompt has them in call order.",
        change,
    )


def entered(*log: Sequence[Any]) -> Difference:
    """Which tools are entered with what."""

    def change(course: Course) -> None:
        course.entered = [compact(list(entry)) for entry in log]

    return Difference(
        "tools entered otherwise",
        "What is entered follows from the other differences of the scenario.",
        change,
    )


def _totals(course: Course) -> None:
    steps = 0
    for phase in course.phases:
        made = []
        for line in phase.events or ():
            if line.startswith("step-finish") and "continued" in line:
                steps += 1
                line = f"{line.rpartition(' ')[0]} {lines.cost(steps)}"
            made.append(line)
        phase.events = phase.events and made


TOTALS = Difference(
    "usage so far",
    "The end of a step has the usage of the step and of the run so far, whether another step follows or "
    "not; the lines show the latter.",
    _totals,
)


# ---- what the model is asked ----


def _forced_once(course: Course) -> None:
    for prompt in (course.prompts or ())[1:]:
        prompt.choice = "auto"


FORCED_ONCE = Difference(
    "a forced call is forced once",
    "`required` and a named tool hold until the call was made: held to it in every step, a model that obeys "
    "could only stop at the limit.",
    _forced_once,
)


# ---- what is refused, what is not ----


def refused(phase: int, refusal: str, rule: str) -> Difference:
    """A call is refused with this code and reason; nothing is changed by it."""

    def change(course: Course) -> None:
        course.phases[phase] = Phase(course.phases[phase].call, refusal=refusal)

    return Difference("refused", rule, change)


VALIDATED_FIRST = (
    "An answer is checked before anything is written; one that does not fit leaves the call open."
)
FITTING_VERB = "Which verb fits which kind of call is fixed: any other is refused, the call stays open."
OVER = "A run that has ended takes no decision, and says so with a reason of its own."
AMBIGUOUS = "The run's id alone names a call only where exactly one waits: an answer is never broadcast."


def becomes(
    phase: int, rule: str, events: Sequence[str] | None, result: Result, *, like: str = ""
) -> Difference:
    """A whole phase is another one. `like` names what it is instead."""

    def change(course: Course) -> None:
        shown = None if events is None else list(events)
        phases = course.phases
        made = Phase(like or "ours", shown, copy.deepcopy(result))
        phases[phase : phase + 1] = [made]

    return Difference("another course", rule, change)


def dropped(phase: int, rule: str) -> Difference:
    """A phase that there is no reason to play."""

    def change(course: Course) -> None:
        del course.phases[phase]

    return Difference("no such phase", rule, change)


def prompts(rule: str, *messages: Sequence[str], keep: int = 0) -> Difference:
    """After the first `keep` model calls, these are what the others see, on top of each other."""

    def change(course: Course) -> None:
        assert course.prompts is not None
        rest = course.prompts[:keep]
        for added in messages:
            before = rest[-1]
            rest.append(Prompt(before.choice, before.tools, [*before.messages, *added]))
        course.prompts = rest

    return Difference("other prompts", rule, change)


def called(times: int, rule: str) -> Difference:
    """How often the model is called with the first prompt."""

    def change(course: Course) -> None:
        assert course.prompts is not None
        first = course.prompts[0]
        course.prompts = [copy.deepcopy(first) for _ in range(times)]

    return Difference("model calls", rule, change)


# ---- what the model and the client are told ----


def declined(call: str, tool: str, reason: str) -> Difference:
    """What the model is told of a declined call."""

    def change(course: Course) -> None:
        told = compact({"status": "declined", "reason": reason})
        for prompt in course.prompts or ():
            prompt.messages = [
                re.sub(rf"( {call} {tool}) text .*", rf"\1 denied {told}", line) for line in prompt.messages
            ]

    return Difference(
        "a declined call's result is structured",
        "The model is told that a call was declined, why in words, and why as data.",
        change,
    )


def _default_reason(course: Course) -> None:
    for phase in course.phases:
        phase.events = phase.events and [
            re.sub(r"(tool-output-denied .* ->) Tool call was not .*", r"\1 The call was declined.", line)
            for line in phase.events
        ]


DEFAULT_REASON = Difference(
    "the standard reason", "A blank reason becomes a standard sentence of ours.", _default_reason
)


def failed(phase: int, result: Result) -> Difference:
    """What a run that failed in this phase came to. Its error is the recorded one unless given."""

    def change(course: Course) -> None:
        recorded = course.phases[phase].result
        assert recorded is not None
        course.phases[phase].result = replace(result, finish="error", error=result.error or recorded.error)

    return Difference(
        "a failed run is a result",
        "A run that fails is no error of the RPC: its result has the error, and what there was so far.",
        change,
    )


def aborted(*, text: str = "", steps: Sequence[str] = (), drop: str = "") -> Difference:
    """The end of a cancelled run. `text` is what the cut step had said, `steps` its line in the result,
    `drop` matches events that do not come."""

    def change(course: Course) -> None:
        for phase in course.phases:
            result = phase.result
            if result is None or result.finish not in ("aborted", "tool-calls"):
                continue
            result.finish = "aborted"
            result.text = text
            if steps:
                result.steps = [*result.steps, *steps]
            if phase.events is not None:
                events = [e for e in phase.events if not (drop and re.match(drop, e))]
                last = events.pop().split()[-1]
                if events[-1] != "abort":
                    events.append("abort")
                phase.events = [*events, f"finish aborted {last}"]

    return Difference(
        "abort, then finish with aborted",
        "Abort at any point: `abort`, then `finish` with `aborted`; tools get cancelled, text is kept.",
        change,
    )


def qualified(tool: str, name: str) -> Difference:
    """The tool of a toolset has this name, and stands beside the agent's own `tool`."""

    def change(course: Course) -> None:
        _each_line(course, lambda line: re.sub(rf"\b{tool}\b(?!\")", name, line))
        for prompt in course.prompts or ():
            if prompt.tools is not None:
                prompt.tools = [*prompt.tools, name]

    return Difference(
        "tools of toolsets have names of their own",
        "A tool of a toolset takes no other tool's place: its name begins with that of the toolset.",
        change,
    )


def rewritten(rule: str, pattern: str, replacement: str) -> Difference:
    """Every line of events, results and prompts, by a regular expression."""
    return Difference(
        "said otherwise",
        rule,
        lambda course: _each_line(course, lambda line: re.sub(pattern, replacement, line)),
    )


def inserted(rule: str, before: str, *events: str) -> Difference:
    """Events that come before the first one that matches."""

    def change(course: Course) -> None:
        for phase in course.phases:
            if phase.events is not None:
                at = next(i for i, line in enumerate(phase.events) if re.match(before, line))
                phase.events[at:at] = events

    return Difference("more events", rule, change)


def _instead(course: Course, call_id: str, tool: str, event: str, told: str) -> None:
    """The call's outcome is this event instead, and the model is told so."""
    for phase in course.phases:
        phase.events = phase.events and [
            event if line.startswith(f"tool-result {call_id} ") else line for line in phase.events
        ]
    for result in _results(course):
        result.tool_results = [t for t in result.tool_results if not t.startswith(f"{call_id} ")]
    for prompt in course.prompts or ():
        prompt.messages = [
            f"tool {call_id} {tool} error {told}" if line.startswith(f"tool {call_id} ") else line
            for line in prompt.messages
        ]


def schema_failure(call_id: str, tool: str, args: Any) -> Difference:
    """The call's result becomes an error; `args` None where the model sent no object."""
    event = lines.error(call_id, tool, args, "invalid-args")
    return Difference(
        "schema failures are errors",
        "Arguments that do not fit the schema are a `tool-error`, which a client can tell from success.",
        lambda course: _instead(course, call_id, tool, event, "invalid-args"),
    )


def not_executed(call_id: str, tool: str, args: Any, rule: str) -> Difference:
    """The call is refused where the reference executes it."""
    event = lines.error(call_id, tool, args, "not-executed")
    return Difference(
        "not executed", rule, lambda course: _instead(course, call_id, tool, event, "not-executed")
    )


def not_json(call_id: str, tool: str, args: Any) -> Difference:
    """What the tool returned becomes an error."""
    event = lines.error(call_id, tool, args, "invalid-result")
    return Difference(
        "a result that is not JSON is an error",
        "What a tool returns must be JSON; what is not is a clear error, not a value with holes in it.",
        lambda course: _instead(course, call_id, tool, event, "invalid-result"),
    )


def fresh_id(repeated: str, fresh: str, tool: str, args: Any) -> Difference:
    """The second call of the id `repeated` has another one; it is told by its arguments."""

    def again(line: str) -> str:
        return re.sub(rf"(^| ){repeated}\b", rf"\1{fresh}", line)

    def change(course: Course) -> None:
        shown = f"{repeated} {tool} {compact(args)}"
        for phase in course.phases:
            begun, made = 0, []
            for line in phase.events or ():
                begun += line.startswith(f"tool-call-input-streaming-start {repeated} ")
                is_call = line.startswith("tool-call")
                made.append(again(line) if (begun > 1 and is_call) or shown in line else line)
            phase.events = made
        for result in _results(course):
            for group in (result.tool_calls, result.tool_results):
                group[:] = [again(line) if line.startswith(shown) else line for line in group]

    return Difference(
        "a repeated id is replaced",
        "A call's id is replaced before the call is first shown, where the run had one of that id.",
        change,
    )


def asked_once(rule: str, prompt: Prompt) -> Difference:
    """The model is asked this."""

    def change(course: Course) -> None:
        course.prompts = [prompt]

    return Difference("model calls", rule, change)
