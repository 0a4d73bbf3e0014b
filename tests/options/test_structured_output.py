"""Answers that fit a JSON Schema: what models are asked, and what comes of what they say."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pydantic
import pytest

from entracte import (
    AgentUnavailable,
    Client,
    GenerateResult,
    RequestInvalid,
    SchemaInvalid,
    StructuredOutput,
    to_dict,
)
from entracte_server import Agent, App, tool
from entracte_server import StructuredOutput as AgentOutput
from entracte_server.domain.messages import TextPart
from entracte_server.models import ModelRequest
from entracte_server.testing import ScriptedModel, scripted, serve
from tests.options.support import agent_of
from tests.stores import default_store

CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["city"],
}
OSLO = '{"city": "Oslo", "people": 340282366920938463463374607431768211456}'
FINE = [{"text": '{"city":"Oslo"}'}]
WRONG = [{"text": '{"city":7}'}]


class City(pydantic.BaseModel):
    """A city."""

    city: str
    people: int = 0


@tool
async def look(place: str) -> dict[str, str]:
    """Looks at a place."""
    return {"seen": place}


@tool(requires_approval=True)
async def pay() -> str:
    """Pays."""
    return "paid"


LOOK = {"tool": "look", "id": "c1", "args": {"place": "x"}}


def texts(request: ModelRequest, role: str) -> list[str]:
    """The texts of the messages of a role."""
    return [
        part.text
        for message in request.messages
        if message.role == role
        for part in message.parts
        if isinstance(part, TextPart)
    ]


def asked(model: ScriptedModel) -> list[Any]:
    """The schemas that a model was asked for natively, call by call."""
    return [
        None if r.response_format is None else json.loads(r.response_format.schema) for r in model.requests
    ]


async def generated(model: ScriptedModel, agent: dict[str, Any] | None = None, **options: Any) -> Any:
    """The result of a run, which must be the same however it is read."""
    async with agent_of(model, **(agent or {})) as client:
        stream = client.stream("go", **options)
        chunks = [chunk async for chunk in stream]
        result = await stream.result()
        fold = stream.fold
    assert fold.object_json == result.object_json
    assert fold.text == result.text
    assert fold.usage == result.usage
    kinds = [chunk.type for chunk in chunks]
    results = [chunk for chunk in chunks if chunk.type == "object-result"]
    assert len(results) == (result.object_json is not None)
    if results:
        assert (results[0].object_json, results[0].is_fallback) == (
            result.object_json,
            result.used_fallback_value,
        )
        assert kinds[kinds.index("object-result") + 1] == "step-finish"
    return result


# ---- how models are asked ----


async def test_natively_on_every_step_and_with_tools() -> None:
    """The object is that of the step without calls, exactly as it was written."""
    model = scripted([[LOOK], [{"text": OSLO}]])
    result = await generated(model, {"tools": [look]}, structured_output=CITY)
    assert result.object_json == OSLO
    assert result.object == {"city": "Oslo", "people": 2**128}
    assert (result.text, result.finish_reason, result.used_fallback_value) == (OSLO, "stop", False)
    assert asked(model) == [CITY, CITY]
    assert [len(request.tools) for request in model.requests] == [1, 1]
    assert texts(model.requests[0], "system") == []


@pytest.mark.parametrize(
    ("can", "has_tools", "injection", "way"),
    [
        ("with-tools", True, "auto", "native"),
        ("with-tools", True, None, "native"),
        ("without-tools", False, "auto", "native"),
        ("without-tools", True, "auto", "system"),
        ("none", False, "auto", "system"),
        ("none", True, "off", "native"),
        ("with-tools", True, "system", "system"),
        ("with-tools", False, True, "system"),
        ("with-tools", False, "inline", "inline"),
        ("none", True, "inline", "inline"),
        ("with-tools", False, False, "native"),
    ],
)
async def test_where_the_schema_is_told(can: Any, has_tools: bool, injection: Any, way: str) -> None:
    model = scripted([FINE], response_formats=can)
    tools = [look] if has_tools else []
    output = StructuredOutput(CITY, json_prompt_injection=injection, instructions="Be brief.")
    result = await generated(
        model, {"tools": tools, "instructions": "You know cities."}, structured_output=output
    )
    assert result.object == {"city": "Oslo"}
    (request,) = model.requests
    assert [tool.name for tool in request.tools] == [tool.name for tool in tools]
    system, user = texts(request, "system"), texts(request, "user")
    schema = json.dumps(CITY, separators=(",", ":"))
    if way == "native":
        assert asked(model) == [CITY]
        assert (system, user) == (["You know cities.", "Be brief."], ["go"])
    else:
        assert asked(model) == [None]
        told = f"Be brief.\n\nGive your final answer as JSON that fits this JSON Schema, with no other text \
around it.\n<json-schema>\n{schema}\n</json-schema>"
        assert (system, user) == (
            (["You know cities.", told], ["go"]) if way == "system" else (["You know cities."], ["go", told])
        )


@pytest.mark.parametrize(
    ("schema", "wire", "answer", "value"),
    [
        (
            {"type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "integer"}}},
            {
                "$defs": {"n": {"type": "integer"}},
                "type": "object",
                "properties": {"elements": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
                "required": ["elements"],
                "additionalProperties": False,
            },
            '{"elements": [1.0, 18446744073709551616]}',
            "[1.0, 18446744073709551616]",
        ),
        (
            {"enum": ["yes", "no"]},
            {
                "type": "object",
                "properties": {"result": {"enum": ["yes", "no"]}},
                "required": ["result"],
                "additionalProperties": False,
            },
            '{"result":"no"}',
            '"no"',
        ),
        (
            {"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#"}}]},
            {
                "type": "object",
                "properties": {
                    "result": {
                        "anyOf": [
                            {"type": "null"},
                            {"type": "array", "items": {"$ref": "#/properties/result"}},
                        ]
                    }
                },
                "required": ["result"],
                "additionalProperties": False,
            },
            '{"result":[[],null]}',
            "[[],null]",
        ),
    ],
    ids=["array", "enum", "recursive"],
)
async def test_what_is_no_object_is_wrapped_for_the_provider(
    schema: Any, wire: Any, answer: str, value: str
) -> None:
    model = scripted([[{"text": answer}]])
    result = await generated(model, structured_output=schema)
    assert (result.object_json, result.text) == (value, answer)
    assert asked(model) == [wire]
    plain = scripted([[{"text": value}]], response_formats="none")
    assert (await generated(plain, structured_output=schema)).object_json == value
    (told,) = texts(plain.requests[0], "system")
    assert json.loads(told.split("\n")[2]) == schema


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (CITY, None),
        ({**CITY, "additionalProperties": False}, None),
        ({**CITY, "additionalProperties": False, "required": ["city", "people"]}, True),
        ({"type": "array", "items": {"type": "string", "minLength": 1}}, None),
        ({"type": "array", "items": {"enum": ["a"]}}, True),
    ],
)
async def test_a_provider_is_to_enforce_a_schema_that_it_can(schema: Any, strict: bool | None) -> None:
    model = scripted([[{"text": '{"city":"Oslo","people":1}' if schema["type"] == "object" else "[]"}]])
    result = await generated(model, structured_output=schema)
    assert result.error is None
    assert model.requests[0].response_format is not None
    assert model.requests[0].response_format.strict is strict


async def test_a_value_that_was_not_wrapped_although_it_was_asked_for() -> None:
    """It looks like the wrapper, and is the answer."""
    inner = {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}
    schema = {"anyOf": [inner, {"type": "null"}]}
    for text, value in (('{"result":1}', {"result": 1}), ('{"result":{"result":2}}', {"result": 2})):
        result = await generated(scripted([[{"text": text}]]), structured_output={"schema": schema})
        assert result.object == value


async def test_a_provider_that_refuses_the_native_form_is_asked_once_more() -> None:
    """Whatever the server knows of it; and not again in the same run."""

    def play(request: ModelRequest) -> Sequence[Any]:
        if request.response_format is not None:
            return [{"throw": "response_format is not supported with tools", "status": 400}]
        return FINE if any(message.role == "tool" for message in request.messages) else [LOOK]

    model = scripted(play)
    result = await generated(model, {"tools": [look]}, structured_output=CITY, include_request_body=True)
    assert result.object == {"city": "Oslo"}
    assert asked(model) == [CITY, None, None]
    assert len(texts(model.requests[2], "system")) == 1
    assert "response_format" not in result.request.body
    assert "<json-schema>" in json.dumps(result.request.body)

    model = scripted(play)
    result = await generated(model, structured_output=StructuredOutput(CITY, json_prompt_injection="off"))
    assert (result.error.kind, result.error.provider_status, len(model.requests)) == (
        "provider_error",
        400,
        1,
    )


async def test_another_refusal_is_not_taken_for_one_of_the_form() -> None:
    model = scripted([[{"throw": "the model does not exist", "status": 400}]])
    result = await generated(model, structured_output=CITY)
    assert (result.error.message, len(model.requests)) == ("the model does not exist", 1)


# ---- what models say ----


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"city":"Oslo"}\n```',
        '```\n{"city":"Oslo"}\n```\n',
        'Here it is:\n\n```json\n{"city":"Oslo"}\n```\nAnything else?',
        'It must be {"city":"Oslo"}.',
        'Not {"city":3}, nor [1, {"x": {}}], but {"city":"Oslo"} it is.',
        'I think of {braces} and [brackets] first. {"city":"Oslo"}',
        '```json\n{"city":"Oslo"}',
        '\ufeff {"city":"Oslo"}\n\n',
    ],
)
async def test_an_object_among_other_text(text: str) -> None:
    result = await generated(scripted([[{"text": text}]]), structured_output=CITY)
    assert (result.object_json, result.text) == ('{"city":"Oslo"}', text)


BAD: dict[str, tuple[list[dict[str, Any]], str, str]] = {
    "type": (WRONG, "invalid", '[{"path":"/city","message":"7 is not of type \'string\'"}]'),
    "list": (
        [{"text": '[{"city":"Oslo"}]'}],
        "invalid",
        '[{"path":"","message":"[{\'city\': \'Oslo\'}] is not of type \'object\'"}]',
    ),
    "prose": (
        [{"text": "It is Oslo."}],
        "invalid",
        '[{"path":"","message":"not JSON at character 0: Expecting value"}]',
    ),
    "empty": ([{"reasoning": "Hm."}], "invalid", '[{"path":"","message":"the answer is empty"}]'),
    "twice": (
        [{"text": '{"city":"a","city":"b"}'}],
        "invalid",
        '[{"path":"","message":"duplicate key \'city\'"}]',
    ),
    "half": (
        [{"text": 'See {"at":{"city":"Oslo"},"city":"Os'}],
        "invalid",
        '[{"path":"","message":"not JSON at character 0: Expecting value"}]',
    ),
    "cut": ([{"text": '{"city":"Os'}, {"finish": "length"}], "truncated", ""),
    "cut-whole": ([*FINE, {"finish": "length"}], "truncated", ""),
    "filtered": ([{"text": '{"ci'}, {"finish": "content-filter"}], "truncated", ""),
}


@pytest.mark.parametrize("name", BAD)
async def test_strictly_an_answer_that_does_not_fit_fails_the_run(name: str) -> None:
    parts, kind, raw = BAD[name]
    model = scripted([parts])
    async with agent_of(model) as agent:
        stream = agent.stream("go", structured_output=CITY)
        chunks = [chunk async for chunk in stream]
        result = await stream.result()
    assert (result.finish_reason, result.stop_cause) == ("error", "error")
    assert result.error.kind == f"structured_output_{kind}"
    assert (result.error.raw_json or "") == raw
    assert result.error.retryable == (kind == "invalid")
    assert (result.object_json, result.object, result.used_fallback_value) == (None, None, False)
    assert result.text == "".join(part.get("text", "") for part in parts)
    assert [chunk.type for chunk in chunks][-3:] == ["error", "step-finish", "finish"]
    assert "object-result" not in [chunk.type for chunk in chunks]
    assert result.usage.total_tokens == chunks[-2].usage.total_tokens == 15
    assert len(model.requests) == 1


@pytest.mark.parametrize("name", BAD)
async def test_with_a_warning_or_a_fallback_the_run_goes_well(name: str) -> None:
    parts, _, _ = BAD[name]
    result = await generated(
        scripted([parts]), structured_output=StructuredOutput(CITY, error_strategy="warn")
    )
    assert (result.error, result.object_json, result.stop_cause) == (None, None, "model-finished")
    (warning,) = result.warnings
    assert warning.startswith("There is no object: The answer ")
    fallback = {"city": "nowhere", "people": 2**70}
    output = StructuredOutput(CITY, error_strategy="fallback", fallback_value=fallback)
    result = await generated(scripted([parts]), structured_output=output)
    assert (result.object, result.used_fallback_value) == (fallback, True)
    assert (result.error, result.warnings) == (None, ())


async def test_halves_of_surrogate_pairs_are_replaced() -> None:
    result = await generated(scripted([[{"text": '{"city":"\\ud83d!"}'}]]), structured_output=CITY)
    assert result.object == {"city": "\ufffd!"}


async def test_no_answer_no_object() -> None:
    """A run that ends before there is an answer says why, and has no object."""
    result = await generated(scripted([[LOOK]]), {"tools": [look]}, structured_output=CITY, max_steps=2)
    assert (result.stop_cause, result.error, result.object_json) == ("max-steps", None, None)


# ---- trying again ----


async def test_a_retry_is_a_new_attempt_of_the_step() -> None:
    """The model sees its answer and what is wrong with it; of the void attempt only the tokens stay."""
    model = scripted([[LOOK], [{"text": '{"city":7,"people":"no"}'}], [{"text": "Oslo"}], FINE])
    async with agent_of(model, tools=[look]) as agent:
        stream = agent.stream("go", structured_output=CITY, max_processor_retries=2)
        chunks = [chunk async for chunk in stream]
        result = await stream.result()
        fold = stream.fold
    assert (result.object, result.text, fold.text) == ({"city": "Oslo"}, '{"city":"Oslo"}', result.text)
    starts = [(chunk.step, chunk.attempt) for chunk in chunks if chunk.type == "step-start"]
    assert starts == [(1, 1), (2, 1), (2, 2), (2, 3)]
    assert [chunk.type for chunk in chunks].count("step-finish") == 2
    assert [step.usage.total_tokens for step in result.steps] == [15, 45]
    assert result.usage.total_tokens == fold.usage.total_tokens == 60
    first, second = ([message.role for message in r.messages] for r in model.requests[-2:])
    assert first == ["user", "assistant", "tool", "assistant", "user"]
    assert second == [*first, "assistant", "user"]
    told = texts(model.requests[-1], "user")[1:]
    assert told == [
        "<structured-output>\nYour answer does not fit the JSON Schema:\n"
        "- /city: 7 is not of type 'string'\n- /people: 'no' is not of type 'integer'\n"
        "Answer again, with JSON that fits it and no other text.\n</structured-output>",
        "<structured-output>\nYour answer does not fit the JSON Schema:\n"
        "- not JSON at character 0: Expecting value\n"
        "Answer again, with JSON that fits it and no other text.\n</structured-output>",
    ]
    assert texts(model.requests[-1], "assistant") == ['{"city":7,"people":"no"}', "Oslo"]
    assert [message.role for message in result.messages] == ["user", "assistant", "tool", "assistant"]


async def test_retries_are_counted_and_then_the_strategy_holds() -> None:
    model = scripted([WRONG])
    output = StructuredOutput(CITY, error_strategy="fallback", fallback_value={"city": ""})
    result = await generated(model, structured_output=output, max_processor_retries=2)
    assert (len(model.requests), result.used_fallback_value) == (3, True)
    assert [step.usage.total_tokens for step in result.steps] == [45]


async def test_an_agents_own_number_of_retries() -> None:
    """The caller's replaces it, zero as well."""
    for retries, calls in ((None, 3), (1, 2), (0, 1)):
        model = scripted([WRONG])
        await generated(
            model, {"max_processor_retries": 2}, structured_output=CITY, max_processor_retries=retries
        )
        assert len(model.requests) == calls


