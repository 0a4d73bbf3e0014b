"""Client tools: described from functions, executed when the run parks for them."""

import asyncio
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import grpc
import pytest

import entracte
from entracte import Client, ClientTool
from entracte.v1 import inbox_service_pb2
from tests.client.fake import FakeServer, Log, Refuse, js


class Place(TypedDict):
    name: str
    floor: NotRequired[int]


def search(
    query: str,
    limit: int = 10,
    places: list[Place] | None = None,
    mode: Literal["fast", "deep"] = "fast",
    weights: dict[str, float] | None = None,
    exact: Annotated[bool, "Whether the words must fit exactly."] = False,
    anything: Any = None,
) -> list[str]:
    """Searches the local files.

    Only those that may be read.

    Args:
        query: What to look for,
            in words.
        limit (int): The most hits.

    Returns:
        The hits.
    """
    return []


def test_a_function_describes_itself() -> None:
    tool = ClientTool.from_function(search)
    assert tool.name == "search"
    assert tool.description == "Searches the local files.\n\nOnly those that may be read."
    place = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "floor": {"type": "integer"}},
        "required": ["name"],
        "additionalProperties": False,
    }
    assert tool.input_schema == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for, in words."},
            "limit": {"type": "integer", "description": "The most hits.", "default": 10},
            "places": {"anyOf": [{"type": "array", "items": place}, {"type": "null"}], "default": None},
            "mode": {"enum": ["fast", "deep"], "default": "fast"},
            "weights": {
                "anyOf": [
                    {"type": "object", "additionalProperties": {"type": "number"}},
                    {"type": "null"},
                ],
                "default": None,
            },
            "exact": {
                "type": "boolean",
                "description": "Whether the words must fit exactly.",
                "default": False,
            },
            "anything": {"default": None},
        },
        "required": ["query"],
        "additionalProperties": False,
    }


def test_field_lists_describe_parameters_too() -> None:
    def look(place: str, times: tuple[int, ...]) -> None:
        """Looks.

        :param place: Where
            to look.
        :param times: How often.
        :returns: Nothing.
        """

    tool = ClientTool.from_function(look)
    assert tool.description == "Looks."
    assert tool.input_schema is not None
    assert tool.input_schema["properties"] == {
        "place": {"type": "string", "description": "Where to look."},
        "times": {"type": "array", "items": {"type": "integer"}, "description": "How often."},
    }


@pytest.mark.parametrize("hint", [complex, dict[int, str], tuple[int, str], set[int]])
def test_types_without_a_schema_are_refused_by_name(hint: Any) -> None:
    def look(place: str) -> None: ...

    look.__annotations__["place"] = hint
    with pytest.raises(TypeError, match="parameter 'place' of look"):
        ClientTool.from_function(look)


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


async def ask(a: int, b: int) -> dict[str, int]:
    """Adds, elsewhere."""
    await asyncio.sleep(0)
    return {"sum": a + b}


def fail(a: int, b: int) -> None:
    """Fails."""
    raise ValueError("no numbers today")


def odd(a: int, b: int) -> object:
    """Returns what is not JSON."""
    return object()


def tool_log(*tools: str, then_approval: bool = False) -> Log:
    """A run that calls client tools, one parking after the other, and perhaps asks for approval."""
    log = Log().add("start", step=0)
    for index, tool in enumerate(tools):
        pending = f"p{index}"
        log.add("step_start", step=index + 1)
        log.wait_for(pending, tool, "CLIENT_TOOL", '{"a":1,"b":2}')
        log.park((pending, tool, "CLIENT_TOOL")).resolved(pending, "SUBMIT")
        log.add("step_finish", step=index + 1)
    if then_approval:
        return log.wait_for("q", "refund", "APPROVAL").park(("q", "refund", "APPROVAL"))
    return log.add("text_delta", text="3").finish()


async def play(log: Log, *tools: Any, stream: bool = False) -> tuple[FakeServer, list[entracte.Chunk]]:
    async with FakeServer(log).running() as server, Client(server.address) as client:
        agent = client.agent("support")
        chunks: list[entracte.Chunk] = []
        if stream:
            chunks = [chunk async for chunk in agent.stream("Hi", run_id="r1", client_tools=tools)]
        else:
            await agent.generate("Hi", run_id="r1", client_tools=tools)
        return server, chunks


