"""The due scenarios about approval."""

from entracte.v1 import options_pb2 as options
from tests.scenarios import differences as d
from tests.scenarios import lines, tools
from tests.scenarios.lines import Result
from tests.scenarios.table import ALL, Scenario, Setup, Start, approvals, approve, decline, resume

STANDARD = "The call was declined."


def _gated(*names: str) -> Setup:
    return Setup(tools.gated(*names))


def _all(*names: str) -> Setup:
    return Setup(tools.gated(*names), ALL)


_FINAL = [
    lines.step_finish("tool-calls", 1, goes_on=True),
    "step-start",
    *lines.say("final"),
    lines.step_finish("stop", 2),
    lines.finish("stop", 2),
]

_SECOND_STEP = [
    lines.resolved("c1", "echo", "approve"),
    lines.result("c1", "echo", {"msg": "1"}, {"said": "1"}),
    lines.step_finish("tool-calls", 1, goes_on=True),
    "step-start",
    *lines.call("c2", "echo", {"msg": "2"}),
    lines.approval("c2", "echo", {"msg": "2"}),
    lines.finish("suspended", 2, "c2"),
]
_SECOND_STEP_RESULT = Result(
    "suspended",
    usage=lines.cost(2),
    tool_calls=['c1 echo {"msg":"1"}', 'c2 echo {"msg":"2"}'],
    tool_results=['c1 echo {"msg":"1"} -> {"said":"1"}'],
    steps=[f'tool-calls {lines.cost(1)} ""', f'tool-calls {lines.cost(1)} ""'],
    suspend='c2 echo {"msg":"2"}',
)
_KEPT = "A run's policies hold over every resume; a decision cannot lift one."
"""Recorded: a policy that is a function is lost, and a decision may switch a policy off."""

_BOTH_CALLS = ['c1 a {"v":"x"}', 'c2 b {"v":"y"}']
_ANY_ORDER = "Calls that wait may be answered in any order, and each is executed as soon as it is answered."

