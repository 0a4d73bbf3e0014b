"""The due scenarios about the loop: text, tools, limits, errors, cancellation."""

from entracte.v1 import message_pb2
from entracte.v1 import options_pb2 as options
from tests.scenarios import differences as d
from tests.scenarios import lines, tools
from tests.scenarios.lines import Prompt, Result
from tests.scenarios.play import Conversation, said, text_input
from tests.scenarios.table import ONCE, Scenario, Setup, Start

BASIC = Setup(tools.basic)
LOOP = Setup(tools.looping)
STRANGE = Setup(tools.strange)


def _choice(mode: options.ToolChoice.Mode.ValueType, name: str = "") -> Setup:
    return Setup(tools.looping, {"tool_choice": options.ToolChoice(mode=mode, tool_name=name)})


def _limit(**values: int) -> Setup:
    return Setup(tools.looping, values)


def _only(*names: str) -> Setup:
    return Setup(tools.looping, {"active_tools": options.ToolNames(names=names)})


_TEXT = [
    Scenario("plain_text", Setup(tools.none)),
    Scenario("reasoning_text", Setup(tools.none)),
    Scenario("raw_chunks", Setup(tools.basic, {"include_raw_chunks": True})),
    Scenario("finish_length", BASIC),
    Scenario("edge_finish_content_filter", STRANGE),
    Scenario(
        "input_array_of_strings",
        Setup(
            tools.none,
            {
                "context": text_input("CTX"),
                "system": [said(message_pb2.ROLE_SYSTEM, "EXTRA SYS")],
                "instructions": [said(message_pb2.ROLE_SYSTEM, "OVERRIDE")],
            },
        ),
        (Start(text_input("one", "two")),),
        script=[[{"text": "a"}]],
    ),
    Scenario("callbacks_order_generate", Setup(tools.more)),
    Scenario("maxsteps_1_then_text_only", _limit(max_steps=1)),
    Scenario("maxsteps_2", _limit(max_steps=2)),
    Scenario("maxsteps_default", LOOP, differences=(d.TOTALS,)),
]

_NOT_EXECUTED = lines.error("c1", "echo", {"msg": "a"}, "not-executed")

_TOOLS = [
    Scenario("parallel_tool_calls", BASIC),
    Scenario("finish_stop_with_tool", BASIC),
    Scenario("tool_throws", BASIC),
    Scenario("tool_throws_and_ok", BASIC),
    Scenario("unknown_tool", BASIC),
    Scenario(
        "invalid_args_json",
        BASIC,
        differences=(
            d.rewritten(
                "What is no JSON object is shown as it came, and is not executed.",
                r"^(tool-call )?c1 echo \{\}$",
                r'\1c1 echo INVALID {"msg": tru',
            ),
            d.schema_failure("c1", "echo", None),
        ),
    ),
    Scenario(
        "invalid_args_schema",
        BASIC,
        differences=(d.schema_failure("c1", "echo", {"msg": 5, "zzz": 1}),),
    ),
    Scenario("activeTools_excluded", _only("echo")),
    Scenario("tool_writer", LOOP),
    Scenario(
        "tool_context",
        LOOP,
        differences=(
            d.rewritten(
                "A tool is told where it is, whether there is an answer, and how to ask; see its context.",
                r'\{"agentKeys".*',
                lines.compact(
                    {
                        "keys": [
                            "agent_id",
                            "cancelled",
                            "drain",
                            "expired",
                            "idempotency_key",
                            "request_context",
                            "resource_id",
                            "resume_data",
                            "resumed",
                            "run_id",
                            "state",
                            "suspend",
                            "suspend_payload",
                            "thread_id",
                            "tool_call_id",
                            "tool_name",
                            "write",
                        ]
                    }
                ),
            ),
        ),
    ),
    Scenario(
        "toolset_overrides_agent_tool",
        Setup(tools.looping, {"toolsets": ["set1"]}, toolsets=tools.in_a_toolset),
        script=[[{"tool": "set1__echo", "id": "c1", "args": {"msg": "a"}}], [{"text": "fin"}]],
        differences=(d.qualified("echo", "set1__echo"),),
    ),
    Scenario("toolChoice_required", _choice(options.ToolChoice.MODE_REQUIRED), differences=(d.FORCED_ONCE,)),
    Scenario("toolChoice_tool", _choice(options.ToolChoice.MODE_TOOL, "echo"), differences=(d.FORCED_ONCE,)),
    Scenario(
        "toolChoice_none",
        _choice(options.ToolChoice.MODE_NONE),
        differences=(
            d.not_executed("c1", "echo", {"msg": "a"}, "Tool choice `none` executes nothing."),
            d.entered(),
        ),
    ),
    Scenario(
        "concurrency_1",
        _limit(tool_call_concurrency=1),
        ties=frozenset(),
    ),
    Scenario(
        "concurrency_2",
        _limit(tool_call_concurrency=2),
        differences=(d.completed("c2", "c1", "c3", "c4"),),
        ties=frozenset({"c3", "c4"}),
    ),
    Scenario(
        "eager_false",
        LOOP,
        differences=(d.completed("c4", "c3", "c2", "c1"),),
        ties=frozenset(),
    ),
    Scenario("edge_tool_returns_null", STRANGE),
    Scenario("edge_tool_throws_rich", STRANGE),
    Scenario(
        "edge_tool_returns_bigint",
        STRANGE,
        differences=(d.rewritten("Integers of any size survive as integers.", r'\{"n":"10"\}', '{"n":10}'),),
    ),
    Scenario(
        "edge_tool_returns_circular",
        STRANGE,
        differences=(d.not_json("c1", "circ", {}),),
    ),
    Scenario(
        "edge_duplicate_tool_call_ids",
        STRANGE,
        differences=(
            d.fresh_id("c1", "new1", "echo", {"msg": "b"}),
            d.prompts(
                "Two calls of one id are two calls: each has its own result.",
                [
                    'assistant call c1 echo {"msg":"a"}',
                    'assistant + call new1 echo {"msg":"b"}',
                    'tool c1 echo json {"said":"a"}',
                    'tool + new1 echo json {"said":"b"}',
                ],
                keep=1,
            ),
        ),
    ),
    Scenario(
        "edge_duplicate_ids_across_steps",
        STRANGE,
        differences=(
            d.fresh_id("c1", "new1", "echo", {"msg": "b"}),
            d.prompts(
                "An id that was used in an earlier step is replaced: no result is overwritten.",
                ['assistant call new1 echo {"msg":"b"}', 'tool new1 echo json {"said":"b"}'],
                keep=2,
            ),
            d.TOTALS,
        ),
    ),
    Scenario(
        "edge_finish_length_with_tool",
        STRANGE,
        differences=(
            d.becomes(
                0,
                "Calls under `length` are not executed: the model gets an error and may try again.",
                [
                    "start",
                    "step-start",
                    *lines.call("c1", "echo", {"msg": "a"}),
                    _NOT_EXECUTED,
                    lines.step_finish("length", 1, goes_on=True),
                    "step-start",
                    *lines.say("b"),
                    lines.step_finish("stop", 2),
                    lines.finish("stop", 2),
                ],
                Result(
                    "stop",
                    "b",
                    lines.cost(2),
                    tool_calls=['c1 echo {"msg":"a"}'],
                    steps=[f'length {lines.cost(1)} ""', f'stop {lines.cost(1)} "b"'],
                ),
            ),
            d.prompts(
                "Calls under `length` are not executed: the model gets an error and may try again.",
                ['assistant call c1 echo {"msg":"a"}', "tool c1 echo error not-executed"],
                keep=1,
            ),
            d.entered(),
        ),
    ),
]

