"""Every option has its field and every field its keyword."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.json_format import MessageToDict

import entracte
from entracte import (
    Client,
    ClientTool,
    Delegation,
    Memory,
    Message,
    ModelSettings,
    PendingCallExpiry,
    Processor,
    Scorer,
    SemanticRecall,
    StopWhen,
    StructuredOutput,
    TaskCompletion,
    Telemetry,
    TextPart,
    Thread,
    ToolApproval,
    ToolChoice,
    ToolHooks,
    TracingOptions,
    Version,
)
from entracte._options_codec import ENCODERS, to_options
from entracte.v1 import options_pb2
from tests.client.fake import FakeServer

SDK_ONLY = {
    "request_id", "timeout", "traceparent",
    "on_chunk", "on_step_finish", "on_finish", "on_error", "on_abort",
    "on_title_generated",
}  # fmt: skip


def look(place: str) -> str:
    """Looks at a place."""
    return place


SAMPLES: Mapping[str, tuple[Any, Any]] = {
    "run_id": ("r1", "r1"),
    "max_steps": (8, 8),
    "stop_when": (
        [
            StopWhen(step_count=3),
            {"tool_called": "pay"},
            StopWhen(total_tokens=10**12),
            StopWhen(cost_micros=5),
            StopWhen(text_contains="bye"),
            StopWhen(predicate="enough"),
        ],
        [
            {"stepCount": 3},
            {"toolCalled": "pay"},
            {"totalTokens": "1000000000000"},
            {"costMicros": "5"},
            {"textContains": "bye"},
            {"predicate": "enough"},
        ],
    ),
    "active_tools": (["a", "b"], {"names": ["a", "b"]}),
    "require_tool_approval": (
        ["refund", "pay_*"],
        {"rules": {"names": ["refund"], "patterns": ["pay_*"]}},
    ),
    "auto_resume_suspended_tools": (False, False),
    "tool_call_concurrency": (3, 3),
    "context": ("Background", [{"role": "ROLE_USER", "parts": [{"text": {"text": "Background"}}]}]),
    "structured_output": (
        StructuredOutput(
            {"type": "object"},
            model="openai/x",
            error_strategy="fallback",
            fallback_value=None,
            instructions="short",
            json_prompt_injection="inline",
            provider_options={"openai": {}},
        ),
        {
            "schema": {"text": '{"type":"object"}'},
            "model": "openai/x",
            "errorStrategy": "ERROR_STRATEGY_FALLBACK",
            "fallbackValue": {"text": "null"},
            "instructions": "short",
            "jsonPromptInjection": "PROMPT_INJECTION_INLINE",
            "providerOptions": {"text": '{"openai":{}}'},
        },
    ),
    "output": ({"type": "string"}, {"text": '{"type":"string"}'}),
    "input_processors": (
        ["pii", Processor("trim", {"max": 1})],
        {"processors": [{"name": "pii"}, {"name": "trim", "parameters": {"text": '{"max":1}'}}]},
    ),
    "output_processors": ([], {}),
    "max_processor_retries": (0, 0),
    "instructions": (
        ["Be kind", {"role": "system", "content": "Be brief"}],
        [
            {"role": "ROLE_SYSTEM", "parts": [{"text": {"text": "Be kind"}}]},
            {"role": "ROLE_SYSTEM", "parts": [{"text": {"text": "Be brief"}}]},
        ],
    ),
    "system": (
        Message("system", (TextPart("It is May"),)),
        [{"role": "ROLE_SYSTEM", "parts": [{"text": {"text": "It is May"}}]}],
    ),
    "memory": (
        Memory(
            thread=Thread("t1", "Title", {"a": 1}),
            resource="u1",
            last_messages=0,
            save_messages=False,
            read_only=True,
            semantic_recall=SemanticRecall(top_k=2, message_range=0, scope="resource"),
            working_memory=True,
            filter_incomplete_tool_calls=False,
            generate_title=True,
            on_busy_thread="queue",
            on_parked_thread="cancel",
            queue_timeout=1.5,
            max_history_tokens=100,
        ),
        {
            "thread": {"id": "t1", "title": "Title", "metadata": {"text": '{"a":1}'}},
            "resource": "u1",
            "lastMessages": 0,
            "saveMessages": False,
            "readOnly": True,
            "semanticRecall": {"topK": 2, "messageRange": 0, "scope": "SCOPE_RESOURCE"},
            "workingMemory": True,
            "filterIncompleteToolCalls": False,
            "generateTitle": True,
            "onBusyThread": "ON_BUSY_THREAD_QUEUE",
            "onParkedThread": "ON_PARKED_THREAD_CANCEL",
            "queueTimeout": "1.500s",
            "maxHistoryTokens": 100,
        },
    ),
    "telemetry": (
        Telemetry(is_enabled=True, record_inputs=False, record_outputs=True, function_id="f"),
        {"isEnabled": True, "recordInputs": False, "recordOutputs": True, "functionId": "f"},
    ),
    "model_settings": (
        ModelSettings(
            temperature=0.0,
            max_output_tokens=100,
            max_retries=0,
            top_p=0.5,
            top_k=4,
            presence_penalty=-1.0,
            frequency_penalty=1.5,
            stop_sequences=["END"],
            seed=7,
            headers={"x-a": "b"},
        ),
        {
            "temperature": 0.0,
            "maxOutputTokens": 100,
            "maxRetries": 0,
            "topP": 0.5,
            "topK": 4,
            "presencePenalty": -1.0,
            "frequencyPenalty": 1.5,
            "stopSequences": ["END"],
            "seed": "7",
            "headers": {"x-a": "b"},
        },
    ),
    "tool_choice": (
        {"tool": "look", "every_step": True},
        {"mode": "MODE_TOOL", "toolName": "look", "everyStep": True},
    ),
    "toolsets": (["files"], ["files"]),
    "client_tools": (
        [look, {"name": "beep", "description": "Beeps"}, ClientTool("hum", input_schema={})],
        [
            {
                "name": "look",
                "description": "Looks at a place.",
                "inputSchema": {
                    "text": '{"type":"object","properties":{"place":{"type":"string"}},'
                    '"required":["place"],"additionalProperties":false}'
                },
            },
            {"name": "beep", "description": "Beeps"},
            {"name": "hum", "inputSchema": {"text": "{}"}},
        ],
    ),
    "save_per_step": (True, True),
    "provider_options": (
        {"openai": {"reasoningEffort": "low"}},
        {"text": '{"openai":{"reasoningEffort":"low"}}'},
    ),
    "request_context": ({"z": 1, "a": 10**20}, {"text": '{"z":1,"a":100000000000000000000}'}),
    "tracing_options": (
        TracingOptions(
            metadata={"a": 1},
            request_context_keys=["user.id"],
            trace_id="ab",
            parent_span_id="cd",
            tags=["x"],
        ),
        {
            "metadata": {"text": '{"a":1}'},
            "requestContextKeys": ["user.id"],
            "traceId": "ab",
            "parentSpanId": "cd",
            "tags": ["x"],
        },
    ),
    "versions": (
        {"a": "published", "b": "draft", "c": Version("v3"), "d": {"status": "draft"}},
        {
            "a": {"published": True},
            "b": {"published": False},
            "c": {"versionId": "v3"},
            "d": {"published": False},
        },
    ),
    "include_raw_chunks": (True, True),
    "is_task_complete": (
        TaskCompletion(["done"], "any", parallel=False, timeout=1.5, suppress_feedback=True),
        {
            "scorers": ["done"],
            "strategy": "STRATEGY_ANY",
            "parallel": False,
            "timeout": "1.500s",
            "suppressFeedback": True,
        },
    ),
    "scorers": (
        {"tone": Scorer("tone-v2", 0.5, "ratio"), "length": 0.0, "facts": None},
        {
            "tone": {"scorer": "tone-v2", "samplingRatio": 0.5, "sampling": "SAMPLING_RATIO"},
            "length": {"samplingRatio": 0.0},
            "facts": {},
        },
    ),
    "return_scorer_data": (True, True),
    "execution_timeout": (timedelta(minutes=2), "120s"),
    "cancel_on_disconnect": (True, True),
    "include_request_body": (True, True),
    "rate_limit_wait": (1.5, "1.500s"),
    "on_iteration_complete": ("look", "look"),
    "prepare_step": ("cheaper", "cheaper"),
    "hooks": (
        ToolHooks(before_tool_call="first", after_tool_call="last"),
        {"beforeToolCall": "first", "afterToolCall": "last"},
    ),
    "delegation": (
        Delegation("ask", "look", "choose", "throw"),
        {
            "onDelegationStart": "ask",
            "onDelegationComplete": "look",
            "messageFilter": "choose",
            "hookErrorStrategy": "HOOK_ERROR_STRATEGY_THROW",
        },
    ),
    "pending_call_expiry": (
        PendingCallExpiry(timedelta(minutes=2), default_answers={"ask_user": "go on", "read": None}),
        {
            "after": "120s",
            "action": "EXPIRY_ACTION_ANSWER",
            "defaultAnswers": {"ask_user": {"text": '"go on"'}, "read": {"text": "null"}},
        },
    ),
}


def fields() -> list[str]:
    return [field.name for field in options_pb2.GenerateOptions.DESCRIPTOR.fields]


def test_every_field_of_the_contract_has_a_keyword_and_every_keyword_a_field() -> None:
    assert set(entracte.GenerateOptions.__annotations__) == set(fields()) | SDK_ONLY
    assert set(ENCODERS) == set(fields())


@pytest.mark.parametrize("name", fields())
async def test_each_option_arrives_in_its_field(server: FakeServer, client: Client, name: str) -> None:
    assert name in SAMPLES, f"a sample of {name} is missing here"
    value, expected = SAMPLES[name]
    await client.agent("support").stream("Hi", **{"run_id": "r1", name: value}).result()
    (request,) = server.asked("Stream")
    sent = MessageToDict(request.options)
    camel = name.split("_")[0] + "".join(word.capitalize() for word in name.split("_")[1:])
    assert sent.pop(camel) == expected
    assert sent == ({} if name == "run_id" else {"runId": "r1"})


RECORDS: list[tuple[type[Any], Descriptor]] = [
    (PendingCallExpiry, options_pb2.PendingCallExpiry.DESCRIPTOR),
    (StopWhen, options_pb2.StopCondition.DESCRIPTOR),
    (ToolApproval, options_pb2.ToolApprovalRules.DESCRIPTOR),
    (StructuredOutput, options_pb2.StructuredOutput.DESCRIPTOR),
    (Processor, options_pb2.ProcessorRef.DESCRIPTOR),
    (Memory, options_pb2.MemoryOptions.DESCRIPTOR),
    (Thread, options_pb2.ThreadRef.DESCRIPTOR),
    (SemanticRecall, options_pb2.SemanticRecall.DESCRIPTOR),
    (Telemetry, options_pb2.TelemetryOptions.DESCRIPTOR),
    (ModelSettings, options_pb2.ModelSettings.DESCRIPTOR),
    (TracingOptions, options_pb2.TracingOptions.DESCRIPTOR),
    (TaskCompletion, options_pb2.TaskCompletion.DESCRIPTOR),
    (Scorer, options_pb2.ScorerOptions.DESCRIPTOR),
]


@pytest.mark.parametrize(("record", "message"), RECORDS, ids=lambda value: getattr(value, "__name__", ""))
def test_each_record_has_the_fields_of_its_message(record: type[Any], message: Descriptor) -> None:
    assert set(record.__dataclass_fields__) == {field.name for field in message.fields}


def encoded(**options: Any) -> dict[str, Any]:
    """The options as they are sent."""
    return MessageToDict(to_options(options))


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({"require_tool_approval": True}, {"requireToolApproval": {"all": True}}),
        (
            {"pending_call_expiry": 60},
            {"pendingCallExpiry": {"after": "60s", "action": "EXPIRY_ACTION_DECLINE"}},
        ),
        (
            {"pending_call_expiry": {"after": 0.5, "action": "fail"}},
            {"pendingCallExpiry": {"after": "0.500s", "action": "EXPIRY_ACTION_FAIL"}},
        ),
        ({"require_tool_approval": False}, {"requireToolApproval": {"all": False}}),
        ({"require_tool_approval": "pay?"}, {"requireToolApproval": {"rules": {"patterns": ["pay?"]}}}),
        (
            {"require_tool_approval": {"predicates": ["big"]}},
            {"requireToolApproval": {"rules": {"predicates": ["big"]}}},
        ),
        (
            {"require_tool_approval": {"toolsets": ["shop"], "expressions": {"pay_*": "args.cents > 5"}}},
            {
                "requireToolApproval": {
                    "rules": {
                        "toolsets": ["shop"],
                        "expressions": [{"tool": "pay_*", "expression": "args.cents > 5"}],
                    }
                }
            },
        ),
        ({"tool_choice": "auto"}, {"toolChoice": {"mode": "MODE_AUTO"}}),
        ({"tool_choice": "none"}, {"toolChoice": {"mode": "MODE_NONE"}}),
        ({"tool_choice": "required"}, {"toolChoice": {"mode": "MODE_REQUIRED"}}),
        (
            {"tool_choice": ToolChoice(mode="required", every_step=True)},
            {"toolChoice": {"mode": "MODE_REQUIRED", "everyStep": True}},
        ),
        ({"memory": {"thread": "t1"}}, {"memory": {"thread": {"id": "t1"}}}),
        (
            {"memory": {"thread": {"id": "t1", "title": "T"}}},
            {"memory": {"thread": {"id": "t1", "title": "T"}}},
        ),
        ({"stop_when": StopWhen(step_count=1)}, {"stopWhen": [{"stepCount": 1}]}),
        ({"active_tools": []}, {"activeTools": {}}),
        ({"scorers": ["a"]}, {"scorers": {"a": {}}}),
        (
            {"structured_output": {"schema": {}, "json_prompt_injection": True}},
            {
                "structuredOutput": {
                    "schema": {"text": "{}"},
                    "jsonPromptInjection": "PROMPT_INJECTION_SYSTEM",
                }
            },
        ),
        ({"execution_timeout": 0.25}, {"executionTimeout": "0.250s"}),
        ({"max_steps": None}, {}),
        ({"model_settings": {"temperature": 0}}, {"modelSettings": {"temperature": 0.0}}),
    ],
)
def test_short_forms(options: dict[str, Any], sent: dict[str, Any]) -> None:
    assert encoded(**options) == sent


def test_a_class_may_describe_itself() -> None:
    class Answer:
        @staticmethod
        def model_json_schema() -> dict[str, Any]:
            return {"type": "object", "title": "Answer"}

    sent = encoded(structured_output=StructuredOutput(Answer))
    assert sent == {"structuredOutput": {"schema": {"text": '{"type":"object","title":"Answer"}'}}}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stop_when": {}}, "option stop_when: a condition has exactly one"),
        ({"stop_when": StopWhen(step_count=1, tool_called="a")}, "exactly one"),
        ({"tool_choice": "sometimes"}, "option tool_choice: a tool choice must be one of auto, none"),
        ({"tool_choice": {"type": "tool"}}, "option tool_choice: .*type"),
        ({"tool_choice": {}}, '{"tool": name}'),
        ({"tool_choice": {"mode": "required", "tool": "look"}}, '{"tool": name}'),
        ({"tool_choice": "tool"}, '{"tool": name}'),
        ({"memory": {"thred": "t1"}}, "option memory: .*thred"),
        ({"memory": "t1"}, "expected a Memory or a dict"),
        ({"memory": {"thread": "t1", "on_busy_thread": "wait"}}, "must be one of refuse, queue"),
        ({"versions": {"a": "newest"}}, "draft or published"),
        ({"versions": {"a": {}}}, "by its id or by its status"),
        ({"active_tools": "look"}, "a list of names"),
        ({"max_steps": "three"}, "max_steps|int"),
        ({"request_context": {"a": {1, 2}}}, "option request_context: .*not JSON serializable"),
        ({"structured_output": {"schema": {}, "error_strategy": "hope"}}, "strict, warn, fallback"),
        ({"client_tools": [lambda x, *more: x]}, "cannot be given by name"),
        (
            {"prepare_step": print},
            "option prepare_step: expected the name of a hook registered on the server",
        ),
        ({"on_iteration_complete": print}, "option on_iteration_complete: expected the name of a hook"),
        ({"max_steps": 2**40}, "option max_steps: "),
        ({"include_raw_chunks": "yes"}, "option include_raw_chunks: "),
        ({"toolsets": [5]}, "option toolsets: "),
    ],
)
def test_wrong_values_are_refused_with_the_options_name(options: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        to_options(options)


async def test_generate_and_stream_send_the_same(server: FakeServer, client: Client) -> None:
    options: Callable[..., Any] = client.agent("support").generate
    await options("Hi", run_id="r1", max_steps=2, request_context={"a": 1})
    await client.agent("support").stream("Hi", run_id="r1", max_steps=2, request_context={"a": 1}).result()
    (generated,), (streamed,) = server.asked("Generate"), server.asked("Stream")
    assert generated.options == streamed.options
    assert (generated.agent_id, list(generated.messages)) == (streamed.agent_id, list(streamed.messages))
