"""JSON in requests: what is not JSON, or more of it than may be, is refused wherever JSON travels; what
is JSON arrives as it was written.
"""

import functools
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio
from google.protobuf.descriptor import Descriptor

from entracte.v1 import agent_pb2, json_pb2, options_pb2, pending_call_pb2, run_pb2
from entracte.v1 import agent_service_pb2 as agents
from entracte.v1 import catalog_service_pb2 as catalog
from entracte.v1 import message_pb2 as m
from entracte.v1 import thread_service_pb2 as threads
from entracte_server.rpc.agent_definitions import NOT_DEFAULTS
from entracte_server.rpc.options import SUPPORTED
from tests.rpc.support import METHODS, MIB, THEIRS, Peer, definition, generate, js, ref, serving, stream, user

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def served() -> AsyncIterator[Peer]:
    """A peer of one server for the whole module."""
    async with serving() as (_, peer):
        yield peer


# ---- where JSON travels ----


def _options(method: str, **fields: Any) -> Any:
    return {"Generate": generate, "Stream": stream}[method](**fields)


def _expiring(method: str, text: str) -> Any:
    expiry = options_pb2.PendingCallExpiry(action=pending_call_pb2.EXPIRY_ACTION_ANSWER)
    expiry.after.seconds = 60
    expiry.default_answers["value"].text = text
    tool = options_pb2.ClientTool(name="value")
    return _options(method, pending_call_expiry=expiry, client_tools=[tool])


def _with_part(method: str, where: str, role: Any, part: m.MessagePart, **fields: Any) -> Any:
    call = m.MessagePart(tool_call=m.ToolCallPart(tool_call_id="c", tool_name="t"))
    result = m.MessagePart(tool_result=m.ToolResultPart(tool_call_id="c", tool_name="t", result=js("1")))
    messages = [m.Message(role=role, parts=[part], **fields)]
    if part.WhichOneof("part") == "tool_call":
        messages.append(m.Message(role=m.ROLE_TOOL, parts=[result]))
    if part.WhichOneof("part") == "tool_result":
        messages.insert(0, m.Message(role=m.ROLE_ASSISTANT, parts=[call]))
    kind = {"Generate": agents.GenerateRequest, "Stream": agents.StreamRequest}[method]
    if where == "options.context":
        return kind(agent_id="talk", messages=[user()], options=options_pb2.GenerateOptions(context=messages))
    return kind(agent_id="talk", messages=messages)


def _structured(method: str, field: str, text: str) -> Any:
    """Structured output of which only `field` is `text`."""
    fields: dict[str, Any] = {"schema": js('{"type":"object"}'), "model": "scripted/script", field: js(text)}
    if field == "fallback_value":
        fields["error_strategy"] = options_pb2.StructuredOutput.ERROR_STRATEGY_FALLBACK
    return _options(method, structured_output=options_pb2.StructuredOutput(**fields))


def _defined(path: str, make: Callable[[str], dict[str, Any]], text: str) -> Any:
    """A request that makes an agent, with JSON at a place in its definition."""
    said = make(text)
    fields = {"defaults": options_pb2.GenerateOptions(**said)} if path.startswith("defaults") else said
    return catalog.CreateAgentVersionRequest(agent_id="made", definition=definition(**fields))