SCENARIOS = [
    Scenario(
        "approval_tool_flag",
        _gated("need"),
        (Start(), approve()),
        approvals("pre ", "c1 need approve"),
    ),
    Scenario(
        "approval_tool_fn_true",
        _gated("fn"),
        (Start(), approve()),
        approvals("pre ", "c1 fn approve"),
    ),
    Scenario(
        "approval_tool_fn_throws",
        _gated("fnthrow"),
        (Start(), approve()),
        approvals("pre ", "c1 fnthrow approve"),
    ),
    Scenario(
        "approval_decline",
        _all("a"),
        (Start(), decline()),
        (d.DEFAULT_REASON, d.declined("c1", "a", STANDARD), *approvals("pre ", "c1 a decline")),
    ),
    Scenario(
        "approval_decline_reason",
        _all("a"),
        (Start(), decline(reason="too risky")),
        (d.declined("c1", "a", "too risky"), *approvals("pre ", "c1 a decline")),
    ),
    Scenario(
        "approval_generate_decline",
        _all("a"),
        (Start(), decline("c1", "nope")),
        (d.declined("c1", "a", "nope"), d.APPROVE_IS_A_VERB, d.kept("pre ")),
    ),
    Scenario(
        "approval_generate_two",
        _all("a", "b"),
        (Start(), approve("c1"), approve("c2")),
        (d.told_when_there("c1", 2, 1), d.APPROVE_IS_A_VERB, d.kept()),
    ),
    Scenario(
        "approval_global_fn",
        Setup(
            tools.gated("a", "b"),
            {"require_tool_approval": options.ToolApproval(rules=options.ToolApprovalRules(names=["b"]))},
        ),
        (Start(), approve()),
        (d.told_when_there("c1", 1, 0), *approvals("", "c2 b approve")),
    ),
    Scenario(
        "approval_invalid_args",
        _all("typed"),
        (Start(), approve()),
        (
            d.becomes(
                0,
                "Arguments are validated before a reviewer is asked.",
                [
                    "start",
                    "step-start",
                    *lines.call("c1", "typed", {"n": "str"}),
                    lines.error("c1", "typed", {"n": "str"}, "invalid-args"),
                    *_FINAL,
                ],
                Result(
                    "stop",
                    "final",
                    lines.cost(2),
                    tool_calls=['c1 typed {"n":"str"}'],
                    steps=[f'tool-calls {lines.cost(1)} ""', f'stop {lines.cost(1)} "final"'],
                ),
            ),
            d.refused(1, "FAILED_PRECONDITION RUN_FINISHED", d.OVER),
            d.schema_failure("c1", "typed", {"n": "str"}),
        ),
    ),
    Scenario(
        "approval_normal_first",
        _gated("need", "a"),
        (Start(), decline()),
        (
            d.told_when_there("c1", 1, 0),
            d.DEFAULT_REASON,
            d.declined("c2", "need", STANDARD),
            *approvals("", "c2 need decline"),
        ),
    ),
    Scenario(
        "approval_per_tool_false_global_true",
        Setup(tools.more, ALL),
        (Start(),),
        approvals(""),
    ),
    Scenario(
        "approval_plus_normal",
        _gated("need", "a"),
        (Start(), approve()),
        (d.told_when_there("c2", 1, 0), *approvals("", "c1 need approve")),
    ),
    Scenario(
        "approval_plus_normal_decline",
        _gated("need", "a"),
        (Start(), decline()),
        (
            d.told_when_there("c2", 1, 0),
            d.DEFAULT_REASON,
            d.declined("c1", "need", STANDARD),
            *approvals("", "c1 need decline"),
        ),
    ),
    Scenario(
        "approval_resume_garbage",
        _all("a"),
        (Start(), resume({"foo": 1}), approve()),
        (
            d.refused(1, "FAILED_PRECONDITION VERB_MISMATCH", d.FITTING_VERB),
            *approvals("pre ", "", "c1 a approve"),
        ),
    ),
    Scenario(
        "approval_then_suspend",
        _gated("appsusp"),
        (Start(), approve(), resume({"ans": "A"})),
        approvals("pre ", "c1 appsusp approve", "c1 appsusp resume"),
    ),
    Scenario(
        "approval_then_suspend_approved_shape",
        _gated("appsusp"),
        (Start(), approve(), resume({"approved": False}), resume({"ans": "A"})),
        (
            d.refused(2, "INVALID_ARGUMENT RESUME_DATA_INVALID", d.VALIDATED_FIRST),
            d.becomes(
                3,
                "The question is still open after an answer that did not fit.",
                [
                    lines.resolved("c1", "appsusp", "resume"),
                    lines.result("c1", "appsusp", {"v": "x"}, {"r": {"ans": "A"}}),
                    *_FINAL,
                ],
                Result(
                    "stop",
                    "pre final",
                    lines.cost(2),
                    tool_calls=['c1 appsusp {"v":"x"}'],
                    tool_results=['c1 appsusp {"v":"x"} -> {"r":{"ans":"A"}}'],
                    steps=[f'tool-calls {lines.cost(1)} "pre "', f'stop {lines.cost(1)} "final"'],
                ),
            ),
            d.prompts(
                "The model sees the answer, never the one that was refused.",
                [
                    'assistant text "pre "',
                    'assistant + call c1 appsusp {"v":"x"}',
                    'tool c1 appsusp json {"r":{"ans":"A"}}',
                ],
                keep=1,
            ),
            d.entered(["appsusp", "x"], ["appsusp", "x", {"ans": "A"}]),
            *approvals("pre ", "c1 appsusp approve"),
        ),
    ),
    Scenario(
        "approval_two_parallel",
        _all("a", "b"),
        (Start(), approve("c1"), approve("c2")),
        (
            d.announced_at_once("c2", 1),
            d.told_when_there("c1", 2, 1),
            *approvals("", "c1 a approve", "c2 b approve"),
        ),
    ),
    Scenario(
        "approval_two_parallel_second_first",
        _all("a", "b"),
        (Start(), approve("c2"), approve("c1")),
        (
            d.announced_at_once("c2", 2),
            d.becomes(
                1,
                _ANY_ORDER,
                [lines.result("c2", "b", {"v": "y"}, {"b": "y"})],
                Result(
                    "suspended",
                    tool_calls=_BOTH_CALLS,
                    tool_results=['c2 b {"v":"y"} -> {"b":"y"}'],
                    suspend='c1 a {"v":"x"}',
                ),
            ),
            d.becomes(
                2,
                _ANY_ORDER,
                [lines.result("c1", "a", {"v": "x"}, {"a": "x"}), *_FINAL],
                Result(
                    "stop",
                    "final",
                    lines.cost(2),
                    tool_calls=_BOTH_CALLS,
                    tool_results=['c1 a {"v":"x"} -> {"a":"x"}', 'c2 b {"v":"y"} -> {"b":"y"}'],
                    steps=[f'tool-calls {lines.cost(1)} ""', f'stop {lines.cost(1)} "final"'],
                ),
            ),
            d.prompts(
                "The prompt has the results in call order, whatever the order of the answers.",
                [
                    'assistant call c1 a {"v":"x"}',
                    'assistant + call c2 b {"v":"y"}',
                    'tool c1 a json {"a":"x"}',
                    'tool + c2 b json {"b":"y"}',
                ],
                keep=1,
            ),
            d.entered(["b", "y"], ["a", "x"]),
            *approvals("", "c2 b approve", "c1 a approve"),
        ),
    ),
    Scenario("approval_unknown_tool", _all("a")),
    Scenario(
        "callbacks_on_suspend",
        Setup(tools.more, ALL),
        (Start(), approve()),
        approvals("", "c1 echo approve"),
    ),
    Scenario(
        "resume_switches_approval_off",
        Setup(tools.more, ALL),
        (Start(), approve()),
        (
            *approvals(""),
            d.becomes(1, _KEPT, _SECOND_STEP, _SECOND_STEP_RESULT),
            d.prompts("The run waits before its third step.", keep=2),
            d.entered(["echo", "1"]),
        ),
    ),
    Scenario(
        "restart_approval_second_step_bool",
        Setup(tools.remembered, ALL),
        (Start(), approve(new_process=True)),
        approvals("", "c1 echo approve"),
    ),
    Scenario(
        "restart_approval_second_step_fn",
        Setup(
            tools.remembered,
            {
                "require_tool_approval": options.ToolApproval(
                    rules=options.ToolApprovalRules(patterns=["ec*"])
                )
            },
        ),
        (Start(), approve(new_process=True)),
        (
            *approvals(""),
            d.becomes(1, _KEPT, _SECOND_STEP, _SECOND_STEP_RESULT),
            d.prompts("The run waits before its third step.", keep=2),
            d.entered(["echo", "1"]),
        ),
    ),
]
