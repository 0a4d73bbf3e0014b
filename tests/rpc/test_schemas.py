"""JSON Schemas of callers: what is none is refused by name, nothing is fetched, and no schema or value
keeps the server busy. One server serves the whole module.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio

from entracte.v1 import agent_service_pb2 as agents
from entracte.v1 import options_pb2, run_pb2
from entracte_server import Agent, ToolContext, tool
from tests.rpc.support import Peer, Refusal, generate, js, once, parts_of, ref, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

NESTED = {
    "type": "object",
    "properties": {
        "a": {"type": "object", "properties": {"b": {"type": "array", "items": {"type": "integer"}}}}
    },
    "required": ["a"],
}


@tool(resume_schema=NESTED)
async def nested(ctx: ToolContext[Any]) -> Any:
    """Asks for something nested."""
    if not ctx.resumed:
        ctx.suspend({})
    return ctx.resume_data


@tool(resume_schema={"type": "array", "uniqueItems": True})
async def distinct(ctx: ToolContext[Any]) -> Any:
    """Asks for things that differ."""
    if not ctx.resumed:
        ctx.suspend({})
    return ctx.resume_data


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def served() -> AsyncIterator[Peer]:
    """A peer of one server for the whole module."""
    more = [
        Agent(id="nested", model=once({"tool": "nested", "id": "c"}), tools=[nested]),
        Agent(id="distinct", model=once({"tool": "distinct", "id": "c"}), tools=[distinct]),
    ]
    async with serving(*more) as (_, peer):
        yield peer


def with_schema(schema: Any) -> agents.GenerateRequest:
    """A run with a client tool of this schema."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return generate(client_tools=[options_pb2.ClientTool(name="theirs", input_schema=js(text))])


OBJECT = {"type": "object"}

NO_SCHEMAS: dict[str, Any] = {
    "a list": [],
    "a truth": True,
    "a type that is none": {"type": "thing"},
    "a schema of a text": {"type": "string"},
    "a schema of several types": {"type": ["object", "null"]},
    "properties in a list": {**OBJECT, "properties": []},
    "a property that is a text": {**OBJECT, "properties": {"a": "string"}},
    "required as a text": {**OBJECT, "required": "a"},
    "required twice": {**OBJECT, "required": ["a", "a"]},
    "a negative length": {**OBJECT, "properties": {"a": {"minLength": -1}}},
    "a length that is a text": {**OBJECT, "properties": {"a": {"maxLength": "1"}}},
    "a multiple of nothing": {**OBJECT, "properties": {"a": {"multipleOf": 0}}},
    "one of none": {**OBJECT, "anyOf": []},
    "no pattern": {**OBJECT, "properties": {"a": {"pattern": "("}}},
    "no pattern of properties": {**OBJECT, "patternProperties": {"[": {}}},
    "a dialect that is a number": {**OBJECT, "$schema": 5},
    "a dialect that is an object": {**OBJECT, "$schema": {}},
    "an id that is a number": {**OBJECT, "$id": 5},
    "an id that is no URI": {**OBJECT, "$id": "http://[::1"},
    "a reference to itself": {**OBJECT, "$ref": "#"},
    "references in a circle": {
        **OBJECT,
        "properties": {"n": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}},
    },
    "a dynamic reference to itself": {**OBJECT, "$dynamicAnchor": "x", "$dynamicRef": "#x"},
    "remote, http": {**OBJECT, "$ref": "http://127.0.0.1:9/schema.json"},
    "remote, https": {**OBJECT, "properties": {"a": {"$ref": "https://example.org/a.json#/b"}}},
    "remote, file": {**OBJECT, "properties": {"a": {"items": {"$ref": "file:///etc/passwd"}}}},
    "remote, relative": {**OBJECT, "allOf": [{"$ref": "other.json"}]},
    "remote, relative to an id": {
        **OBJECT,
        "$id": "http://example.org/a",
        "properties": {"b": {"$ref": "b"}},
    },
    "remote, dynamic": {**OBJECT, "$dynamicRef": "http://example.org/a#b"},
    "a reference to nowhere": {**OBJECT, "properties": {"a": {"$ref": "#/$defs/a"}}},
    "an anchor that is not there": {**OBJECT, "properties": {"a": {"$ref": "#here"}}},
    "a broken pointer": {**OBJECT, "properties": {"a": {"$ref": "#/%zz"}}},
}