def _carriers() -> dict[str, tuple[str, Callable[[str], Any]]]:
    """For each field of a request that holds JSON: its path, the RPC, and the request with a text."""
    call = ref("01JZZZZZZZZZZZZZZZZZZZZZZZ")
    found: dict[str, tuple[str, Callable[[str], Any]]] = {
        "Resume resume_data": ("Resume", lambda t: agents.ResumeRequest(call=call, resume_data=js(t))),
        "Approve edited_args": ("Approve", lambda t: agents.ApproveRequest(call=call, edited_args=js(t))),
        "Decline reason_json": ("Decline", lambda t: agents.DeclineRequest(call=call, reason_json=js(t))),
        "SubmitToolResult result": (
            "SubmitToolResult",
            lambda t: agents.SubmitToolResultRequest(call=call, result=js(t)),
        ),
    }

    found["CreateThread metadata"] = (
        "CreateThread",
        lambda t: threads.CreateThreadRequest(resource_id="ada", metadata=js(t)),
    )
    found["UpdateThread metadata"] = (
        "UpdateThread",
        lambda t: threads.UpdateThreadRequest(thread_id="t", metadata=js(t)),
    )

    makers: dict[str, Callable[[str], dict[str, Any]]] = {
        "memory.working_memory.schema": lambda t: {
            "memory": agent_pb2.AgentMemory(working_memory=agent_pb2.AgentWorkingMemory(schema=js(t)))
        },
        "defaults.provider_options": lambda t: {"provider_options": js(t)},
        "defaults.tracing_options.metadata": lambda t: {
            "tracing_options": options_pb2.TracingOptions(metadata=js(t))
        },
        **{
            f"defaults.structured_output.{name}": lambda t, n=name: {  # type: ignore[misc]
                "structured_output": _structured("Generate", n, t).options.structured_output
            }
            for name in ("schema", "fallback_value", "provider_options")
        },
        **{
            f"defaults.{name}.processors[0].parameters": lambda t, n=name: {  # type: ignore[misc]
                n: options_pb2.ProcessorRefs(
                    processors=[options_pb2.ProcessorRef(name="unicode", parameters=js(t))]
                )
            }
            for name in ("input_processors", "output_processors")
        },
    }
    for path, make in makers.items():
        found[f"CreateAgentVersion definition.{path}"] = (
            "CreateAgentVersion",
            functools.partial(_defined, path, make),
        )

    def add(method: str, path: str, make: Callable[[str], Any]) -> None:
        found[f"{method} {path}"] = (method, make)

    for method in ("Generate", "Stream"):
        for name in ("request_context", "provider_options", "output"):
            add(
                method,
                f"options.{name}",
                lambda t, k=method, n=name: _options(k, **{n: js(t)}),  # type: ignore[misc]
            )
        add(
            method,
            "options.client_tools[0].input_schema",
            lambda t, k=method: _options(  # type: ignore[misc]
                k, client_tools=[options_pb2.ClientTool(name="x", input_schema=js(t))]
            ),
        )
        for name in ("schema", "fallback_value", "provider_options"):
            add(
                method,
                f"options.structured_output.{name}",
                lambda t, k=method, n=name: _structured(k, n, t),  # type: ignore[misc]
            )
        for name in ("input_processors", "output_processors"):
            add(
                method,
                f"options.{name}.processors[0].parameters",
                lambda t, k=method, n=name: _options(  # type: ignore[misc]
                    k,
                    **{
                        n: options_pb2.ProcessorRefs(
                            processors=[options_pb2.ProcessorRef(name="unicode", parameters=js(t))]
                        )
                    },
                ),
            )
        add(
            method,
            "options.memory.thread.metadata",
            lambda t, k=method: _options(  # type: ignore[misc]
                k,
                memory=options_pb2.MemoryOptions(
                    thread=options_pb2.ThreadRef(id="t", metadata=js(t)), resource="ada"
                ),
            ),
        )
        add(
            method,
            "options.tracing_options.metadata",
            lambda t, k=method: _options(  # type: ignore[misc]
                k, tracing_options=options_pb2.TracingOptions(metadata=js(t))
            ),
        )
        # A map's entries are named by their keys; this one's key is called as the field of its values.
        add(method, "options.pending_call_expiry.default_answers.value", lambda t, k=method: _expiring(k, t))  # type: ignore[misc]
        for where in ("messages", "options.context"):
            first, second = f"{where}[0].parts[0]", f"{where}[1].parts[0]"

            def put(
                path: str, role: Any, part: Callable[[str], m.MessagePart], k: str = method, w: str = where
            ) -> None:
                add(k, path, lambda t: _with_part(k, w, role, part(t)))

            put(
                f"{first}.tool_call.args",
                m.ROLE_ASSISTANT,
                lambda t: m.MessagePart(
                    tool_call=m.ToolCallPart(tool_call_id="c", tool_name="t", args=js(t))
                ),
            )
            put(
                f"{first}.tool_call.provider_metadata",
                m.ROLE_ASSISTANT,
                lambda t: m.MessagePart(
                    tool_call=m.ToolCallPart(tool_call_id="c", tool_name="t", provider_metadata=js(t))
                ),
            )
            put(
                f"{first}.text.provider_metadata",
                m.ROLE_ASSISTANT,
                lambda t: m.MessagePart(text=m.TextPart(text="x", provider_metadata=js(t))),
            )
            put(
                f"{second}.tool_result.result",
                m.ROLE_TOOL,
                lambda t: m.MessagePart(
                    tool_result=m.ToolResultPart(tool_call_id="c", tool_name="t", result=js(t))
                ),
            )
            put(
                f"{first}.reasoning.provider_metadata",
                m.ROLE_ASSISTANT,
                lambda t: m.MessagePart(reasoning=m.ReasoningPart(text="x", provider_metadata=js(t))),
            )
            add(
                method,
                f"{where}[0].metadata",
                lambda t, k=method, w=where: _with_part(  # type: ignore[misc]
                    k, w, m.ROLE_USER, m.MessagePart(text=m.TextPart(text="x")), metadata=js(t)
                ),
            )
    return found