@pytest.mark.parametrize("stream", [True, False])
async def test_functions_are_executed_until_the_run_ends(stream: bool) -> None:
    log = tool_log("add", "ask")
    server, chunks = await play(log, add, ask, stream=stream)
    first, second = server.asked("SubmitToolResult")
    assert (first.call.pending_call_id, first.result.text) == ("p0", "3")
    assert (second.call.pending_call_id, second.result.text) == ("p1", '{"sum":3}')
    if stream:
        assert [chunk.sequence for chunk in chunks] == list(range(1, len(log.chunks) + 1))


async def test_what_a_function_raises_is_told_to_the_model() -> None:
    server, _ = await play(tool_log("fail", "odd"), fail, odd)
    first, second = server.asked("SubmitToolResult")
    assert first.error == "no numbers today"
    assert "not JSON" in second.error


@pytest.mark.parametrize("stream", [True, False])
async def test_a_run_that_parks_for_something_else_is_left_parked(stream: bool) -> None:
    server, chunks = await play(tool_log("add", then_approval=True), add, stream=stream)
    assert len(server.asked("SubmitToolResult")) == 1
    if stream:
        last = chunks[-1]
        assert last.type == "finish"
        assert last.reason == "suspended"


async def test_a_tool_without_a_function_is_left_to_the_caller() -> None:
    log = tool_log("add")
    server, chunks = await play(log, {"name": "add", "description": "Adds"}, stream=True)
    assert server.asked("SubmitToolResult") == []
    assert chunks[-1].type == "finish"
    (request,) = server.asked("Stream")
    assert request.options.client_tools[0].name == "add"


async def test_calls_of_one_parking_are_executed_together() -> None:
    log = Log().add("start", step=0)
    for pending in ("p1", "p2", "p3"):
        log.wait_for(pending, "meet", "CLIENT_TOOL")
    log.park(*[(pending, "meet", "CLIENT_TOOL") for pending in ("p1", "p2", "p3")]).finish()
    together = asyncio.Barrier(3)

    async def meet() -> None:
        await asyncio.wait_for(together.wait(), 5)

    server, _ = await play(log, meet)
    assert {request.result.text for request in server.asked("SubmitToolResult")} == {"null"}
    assert len(server.asked("SubmitToolResult")) == 3


async def test_a_call_that_was_settled_otherwise_is_passed_over() -> None:
    log = tool_log("add")
    async with FakeServer(log).running() as server, Client(server.address) as client:
        late = Refuse(grpc.StatusCode.FAILED_PRECONDITION, "PENDING_CALL_ALREADY_DECIDED", take_first=True)
        server.plans["SubmitToolResult"] = [late]
        stream = client.agent("support").stream("Hi", run_id="r1", client_tools=[add])
        chunks = [chunk async for chunk in stream]
    assert [chunk.sequence for chunk in chunks] == list(range(1, len(log.chunks) + 1))


async def test_a_function_runs_once_even_if_handing_in_fails() -> None:
    ran = []

    def count(a: int, b: int) -> int:
        """Counts."""
        ran.append(a)
        return len(ran)

    log = tool_log("count")
    async with FakeServer(log).running() as server, Client(server.address) as client:
        server.plans["SubmitToolResult"] = [Refuse(grpc.StatusCode.PERMISSION_DENIED, "ROLE_REQUIRED")]
        stream = client.agent("support").stream("Hi", run_id="r1", client_tools=[count])
        with pytest.raises(entracte.RoleRequired):
            async for _ in stream:
                pass
        chunks = [chunk async for chunk in stream]
        first, second = server.asked("SubmitToolResult")
    assert first == second
    assert ran == [1]
    assert chunks[-1].type == "finish"


async def test_a_function_may_be_given_again_with_a_decision() -> None:
    log = Log().add("start", step=0).wait_for("p1", "refund", "APPROVAL").park(("p1", "refund", "APPROVAL"))
    log.resolved("p1", "APPROVE").park(("p2", "add", "CLIENT_TOOL")).resolved("p2", "SUBMIT").finish()
    async with FakeServer(log).running() as server, Client(server.address) as client:

        async def get(request: Any, _: Any) -> Any:
            response = inbox_service_pb2.GetPendingCallResponse()
            response.pending_call.args.CopyFrom(js('{"a":20,"b":3}'))
            return response

        server.handlers["GetPendingCall"] = get
        await client.agent("support").approve("p1", client_tools=[add])
        assert [request.pending_call_id for request in server.asked("GetPendingCall")] == ["p2"]
        (submitted,) = server.asked("SubmitToolResult")
    assert submitted.result.text == "23"
