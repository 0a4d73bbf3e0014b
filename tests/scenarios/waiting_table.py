"""The due scenarios about suspension, questions, client tools and restarts."""

import re
from typing import Any

from entracte.v1 import message_pb2
from entracte.v1 import options_pb2 as options
from entracte.v1.json_pb2 import Json
from tests.scenarios import differences as d
from tests.scenarios import lines, tools
from tests.scenarios.lines import Result
from tests.scenarios.table import ONCE, Scenario, Setup, Start, approve, parks, resume

SUSPENDING = Setup(tools.suspending)
FREE = Setup(tools.only_free)
STRANGE = Setup(tools.strange)

_REFUSED = "INVALID_ARGUMENT RESUME_DATA_INVALID"
_FINISHED = "FAILED_PRECONDITION RUN_FINISHED"
_STAYS = "The question is still open, so the model is not called again."

_TWO_CALLS = ['c1 nosch {"op":"x"}', 'c2 nosch {"op":"y"}']
_FIRST_OF_TWO = 'c1 nosch {"op":"x"} asks {"q":"x"}'
_FREE_AT_ONCE = "Tools that suspend run side by side, whatever schemas other tools have: all are announced."


def _final(text: str = "final") -> list[str]:
    return [
        lines.step_finish("tool-calls", 1, goes_on=True),
        "step-start",
        *lines.say(text),
        lines.step_finish("stop", 2),
        lines.finish("stop", 2),
    ]


def _both(text: str = "final") -> Result:
    return Result(
        "stop",
        text,
        lines.cost(2),
        tool_calls=_TWO_CALLS,
        tool_results=[
            'c1 nosch {"op":"x"} -> {"rd":{"v":1}}',
            'c2 nosch {"op":"y"} -> {"rd":{"v":2}}',
        ],
        steps=[f'tool-calls {lines.cost(1)} ""', f'stop {lines.cost(1)} "{text}"'],
    )


def _refused_answer(name: str, answer: Any) -> Scenario:
    """An answer that is refused; the call stays open and the model is not called again."""
    return Scenario(
        name,
        SUSPENDING,
        (Start(), resume(answer)),
        (
            d.refused(1, _REFUSED, d.VALIDATED_FIRST),
            d.prompts(_STAYS, keep=1),
            *parks("pre "),
        ),
    )


# ---- ask_user ----

_OPTIONS = '"options":[{"description":"warm","label":"Red"},{"label":"Blue"}]'
_USED = '"options":[{"description":"warm","label":"Red"},{"description":null,"label":"Blue"}]'
_ONE = '"enum":["Red","Blue"],"type":"string"'
_SNAKE = d.rewritten("Fields have names in snake case.", "selectionMode", "selection_mode")


def _asked(kind: str) -> tuple[d.Difference, ...]:
    """What differs in every question: `kind` is `text`, `one` or `many`."""
    expects = {
        "text": r'{"pattern":"\\\\S","type":"string"}',
        "one": f"{{{_ONE}}}",
        "many": f'{{"items":{{{_ONE}}},"minItems":1,"type":"array","uniqueItems":true}}',
    }[kind]
    given = "" if kind == "text" else f"{_OPTIONS},"
    many = ',"selection_mode":"multi_select"' if kind == "many" else ""
    pattern = rf'{re.escape("{" + given)}("question":"\w+\?"){many}\}}'
    used = [
        '"allow_free_text":false',
        '"options":null' if kind == "text" else _USED,
        r"\2",
        many[1:] or '"selection_mode":null',
    ]
    return (
        *([] if kind == "text" else [_SNAKE]),
        d.rewritten(
            "A waiting call shows the arguments that will be used: validated, with their defaults.",
            f"^((?:tool-call-suspended )?c1 ask ){pattern} asks",
            rf"\1{{{','.join(used)}}} asks",
        ),
        d.rewritten(
            "A question stores its own labels: an answer must be one of them, or some of them.",
            r" expects .*",
            f" expects {expects}",
        ),
    )