async def test_what_was_cut_is_not_tried_again() -> None:
    model = scripted([BAD["cut"][0]])
    result = await generated(model, structured_output=CITY, max_processor_retries=2)
    assert (len(model.requests), result.error.kind) == (1, "structured_output_truncated")


async def test_a_failure_while_trying_again_keeps_what_was_paid() -> None:
    model = scripted([WRONG, [{"throw": "gone"}]])
    result = await generated(model, structured_output=CITY, max_processor_retries=1)
    assert (result.error.message, result.usage.total_tokens) == ("gone", 15)
    assert result.text == ""


# ---- while it is written ----


async def test_the_object_is_shown_as_it_grows() -> None:
    """Not with every word, and nothing twice."""
    items = [{"text": f'{"," if i else ""}"item number {i}"'} for i in range(200)]
    model = scripted([[{"text": '{"list":['}, *items, {"text": "]}"}]])
    async with agent_of(model) as agent:
        stream = agent.stream("go", structured_output={"type": "object", "required": ["list"]})
        chunks = [chunk async for chunk in stream]
    partial = [chunk.object["list"] for chunk in chunks if chunk.type == "object"]
    assert 10 < len(partial) < 30
    whole = [f"item number {i}" for i in range(200)]
    sizes = [len(json.dumps(value)) for value in partial]
    assert sizes == sorted(set(sizes))
    for value in partial:
        assert value[:-1] == whole[: max(0, len(value) - 1)]
        assert not value or whole[len(value) - 1].startswith(value[-1])
    assert stream.fold.object == {"list": whole}
    assert {chunk.structuring_model for chunk in chunks if chunk.type == "object"} == {""}