@pytest.mark.parametrize("name", NO_SCHEMAS)
async def test_what_is_no_schema_is_refused(served: Peer, name: str) -> None:
    """SCHEMA_INVALID naming the field; no run is started."""
    refusal = await served.refuse("Generate", with_schema(NO_SCHEMAS[name]))
    assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "SCHEMA_INVALID")
    assert list(refusal.violations) == ["options.client_tools[0].input_schema.text"]


SCHEMAS: dict[str, Any] = {
    "nothing said": {},
    "an object": OBJECT,
    "the current dialect": {**OBJECT, "$schema": "https://json-schema.org/draft/2020-12/schema"},
    "an old dialect": {**OBJECT, "$schema": "http://json-schema.org/draft-07/schema#"},
    "a dialect nobody knows": {**OBJECT, "$schema": "https://example.org/dialect"},
    "words nobody knows": {**OBJECT, "x-order": 1, "properties": {"a": {"nullable": True}}},
    "references within": {
        **OBJECT,
        "properties": {"a": {"$ref": "#/$defs/tree"}},
        "$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
    },
    "an anchor": {
        **OBJECT,
        "properties": {"a": {"$ref": "#here"}},
        "$defs": {"a": {"$anchor": "here", "type": "string"}},
    },
    "a property called $ref": {**OBJECT, "properties": {"$ref": {"type": "string"}}},
    "a word of Greek": {**OBJECT, "properties": {"λόγος": {"type": "string", "pattern": "^λ"}}},
}


@pytest.mark.parametrize("name", SCHEMAS)
async def test_what_is_a_schema_is_taken(served: Peer, name: str) -> None:
    """The run starts."""
    response = await served.one("Generate", with_schema(SCHEMAS[name]))
    assert response.run.state == run_pb2.RUN_STATE_SUCCEEDED


# ---- what does not fit ----


async def test_an_answer_that_does_not_fit_is_refused_field_by_field(served: Peer) -> None:
    """RESUME_DATA_INVALID with JSON Pointers below `resume_data`; the call waits until one fits."""
    _, (pending,) = await served.parked("nested")
    for value, fields in (
        ("null", ["resume_data"]),
        ("{}", ["resume_data"]),
        ('{"a":1}', ["resume_data/a"]),
        ('{"a":{"b":["x",2,"y"]}}', ["resume_data/a/b/0", "resume_data/a/b/2"]),
    ):
        request = agents.ResumeRequest(call=ref(pending.pending_call_id), resume_data=js(value))
        refusal = await served.refuse("Resume", request)
        assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "RESUME_DATA_INVALID")
        assert list(refusal.violations) == fields
    good = agents.ResumeRequest(
        call=ref(pending.pending_call_id), resume_data=js('{"a":{"b":[1]}}'), wait=True
    )
    assert (await served.one("Resume", good)).run.state == run_pb2.RUN_STATE_SUCCEEDED


async def test_edited_arguments_that_do_not_fit_are_refused_field_by_field(served: Peer) -> None:
    """EDITED_ARGS_INVALID with JSON Pointers below `edited_args`, of a tool with a signature and of a
    client tool; the call waits until they fit."""
    for agent_id, bad, field, good in (
        ("gate", '{"amount":"much"}', "edited_args/amount", '{"amount":8}'),
        ("hands-out", '{"n":"x"}', "edited_args/n", '{"n":8}'),
    ):
        approval = options_pb2.ToolApproval(all=True)
        _, (pending,) = await served.parked(agent_id, require_tool_approval=approval)
        call = ref(pending.pending_call_id)
        refusal = await served.refuse("Approve", agents.ApproveRequest(call=call, edited_args=js(bad)))
        assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "EDITED_ARGS_INVALID")
        assert list(refusal.violations) == [field]
        response = await served.one(
            "Approve", agents.ApproveRequest(call=call, edited_args=js(good), wait=True)
        )
        assert response.decision.edited_args.text == good


async def test_many_long_violations_arrive(served: Peer) -> None:
    """As many as fit into the headers of an answer, and at least one."""
    _, (pending,) = await served.parked("nested")
    for text in ("x" * 1000, "é" * 1000, "\U0001f600" * 500, "%" * 1000):
        data = json.dumps({"a": {"b": [text] * 50}})
        request = agents.ResumeRequest(call=ref(pending.pending_call_id), resume_data=js(data))
        refusal = await served.refuse("Resume", request)
        assert refusal.reason == "RESUME_DATA_INVALID"
        assert "resume_data/a/b/0" in refusal.violations