def _told(answer: Any) -> d.Difference:
    shown = lines.compact(answer)
    return d.rewritten(
        "A list stays a list for the model.",
        r'\{"content":"User answered',
        rf'{{"answer":{shown},"content":"User answered',
    )


def _question(name: str, kind: str, answer: Any) -> Scenario:
    return Scenario(
        name,
        SUSPENDING,
        (Start(), resume(answer)),
        (*_asked(kind), _told(answer), *parks("pre ", "c1 ask resume")),
    )


def _bad_answer(name: str, kind: str, answer: Any) -> Scenario:
    plain = _refused_answer(name, answer)
    return Scenario(name, SUSPENDING, plain.steps, (*_asked(kind), *plain.differences))


_QUESTIONS = [
    _question("ask_user_free_text", "text", "Ada"),
    _question("ask_user_single", "one", "Red"),
    _bad_answer("ask_user_single_given_array", "one", ["Red", "Blue"]),
    _bad_answer("ask_user_multi_given_string", "many", "Red"),
    # That an empty choice is no answer is this tool's own rule: see its documentation.
    _bad_answer("ask_user_multi_empty", "many", []),
    _bad_answer("ask_user_number_answer", "text", 42),
    _bad_answer("ask_user_object_answer", "text", {"answer": "Ada"}),
    Scenario(
        "ask_user_generate",
        SUSPENDING,
        (Start(), resume("Blue")),
        (*_asked("one"), _told("Blue"), d.kept("pre ")),
    ),
    Scenario(
        "ask_user_bad_mode",
        SUSPENDING,
        differences=(
            _SNAKE,
            d.schema_failure(
                "c1",
                "ask",
                {
                    "question": "Q",
                    "options": [{"label": "Red", "description": "warm"}, {"label": "Blue"}],
                    "selection_mode": "many",
                },
            ),
        ),
    ),
]

# ---- client tools ----

_CL = options.ClientTool(
    name="cl", description="c", input_schema=Json(text=lines.compact(tools.schema(q="string")))
)
_CLIENT = Setup(tools.looping, {"client_tools": [_CL]})

_HISTORY = [
    message_pb2.Message(
        role=message_pb2.ROLE_USER,
        parts=[message_pb2.MessagePart(text=message_pb2.TextPart(text="hi"))],
    ),
    message_pb2.Message(
        role=message_pb2.ROLE_ASSISTANT,
        parts=[
            message_pb2.MessagePart(
                tool_call=message_pb2.ToolCallPart(
                    tool_call_id="c1", tool_name="cl", args=Json(text='{"q":"z"}')
                )
            )
        ],
    ),
    message_pb2.Message(
        role=message_pb2.ROLE_TOOL,
        parts=[
            message_pb2.MessagePart(
                tool_result=message_pb2.ToolResultPart(
                    tool_call_id="c1", tool_name="cl", result=Json(text='{"answer":7}')
                )
            )
        ],
    ),
]

_CLIENT_TOOLS = [
    Scenario("client_tool_continue", _CLIENT, (Start(_HISTORY),)),
    Scenario(
        "client_tool_plus_server",
        _CLIENT,
        differences=(
            d.becomes(
                0,
                "Client tools are waiting calls: the run parks, the client hands in the result.",
                [
                    "start",
                    "step-start",
                    *lines.call("c1", "cl", {"q": "z"}),
                    *lines.call("c2", "echo", {"msg": "b"}),
                    lines.client_call("c1", "cl", {"q": "z"}),
                    lines.result("c2", "echo", {"msg": "b"}, {"said": "b"}),
                    lines.finish("suspended", 1, "c1"),
                ],
                Result(
                    "suspended",
                    "",
                    lines.cost(1),
                    tool_calls=['c1 cl {"q":"z"}', 'c2 echo {"msg":"b"}'],
                    tool_results=['c2 echo {"msg":"b"} -> {"said":"b"}'],
                    steps=[f'tool-calls {lines.cost(1)} ""'],
                    suspend='c1 cl {"q":"z"}',
                ),
            ),
        ),
    ),
]

