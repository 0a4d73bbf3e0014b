"""Runs with a model behind the Responses API: what is sent at each step, over suspension and restart."""

import json
import pathlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from entracte import Client
from entracte_server import Agent, App, tool
from entracte_server.testing import serve
from tests.models.responses_wire import begin, calls, end, item, says, stream, thinks
from tests.models.support import Answer, FakeProvider


@tool(requires_approval=True)
async def pay(amount: int) -> dict[str, int]:
    """Pays."""
    return {"paid": amount}


@pytest.fixture
async def provider() -> AsyncIterator[FakeProvider]:
    async with FakeProvider() as fake:
        yield fake


@asynccontextmanager
async def agent_on(provider: FakeProvider, store: pathlib.Path, **more: Any) -> AsyncIterator[Any]:
    """The agent on a server of its own, whose model is behind this provider."""
    app = App(agents=[Agent(id="one", model="acme/gpt-5-toy", tools=[pay], **more)])
    acme = {"base_url": provider.url, "api_key": "secret-key-1", "api": "responses"}
    async with (
        serve(app, store=store, providers={"acme": acme}) as server,
        Client(server.address, timeout=30) as client,
    ):
        yield client.agent("one")


PAGE = {"type": "url_citation", "url": "https://a.example/x", "title": "X", "start_index": 0, "end_index": 2}
THOUGHT = {
    "type": "reasoning",
    "id": "rs_0",
    "summary": [{"type": "summary_text", "text": "It costs 7."}],
    "encrypted_content": "enc-1",
}


async def test_a_run_over_suspension_and_restart(provider: FakeProvider, tmp_path: pathlib.Path) -> None:
    """The thinking comes back to the provider as it was, from another process."""
    provider.say(
        Answer(
            [
                stream(
                    begin(),
                    thinks(0, "It costs 7."),
                    says(1, "Wait.", phase="commentary"),
                    calls(2, "pay", "call_1", '{"amount":', "7}"),
                    end(),
                )
            ],
            headers={
                "content-type": "text/event-stream",
                "x-request-id": "req_1",
                "x-ratelimit-remaining-tokens": "149984",
                "set-cookie": "a=b",
            },
        ),
        stream(begin(), thinks(0, "Done."), says(1, "Paid.", annotations=[PAGE]), end()),
    )
    options = {"openai": {"reasoningEffort": "high"}, "acme": {"reasoningSummary": "auto"}}
    async with agent_on(provider, tmp_path / "a.db") as agent:
        result = await agent.generate("Pay 7", provider_options=options, model_settings={"top_p": 0.5})
        assert result.finish_reason == "suspended"
        assert (result.text, result.reasoning_text) == ("Wait.", "It costs 7.")
        assert result.usage.reasoning_tokens == 20
        assert result.usage.cached_input_tokens == 64
        assert result.response.headers == {"x-request-id": "req_1", "x-ratelimit-remaining-tokens": "149984"}
        call = result.pending_calls[0]
    async with agent_on(provider, tmp_path / "a.db") as agent:
        result = await agent.approve(call)
    assert (result.text, result.finish_reason) == ("Wait.Paid.", "stop")
    assert [(source.url, source.title) for source in result.sources] == [("https://a.example/x", "X")]
    assert (result.response.id, result.response.model_id) == ("resp_1", "toy-1-2026")
    common = {
        "model": "gpt-5-toy",
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"summary": "auto"},
        "top_p": 0.5,
        "tools": [
            {
                "type": "function",
                "name": "pay",
                "description": "Pays.",
                "parameters": json.loads(pay.input_schema),
                "strict": False,
            }
        ],
    }
    asked = {"role": "user", "content": "Pay 7"}
    assert [request.body for request in provider.requests] == [
        {**common, "input": [asked]},
        {
            **common,
            "input": [
                asked,
                THOUGHT,
                {"role": "assistant", "content": "Wait.", "phase": "commentary"},
                {"type": "function_call", "call_id": "call_1", "name": "pay", "arguments": '{"amount":7}'},
                {"type": "function_call_output", "call_id": "call_1", "output": '{"paid":7}'},
            ],
        },
    ]
    assert {request.path for request in provider.requests} == {"/v1/responses"}


async def test_a_conversation_carried_by_the_caller(provider: FakeProvider, tmp_path: pathlib.Path) -> None:
    """The messages of a result, given again with a new one, bring the thinking back as well."""
    provider.say(stream(begin(), thinks(0, "It costs 7."), says(1, "Seven.", phase="final_answer"), end()))
    async with agent_on(provider, tmp_path / "a.db") as agent:
        first = await agent.generate("How much?")
        await agent.generate([*first.messages, {"role": "user", "content": "Why?"}])
    assert provider.requests[1].body["input"] == [
        {"role": "user", "content": "How much?"},
        THOUGHT,
        {"role": "assistant", "content": "Seven.", "phase": "final_answer"},
        {"role": "user", "content": "Why?"},
    ]


async def test_tools_of_the_provider(provider: FakeProvider, tmp_path: pathlib.Path) -> None:
    """What the provider executes is shown and never executed here; the answer ends the run."""
    search = item(0, "web_search_call", {"action": {"type": "search", "query": "oak"}}, id="ws_1")
    provider.say(stream(begin(), search, says(1, "An oak.", annotations=[PAGE]), end()))
    options = {"acme": {"tools": [{"type": "web_search"}]}}
    async with agent_on(provider, tmp_path / "a.db") as agent:
        result = await agent.generate("Find oak", provider_options=options, tool_choice="required")
        stream_ = agent.stream("Find oak", provider_options=options)
        chunks = [chunk async for chunk in stream_]
        folded = await stream_.result()
    assert [tool["type"] for tool in provider.requests[0].body["tools"]] == ["function", "web_search"]
    assert (result.text, result.finish_reason, len(result.steps)) == ("An oak.", "stop", 1)
    [call] = result.tool_calls
    assert (call.tool_name, call.provider_executed) == ("web_search", True)
    assert (folded.text, [c.tool_name for c in folded.tool_calls]) == ("An oak.", ["web_search"])
    assert "tool-error" not in [chunk.type for chunk in chunks]


async def test_the_body_can_be_seen(provider: FakeProvider, tmp_path: pathlib.Path) -> None:
    provider.say(stream(begin(), says(0, "Hi"), end()))
    async with agent_on(provider, tmp_path / "a.db") as agent:
        result = await agent.generate("hi", include_request_body=True)
    assert result.request.body == provider.requests[0].body


@pytest.mark.parametrize("tools", [True, False])
async def test_an_answer_in_a_schema(provider: FakeProvider, tmp_path: pathlib.Path, tools: bool) -> None:
    """Natively, unless the provider takes no format together with tools."""
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    provider.say(stream(begin(), says(0, '{"age":', "7}"), end()))
    async with agent_on(provider, tmp_path / "a.db") as agent:
        result = await agent.generate(
            "How old?", structured_output={"schema": schema}, active_tools=["pay"] if tools else []
        )
    assert result.object == {"age": 7}
    [request] = provider.requests
    if tools:
        assert "text" not in request.body
        assert '"age"' in json.dumps(request.body["input"]).replace("\\", "")
    else:
        format = request.body["text"]["format"]
        assert (format["type"], format["schema"]["properties"]) == ("json_schema", schema["properties"])
