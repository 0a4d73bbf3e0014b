"""Tools that the caller executes."""

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from entracte import _json
from entracte._ids import new_id
from entracte._tool_schema import description_of, schema_of
from entracte.v1 import agent_service_pb2, options_pb2

log = logging.getLogger("entracte")


@dataclass(frozen=True, slots=True)
class ClientTool:
    """A tool that this process executes.

    `name` has 1 to 64 letters, digits, `_` and `-`, and is not one of the agent's tools.
    `input_schema` is the JSON Schema of the arguments, an object schema (None: no arguments).
    Without a `function` the caller answers its calls with `agent.submit_tool_result`.
    """

    name: str
    description: str = ""
    input_schema: Mapping[str, Any] | None = None
    function: Callable[..., Any] | None = None

    @classmethod
    def from_function(cls, function: Callable[..., Any]) -> "ClientTool":
        """Describes a function, plain or async, by its name, docstring and annotations.

        Raises TypeError for annotations that have no JSON Schema.
        """
        return cls(function.__name__, description_of(function), schema_of(function), function)


ClientToolLike = Callable[..., Any] | ClientTool | Mapping[str, Any]
"""A function, a ClientTool, or a dict with its fields."""


def client_tools_from(tools: Sequence[ClientToolLike] | None) -> list[ClientTool]:
    """The tools meant by any of the accepted forms."""
    return [_client_tool_from(tool) for tool in tools or ()]


def _client_tool_from(tool: ClientToolLike) -> ClientTool:
    if isinstance(tool, ClientTool):
        return tool
    if isinstance(tool, Mapping):
        return ClientTool(**tool)
    return ClientTool.from_function(tool)


def to_client_tool(tool: ClientTool) -> options_pb2.ClientTool:
    """Writes a client tool."""
    schema = tool.input_schema
    return options_pb2.ClientTool(
        name=tool.name,
        description=tool.description,
        input_schema=None if schema is None else _json.to_json(schema),
    )


def submission(pending_call_id: str, outcome: "ToolOutcome") -> agent_service_pb2.SubmitToolResultRequest:
    """The request that hands in what a client tool came to."""
    request = agent_service_pb2.SubmitToolResultRequest(request_id=new_id())
    request.call.pending_call_id = pending_call_id
    if outcome.result_json is not None:
        request.result.text = outcome.result_json
    else:
        request.error = outcome.error or ""
    return request


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a client tool came to: the JSON text of what it returned, or why it failed."""

    result_json: str | None = None
    error: str | None = None


async def execute(tool: ClientTool, args: Any) -> ToolOutcome:
    """Run a client tool's function: a coroutine function here, any other in a thread.

    What it raises is an outcome: its message goes to the model, its traceback to the log.
    """
    function = tool.function
    assert function is not None
    arguments = args or {}
    try:
        if inspect.iscoroutinefunction(function):
            value = await function(**arguments)
        else:
            value = await asyncio.to_thread(function, **arguments)
            if inspect.isawaitable(value):
                value = await value
    except Exception as error:
        log.info("client tool %s raised", tool.name, exc_info=True)
        return ToolOutcome(error=str(error) or type(error).__name__)
    try:
        return ToolOutcome(result_json=_json.dump(value))
    except (TypeError, ValueError) as error:
        log.warning("client tool %s returned something that is not JSON: %s", tool.name, error)
        return ToolOutcome(error=f"the tool returned something that is not JSON: {error}")
