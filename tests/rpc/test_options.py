"""Options of a run: what is out of range is refused by name, what this version lacks is never ignored."""

import math
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from google.protobuf import duration_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from entracte.v1 import agent_service_pb2 as agents
from entracte.v1 import message_pb2 as m
from entracte.v1 import options_pb2 as o
from entracte.v1 import pending_call_pb2, run_pb2
from entracte_server import Agent, ScorerInput, scorer
from entracte_server.rpc.options import SUPPORTED
from tests.rpc.support import Peer, Refusal, generate, js, saying, serving, stream, user

pytestmark = pytest.mark.asyncio(loop_scope="module")

FIELDS = o.GenerateOptions.DESCRIPTOR.fields_by_name


@scorer
def fine(given: ScorerInput) -> float:
    """All is well."""
    return 1


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def served() -> AsyncIterator[Peer]:
    """A peer of one server for the whole module."""
    scored = Agent(id="scored", model=saying({"text": "x"}), scorers=[fine])
    async with serving(scored) as (_, peer):
        yield peer


async def refusal_of(peer: Peer, options: o.GenerateOptions, agent_id: str = "talk") -> Refusal:
    """The refusal of a run with `options`, which `Generate` and `Stream` must agree on."""
    fields = {"agent_id": agent_id, "messages": [user()], "options": options}
    found = [
        await peer.refuse("Generate", agents.GenerateRequest(**fields)),  # type: ignore[arg-type]
        await peer.refuse("Stream", agents.StreamRequest(**fields)),  # type: ignore[arg-type]
    ]
    assert found[0] == found[1]
    return found[0]


# ---- what this version lacks ----


async def test_the_supported_options_are_options() -> None:
    """The list is the contract's: every option is acted on."""
    assert set(FIELDS) == SUPPORTED


def _unknown(number: int, wire_type: int = 0) -> bytes:
    """A field that no version has, on the wire."""
    tag = number << 3 | wire_type
    out = bytearray()
    while tag > 127:
        out.append(tag & 127 | 128)
        tag >>= 7
    out.append(tag)
    return bytes(out) + (b"\x01" if wire_type == 0 else b"\x02\x08\x01")


@pytest.mark.parametrize(
    ("path", "make"),
    [
        ("options", lambda extra: o.GenerateOptions.FromString(extra)),
        (
            "options.model_settings",
            lambda extra: o.GenerateOptions(model_settings=o.ModelSettings.FromString(extra)),
        ),
        (
            "options.require_tool_approval",
            lambda extra: o.GenerateOptions(require_tool_approval=o.ToolApproval.FromString(extra)),
        ),
        (
            "options.require_tool_approval.rules",
            lambda extra: o.GenerateOptions(
                require_tool_approval=o.ToolApproval(rules=o.ToolApprovalRules.FromString(extra))
            ),
        ),
        (
            "options.client_tools[1]",
            lambda extra: o.GenerateOptions(
                client_tools=[o.ClientTool(name="one"), o.ClientTool.FromString(extra + b"\x0a\x03two")]
            ),
        ),
        (
            "options.scorers.fine",
            lambda extra: o.GenerateOptions(scorers={"fine": o.ScorerOptions.FromString(extra)}),
        ),
    ],
)
@pytest.mark.parametrize("wire_type", [0, 2])
async def test_an_option_of_a_newer_contract_is_not_ignored(
    served: Peer, path: str, make: Any, wire_type: int
) -> None:
    """A newer client's option is a field this version does not know. Running without it would
    ignore it, so it is refused like any other that is not supported, by its number."""
    refusal = await refusal_of(served, make(_unknown(1000, wire_type)))
    assert (refusal.code, refusal.reason) == ("UNIMPLEMENTED", "OPTION_UNSUPPORTED")
    assert refusal.metadata == {"field": f"{path}.1000"}


# ---- what is out of range ----

INT32_MAX, INT32_MIN = 2**31 - 1, -(2**31)

