"""The options of a request, checked and put into the form they are stored in."""

import re
from collections.abc import Iterable, Mapping

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from entracte.v1 import agent_pb2, options_pb2, pending_call_pb2
from entracte_server.agents.agent import Agent, App
from entracte_server.agents.expiry import MAX_SECONDS
from entracte_server.agents.tools import NAME, Tool
from entracte_server.domain.errors import invalid
from entracte_server.domain.expiry import ExpiryAction, RunExpiry
from entracte_server.domain.options import (
    ClientTool,
    ModelSettings,
    PinnedTool,
    RunOptions,
    ToolChoice,
)
from entracte_server.engine import working_memory
from entracte_server.rpc import checks
from entracte_server.rpc.approval_options import approval_from
from entracte_server.rpc.call import current
from entracte_server.rpc.delegation_options import delegation_hooks
from entracte_server.rpc.memory_options import memory_from, save_per_step
from entracte_server.rpc.messages import messages_from, system_from
from entracte_server.rpc.processor_options import max_retries, processor_refs
from entracte_server.rpc.scorer_options import scorers_from
from entracte_server.rpc.stopping_options import (
    check_prices,
    hook_name,
    stop_when,
    task_completion,
    tool_hooks,
)
from entracte_server.rpc.structured_options import structured_output
from entracte_server.rpc.tracing_options import telemetry_from, tracing_from

SUPPORTED = frozenset(
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
        "toolsets",
        "telemetry",
        "tracing_options",
        "rate_limit_wait",
        "scorers",
        "return_scorer_data",
        "stop_when",
        "on_iteration_complete",
        "prepare_step",
        "hooks",
        "delegation",
        "is_task_complete",
        "structured_output",
        "output",
        "input_processors",
        "output_processors",
        "max_processor_retries",
        "auto_resume_suspended_tools",
        "memory",
        "save_per_step",
        "versions",
    }
)
"""The options this version acts on; any other that is set is refused."""

MAX_CLIENT_TOOLS = 128
MAX_TIMEOUT = 366 * 86400
MAX_RATE_LIMIT_WAIT = 86400

_OURS = (options_pb2.DESCRIPTOR, agent_pb2.DESCRIPTOR)
"""The files of the contract that say what is to be done."""

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")

_CHOICES = {
    options_pb2.ToolChoice.MODE_UNSPECIFIED: "auto",
    options_pb2.ToolChoice.MODE_AUTO: "auto",
    options_pb2.ToolChoice.MODE_NONE: "none",
    options_pb2.ToolChoice.MODE_REQUIRED: "required",
    options_pb2.ToolChoice.MODE_TOOL: "tool",
}


_ACTIONS: dict[int, ExpiryAction] = {
    pending_call_pb2.EXPIRY_ACTION_UNSPECIFIED: "decline",
    pending_call_pb2.EXPIRY_ACTION_DECLINE: "decline",
    pending_call_pb2.EXPIRY_ACTION_FAIL: "fail",
    pending_call_pb2.EXPIRY_ACTION_ANSWER: "answer",
}


def check_supported(options: options_pb2.GenerateOptions) -> None:
    """Raises `Refusal` when an option is set that this server does not know how to honour."""
    for descriptor, _ in options.ListFields():
        if descriptor.name not in SUPPORTED:
            raise checks.unsupported(f"options.{descriptor.name}")
    refuse_unknown("options", options)