async def test_what_is_no_object_so_far_is_not_shown() -> None:
    model = scripted([[{"text": "So {it} is: "}, {"text": '{"city":"Oslo"}'}]])
    async with agent_of(model) as agent:
        chunks = [chunk async for chunk in agent.stream("go", structured_output=CITY)]
    assert "object" not in [chunk.type for chunk in chunks]


async def test_in_a_wrapper_the_value_is_shown() -> None:
    model = scripted([[{"text": '{"elements":[1,2'}, {"text": ",3,4,5]}"}]])
    async with agent_of(model) as agent:
        chunks = [chunk async for chunk in agent.stream("go", structured_output={"type": "array"})]
    assert [chunk.object for chunk in chunks if chunk.type == "object"] == [[1, 2], [1, 2, 3, 4, 5]]


# ---- a structuring model ----


async def test_a_second_model_makes_the_object_of_the_prose() -> None:
    first = scripted([[{"reasoning": "North."}, {"text": "Wait. "}, LOOK], [{"text": "It is Oslo."}]])
    second = scripted([FINE], name="scripted/second")
    output = AgentOutput(
        City, model=second, instructions="Cities only.", provider_options={"scripted": {"effort": 1}}
    )
    async with agent_of(first, tools=[look], instructions="SYS", structured_output=output) as agent:
        stream = agent.stream("go")
        chunks = [chunk async for chunk in stream]
        result = await stream.result()
    assert (result.text, result.object, result.error) == ("Wait. It is Oslo.", {"city": "Oslo"}, None)
    assert asked(first) == [None, None]
    assert "Another model will make data of your answer" in texts(first.requests[0], "system")[1]
    (request,) = second.requests
    assert request.tools == ()
    assert request.provider_options == {"scripted": {"effort": 1}}
    assert asked(second) == [City.model_json_schema()]
    assert texts(request, "system")[1:] == ["Cities only."]
    (digest,) = texts(request, "user")
    assert digest == (
        "<reasoning>\nNorth.\n</reasoning>\n<text>\nWait. \n</text>\n"
        '<tool-call>\nlook {"place":"x"}\n</tool-call>\n<tool-result>\n{"seen":"x"}\n</tool-result>\n'
        "<text>\nIt is Oslo.\n</text>"
    )
    marked = [chunk for chunk in chunks if chunk.type in ("object", "object-result")]
    assert [chunk.type for chunk in marked] == ["object", "object-result"]
    assert {chunk.structuring_model for chunk in marked} == {"scripted/second"}
    assert result.usage.total_tokens == chunks[-1].usage.total_tokens == 45
    assert [step.usage.total_tokens for step in result.steps] == [15, 30]
    assert [message.text for message in result.messages][-1] == "It is Oslo."