CARRIERS = _carriers()


def _json_fields(descriptor: Descriptor, path: str = "", depth: int = 0) -> Iterator[str]:
    for field in descriptor.fields:
        if depth == 1 and path == "options." and field.name not in SUPPORTED:
            continue
        name = f"{path}{field.name}"
        if field.message_type is None:
            continue
        if field.message_type.full_name == json_pb2.Json.DESCRIPTOR.full_name:
            yield name
        elif field.message_type.full_name.startswith("entracte.v1."):
            yield from _json_fields(field.message_type, f"{name}.", depth + 1)


async def test_every_json_field_of_the_contract_is_tried() -> None:
    """No field that holds JSON is left out; `instructions` and `system` hold system texts, whose
    metadata nobody keeps."""
    tried = {path.translate({ord(c): None for c in "[]01"}) for path in CARRIERS}
    expected = {
        f"{name} {path}"
        for name, method in METHODS.items()
        for path in _json_fields(method.input_type)
        if ".parts" not in path
        or ".parts.tool_call.args" in path
        or ".tool_result.result" in path
        or ".provider_metadata" in path
    }
    system = {path for path in expected if "options.instructions" in path or "options.system" in path}
    nowhere = "CreateAgentVersion definition.defaults."
    not_given = {
        path
        for path in expected
        if path.startswith(nowhere)
        and (path.removeprefix(nowhere).split(".")[0] in NOT_DEFAULTS or ".default_answers" in path)
    }
    assert tried == expected - system - not_given


# ---- what is not JSON ----