_MODEL = [
    Scenario(
        "finish_other_zero",
        BASIC,
        differences=(
            d.rewritten(
                "Words of ours.",
                r"Agent stream finished with finishReason .*",
                "The model's answer has nothing in it.",
            ),
            d.failed(
                0,
                Result(
                    "",
                    usage=lines.cost(1),
                    steps=[f'error {lines.cost(1)} ""'],
                    error="The model's answer has nothing in it.",
                ),
            ),
        ),
    ),
    Scenario(
        "model_error_chunk_midstream",
        Setup(tools.looping, ONCE),
        differences=(d.failed(0, Result("", "partial ", steps=['error 0/0/0 "partial "'])),),
    ),
    Scenario(
        "model_error_second_step",
        Setup(tools.looping, ONCE),
        differences=(
            d.failed(
                0,
                Result(
                    "",
                    "",
                    lines.cost(1),
                    tool_calls=['c1 echo {"msg":"a"}'],
                    tool_results=['c1 echo {"msg":"a"} -> {"said":"a"}'],
                    steps=[f'tool-calls {lines.cost(1)} ""', 'error 0/0/0 ""'],
                ),
            ),
        ),
    ),
    Scenario("model_retry_plain_error", Setup(tools.looping, max_retries=2)),
    Scenario(
        "model_stream_breaks",
        Setup(tools.looping, ONCE),
        differences=(d.failed(0, Result("", "partial ", steps=['error 0/0/0 "partial "'])),),
    ),
    Scenario(
        "retry_default_unset",
        Setup(tools.none, instructions="S"),
        differences=(
            d.rewritten("Two retries are the default.", "^error r1$", "error r3"),
            d.failed(0, Result("", steps=['error 0/0/0 ""'], error="r3")),
            d.called(3, "Two retries are the default."),
        ),
        script=[
            *([{"throw": f"r{n}", "props": {"isRetryable": True, "statusCode": 503}}] for n in (1, 2, 3)),
            [{"text": "ok"}],
        ],
    ),
    Scenario(
        "retry_exhausted",
        Setup(tools.more, max_retries=1),
        differences=(d.failed(0, Result("", steps=['error 0/0/0 ""'])),),
    ),
    Scenario("retry_genuine_retryable", Setup(tools.more, max_retries=3)),
    Scenario(
        "retry_midstream_not_retried",
        Setup(tools.more, max_retries=3),
        differences=(d.failed(0, Result("", "part ", steps=['error 0/0/0 "part "'])),),
    ),
    Scenario(
        "fallback_models",
        Setup(tools.none, instructions="S", max_retries=0, fallback=[[{"text": "from m2"}]]),
        script=[[{"throw": "m1 down"}]],
    ),
]


def _asked(talk: Conversation) -> bool:
    return talk.model.calls == 1


def _entered(talk: Conversation) -> bool:
    return len(talk.log) == 1


_CANCELLED = [
    Scenario(
        "abort_before_start",
        LOOP,
        (Start(cancel_when=_asked),),
        (
            d.inserted("A run is cancelled once it exists: its first step has begun.", "abort", "step-start"),
            d.aborted(),
            d.asked_once(
                "A run is cancelled once it exists: its model was just asked.",
                Prompt(
                    "auto",
                    ["echo", "slow", "abortable", "client", "writer", "ctx"],
                    ['system text "SYS"', 'user text "hi"'],
                ),
            ),
        ),
        script=[[{"delay": 20_000}, {"text": "x"}]],
    ),
    Scenario(
        "abort_during_tool",
        LOOP,
        (Start(cancel_when=_entered),),
        (d.aborted(text="pre ", drop="step-finish"),),
    ),
]

SCENARIOS = [*_TEXT, *_TOOLS, *_MODEL, *_CANCELLED]