async def test_the_structuring_model_tries_again_by_itself() -> None:
    """The first model's prose stands, so it is not asked again."""
    first = scripted([[{"text": "Oslo"}]])
    second = scripted([WRONG, [{"text": "Sure"}], FINE], name="scripted/second", response_formats="none")
    result = await generated(
        first, {"structured_output": AgentOutput(CITY, model=second)}, max_processor_retries=2
    )
    assert (result.object, len(first.requests), len(second.requests)) == ({"city": "Oslo"}, 1, 3)
    assert result.usage.total_tokens == 60
    assert texts(second.requests[2], "assistant") == ['{"city":7}', "Sure"]
    assert [text.split("\n")[2] for text in texts(second.requests[2], "user")[1:]] == [
        "- /city: 7 is not of type 'string'",
        "- not JSON at character 0: Expecting value",
    ]


@pytest.mark.parametrize("strategy", ["strict", "warn", "fallback"])
@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (WRONG, "structured_output_invalid"),
        (BAD["cut"][0], "structured_output_truncated"),
        ([{"throw": "overloaded", "status": 529}], "provider_error"),
    ],
    ids=["wrong", "cut", "fails"],
)
async def test_a_structuring_model_that_makes_no_object(strategy: Any, said: Any, kind: str) -> None:
    """The strategy holds for it as for the agent's own model."""
    second = scripted([said], name="scripted/second")
    fallback = {"city": ""} if strategy == "fallback" else None
    output = AgentOutput(CITY, model=second, error_strategy=strategy, fallback_value=fallback)
    async with agent_of(scripted([[{"text": "Oslo"}]]), structured_output=output) as agent:
        result: GenerateResult = await agent.generate("go")
    assert result.text == "Oslo"
    assert (result.error.kind if result.error else "") == (kind if strategy == "strict" else "")
    assert (result.object, result.used_fallback_value) == (fallback, strategy == "fallback")
    assert len(result.warnings) == (strategy == "warn")