def options_from(
    app: App,
    agent: Agent,
    options: options_pb2.GenerateOptions,
    tools: Mapping[str, Tool],
    toolsets: tuple[str, ...],
    pinned: Iterable[PinnedTool],
) -> RunOptions:
    """The options of a run of `agent`, all of them supported. The server executes `tools`, some of them from
    `toolsets`, and of these the `pinned` from MCP servers. Raises `Refusal`."""
    memory = memory_from(agent, options)
    tools = {**tools, **working_memory.tools_in(agent, memory)}
    client_tools = _client_tools(tools, options)
    names = {*tools, *(tool.name for tool in client_tools)}
    instructions = system_from("options.instructions", options.instructions)
    made = RunOptions(
        max_steps=_at_least_one(options, "max_steps"),
        active_tools=_active_tools(options, names),
        require_tool_approval=approval_from(app, options),
        tool_call_concurrency=_at_least_one(options, "tool_call_concurrency"),
        context=messages_from("options.context", options.context),
        instructions=instructions if options.instructions else None,
        system=system_from("options.system", options.system),
        model_settings=_settings(options),
        tool_choice=_choice(options, names),
        client_tools=client_tools,
        provider_options=_provider_options(options),
        request_context=(
            checks.json_object("options.request_context", options.request_context)[0]
            if options.HasField("request_context")
            else None
        ),
        include_raw_chunks=_flag(options, "include_raw_chunks", agent.include_raw_chunks),
        execution_timeout=_timeout(options),
        cancel_on_disconnect=options.cancel_on_disconnect,
        include_request_body=options.include_request_body,
        pending_call_expiry=_expiry(tools, options, client_tools),
        toolsets=toolsets,
        pinned_tools=_active(options, pinned),
        telemetry=telemetry_from(options),
        tracing_options=tracing_from(options),
        rate_limit_wait=_rate_limit_wait(options),
        scorers=scorers_from(options, app.scorers),
        return_scorer_data=_flag(options, "return_scorer_data", agent.return_scorer_data),
        stop_when=stop_when(app, options, names),
        on_iteration_complete=hook_name(
            app, "options.on_iteration_complete", options.on_iteration_complete, "iteration_complete"
        ),
        prepare_step=hook_name(app, "options.prepare_step", options.prepare_step, "prepare_step"),
        hooks=tool_hooks(app, options),
        delegation=delegation_hooks(app, options),
        is_task_complete=task_completion(app, options),
        structured_output=structured_output(agent, options),
        input_processors=processor_refs(app, options, "input_processors"),
        output_processors=processor_refs(app, options, "output_processors"),
        max_processor_retries=max_retries(options),
        memory=memory,
        save_per_step=save_per_step(options),
    )
    check_prices(app, agent, made)
    return made


def refuse_unknown(path: str, message: Message) -> None:
    """A field that a newer contract has is an option all the same: it is not ignored. Raises `Refusal`."""
    for unknown in UnknownFieldSet(message):  # type: ignore[attr-defined]
        raise checks.unsupported(f"{path}.{unknown.field_number}")
    for descriptor, value in message.ListFields():
        kind = descriptor.message_type
        if kind is not None and kind.GetOptions().map_entry:
            of = kind.fields_by_name["value"].message_type
            if of is not None and of.file in _OURS:
                for key, item in sorted(value.items()):
                    refuse_unknown(f"{path}.{descriptor.name}.{str(key)[:80]}", item)
            continue
        if kind is None or kind.file not in _OURS:
            continue
        if descriptor.is_repeated:
            for i, item in enumerate(value):
                refuse_unknown(f"{path}.{descriptor.name}[{i}]", item)
        else:
            refuse_unknown(f"{path}.{descriptor.name}", value)


def _at_least_one(options: options_pb2.GenerateOptions, name: str) -> int | None:
    if not options.HasField(name):  # type: ignore[arg-type]
        return None
    value: int = getattr(options, name)
    if value < 1:
        raise invalid(f"options.{name}", "must be at least 1")
    return value


def _flag(options: options_pb2.GenerateOptions, name: str, otherwise: bool) -> bool:
    """What the caller says, else what the agent does."""
    return getattr(options, name) if options.HasField(name) else otherwise  # type: ignore[arg-type]


def _active(options: options_pb2.GenerateOptions, pinned: Iterable[PinnedTool]) -> tuple[PinnedTool, ...]:
    """What of them has to be stored: a server may have many tools with long descriptions."""
    if not options.HasField("active_tools"):
        return tuple(pinned)
    return tuple(tool for tool in pinned if tool.name in options.active_tools.names)


def _active_tools(options: options_pb2.GenerateOptions, names: set[str]) -> tuple[str, ...] | None:
    if not options.HasField("active_tools"):
        return None
    for i, name in enumerate(options.active_tools.names):
        if name not in names:
            raise invalid(f"options.active_tools.names[{i}]", f"the agent has no tool {name!r}")
    return tuple(options.active_tools.names)


def _settings(options: options_pb2.GenerateOptions) -> ModelSettings:
    given = options.model_settings

    def number(name: str, low: float, high: float) -> float | None:
        if not given.HasField(name):  # type: ignore[arg-type]
            return None
        value: float = getattr(given, name)
        if not low <= value <= high:
            raise invalid(f"options.model_settings.{name}", f"must be from {low:g} to {high:g}")
        return value

    def whole(name: str, low: int) -> int | None:
        if not given.HasField(name):  # type: ignore[arg-type]
            return None
        value: int = getattr(given, name)
        if value < low:
            raise invalid(f"options.model_settings.{name}", f"must be at least {low}")
        return value

    for key, value in given.headers.items():
        if not _HEADER.fullmatch(key) or not (value.isascii() and value.isprintable()):
            raise invalid("options.model_settings.headers", f"{key[:80]!r} is not a header in ASCII")
    return ModelSettings(
        temperature=number("temperature", 0, 2),
        max_output_tokens=whole("max_output_tokens", 1),
        max_retries=whole("max_retries", 0),
        top_p=number("top_p", 0, 1),
        top_k=whole("top_k", 1),
        presence_penalty=number("presence_penalty", -2, 2),
        frequency_penalty=number("frequency_penalty", -2, 2),
        stop_sequences=tuple(given.stop_sequences),
        seed=given.seed if given.HasField("seed") else None,
        headers=dict(given.headers),
    )