NOT_JSON: dict[str, str] = {
    "nothing": "",
    "blank": "  \n",
    "words": "hello",
    "half an object": '{"a":',
    "single quotes": "{'a':1}",
    "trailing comma": '{"a":1,}',
    "comment": '{"a":1}//',
    "two values": '{"a":1}{"b":2}',
    "byte order mark": '\ufeff{"a":1}',
    "NUL": '{"a":1}\0',
    "control character": '{"a":"\t"}',
    "leading zero": '{"a":01}',
    "plus": '{"a":+1}',
    "hexadecimal": '{"a":0x1}',
    "Python": '{"a":None}',
    "NaN": '{"a":NaN}',
    "Infinity": '{"a":Infinity}',
    "minus Infinity": '{"a":[-Infinity]}',
    "overflow": '{"a":1e999}',
    "duplicate keys": '{"a":1,"a":2}',
    "duplicate keys, escaped": '{"a":1,"\\u0061":2}',
    "duplicate keys below": '{"a":[{"b":1,"b":1}]}',
    "high half": '{"a":"\\ud83d"}',
    "low half": '{"a":"\\uDE00"}',
    "halves in the wrong order": '{"a":"\\ude00\\ud83d"}',
    "half in a key": '{"\\ud83d":1}',
    "broken escape": '{"a":"\\u12"}',
    "129 lists": '{"a":' + "[" * 128 + "]" * 128 + "}",
    "129 objects": '{"a":' * 129 + "1" + "}" * 129,
    "no end of lists": "[" * 200_000,
    "no end of objects": '{"a":' * 200_000,
    "one byte too many": '{"a":"' + "x" * (4 * MIB - 7) + '"}',
    "too many bytes, few characters": '{"a":"' + "é" * (2 * MIB) + '"}',
}


@pytest.mark.parametrize("name", NOT_JSON)
async def test_what_is_not_json_is_refused_in_every_field(served: Peer, name: str) -> None:
    """JSON_INVALID naming the field, for every field that holds JSON."""
    big = len(NOT_JSON[name]) > 100_000
    for path, (method, make) in CARRIERS.items():
        if big and method == "Stream":
            continue  # the same code as for Generate, and megabytes each
        if big and any(part in path for part in ("tracing_options", "hread", "definition")):
            continue  # it has a limit of its own
        refusal = await served.refuse(method, make(NOT_JSON[name]))
        field = path.partition(" ")[2]
        assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "JSON_INVALID"), path
        assert list(refusal.violations) == [f"{field}.text"], path


@pytest.mark.parametrize("path", [p for p in CARRIERS if "result" not in p and "resume" not in p])
async def test_json_that_is_not_an_object_is_a_wrong_field_where_one_is_needed(
    served: Peer, path: str
) -> None:
    """It is JSON, so it is not JSON_INVALID: the reason says what the field is for."""
    method, make = CARRIERS[path]
    if "reason_json" in path or "default_answers" in path:
        return
    reason = "REQUEST_INVALID"
    if "schema" in path or path.endswith(".output"):
        reason = "SCHEMA_INVALID"
    elif "edited_args" in path:
        reason = "EDITED_ARGS_INVALID"
    for text in ("[]", "null", "1", '"{}"', "true"):
        refusal = await served.refuse(method, make(text))
        assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", reason), text
        assert list(refusal.violations) == [f"{path.partition(' ')[2]}.text"]