async def test_a_rate_limit_of_the_structuring_model_is_waited_for_as_any() -> None:
    limit = {"throw": "slow down", "status": 429, "retryable": True, "retryAfter": 0.05}
    second = scripted([[limit], FINE], name="scripted/second")
    output = AgentOutput(CITY, model=second)
    async with agent_of(scripted([[{"text": "Oslo"}]]), structured_output=output) as agent:
        stream = agent.stream("go", rate_limit_wait=2)
        waits = [chunk.data["model"] async for chunk in stream if chunk.type == "custom"]
        assert (await stream.result()).object == {"city": "Oslo"}
    assert waits == ["scripted/second"]


async def test_half_an_object_of_a_run_that_was_cut_is_none() -> None:
    """Neither in the result nor in what a reader made of the chunks."""
    second = scripted([[{"text": '{"city": "Os'}, {"delay": 60_000}]], name="scripted/second")
    output = AgentOutput(CITY, model=second)
    result = await generated(
        scripted([[{"text": "Oslo."}]]), {"structured_output": output}, execution_timeout=0.3
    )
    assert (result.text, result.object_json, result.stop_cause) == ("Oslo.", None, "timeout")


async def test_prose_that_was_cut_makes_no_object() -> None:
    second = scripted([FINE], name="scripted/second")
    first = scripted([[{"text": "It is Os"}, {"finish": "length"}]])
    result = await generated(
        first, {"structured_output": AgentOutput(CITY, model=second, error_strategy="warn")}
    )
    assert (result.finish_reason, result.object, second.requests) == ("length", None, [])