RANGES: dict[str, tuple[list[float], list[float]]] = {
    "max_steps": ([0, -1, INT32_MIN], [1, INT32_MAX]),
    "max_processor_retries": ([-1, INT32_MIN], [0, INT32_MAX]),
    "tool_call_concurrency": ([0, -1, INT32_MIN], [1, INT32_MAX]),
    "model_settings.temperature": ([-0.001, 2.001, math.inf, -math.inf, math.nan], [0, -0.0, 2]),
    "model_settings.max_output_tokens": ([0, -1, INT32_MIN], [1, INT32_MAX]),
    "model_settings.max_retries": ([-1, INT32_MIN], [0, INT32_MAX]),
    "model_settings.top_p": ([-0.001, 1.001, math.inf, math.nan], [0, 1]),
    "model_settings.top_k": ([0, -1, INT32_MIN], [1, INT32_MAX]),
    "model_settings.presence_penalty": ([-2.001, 2.001, math.nan], [-2, 2]),
    "model_settings.frequency_penalty": ([-2.001, 2.001, math.nan], [-2, 2]),
    "model_settings.seed": ([], [0, -(2**63), 2**63 - 1]),
}
"""For each numeric option: what is refused, and what is taken at the edges."""


def _numeric(message: Any, path: str = "", names: frozenset[str] | None = None) -> Iterator[str]:
    for field in message.DESCRIPTOR.fields:
        if names is not None and field.name not in names:
            continue
        if field.message_type is not None and field.name == "model_settings":
            yield from _numeric(o.ModelSettings, "model_settings.")
        elif field.cpp_type in (
            FieldDescriptor.CPPTYPE_INT32,
            FieldDescriptor.CPPTYPE_INT64,
            FieldDescriptor.CPPTYPE_DOUBLE,
        ):
            yield path + field.name


async def test_every_numeric_option_has_its_range_tried() -> None:
    """A numeric option that comes to be supported cannot be forgotten."""
    assert set(_numeric(o.GenerateOptions, names=SUPPORTED)) == set(RANGES)


def _options(path: str, value: float) -> o.GenerateOptions:
    options = o.GenerateOptions()
    target: Message = options
    *parents, name = path.split(".")
    for parent in parents:
        target = getattr(target, parent)
    setattr(target, name, value)
    return options


@pytest.mark.parametrize("path", RANGES)
async def test_a_number_out_of_its_range_is_refused(served: Peer, path: str) -> None:
    """INVALID_ARGUMENT naming the option; the edges of the range are taken."""
    wrong, right = RANGES[path]
    for value in wrong:
        refusal = await refusal_of(served, _options(path, value))
        assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "REQUEST_INVALID"), value
        assert list(refusal.violations) == [f"options.{path}"]
    for value in right:
        request = agents.GenerateRequest(agent_id="talk", messages=[user()], options=_options(path, value))
        response = await served.one("Generate", request)
        assert response.run.state == run_pb2.RUN_STATE_SUCCEEDED, value


@pytest.mark.parametrize(
    ("seconds", "nanos"),
    [
        (0, 0),
        (-1, 0),
        (0, -1),
        (366 * 86400, 1),
        (2**63 - 1, 0),
        (-(2**63), 0),
        (1, -1),
        (1, 10**9),
        (0, 2**31 - 1),
    ],
)
async def test_a_time_out_of_its_range_is_refused(served: Peer, seconds: int, nanos: int) -> None:
    """Nothing, a negative time, more than a year, and what is not a Duration at all."""
    limit = duration_pb2.Duration(seconds=seconds, nanos=nanos)
    refusal = await refusal_of(served, o.GenerateOptions(execution_timeout=limit))
    assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "REQUEST_INVALID")
    assert list(refusal.violations) == ["options.execution_timeout"]


# ---- what is wrong otherwise ----


def _system(role: Any, *parts: m.MessagePart) -> list[m.Message]:
    return [m.Message(role=role, parts=parts)]


TEXT = m.MessagePart(text=m.TextPart(text="x"))
IMAGE = m.MessagePart(image=m.ImagePart(url="x"))
TOOL = o.ClientTool(name="mine", input_schema=js('{"type":"object"}'))


def header(name: str, value: str = "x") -> o.GenerateOptions:
    """A request header for the provider."""
    return o.GenerateOptions(model_settings=o.ModelSettings(headers={name: value}))


def tracing(**fields: Any) -> o.GenerateOptions:
    """How a run is to appear in traces."""
    return o.GenerateOptions(tracing_options=o.TracingOptions(**fields))


def memory(**fields: Any) -> o.MemoryOptions:
    """The memory of a run on a thread of Ada's."""
    return o.MemoryOptions(**{"thread": o.ThreadRef(id="t"), "resource": "ada", **fields})


def remembering(**fields: Any) -> o.GenerateOptions:
    """A run with a memory."""
    return o.GenerateOptions(memory=memory(**fields))