# ---- suspension ----

_SUSPENSION = [
    Scenario(
        "suspend_resume",
        SUSPENDING,
        (Start(), resume({"ok": True})),
        parks("pre ", "c1 confirm resume"),
    ),
    Scenario(
        "suspend_again",
        SUSPENDING,
        (Start(), resume({"a": "more"}), resume({"a": "fin"})),
        parks("pre ", "c1 again resume", "c1 again resume"),
    ),
    Scenario(
        "suspend_approve_used_on_suspend",
        SUSPENDING,
        (Start(), approve("c1")),
        (
            d.refused(1, "FAILED_PRECONDITION VERB_MISMATCH", d.FITTING_VERB),
            d.prompts(_STAYS, keep=1),
            *parks("pre "),
        ),
    ),
    Scenario(
        "suspend_bad_payload",
        SUSPENDING,
        (Start(), resume({"ok": True})),
        parks("pre ", "c1 badsusp resume"),
    ),
    Scenario(
        "suspend_no_schema_code_after_suspend",
        SUSPENDING,
        (Start(), resume({"any": 1})),
        parks("pre ", "c1 nosch resume"),
    ),
    Scenario(
        "suspend_plus_normal_suspend_first",
        SUSPENDING,
        (Start(), resume({"ok": True})),
        (d.told_when_there("c2", 1, 0), *parks("", "c1 confirm resume")),
    ),
    Scenario(
        "suspend_resume_null",
        SUSPENDING,
        (Start(), resume(None)),
        (d.refused(1, _REFUSED, "`null` is an answer, and must fit."), *parks("pre ")),
    ),
    Scenario(
        "suspend_resume_unknown_run",
        SUSPENDING,
        (
            Start(),
            resume({"ok": True}, run_id="no-such-run"),
            resume({"ok": True}, run_id=""),
        ),
        (
            d.refused(1, "NOT_FOUND RUN_NOT_FOUND", "Refusals have codes and reasons."),
            d.refused(2, "INVALID_ARGUMENT REQUEST_INVALID", "Refusals have codes and reasons."),
            *parks("pre "),
        ),
    ),
    _refused_answer("suspend_resume_wrong_type", "a string"),
    Scenario(
        "suspend_two_parallel_concurrent",
        FREE,
        (Start(), resume({"v": 2}, "c2"), resume({"v": 1}, "c1")),
        (
            d.becomes(
                1,
                "Of two waiting calls one is answered: what remains is shown.",
                [],
                Result("suspended", tool_calls=_TWO_CALLS),
            ),
            d.told_when_there("c2", 2, 1),
            d.first_open(_FIRST_OF_TWO, 0, 1),
            *parks("", "c2 nosch resume", "c1 nosch resume"),
        ),
    ),
    Scenario(
        "suspend_two_parallel_concurrent_noid",
        FREE,
        (Start(), resume({"v": "first"}), resume({"v": "second"})),
        (
            d.refused(1, "FAILED_PRECONDITION PENDING_CALL_AMBIGUOUS", d.AMBIGUOUS),
            d.refused(2, "FAILED_PRECONDITION PENDING_CALL_AMBIGUOUS", d.AMBIGUOUS),
            d.prompts(_STAYS, keep=1),
            d.first_open(_FIRST_OF_TWO, 0),
            *parks(""),
        ),
    ),
    Scenario(
        "suspend_two_parallel_noschema",
        SUSPENDING,
        (Start(), resume({"v": 2}, "c2"), resume({"v": 1}, "c1")),
        (
            d.announced_at_once("c2", 2),
            d.becomes(
                1,
                _FREE_AT_ONCE,
                [lines.result("c2", "nosch", {"op": "y"}, {"rd": {"v": 2}})],
                Result(
                    "suspended",
                    tool_calls=_TWO_CALLS,
                    tool_results=['c2 nosch {"op":"y"} -> {"rd":{"v":2}}'],
                    suspend=_FIRST_OF_TWO,
                ),
            ),
            d.becomes(
                2,
                _FREE_AT_ONCE,
                [lines.result("c1", "nosch", {"op": "x"}, {"rd": {"v": 1}}), *_final()],
                _both(),
            ),
            d.prompts(
                "The prompt has the results in call order.",
                [
                    'assistant call c1 nosch {"op":"x"}',
                    'assistant + call c2 nosch {"op":"y"}',
                    'tool c1 nosch json {"rd":{"v":1}}',
                    'tool + c2 nosch json {"rd":{"v":2}}',
                ],
                keep=1,
            ),
            *parks("", "c2 nosch resume", "c1 nosch resume"),
        ),
    ),
    Scenario(
        "generate_suspend_resume",
        SUSPENDING,
        (Start(), resume({"ok": True}), resume({"ok": True})),
        (d.refused(2, _FINISHED, d.OVER), d.kept("pre ")),
    ),
]