async def test_a_caller_names_a_structuring_model() -> None:
    second = scripted([FINE], name="scripted/second")
    first = scripted([[{"text": "Oslo"}]])
    other = Agent(id="other", model=first, structured_output=AgentOutput(CITY, model=second))
    app = App(agents=[Agent(id="one", model=first), other])
    async with serve(app) as server, Client(server.address) as client:
        one = client.agent("one")
        output = StructuredOutput(City, model="scripted/second")
        result = await one.generate("go", structured_output=output)
        assert result.object == City(city="Oslo")
        for name in ("scripted/third", "second", "openai/gpt-x"):
            with pytest.raises(RequestInvalid) as refused:
                await one.generate("go", structured_output=StructuredOutput(City, model=name))
            assert refused.value.violations[0].field == "options.structured_output.model"
    assert len(first.requests) == 1


async def test_two_structuring_models_of_one_name_cannot_be_told_apart() -> None:
    shared, other = scripted([FINE], name="scripted/second"), scripted([FINE], name="scripted/second")

    def app(*models: ScriptedModel) -> App:
        first = scripted([[{"text": "Oslo"}]])
        outputs = [AgentOutput(CITY, model=model) for model in models]
        return App(
            agents=[Agent(id=f"a{i}", model=first, structured_output=o) for i, o in enumerate(outputs)]
        )

    async with serve(app(shared, shared)) as server, Client(server.address) as client:
        assert (await client.agent("a1").generate("go")).object == {"city": "Oslo"}
    with pytest.raises(ValueError, match="two structuring models are called 'scripted/second'"):
        async with serve(app(shared, other)):
            pass