def _choice(options: options_pb2.GenerateOptions, names: set[str]) -> ToolChoice | None:
    if not options.HasField("tool_choice"):
        return None
    mode = _CHOICES.get(options.tool_choice.mode)
    name = options.tool_choice.tool_name
    if mode is None:
        raise invalid("options.tool_choice.mode", "is not a mode this server knows")
    if mode == "tool" and name not in names:
        raise invalid("options.tool_choice.tool_name", f"the agent has no tool {name!r}")
    if mode != "tool" and name:
        raise invalid("options.tool_choice.tool_name", "goes with MODE_TOOL only")
    if mode == "tool" and options.HasField("active_tools") and name not in options.active_tools.names:
        raise invalid("options.tool_choice.tool_name", f"{name!r} is not one of active_tools")
    every_step = options.tool_choice.every_step
    if every_step and mode not in ("required", "tool"):
        raise invalid("options.tool_choice.every_step", "goes with MODE_REQUIRED and MODE_TOOL only")
    return ToolChoice(mode, name, every_step)  # type: ignore[arg-type]


def _client_tools(
    server_tools: Mapping[str, Tool], options: options_pb2.GenerateOptions
) -> tuple[ClientTool, ...]:
    if len(options.client_tools) > MAX_CLIENT_TOOLS:
        raise invalid("options.client_tools", f"at most {MAX_CLIENT_TOOLS}")
    tools: dict[str, ClientTool] = {}
    for i, given in enumerate(options.client_tools):
        field = f"options.client_tools[{i}]"
        if not NAME.fullmatch(given.name):
            raise invalid(f"{field}.name", "use 1 to 64 characters of letters, digits, '_' and '-'")
        if given.name in server_tools:
            raise invalid(f"{field}.name", f"the agent has a tool {given.name!r} already")
        if given.name in tools:
            raise invalid(f"{field}.name", f"{given.name!r} is given twice")
        schema = '{"type":"object","properties":{}}'
        if given.HasField("input_schema"):
            schema = checks.schema(f"{field}.input_schema", given.input_schema)
        tools[given.name] = ClientTool(given.name, given.description, schema)
    return tuple(tools.values())


def _provider_options(options: options_pb2.GenerateOptions) -> str | None:
    if not options.HasField("provider_options"):
        return None
    return checks.provider_options("options.provider_options", options.provider_options)


def _timeout(options: options_pb2.GenerateOptions) -> float | None:
    if not options.HasField("execution_timeout"):
        return None
    return checks.duration("options.execution_timeout", options.execution_timeout, 1e-9, MAX_TIMEOUT)


def _rate_limit_wait(options: options_pb2.GenerateOptions) -> float | None:
    if not options.HasField("rate_limit_wait"):
        return None
    return checks.duration("options.rate_limit_wait", options.rate_limit_wait, 0, MAX_RATE_LIMIT_WAIT)


def _expiry(
    tools: Mapping[str, Tool], options: options_pb2.GenerateOptions, client_tools: Iterable[ClientTool]
) -> RunExpiry | None:
    if not options.HasField("pending_call_expiry"):
        return None
    given, field = options.pending_call_expiry, "options.pending_call_expiry"
    if not given.HasField("after"):
        raise invalid(f"{field}.after", "is required")
    after = checks.duration(f"{field}.after", given.after, 0.001, MAX_SECONDS)
    action = _ACTIONS.get(given.action)
    if action is None:
        raise invalid(f"{field}.action", "is not an action this server knows")
    if bool(given.default_answers) != (action == "answer"):
        raise invalid(f"{field}.default_answers", "goes with EXPIRY_ACTION_ANSWER, and that with answers")
    if given.default_answers:
        # Whoever declares an answer decides, though later and in the name of the server.
        current.get().require("decide")
    by_client = {tool.name for tool in client_tools}
    answers = {}
    for name, answer in given.default_answers.items():
        path = f"{field}.default_answers.{name[:80]}"
        answers[name], _ = checks.json_value(path, answer)
        if name in by_client:
            continue
        tool = tools.get(name)
        if tool is None:
            raise invalid(path, "the agent has no such tool")
        try:
            tool.check_default(answers[name])
        except ValueError as error:
            raise invalid(path, str(error)) from None
    return RunExpiry(after, action, answers)
