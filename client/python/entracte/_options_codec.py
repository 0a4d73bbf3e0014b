"""Options to the wire: one entry in ENCODERS for each field of `GenerateOptions` in the contract."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from google.protobuf import duration_pb2

from entracte import _options as o
from entracte._client_tools import client_tools_from, to_client_tool
from entracte._enums import number_of
from entracte._json import UNSET, schema_to_json, to_json
from entracte._message_codec import to_messages
from entracte._messages import messages_from
from entracte.v1 import message_pb2, pending_call_pb2
from entracte.v1 import options_pb2 as pb

T = TypeVar("T")


def to_options(options: Mapping[str, Any]) -> pb.GenerateOptions:
    """Writes the options that have a field in the contract; those that are None are left out.

    Raises TypeError or ValueError, naming the option, for values of the wrong kind.
    """
    written = pb.GenerateOptions()
    for name, value in options.items():
        if value is not None and name in ENCODERS:
            try:
                field: Any = {name: ENCODERS[name](value)}
                written.MergeFrom(pb.GenerateOptions(**field))
            except TypeError as error:
                raise TypeError(f"option {name}: {error}") from error
            except ValueError as error:
                raise ValueError(f"option {name}: {error}") from error
    return written


def check_names(given: Mapping[str, Any], known: Iterable[str], function: str) -> None:
    """Raises TypeError for a keyword argument that does not exist, as Python does."""
    names = set(known)
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{hint}")


def to_duration(value: o.Seconds) -> duration_pb2.Duration:
    """Writes a duration given in seconds or as a timedelta."""
    span = value if isinstance(value, timedelta) else timedelta(seconds=value)
    duration = duration_pb2.Duration()
    duration.FromTimedelta(span)
    return duration


def record(cls: type[T], value: Any) -> T:
    """A record given as such, or as a dict with its fields."""
    if isinstance(value, cls):
        return value
    if isinstance(value, Mapping):
        return cls(**value)
    raise TypeError(f"expected a {cls.__name__} or a dict with its fields, not {type(value).__name__}")


def _same(value: Any) -> Any:
    return value


def _hook_name(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected the name of a hook registered on the server, not {type(value).__name__}")
    return value


def _system_messages(value: Any) -> list[message_pb2.Message]:
    return to_messages(messages_from(value, role="system"))


def _messages(value: Any) -> list[message_pb2.Message]:
    return to_messages(messages_from(value))


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        raise TypeError("expected a list of names, not a text")
    return list(value)


def _optional_json(value: Any) -> Any:
    return None if value is None else to_json(value)


def _enum(enum: Any, prefix: str, name: str | None, what: str) -> Any:
    if name is None:
        return None
    table = {number: key.removeprefix(prefix).lower() for key, number in enum.items() if number}
    return number_of(table, name, what)


def _stop_when(value: Any) -> list[pb.StopCondition]:
    items = [value] if isinstance(value, o.StopWhen | Mapping) else list(value)
    return [_stop_condition(record(o.StopWhen, item)) for item in items]


def _stop_condition(condition: o.StopWhen) -> pb.StopCondition:
    names = ("step_count", "tool_called", "total_tokens", "cost_micros", "text_contains", "predicate")
    given = {name: getattr(condition, name) for name in names if getattr(condition, name) is not None}
    if len(given) != 1:
        raise ValueError(f"a condition has exactly one of {', '.join(names)}")
    return pb.StopCondition(**given)


def _tool_approval(value: Any) -> pb.ToolApproval:
    if isinstance(value, bool):
        return pb.ToolApproval(all=value)
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, o.ToolApproval | Mapping):
        texts = _strings(value)
        patterns = [text for text in texts if any(sign in text for sign in "*?[")]
        value = o.ToolApproval([text for text in texts if text not in patterns], patterns)
    rules = record(o.ToolApproval, value)
    return pb.ToolApproval(
        rules=pb.ToolApprovalRules(
            names=_strings(rules.names),
            patterns=_strings(rules.patterns),
            predicates=_strings(rules.predicates),
            toolsets=_strings(rules.toolsets),
            expressions=[
                pb.ToolApprovalExpression(tool=tool, expression=text)
                for tool, text in rules.expressions.items()
            ],
        )
    )


def _structured_output_of(value: Any) -> o.StructuredOutput:
    # No JSON Schema has a keyword `schema`.
    if isinstance(value, type) or (isinstance(value, Mapping) and "schema" not in value):
        return o.StructuredOutput(value)
    return record(o.StructuredOutput, value)


def object_type_of(options: Mapping[str, Any]) -> Any:
    """The class of which the structured output is to be an instance; None where it is plain JSON."""
    given = options.get("structured_output")
    schema = options.get("output") if given is None else _structured_output_of(given).schema
    return schema if callable(getattr(schema, "model_validate_json", None)) else None


def _structured_output(value: Any) -> pb.StructuredOutput:
    output = _structured_output_of(value)
    injection = output.json_prompt_injection
    if isinstance(injection, bool):
        injection = "system" if injection else "off"
    return pb.StructuredOutput(
        schema=schema_to_json(output.schema),
        model=output.model,
        error_strategy=_enum(
            pb.StructuredOutput.ErrorStrategy, "ERROR_STRATEGY_", output.error_strategy, "error_strategy"
        ),
        fallback_value=None if output.fallback_value is UNSET else to_json(output.fallback_value),
        instructions=output.instructions,
        json_prompt_injection=_enum(
            pb.StructuredOutput.PromptInjection, "PROMPT_INJECTION_", injection, "json_prompt_injection"
        ),
        provider_options=_optional_json(output.provider_options),
    )


def _processors(value: Any) -> pb.ProcessorRefs:
    items = (o.Processor(item) if isinstance(item, str) else record(o.Processor, item) for item in value)
    refs = [pb.ProcessorRef(name=item.name, parameters=_optional_json(item.parameters)) for item in items]
    return pb.ProcessorRefs(processors=refs)


def _memory(value: Any) -> pb.MemoryOptions:
    memory = record(o.Memory, value)
    thread = o.Thread(memory.thread) if isinstance(memory.thread, str) else memory.thread
    recall = memory.semantic_recall
    return pb.MemoryOptions(
        thread=None if thread is None else _thread(record(o.Thread, thread)),
        resource=memory.resource,
        last_messages=memory.last_messages,
        save_messages=memory.save_messages,
        read_only=memory.read_only,
        semantic_recall=None if recall is None else to_recall(record(o.SemanticRecall, recall)),
        working_memory=memory.working_memory,
        filter_incomplete_tool_calls=memory.filter_incomplete_tool_calls,
        generate_title=memory.generate_title,
        on_busy_thread=_enum(pb.OnBusyThread, "ON_BUSY_THREAD_", memory.on_busy_thread, "on_busy_thread"),
        on_parked_thread=_enum(
            pb.OnParkedThread, "ON_PARKED_THREAD_", memory.on_parked_thread, "on_parked_thread"
        ),
        queue_timeout=None if memory.queue_timeout is None else to_duration(memory.queue_timeout),
        max_history_tokens=memory.max_history_tokens,
    )


def _thread(thread: o.Thread) -> pb.ThreadRef:
    return pb.ThreadRef(id=thread.id, title=thread.title, metadata=_optional_json(thread.metadata))


def to_recall(recall: o.SemanticRecall) -> pb.SemanticRecall:
    """Writes how older messages are searched."""
    return pb.SemanticRecall(
        top_k=recall.top_k,
        message_range=recall.message_range,
        scope=_enum(pb.SemanticRecall.Scope, "SCOPE_", recall.scope, "scope"),
    )


def _telemetry(value: Any) -> pb.TelemetryOptions:
    telemetry = record(o.Telemetry, value)
    return pb.TelemetryOptions(
        is_enabled=telemetry.is_enabled,
        record_inputs=telemetry.record_inputs,
        record_outputs=telemetry.record_outputs,
        function_id=telemetry.function_id,
    )


def _model_settings(value: Any) -> pb.ModelSettings:
    settings = record(o.ModelSettings, value)
    return pb.ModelSettings(
        temperature=settings.temperature,
        max_output_tokens=settings.max_output_tokens,
        max_retries=settings.max_retries,
        top_p=settings.top_p,
        top_k=settings.top_k,
        presence_penalty=settings.presence_penalty,
        frequency_penalty=settings.frequency_penalty,
        stop_sequences=_strings(settings.stop_sequences),
        seed=settings.seed,
        headers=settings.headers,
    )


def _tool_choice(value: Any) -> pb.ToolChoice:
    choice = o.ToolChoice(value) if isinstance(value, str) else record(o.ToolChoice, value)  # type: ignore[arg-type]
    if choice.tool:
        if choice.mode is not None:
            raise ValueError('a tool is chosen with {"tool": name}, without a mode')
        return pb.ToolChoice(
            mode=pb.ToolChoice.MODE_TOOL, tool_name=choice.tool, every_step=choice.every_step
        )
    if choice.mode is None or choice.mode == "tool":  # type: ignore[comparison-overlap]
        raise ValueError('a tool is chosen with {"tool": name}')
    mode = _enum(pb.ToolChoice.Mode, "MODE_", choice.mode, "a tool choice")
    return pb.ToolChoice(mode=mode, every_step=choice.every_step)


def _client_tools(value: Any) -> list[pb.ClientTool]:
    return [to_client_tool(tool) for tool in client_tools_from(value)]


def _tracing(value: Any) -> pb.TracingOptions:
    tracing = record(o.TracingOptions, value)
    return pb.TracingOptions(
        metadata=_optional_json(tracing.metadata),
        request_context_keys=_strings(tracing.request_context_keys),
        trace_id=tracing.trace_id,
        parent_span_id=tracing.parent_span_id,
        tags=_strings(tracing.tags),
    )


def _versions(value: Any) -> dict[str, pb.VersionSelector]:
    return {agent_id: to_version(selector) for agent_id, selector in value.items()}


def to_version(value: Any) -> pb.VersionSelector:
    """Writes the choice of a version. Raises TypeError, ValueError."""
    version = record(o.Version, {"status": value} if isinstance(value, str) else value)
    if bool(version.version_id) == (version.status is not None):
        raise ValueError("a version is chosen by its id or by its status")
    if version.version_id:
        return pb.VersionSelector(version_id=version.version_id)
    if version.status not in ("draft", "published"):
        raise ValueError(f"a version's status is draft or published, not {version.status!r}")
    return pb.VersionSelector(published=version.status == "published")


def _task_completion(value: Any) -> pb.TaskCompletion:
    checks = record(o.TaskCompletion, value)
    return pb.TaskCompletion(
        scorers=_strings(checks.scorers),
        strategy=_enum(pb.TaskCompletion.Strategy, "STRATEGY_", checks.strategy, "strategy"),
        parallel=checks.parallel,
        timeout=None if checks.timeout is None else to_duration(checks.timeout),
        suppress_feedback=checks.suppress_feedback,
        on_complete=checks.on_complete,
    )


def _hooks(value: Any) -> pb.ToolHooks:
    hooks = record(o.ToolHooks, value)
    return pb.ToolHooks(before_tool_call=hooks.before_tool_call, after_tool_call=hooks.after_tool_call)


def _delegation(value: Any) -> pb.DelegationOptions:
    hooks = record(o.Delegation, value)
    return pb.DelegationOptions(
        on_delegation_start=hooks.on_delegation_start,
        on_delegation_complete=hooks.on_delegation_complete,
        message_filter=hooks.message_filter,
        hook_error_strategy=_enum(
            pb.DelegationOptions.HookErrorStrategy,
            "HOOK_ERROR_STRATEGY_",
            hooks.hook_error_strategy,
            "a hook_error_strategy",
        ),
    )


def _scorers(value: Any) -> dict[str, pb.ScorerOptions]:
    items = value if isinstance(value, Mapping) else dict.fromkeys(_strings(value))
    return {name: _scorer(item) for name, item in items.items()}


def _scorer(value: Any) -> pb.ScorerOptions:
    if value is None or isinstance(value, int | float):
        scorer = o.Scorer(sampling_ratio=value)
    else:
        scorer = record(o.Scorer, value)
    return pb.ScorerOptions(
        scorer=scorer.scorer,
        sampling_ratio=scorer.sampling_ratio,
        sampling=_enum(pb.ScorerOptions.Sampling, "SAMPLING_", scorer.sampling, "sampling"),
    )


def _expiry(value: Any) -> pb.PendingCallExpiry:
    if isinstance(value, int | float | timedelta):
        value = o.PendingCallExpiry(value)
    expiry = record(o.PendingCallExpiry, value)
    answers = expiry.default_answers
    action = expiry.action or ("answer" if answers else "decline")
    return pb.PendingCallExpiry(
        after=to_duration(expiry.after),
        action=_enum(pending_call_pb2.ExpiryAction, "EXPIRY_ACTION_", action, "action"),
        default_answers={name: to_json(answer) for name, answer in (answers or {}).items()},
    )


ENCODERS: Mapping[str, Callable[[Any], Any]] = {
    "run_id": _same,
    "max_steps": _same,
    "stop_when": _stop_when,
    "active_tools": lambda value: pb.ToolNames(names=_strings(value)),
    "require_tool_approval": _tool_approval,
    "auto_resume_suspended_tools": _same,
    "tool_call_concurrency": _same,
    "context": _messages,
    "structured_output": _structured_output,
    "output": schema_to_json,
    "input_processors": _processors,
    "output_processors": _processors,
    "max_processor_retries": _same,
    "instructions": _system_messages,
    "system": _system_messages,
    "memory": _memory,
    "telemetry": _telemetry,
    "model_settings": _model_settings,
    "tool_choice": _tool_choice,
    "toolsets": _strings,
    "client_tools": _client_tools,
    "save_per_step": _same,
    "provider_options": to_json,
    "request_context": to_json,
    "tracing_options": _tracing,
    "versions": _versions,
    "include_raw_chunks": _same,
    "is_task_complete": _task_completion,
    "scorers": _scorers,
    "return_scorer_data": _same,
    "execution_timeout": to_duration,
    "cancel_on_disconnect": _same,
    "include_request_body": _same,
    "pending_call_expiry": _expiry,
    "rate_limit_wait": to_duration,
    "on_iteration_complete": _hook_name,
    "prepare_step": _hook_name,
    "hooks": _hooks,
    "delegation": _delegation,
}