async def test_a_run_whose_structuring_model_cannot_be_asked_stays_parked(tmp_path: Any) -> None:
    """The decision is refused and can be made where there is the model."""
    first = scripted([[{"tool": "pay", "id": "c1"}], [{"text": "Oslo"}]])
    second = scripted([FINE], name="scripted/second")

    def app(**more: Any) -> App:
        return App(agents=[Agent(id="one", model=first, tools=[pay], **more)])

    whole = app(structured_output=AgentOutput(CITY, model=second))
    store = str(tmp_path / "entracte.db")
    async with serve(whole, store=store) as server, Client(server.address) as client:
        [call] = (await client.agent("one").generate("go")).pending_calls
    async with serve(app(), store=store) as server, Client(server.address) as client:
        with pytest.raises(AgentUnavailable, match="the model scripted/second"):
            await client.agent("one").approve(call)
        assert (await client.runs.get(call.run_id)).state == "suspended"
    async with serve(whole, store=store) as server, Client(server.address) as client:
        assert (await client.agent("one").approve(call)).object == {"city": "Oslo"}


# ---- what agents and callers say ----


@pytest.mark.parametrize("strategy", ["strict", "warn", "fallback"])
@pytest.mark.parametrize("parts", [FINE, WRONG], ids=["fine", "wrong"])
async def test_the_result_is_the_same_whoever_asks(parts: Any, strategy: Any) -> None:
    """`Generate`, a stream read to its end, and `GetRun`."""
    fallback = {"city": ""} if strategy == "fallback" else None
    output = AgentOutput(CITY, error_strategy=strategy, fallback_value=fallback)
    app = App(agents=[Agent(id="one", model=scripted([parts]), structured_output=output)])
    async with serve(app) as server, Client(server.address) as client:
        result = await client.agent("one").generate("go")
        assert (await client.runs.get(result.run_id)).result == result
        streamed = await client.agent("one").stream("go").result()
    for name in ("object_json", "used_fallback_value", "text", "usage", "finish_reason", "warnings", "error"):
        assert getattr(streamed, name) == getattr(result, name)


async def test_an_agents_own_and_what_replaces_it() -> None:
    model = scripted([FINE, FINE, [{"text": "[1]"}], FINE])
    async with agent_of(model, structured_output=City) as agent:
        assert (await agent.generate("go")).object == {"city": "Oslo"}
        instance = (await agent.generate("go", structured_output=City)).object
        assert (await agent.generate("go", structured_output={"type": "array"})).object == [1]
        result = await agent.generate("go", structured_output=City)
    assert instance == City(city="Oslo")
    assert json.loads(json.dumps(to_dict(result)))["object"] == {"city": "Oslo"}
    assert asked(model)[0] == City.model_json_schema()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"schema": {"type": "wrong"}}, "schema"),
        ({"schema": [1]}, "schema"),
        ({"schema": CITY, "error_strategy": "fallback"}, "fallback_value"),
        ({"schema": CITY, "fallback_value": {"city": "x"}}, "fallback_value"),
        ({"schema": CITY, "error_strategy": "fallback", "fallback_value": {"city": 1}}, "fallback_value"),
        ({"schema": CITY, "error_strategy": "fallback", "fallback_value": None}, "fallback_value"),
        ({"schema": CITY, "provider_options": {"openai": {}}}, "provider_options"),
        ({"schema": CITY, "model": "scripted/x", "provider_options": {"openai": 1}}, "provider_options"),
        ({"schema": CITY, "model": "x\0"}, "model"),
        ({"schema": CITY, "instructions": "x" * 70_000}, "instructions"),
    ],
)
async def test_what_cannot_be_is_refused_before_anything_happens(given: Any, said: str) -> None:
    model = scripted([FINE])
    async with agent_of(model) as agent:
        with pytest.raises((RequestInvalid, SchemaInvalid)) as refused:
            await agent.generate("go", structured_output=given)
    assert refused.value.violations[0].field.startswith(f"options.structured_output.{said}")
    assert model.requests == []


async def test_a_fallback_of_null_is_a_value() -> None:
    output = StructuredOutput({"type": ["object", "null"]}, error_strategy="fallback", fallback_value=None)
    result = await generated(scripted([[{"text": "no"}]]), structured_output=output)
    assert (result.object_json, result.used_fallback_value) == ("null", True)


@pytest.mark.parametrize(
    "given",
    [
        {"error_strategy": "fallback", "fallback_value": {"city": 1}},
        {"fallback_value": {"city": "x"}},
        {"provider_options": {"openai": {}}},
    ],
)
def test_authors_are_told_at_once(given: Any) -> None:
    with pytest.raises(ValueError, match=r"fallback|model"):
        AgentOutput(CITY, **given)