WRONG: list[tuple[str, o.GenerateOptions, str]] = [
    (
        "unknown tool",
        o.GenerateOptions(active_tools=o.ToolNames(names=["pay", "no"])),
        "active_tools.names[1]",
    ),
    (
        "no approval policy",
        o.GenerateOptions(require_tool_approval=o.ToolApproval()),
        "require_tool_approval",
    ),
    (
        "unknown mode",
        o.GenerateOptions(tool_choice=o.ToolChoice(mode=77)),  # type: ignore[arg-type]
        "tool_choice.mode",
    ),
    (
        "forced tool without a name",
        o.GenerateOptions(tool_choice=o.ToolChoice(mode=o.ToolChoice.MODE_TOOL)),
        "tool_choice.tool_name",
    ),
    (
        "forced tool of nobody",
        o.GenerateOptions(tool_choice=o.ToolChoice(mode=o.ToolChoice.MODE_TOOL, tool_name="no")),
        "tool_choice.tool_name",
    ),
    (
        "name without the mode",
        o.GenerateOptions(tool_choice=o.ToolChoice(mode=o.ToolChoice.MODE_AUTO, tool_name="pay")),
        "tool_choice.tool_name",
    ),
    ("nameless client tool", o.GenerateOptions(client_tools=[o.ClientTool()]), "client_tools[0].name"),
    (
        "spaced client tool",
        o.GenerateOptions(client_tools=[o.ClientTool(name="a b")]),
        "client_tools[0].name",
    ),
    (
        "newline after a client tool",
        o.GenerateOptions(client_tools=[o.ClientTool(name="a\n")]),
        "client_tools[0].name",
    ),
    (
        "long client tool",
        o.GenerateOptions(client_tools=[o.ClientTool(name="a" * 65)]),
        "client_tools[0].name",
    ),
    (
        "the agent's own tool",
        o.GenerateOptions(client_tools=[o.ClientTool(name="pay")]),
        "client_tools[0].name",
    ),
    ("one client tool twice", o.GenerateOptions(client_tools=[TOOL, TOOL]), "client_tools[1].name"),
    (
        "too many client tools",
        o.GenerateOptions(client_tools=[o.ClientTool(name=f"t{i}") for i in range(129)]),
        "client_tools",
    ),
    (
        "user's instructions",
        o.GenerateOptions(instructions=_system(m.ROLE_USER, TEXT)),
        "instructions[0].role",
    ),
    ("unknown role", o.GenerateOptions(system=_system(77, TEXT)), "system[0].role"),
    ("picture of the system", o.GenerateOptions(system=_system(m.ROLE_SYSTEM, IMAGE)), "system[0].parts[0]"),
    ("empty system part", o.GenerateOptions(system=_system(0, m.MessagePart())), "system[0].parts[0]"),
    ("no instructions in it", o.GenerateOptions(instructions=_system(0)), "instructions[0].parts"),
    ("context without a role", o.GenerateOptions(context=_system(0, TEXT)), "context[0].role"),
    ("context without parts", o.GenerateOptions(context=_system(m.ROLE_USER)), "context[0].parts"),
    ("nameless header", header(""), "model_settings.headers"),
    ("header with a space", header("a b"), "model_settings.headers"),
    ("header with a colon", header("a:b"), "model_settings.headers"),
    ("header of another line", header("a\nb"), "model_settings.headers"),
    ("header in brackets", header("a(b)"), "model_settings.headers"),
    ("header that is a word of Greek", header("ά"), "model_settings.headers"),
    ("header value of two lines", header("a", "b\r\nc: d"), "model_settings.headers"),
    ("header value with NUL", header("a", "b\0"), "model_settings.headers"),
    ("header value beyond ASCII", header("a", "é"), "model_settings.headers"),
    (
        "long function id",
        o.GenerateOptions(telemetry=o.TelemetryOptions(function_id="f" * 257)),
        "telemetry.function_id",
    ),
    ("long trace id", tracing(trace_id="a" * 33), "tracing_options.trace_id"),
    ("trace id of other letters", tracing(trace_id="xyz"), "tracing_options.trace_id"),
    ("trace id with a newline", tracing(trace_id="a\n"), "tracing_options.trace_id"),
    ("trace id of zeros", tracing(trace_id="0" * 32), "tracing_options.trace_id"),
    ("long span id", tracing(trace_id="a", parent_span_id="a" * 17), "tracing_options.parent_span_id"),
    ("span id of zeros", tracing(trace_id="a", parent_span_id="0"), "tracing_options.parent_span_id"),
    ("span without a trace", tracing(parent_span_id="a"), "tracing_options.parent_span_id"),
    ("empty tag", tracing(tags=["a", ""]), "tracing_options.tags[1]"),
    ("many tags", tracing(tags=["a"] * 65), "tracing_options.tags"),
    ("long key", tracing(request_context_keys=["a" * 257]), "tracing_options.request_context_keys[0]"),
    ("metadata that are no object", tracing(metadata=js("[1]")), "tracing_options.metadata.text"),
    ("metadata without a name", tracing(metadata=js('{"":1}')), "tracing_options.metadata.text"),
    ("large metadata", tracing(metadata=js('{"a":"' + "a" * 65536 + '"}')), "tracing_options.metadata.text"),
    (
        "provider options that are no object",
        o.GenerateOptions(provider_options=js('{"openai":1}')),
        "provider_options.text",
    ),
    ("memory of nothing", o.GenerateOptions(memory=o.MemoryOptions()), "memory.thread.id"),
    ("no thread", remembering(thread=o.ThreadRef(title="x")), "memory.thread.id"),
    ("no resource", remembering(resource=""), "memory.resource"),
    ("long thread", remembering(thread=o.ThreadRef(id="x" * 129)), "memory.thread.id"),
    ("NUL in the thread", remembering(thread=o.ThreadRef(id="a\0b")), "memory.thread.id"),
    ("long resource", remembering(resource="x" * 257), "memory.resource"),
    ("long title", remembering(thread=o.ThreadRef(id="t", title="x" * 1001)), "memory.thread.title"),
    (
        "large thread metadata",
        remembering(thread=o.ThreadRef(id="t", metadata=js('{"a":"' + "a" * 65536 + '"}'))),
        "memory.thread.metadata.text",
    ),
    ("fewer than no messages", remembering(last_messages=-1), "memory.last_messages"),
    ("too many messages", remembering(last_messages=10_001), "memory.last_messages"),
    ("no tokens", remembering(max_history_tokens=0), "memory.max_history_tokens"),
    ("no time to wait", remembering(queue_timeout=duration_pb2.Duration()), "memory.queue_timeout"),
    (
        "a year and more to wait",
        remembering(queue_timeout=duration_pb2.Duration(seconds=366 * 86400, nanos=1)),
        "memory.queue_timeout",
    ),
    ("unknown on busy", remembering(on_busy_thread=77), "memory.on_busy_thread"),
    ("unknown on parked", remembering(on_parked_thread=77), "memory.on_parked_thread"),
    (
        "reads and waits",
        remembering(read_only=True, on_busy_thread=o.ON_BUSY_THREAD_QUEUE),
        "memory.on_busy_thread",
    ),
    (
        "reads and cancels",
        remembering(read_only=True, on_parked_thread=o.ON_PARKED_THREAD_CANCEL),
        "memory.on_parked_thread",
    ),
    (
        "reads and waits for a time",
        remembering(read_only=True, queue_timeout=duration_pb2.Duration(seconds=1)),
        "memory.queue_timeout",
    ),
    ("reads and saves", remembering(read_only=True, save_messages=True), "memory.save_messages"),
    (
        "answers without a thread",
        o.GenerateOptions(auto_resume_suspended_tools=True),
        "auto_resume_suspended_tools",
    ),
    ("saves without a thread", o.GenerateOptions(save_per_step=True), "save_per_step"),
]