# ---- the edges of it ----

_EDGES = [
    Scenario(
        "edge_abort_then_resume",
        STRANGE,
        (
            Start(),
            resume({"v": 1}, cancel_when=lambda talk: "one " in _texts(talk)),
            resume({"v": 1}),
        ),
        (
            d.refused(2, _FINISHED, d.OVER),
            d.aborted(text="one ", steps=['aborted 0/0/0 "one "']),
            *parks("", "c1 nosch resume"),
        ),
    ),
    Scenario(
        "edge_gen_two_concurrent_suspended",
        STRANGE,
        (Start(), resume({"v": 2}, "c2"), resume({"v": 1}, "c1")),
        (
            d.becomes(
                1,
                "Of two waiting calls one is answered: what remains is shown.",
                None,
                Result("suspended", tool_calls=_TWO_CALLS),
            ),
            d.told_when_there("c2", 2, 1),
            d.first_open(_FIRST_OF_TWO, 0, 1),
            d.kept(),
        ),
    ),
    Scenario(
        "edge_maxsteps1_suspend",
        Setup(tools.strange, {"max_steps": 1}),
        (Start(), resume({"v": 1})),
        parks("", "c1 nosch resume"),
    ),
    Scenario(
        "edge_no_storage",
        STRANGE,
        (Start(), resume({"v": 1})),
        (
            d.becomes(
                1,
                "There is always a store: what is parked can be answered.",
                [
                    lines.resolved("c1", "nosch", "resume"),
                    lines.result("c1", "nosch", {"op": "x"}, {"rd": {"v": 1}}),
                    *_final("end"),
                ],
                Result(
                    "stop",
                    "end",
                    lines.cost(2),
                    tool_calls=_TWO_CALLS[:1],
                    tool_results=['c1 nosch {"op":"x"} -> {"rd":{"v":1}}'],
                    steps=[f'tool-calls {lines.cost(1)} ""', f'stop {lines.cost(1)} "end"'],
                ),
            ),
            d.prompts(
                "There is always a store: what is parked can be answered.",
                ['assistant call c1 nosch {"op":"x"}', 'tool c1 nosch json {"rd":{"v":1}}'],
                keep=1,
            ),
            *parks(""),
        ),
        script=[[{"tool": "nosch", "id": "c1", "args": {"op": "x"}}], [{"text": "end"}]],
    ),
    Scenario(
        "edge_resume_falsy_zero",
        STRANGE,
        (Start(), resume(0), resume(False), resume({})),
        parks("", "c1 nosch resume", "c1 nosch resume", "c1 nosch resume"),
    ),
    Scenario(
        "edge_resume_model_error",
        Setup(tools.strange, ONCE),
        (Start(), resume({"v": 1}), resume({"v": 1})),
        (
            d.failed(
                1,
                Result(
                    "",
                    "",
                    lines.cost(1),
                    tool_calls=_TWO_CALLS[:1],
                    tool_results=['c1 nosch {"op":"x"} -> {"rd":{"v":1}}'],
                    steps=[f'tool-calls {lines.cost(1)} ""', 'error 0/0/0 ""'],
                ),
            ),
            d.refused(2, _FINISHED, d.OVER),
            *parks("", "c1 nosch resume"),
        ),
    ),
    Scenario(
        "edge_resume_tool_throws",
        Setup(tools.throwing_when_resumed),
        (Start(), resume({"v": 1})),
        parks("", "c1 sx resume"),
    ),
    Scenario(
        "edge_suspend_then_error_sibling",
        STRANGE,
        (Start(), resume({"v": 1})),
        (d.told_when_there("c2", 1, 0), *parks("", "c1 nosch resume")),
    ),
]


