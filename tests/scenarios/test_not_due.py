"""Options that are not due yet are refused by name, never ignored."""

from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor

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
    }
)
"""The options that are due; every other field of the message is not."""

FIELDS = options_pb2.GenerateOptions.DESCRIPTOR.fields
LATER = [field for field in FIELDS if field.name not in DUE]


def with_field(field: FieldDescriptor) -> options_pb2.GenerateOptions:
    """Options in which only this field is there, as small as it can be."""
    options = options_pb2.GenerateOptions()
    value: Any = getattr(options, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        value["some"].SetInParent()
    elif field.is_repeated:
        if field.message_type is None:
            value.append("some")
        else:
            value.add()
    elif field.message_type is not None:
        value.SetInParent()
    else:
        setattr(options, field.name, value)  # the default value, but present
    return options


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


@pytest.mark.parametrize("field", LATER, ids=[field.name for field in LATER])
@pytest.mark.parametrize("method", ["Generate", "Stream"])
async def test_an_option_that_is_not_due_is_refused(field: FieldDescriptor, method: str) -> None:
    """UNIMPLEMENTED with OPTION_UNSUPPORTED, naming the field."""
    refusal = await refused(method, with_field(field))
    assert refusal_of(refusal) == "UNIMPLEMENTED OPTION_UNSUPPORTED"
    assert error_info(refusal).metadata["field"] == f"options.{field.name}"


def test_what_the_scenarios_need_later() -> None:
    """Each option of a scenario that is not due is a field that is refused."""
    later = {field.name for field in LATER}
    assert set(NOT_DUE.values()) <= later
    assert {field.name for field in FIELDS} >= DUE
