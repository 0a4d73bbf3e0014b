"""Tools as workers register them, and work as they are given it."""

from google.protobuf.duration_pb2 import Duration

from entracte.v1 import json_pb2
from entracte.v1 import worker_service_pb2 as pb
from entracte_server.agents.remote import fault_of_name
from entracte_server.domain.errors import invalid
from entracte_server.domain.options import WorkerDefinition
from entracte_server.domain.work import GivenWork, OfferedTool, Output, offered
from entracte_server.rpc import checks

MAX_TOOLS = 256
MAX_DESCRIPTION = 8 * 1024
MAX_VERSION = 64
MAX_OUTPUT = 256
MAX_OUTPUT_NAME = 128
MAX_OUTPUT_ID = 256
LONGEST = 86_400.0
"""The longest time of one execution, in seconds, from when it is given out or extended."""


def tools_from(tools: list[pb.WorkerTool], credit: int) -> tuple[OfferedTool, ...]:
    """The tools of a session. Raises `Refusal`."""
    if len(tools) > MAX_TOOLS:
        raise invalid("tools", f"at most {MAX_TOOLS} tools")
    if credit and not tools:
        raise invalid("tools", "name at least one tool, or set credit to 0")
    found: dict[tuple[str, str], OfferedTool] = {}
    for index, message in enumerate(tools):
        tool = _tool(f"tools[{index}]", message)
        key = (tool.name, tool.definition.version)
        if key in found:
            raise invalid(f"tools[{index}].name", f"{tool.name} {key[1]} is there twice")
        found[key] = tool
    return tuple(found.values())


def _tool(field: str, message: pb.WorkerTool) -> OfferedTool:
    if fault := fault_of_name(message.name):
        raise invalid(f"{field}.name", fault)
    version = checks.identifier(f"{field}.version", message.version)
    if len(version) > MAX_VERSION:
        raise invalid(f"{field}.version", f"is longer than {MAX_VERSION} characters")
    if not message.HasField("input_schema"):
        raise invalid(f"{field}.input_schema", 'is required; without arguments it is {"type": "object"}')
    if message.concurrency < 0:
        raise invalid(f"{field}.concurrency", "must not be negative")
    definition = WorkerDefinition(
        version,
        suspend_schema=_schema(f"{field}.suspend_schema", message, "suspend_schema"),
        resume_schema=_schema(f"{field}.resume_schema", message, "resume_schema"),
        requires_approval=message.requires_approval,
        idempotent=message.idempotent,
        timeout=checks.duration(f"{field}.timeout", message.timeout, 1, LONGEST)
        if message.HasField("timeout")
        else None,
    )
    return offered(
        message.name,
        definition,
        checks.text(f"{field}.description", message.description, MAX_DESCRIPTION),
        checks.schema(f"{field}.input_schema", message.input_schema),
        message.concurrency,
    )


def _schema(field: str, message: pb.WorkerTool, name: str) -> str | None:
    return checks.any_schema(field, getattr(message, name))[0] if message.HasField(name) else None  # type: ignore[arg-type]


def outputs_from(messages: list[pb.WorkOutput]) -> tuple[Output, ...]:
    """What a tool wrote. Raises `Refusal`."""
    if len(messages) > MAX_OUTPUT:
        raise invalid("output", f"at most {MAX_OUTPUT} at once")
    found: list[Output] = []
    for index, message in enumerate(messages):
        field = f"output[{index}]"
        if message.number <= (found[-1].number if found else 0):
            raise invalid(f"{field}.number", "numbers begin with 1 and grow")
        if len(message.name) > MAX_OUTPUT_NAME or len(message.id) > MAX_OUTPUT_ID:
            raise invalid(field, f"name and id have at most {MAX_OUTPUT_NAME} and {MAX_OUTPUT_ID} characters")
        name = checks.identifier(f"{field}.name", message.name, required=False)
        if not message.HasField("value"):
            raise invalid(f"{field}.value", "is required")
        value, _ = checks.json_value(f"{field}.value", message.value)
        key = checks.identifier(f"{field}.id", message.id, required=False)
        found.append(Output(message.number, name, value, key))
    return tuple(found)


def item_message(work: GivenWork) -> pb.WorkItem:
    """Work as its worker gets it."""
    task = work.task
    tool = pb.ToolExecution(
        name=task.name,
        version=task.version,
        tool_call_id=task.tool_call_id,
        args=json_pb2.Json(text=task.args),
        idempotency_key=task.idempotency_key,
        state=_json(task.state),
    )
    if task.resumed:
        tool.resumed.resume_data.text = task.resume_data or "null"
        tool.resumed.expired = task.expired
        if task.suspend_payload is not None:
            tool.resumed.suspend_payload.text = task.suspend_payload
    return pb.WorkItem(
        work_id=work.work_id,
        token=work.token,
        timeout=milliseconds(work.timeout),
        delivery=work.delivery,
        run_id=task.run_id,
        agent_id=task.agent_id,
        thread_id=task.thread_id,
        resource_id=task.resource_id,
        request_context=_json(task.request_context),
        tool=tool,
    )


def _json(text: str | None) -> json_pb2.Json | None:
    return None if text is None else json_pb2.Json(text=text)


def milliseconds(value: int) -> Duration:
    """A time in milliseconds."""
    return Duration(seconds=value // 1000, nanos=value % 1000 * 1_000_000)
