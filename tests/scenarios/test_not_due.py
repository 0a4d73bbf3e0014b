"""No option is left that is not due: what is not known is refused by its number, never ignored."""

from typing import Any

import grpc
import pytest

from entracte.v1 import agent_service_pb2 as pb
from entracte.v1 import agent_service_pb2_grpc, options_pb2
from entracte_server import Agent, App
from entracte_server.testing import scripted, serve
from tests.scenarios.not_due import NOT_DUE
from tests.scenarios.play import error_info, refusal_of, text_input

DUE = frozenset(
    {
        "run_id",
        "max_steps",
        "active_tools",
        "require_tool_approval",
        "tool_call_concurrency",
        "context",
        "instructions",
        "system",
        "model_settings",
        "tool_choice",
        "client_tools",
        "provider_options",
        "request_context",
        "include_raw_chunks",
        "execution_timeout",
        "cancel_on_disconnect",
        "include_request_body",
        "pending_call_expiry",
        "telemetry",
        "rate_limit_wait",
        "toolsets",
        "tracing_options",
        "scorers",
        "return_scorer_data",
        "structured_output",
        "output",
        "input_processors",
        "output_processors",
        "max_processor_retries",
        "stop_when",
        "on_iteration_complete",
        "prepare_step",
        "hooks",
        "delegation",
        "is_task_complete",
        "memory",
        "auto_resume_suspended_tools",
        "save_per_step",
        "versions",
    }
)
"""The options that are due: all of them."""

UNKNOWN = options_pb2.GenerateOptions.FromString(b"\xc0\x3e\x01")
"""Options with a field of a newer contract, number 1000."""


async def refused(method: str, options: options_pb2.GenerateOptions) -> grpc.aio.AioRpcError:
    """The refusal of a run with these options; the model must not have been asked."""
    model = scripted([[{"text": "x"}]])
    app = App(agents=[Agent(id="a", model=model)])
    fields: dict[str, Any] = {"agent_id": "a", "messages": text_input("hi"), "options": options}
    async with serve(app, reflection=False) as server, grpc.aio.insecure_channel(server.address) as channel:
        agents = agent_service_pb2_grpc.AgentServiceStub(channel)
        call: Any
        if method == "Generate":
            call = agents.Generate(pb.GenerateRequest(**fields))
        else:
            call = agents.Stream(pb.StreamRequest(**fields)).read()
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await call
    assert model.calls == 0
    return refusal.value


@pytest.mark.parametrize("method", ["Generate", "Stream"])
async def test_an_option_that_is_not_known_is_refused(method: str) -> None:
    """UNIMPLEMENTED with OPTION_UNSUPPORTED, naming the field."""
    refusal = await refused(method, UNKNOWN)
    assert refusal_of(refusal) == "UNIMPLEMENTED OPTION_UNSUPPORTED"
    assert error_info(refusal).metadata["field"] == "options.1000"


def test_no_option_is_left() -> None:
    """No scenario waits for one either."""
    assert {field.name for field in options_pb2.GenerateOptions.DESCRIPTOR.fields} == DUE
    assert NOT_DUE == {}