@pytest.mark.parametrize(("options", "field"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
async def test_a_wrong_option_is_refused_by_name(
    served: Peer, options: o.GenerateOptions, field: str
) -> None:
    """INVALID_ARGUMENT, REQUEST_INVALID, the field."""
    refusal = await refusal_of(served, options)
    assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "REQUEST_INVALID")
    assert list(refusal.violations) == [f"options.{field}"]


async def test_a_long_name_is_refused_in_a_text_that_arrives(served: Peer) -> None:
    """Texts are under 4 KiB and the whole status under the 8 KiB of headers that clients take,
    whatever is quoted in it: a megabyte, and characters that grow when they are encoded."""
    for name in ("x" * 1_000_000, "é" * 500_000, "\U0001f600" * 200_000, "%" * 100_000, "\n" * 100_000):
        options = o.GenerateOptions(active_tools=o.ToolNames(names=[name]))
        refusal = await refusal_of(served, options)
        assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "REQUEST_INVALID")
        assert list(refusal.violations) == ["options.active_tools.names[0]"]


async def test_options_are_taken_when_all_is_right(served: Peer) -> None:
    """The supported options, all at once."""
    options = o.GenerateOptions(
        run_id="a-run:of.its_own",
        max_steps=3,
        active_tools=o.ToolNames(names=["pay", "mine"]),
        require_tool_approval=o.ToolApproval(rules=o.ToolApprovalRules(names=["pay"], patterns=["m*"])),
        tool_call_concurrency=2,
        context=[user("before")],
        instructions=_system(m.ROLE_SYSTEM, TEXT),
        system=_system(m.ROLE_UNSPECIFIED, TEXT),
        model_settings=o.ModelSettings(temperature=1, stop_sequences=["x"], headers={"x-a": "b c"}),
        tool_choice=o.ToolChoice(mode=o.ToolChoice.MODE_AUTO),
        client_tools=[TOOL],
        provider_options=js('{"openai":{"a":1}}'),
        request_context=js('{"b":2,"a":1}'),
        include_raw_chunks=True,
        execution_timeout=duration_pb2.Duration(seconds=366 * 86400),
        cancel_on_disconnect=False,
        include_request_body=True,
        pending_call_expiry=o.PendingCallExpiry(
            after=duration_pb2.Duration(seconds=60),
            action=pending_call_pb2.EXPIRY_ACTION_ANSWER,
            default_answers={"mine": js("1")},
        ),
        toolsets=["asking"],
        telemetry=o.TelemetryOptions(is_enabled=True, record_inputs=False, function_id="f"),
        tracing_options=o.TracingOptions(
            metadata=js('{"a":1}'), request_context_keys=["b"], trace_id="1", parent_span_id="f", tags=["t"]
        ),
        rate_limit_wait=duration_pb2.Duration(seconds=86400),
        scorers={"mine": o.ScorerOptions(scorer="fine", sampling_ratio=0)},
        return_scorer_data=True,
        stop_when=[o.StopCondition(predicate="stop_when"), o.StopCondition(step_count=3)],
        on_iteration_complete="iteration_complete",
        prepare_step="prepare_step",
        hooks=o.ToolHooks(before_tool_call="before_tool_call"),
        delegation=o.DelegationOptions(
            message_filter="message_filter",
            hook_error_strategy=o.DelegationOptions.HOOK_ERROR_STRATEGY_WARN,
        ),
        is_task_complete=o.TaskCompletion(scorers=["fine"]),
        input_processors=o.ProcessorRefs(
            processors=[o.ProcessorRef(name="unicode", parameters=js('{"form":"NFKC"}'))]
        ),
        output_processors=o.ProcessorRefs(),
        max_processor_retries=1,
        structured_output=o.StructuredOutput(
            schema=js('{"type":"string"}'), error_strategy=o.StructuredOutput.ERROR_STRATEGY_WARN
        ),
        memory=memory(
            thread=o.ThreadRef(id="t-all", title="t", metadata=js("{}")),
            last_messages=0,
            save_messages=True,
            read_only=False,
            working_memory=False,
            filter_incomplete_tool_calls=False,
            generate_title=False,
            on_busy_thread=o.ON_BUSY_THREAD_QUEUE,
            on_parked_thread=o.ON_PARKED_THREAD_QUEUE,
            queue_timeout=duration_pb2.Duration(seconds=366 * 86400),
            max_history_tokens=1,
        ),
        save_per_step=True,
        auto_resume_suspended_tools=True,
    )
    # `output` does not go together with `structured_output`, and agents written in Python have no versions.
    assert {field.name for field, _ in options.ListFields()} == SUPPORTED - {"output", "versions"}
    response = await served.one(
        "Generate", agents.GenerateRequest(agent_id="talk", messages=[user()], options=options)
    )
    assert response.run.run_id == "a-run:of.its_own"
    assert response.run.request_context.text == '{"b":2,"a":1}'
    assert response.result.text == "good day"


async def test_nothing_of_a_refused_request_is_kept(served: Peer) -> None:
    """The run id and the request id of a refused request are free: the same request, put right,
    starts the run."""
    wrong = generate(run_id="once", request_id="q-once", max_steps=0)
    assert (await served.refuse("Generate", wrong)).reason == "REQUEST_INVALID"
    right = await served.one("Generate", generate(run_id="once", request_id="q-once", max_steps=1))
    assert (right.run.run_id, right.replayed) == ("once", False)
    refusal = await served.refuse("Stream", stream(run_id="other", request_id="q-once", max_steps=0))
    assert refusal.reason == "REQUEST_INVALID"
    (first, *_) = await served.call("Stream", stream(run_id="other", request_id="q-once", max_steps=1))
    assert not first.replayed