def _texts(talk: Any) -> list[str]:
    return [chunk.text_delta.text for chunk in talk.chunks if chunk.WhichOneof("payload") == "text_delta"]


# ---- over a restart ----

_BOB = {"request_context": Json(text='{"user":"bob"}')}
_INSTRUCTIONS = message_pb2.Message(
    parts=[message_pb2.MessagePart(text=message_pb2.TextPart(text="PER-CALL INSTRUCTIONS"))]
)

_RESTARTS = [
    Scenario(
        "restart_suspend",
        Setup(tools.with_user, _BOB),
        (Start(), resume({"ok": True}, new_process=True)),
        parks("pre ", "c1 confirm resume"),
    ),
    Scenario(
        "restart_eager_sibling_rerun",
        Setup(tools.with_user, _BOB),
        (Start(), resume({"ok": True}, new_process=True)),
        (
            d.told_when_there("c2", 1, 0),
            d.entered(
                ["confirm", "x", "bob"], ["echo", "side-effect"], ["confirm", "x", {"ok": True}, "bob"]
            ),
            *parks("", "c1 confirm resume"),
        ),
    ),
    Scenario(
        "restart_generate_sibling",
        Setup(tools.with_user, _BOB),
        (Start(), resume({"ok": True}, new_process=True)),
        (
            d.told_when_there("c2", 1, 0),
            d.entered(
                ["confirm", "x", "bob"], ["echo", "side-effect"], ["confirm", "x", {"ok": True}, "bob"]
            ),
            d.kept(),
        ),
    ),
    Scenario(
        "restart_changed_opts",
        Setup(tools.with_user, {**_BOB, "max_steps": 2, "instructions": [_INSTRUCTIONS]}),
        (Start(), resume({"ok": True}, new_process=True)),
        (
            *parks(""),
            d.becomes(
                1,
                "A run's options are stored with it: its limit counts over the whole run.",
                [
                    lines.resolved("c1", "confirm", "resume"),
                    lines.result("c1", "confirm", {"op": "x"}, {"done": True}),
                    lines.step_finish("tool-calls", 1, goes_on=True),
                    "step-start",
                    *lines.call("c2", "echo", {"msg": "1"}),
                    lines.result("c2", "echo", {"msg": "1"}, {"said": "1"}),
                    lines.step_finish("tool-calls", 2),
                    lines.finish("tool-calls", 2),
                ],
                Result(
                    "tool-calls",
                    "",
                    lines.cost(2),
                    tool_calls=['c1 confirm {"op":"x"}', 'c2 echo {"msg":"1"}'],
                    tool_results=[
                        'c1 confirm {"op":"x"} -> {"done":true}',
                        'c2 echo {"msg":"1"} -> {"said":"1"}',
                    ],
                    steps=[f'tool-calls {lines.cost(1)} ""'] * 2,
                ),
            ),
            d.prompts(
                "A run's options are stored with it: its instructions hold over every resume.",
                ['assistant call c1 confirm {"op":"x"}', 'tool c1 confirm json {"done":true}'],
                keep=1,
            ),
            d.entered(["confirm", "x", "bob"], ["confirm", "x", {"ok": True}, "bob"], ["echo", "1"]),
        ),
    ),
]

SCENARIOS = [*_QUESTIONS, *_CLIENT_TOOLS, *_SUSPENSION, *_EDGES, *_RESTARTS]