async def test_output_is_structured_output() -> None:
    model = scripted([FINE])
    result = await generated(model, output=City)
    assert result.object == City(city="Oslo")
    assert asked(model) == [City.model_json_schema()]
    async with agent_of(model) as agent:
        with pytest.raises(RequestInvalid) as refused:
            await agent.generate("go", output=CITY, structured_output=CITY)
    assert refused.value.violations[0].field == "options.output"


async def test_what_a_model_class_checks_beyond_its_schema() -> None:
    class Even(pydantic.BaseModel):
        n: int

        @pydantic.field_validator("n")
        @classmethod
        def check(cls, value: int) -> int:
            assert value % 2 == 0, "odd"
            return value

    result = await generated(scripted([[{"text": '{"n":3}'}]]), structured_output=Even)
    assert result.object_json == '{"n":3}'
    with pytest.raises(pydantic.ValidationError, match="odd"):
        _ = result.object


# ---- over suspensions ----


@pytest.mark.usefixtures("each_store")
async def test_it_holds_over_a_suspension_and_a_restart(tmp_path: Any) -> None:
    """Options are stored with the run: what decides it does not repeat them."""
    store: dict[str, Any] = default_store() or {"store": str(tmp_path / "entracte.db")}
    model = scripted([[{"tool": "pay", "id": "c1"}], WRONG, [{"text": "```\n" + OSLO + "\n```"}]])

    def app() -> App:
        return App(agents=[Agent(id="one", model=model, tools=[pay])])

    output = StructuredOutput(City, instructions="I.")
    async with serve(app(), **store) as server, Client(server.address) as client:
        parked = await client.agent("one").generate("go", structured_output=output, max_processor_retries=1)
        assert (parked.finish_reason, parked.object) == ("suspended", None)
    async with serve(app(), **store) as server, Client(server.address) as client:
        result = await client.agent("one").approve(parked.pending_calls[0])
        assert result.object_json == OSLO
        assert result.object_as(City) == City(city="Oslo", people=2**128)
        read = await client.runs.get(parked.run_id)
        assert read.result == result
        chunks = [chunk async for chunk in client.runs.watch(parked.run_id)]
    assert asked(model) == [City.model_json_schema()] * 3
    assert [chunk.attempt for chunk in chunks if chunk.type == "step-start"] == [1, 1, 2]
    assert result.usage.total_tokens == 45


@pytest.mark.parametrize("asks", ["the agent's", "the structuring"])
async def test_another_process_goes_on_with_what_was_sent_back(asks: str, tmp_path: Any) -> None:
    """A server that stops while the model tries again: the next one asks with the same feedback, or has
    the structuring model begin anew; the agent's answer is not asked for twice."""
    stopping = asyncio.Event()

    def play(request: ModelRequest) -> Sequence[Any]:
        if len(model.requests) == 1:
            return WRONG
        if len(model.requests) == 2:
            stopping.set()
            return [{"text": '{"ci'}, {"delay": 3_600_000}]
        return FINE

    model = scripted(play, name="scripted/second")
    first = scripted([[{"text": "Oslo"}]])
    if asks == "the agent's":
        agent = Agent(id="one", model=model, structured_output=CITY)
    else:
        agent = Agent(id="one", model=first, structured_output=AgentOutput(CITY, model=model))
    store = str(tmp_path / "entracte.db")
    async with serve(App(agents=[agent]), store=store) as server, Client(server.address) as client:
        stream = client.agent("one").stream("go", run_id="r", max_processor_retries=1)
        reading = asyncio.create_task(anext(aiter(stream)))
        await asyncio.wait_for(stopping.wait(), 10)
        await reading
    async with serve(App(agents=[agent]), store=store) as server, Client(server.address) as client:
        chunks = [chunk async for chunk in client.runs.watch("r", until_finished=True)]
        result = (await client.runs.get("r")).result
    assert result is not None
    assert (result.object, result.error) == ({"city": "Oslo"}, None)
    attempts = [chunk.attempt for chunk in chunks if chunk.type == "step-start"]
    if asks == "the agent's":
        assert attempts == [1, 2, 3]
        assert model.requests[2].messages == model.requests[1].messages
        assert result.usage.total_tokens == 30
    else:
        assert (attempts, len(first.requests)) == ([1], 1)
        assert model.requests[2].messages == model.requests[0].messages
        assert result.usage.total_tokens == 30