async def test_a_long_text_without_an_end_does_not_stop_the_server(served: Peer) -> None:
    """Looking for the end of a string takes time in proportion to its length, not to its square: a
    megabyte of quotes is refused like anything else, and others are served meanwhile."""
    text = "[" + "[]," * 200 + '"' + '\\"' * (MIB // 2)
    refusal = await served.refuse("Resume", CARRIERS["Resume resume_data"][1](text))
    assert refusal.reason == "JSON_INVALID"


async def test_a_number_that_is_too_long_is_refused_in_plain_words(served: Peer) -> None:
    """There is a limit on digits, and the refusal says nothing of the interpreter that has it."""
    make = CARRIERS["Resume resume_data"][1]
    refusal = await served.refuse("Resume", make("1" * 100_000))
    assert refusal.reason == "JSON_INVALID"
    assert "too long" in refusal.text


# ---- what is JSON ----

ANSWERS: list[str] = [
    "false",
    "0",
    "0.0",
    '""',
    "[]",
    "{}",
    "null",
    "9007199254740993",
    "18446744073709551616",
    "-" + "1234567890" * 400,
    "1.0",
    "1E2",
    "-0",
    "-0.0",
    "12345678901234567890.123456789012345678901234567890",
    '{"b":1,"a":2}',
    ' { "spaced" : [ 1 , 2 ] } ',
    '"\\u0000"',
    '"\\ud83d\\ude00 \\\\ud83d"',
    '"\\u00e9 é 漢字 \U0001f600"',
    '"\u2028 \x7f"',
    '{"":{"":[]}}',
    "[" * 127 + "]" * 127,
]


@pytest.mark.parametrize("text", ANSWERS, ids=lambda text: text[:24])
async def test_any_json_is_an_answer_and_keeps_its_text(served: Peer, text: str) -> None:
    """Falsy answers are answers, integers of any size and the order of keys survive: the decision
    has the very text, and the tool the very value."""
    _, (pending,) = await served.parked("asks")
    response = await served.one(
        "Resume",
        agents.ResumeRequest(call=ref(pending.pending_call_id), resume_data=js(text), wait=True),
    )
    assert response.decision.data.text == text
    (result,) = response.result.tool_results
    assert json.loads(result.tool_result.result.text) == {"answer": json.loads(text)}
    assert repr(json.loads(result.tool_result.result.text)["answer"]) == repr(json.loads(text))
    assert response.run.state == run_pb2.RUN_STATE_SUCCEEDED


async def test_json_of_exactly_the_depth_is_taken(served: Peer) -> None:
    """128 levels are an answer; a tool that puts it one level deeper has returned too much, which is
    between it and the model."""
    _, (pending,) = await served.parked("asks")
    text = "[" * 128 + "]" * 128
    request = agents.ResumeRequest(call=ref(pending.pending_call_id), resume_data=js(text), wait=True)
    response = await served.one("Resume", request)
    assert response.decision.data.text == text
    assert response.run.state == run_pb2.RUN_STATE_SUCCEEDED


async def test_json_of_exactly_the_limit_is_taken(served: Peer) -> None:
    """4 MiB are allowed, in bytes of UTF-8; the tool's result repeats them, so the answer is a few
    bytes shorter here."""
    text = '"' + "é" * (2 * MIB - 10) + '"'
    run_id, (pending,) = await served.parked("asks")
    await served.one("Resume", agents.ResumeRequest(call=ref(pending.pending_call_id), resume_data=js(text)))
    results = [c for c in await served.chunks(run_id) if c.WhichOneof("payload") == "tool_result"]
    assert len(results) == 1
    assert results[0].tool_result.result.text == '{"answer":' + text + "}"


async def test_texts_with_nul_come_back_as_they_were_sent(served: Peer) -> None:
    """NUL is a character like any other in texts: a message, a reason, a comment, a tool's result."""
    text = "a\0b\0"
    response = await served.one("Generate", generate("gate", text))
    assert response.result.messages[0].parts[0].text.text == text
    (pending,) = response.result.pending_calls
    declined = await served.one(
        "Decline",
        agents.DeclineRequest(
            call=ref(pending.pending_call_id),
            reason=text,
            reason_json=js('"\\u0000"'),
            comment=text,
            on_behalf_of=text,
            wait=True,
        ),
    )
    decision = declined.decision
    assert (decision.reason, decision.comment, decision.on_behalf_of) == (text, text, text)
    denied = [c for c in await served.chunks(response.run.run_id) if c.HasField("tool_output_denied")]
    assert denied[0].tool_output_denied.reason == text
    assert denied[0].tool_output_denied.reason_json.text == '"\\u0000"'

    run_id, (theirs,) = await served.parked("hands-out", client_tools=[THEIRS])
    submitted = await served.one(
        "SubmitToolResult",
        agents.SubmitToolResultRequest(call=ref(theirs.pending_call_id), error=text, wait=True),
    )
    assert submitted.run.state == run_pb2.RUN_STATE_SUCCEEDED
    errors = [c for c in await served.chunks(run_id) if c.HasField("tool_error")]
    assert errors[0].tool_error.message == text
