"""Structured output in the options of a request."""

from entracte.v1 import options_pb2
from entracte_server.agents import schemas
from entracte_server.agents.agent import Agent
from entracte_server.domain.errors import FieldViolation, Refusal, invalid
from entracte_server.domain.options import StructuredOutput
from entracte_server.rpc import checks

MAX_INSTRUCTIONS = 64 * 1024

_Wire = options_pb2.StructuredOutput

_STRATEGIES = {
    _Wire.ERROR_STRATEGY_UNSPECIFIED: "strict",
    _Wire.ERROR_STRATEGY_STRICT: "strict",
    _Wire.ERROR_STRATEGY_WARN: "warn",
    _Wire.ERROR_STRATEGY_FALLBACK: "fallback",
}
_INJECTIONS = {
    _Wire.PROMPT_INJECTION_UNSPECIFIED: "auto",
    _Wire.PROMPT_INJECTION_AUTO: "auto",
    _Wire.PROMPT_INJECTION_OFF: "off",
    _Wire.PROMPT_INJECTION_SYSTEM: "system",
    _Wire.PROMPT_INJECTION_INLINE: "inline",
}


def structured_output(agent: Agent, options: options_pb2.GenerateOptions) -> StructuredOutput | None:
    """What the run's answer must look like: the caller's word, else the agent's. Raises `Refusal`."""
    if options.HasField("output"):
        if options.HasField("structured_output"):
            raise invalid("options.output", "is the same as structured_output.schema: give only one of them")
        return StructuredOutput(checks.any_schema("options.output", options.output)[0])
    if options.HasField("structured_output"):
        return _from_message(options.structured_output)
    return agent.structured_output.options if agent.structured_output is not None else None


def _from_message(given: options_pb2.StructuredOutput) -> StructuredOutput:
    field = "options.structured_output"
    if not given.HasField("schema"):
        raise invalid(f"{field}.schema", "is required")
    schema, _ = checks.any_schema(f"{field}.schema", given.schema)
    strategy = _STRATEGIES.get(given.error_strategy)
    if strategy is None:
        raise invalid(f"{field}.error_strategy", "is not a strategy this server knows")
    injection = _INJECTIONS.get(given.json_prompt_injection)
    if injection is None:
        raise invalid(f"{field}.json_prompt_injection", "is not a way this server knows")
    provider_options = None
    if given.HasField("provider_options"):
        if not given.model:
            raise invalid(f"{field}.provider_options", "is for a structuring model: give model as well")
        provider_options = checks.provider_options(f"{field}.provider_options", given.provider_options)
    return StructuredOutput(
        schema=schema,
        model=checks.identifier(f"{field}.model", given.model, required=False),
        error_strategy=strategy,  # type: ignore[arg-type]
        fallback_value=_fallback(f"{field}.fallback_value", given, schema, strategy == "fallback"),
        instructions=checks.text(f"{field}.instructions", given.instructions, MAX_INSTRUCTIONS),
        injection=injection,  # type: ignore[arg-type]
        provider_options=provider_options,
    )


def _fallback(field: str, given: options_pb2.StructuredOutput, schema: str, wanted: bool) -> str | None:
    if given.HasField("fallback_value") != wanted:
        raise invalid(field, "goes with ERROR_STRATEGY_FALLBACK, and that with a fallback value")
    if not wanted:
        return None
    text, value = checks.json_value(field, given.fallback_value)
    try:
        schemas.check(schema, value)
    except schemas.InvalidValue as error:
        violations = tuple(
            FieldViolation(f"{field}.text", f"{one.pointer or 'value'}: {one.message}")
            for one in error.violations
        )
        raise Refusal(
            "REQUEST_INVALID", f"{field}: does not fit the schema: {error}"[:1000], violations=violations
        ) from None
    return text
