"""How authors say that an agent answers with data."""

from collections.abc import Mapping
from typing import Any, Literal

from entracte_server.agents import schemas
from entracte_server.agents.tools import SchemaLike, schema_text
from entracte_server.domain import json_text
from entracte_server.domain import options as o
from entracte_server.models.base import Model

ErrorStrategy = Literal["strict", "warn", "fallback"]
Injection = Literal["auto", "off", "system", "inline"]


class StructuredOutput:
    """An answer that fits a schema, for `Agent(structured_output=...)`.

    Args:
        schema: A pydantic model, or a JSON Schema of any kind of value.
        model: A second model (`provider/model`, or a model object) that makes the object of the first
            one's prose. Default: the agent's own model answers with the object.
        error_strategy: What to do with an answer that does not fit: `strict` fails the run, `warn` gives a
            warning and no object, `fallback` gives `fallback_value`.
        fallback_value: JSON, or a pydantic model, that fits the schema.
        instructions: Said to the model that makes the object, beside the schema.
        json_prompt_injection: Where that model is told the schema: `auto` (natively where it can be, else
            as `system`), `system`, `inline` (in the last user message), `off` (natively or not at all).
        provider_options: For the structuring model, by provider.

    Raises `ValueError` for a fallback value that does not fit, or without its strategy, and for provider
    options without `model`; `schemas.InvalidSchema` for a bad schema.
    """

    def __init__(
        self,
        schema: SchemaLike,
        *,
        model: str | Model = "",
        error_strategy: ErrorStrategy = "strict",
        fallback_value: Any = None,
        instructions: str = "",
        json_prompt_injection: Injection = "auto",
        provider_options: Mapping[str, Any] | None = None,
    ) -> None:
        text = schema_text(schema)
        fallback = None
        if error_strategy == "fallback":
            fallback = json_text.dump_for_storage(fallback_value)
            try:
                schemas.check(text, json_text.parse_stored(fallback))
            except schemas.InvalidValue as error:
                raise ValueError(f"the fallback value does not fit the schema: {error}") from None
        elif fallback_value is not None:
            raise ValueError("a fallback value goes with error_strategy='fallback'")
        if provider_options is not None and not model:
            raise ValueError("the provider options are for a structuring model: give a model")
        self.model = model
        self.options = o.StructuredOutput(
            schema=text,
            model=model if isinstance(model, str) else model.name,
            error_strategy=error_strategy,
            fallback_value=fallback,
            instructions=instructions,
            injection=json_prompt_injection,
            provider_options=None if provider_options is None else json_text.dump(provider_options),
        )


StructuredOutputLike = StructuredOutput | SchemaLike


def structured_from(given: StructuredOutputLike | None) -> StructuredOutput | None:
    """What an author gave, a schema standing for strict output of that schema."""
    if given is None or isinstance(given, StructuredOutput):
        return given
    return StructuredOutput(given)