# ---- what would take for ever ----


def bomb(depth: int) -> dict[str, Any]:
    """A schema that doubles its work with each of its parts."""
    parts: dict[str, Any] = {
        f"p{i}": {"allOf": [{"$ref": f"#/$defs/p{i + 1}"}, {"$ref": f"#/$defs/p{i + 1}"}]}
        for i in range(depth)
    }
    return {**OBJECT, "$defs": {**parts, f"p{depth}": {}}, "properties": {"n": {"$ref": "#/$defs/p0"}}}


ENDLESS: dict[str, tuple[Any, Any]] = {
    "a reference to itself, by two names": (
        {**OBJECT, "properties": {"n": {"$id": "a", "$ref": "#"}}, "allOf": [{"$ref": "#/properties/n"}]},
        {"n": 1},
    ),
    "a long chain of references": (
        {
            **OBJECT,
            "properties": {"n": {"$ref": "#/$defs/p0"}},
            "$defs": {f"p{i}": {"$ref": f"#/$defs/p{i + 1}"} for i in range(1500)} | {"p1500": {}},
        },
        {"n": 1},
    ),
    "work that doubles": (bomb(60), {"n": 1}),
    "a pattern that backtracks": (
        {**OBJECT, "properties": {"n": {"pattern": "^(a+)+$"}}},
        {"n": "a" * 60 + "!"},
    ),
    "a pattern of names that backtracks": (
        {**OBJECT, "patternProperties": {"^(a+)+$": {}}, "additionalProperties": False},
        {"a" * 60 + "!": 1},
    ),
    "items that are compared": (
        {**OBJECT, "properties": {"n": {"uniqueItems": True}}},
        {"n": [{"i": i} for i in range(60_000)]},
    ),
    "a long list of choices": (
        {**OBJECT, "properties": {"n": {"items": {"enum": list(range(5000))}}}},
        {"n": [-1] * 100_000},
    ),
    "a number beyond all floats": (
        {**OBJECT, "properties": {"n": {"multipleOf": 0.5, "maximum": 1.5}}},
        {"n": 10**400},
    ),
    "an enormous schema": (
        {**OBJECT, "properties": {f"p{i}": {"type": "string"} for i in range(100_000)}},
        {"n": 1},
    ),
}


async def soon(call: Any) -> Any:
    """What a call answers, or how it is refused."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        refusal = error
    return parts_of(refusal)


@pytest.mark.parametrize("name", ENDLESS)
async def test_no_schema_keeps_the_server_busy(served: Peer, name: str) -> None:
    """A schema of the client against arguments that the client edits: refused when it comes or when
    it is used, or served; soon, and others are served meanwhile."""
    schema, value = ENDLESS[name]
    tools = [options_pb2.ClientTool(name="theirs", input_schema=js(json.dumps(schema)))]
    approval = options_pb2.ToolApproval(all=True)
    request = generate("hands-out", client_tools=tools, require_tool_approval=approval)
    others = [asyncio.create_task(served.one("Generate", generate())) for _ in range(3)]
    started = await soon(served.one("Generate", request))
    if isinstance(started, Refusal):
        assert started.reason == "SCHEMA_INVALID"
    else:
        for pending in started.result.pending_calls:
            edited = js(json.dumps(value))
            edit = agents.ApproveRequest(call=ref(pending.pending_call_id), edited_args=edited)
            approved = await soon(served.one("Approve", edit))
            assert not isinstance(approved, Refusal) or approved.reason == "EDITED_ARGS_INVALID"
    for other in others:
        assert (await other).result.text == "good day"


async def test_no_answer_keeps_the_server_busy(served: Peer) -> None:
    """Megabytes of different things against a tool that asks for things that differ."""
    for value in ([{"i": i} for i in range(200_000)], list(range(400_000)), [[i] for i in range(1000)]):
        _, (pending,) = await served.parked("distinct")
        text = json.dumps(value, separators=(",", ":"))
        request = agents.ResumeRequest(call=ref(pending.pending_call_id), resume_data=js(text))
        answered = await soon(served.one("Resume", request))
        assert not isinstance(answered, Refusal) or answered.reason == "RESUME_DATA_INVALID"
        assert (await served.one("Generate", generate())).result.text == "good day"
