"""Working memory: what an agent notes down and is told again, in place of reading all that was said."""

from collections.abc import Mapping
from typing import Any, Literal

from entracte_server.agents.tools import SchemaLike, Tool, schema_text
from entracte_server.domain import json_text

TOOL_NAME = "updateWorkingMemory"
"""The tool with which a model replaces the working memory."""

MAX_BYTES = 64 * 1024
"""The largest working memory, in bytes of UTF-8."""

DEFAULT_TEMPLATE = """\
# About the user
- Name:
- Language:
- What they want:
- What they like and do not like:
- What was agreed:
- What is still open:
"""

_DEFINITIONS = ("$defs", "definitions")

_DESCRIPTION = (
    "Replaces your working memory. Give all of it, what is still right included: what you leave out is "
    "forgotten."
)


class WorkingMemory:
    """What an agent notes down, for `Memory(working_memory=...)`.

    Args:
        template: Markdown with a place for each thing to note. Default: a general one about the user.
        schema: In place of a template, a pydantic model or a JSON Schema of an object: the memory is an
            object that fits it.
        scope: Whose memory it is: that of the `resource`, in all its threads, or that of one `thread`.

    Raises `ValueError` for both a template and a schema, and for a schema that is not one of an object or
    refers to parts of itself other than `$defs`; `schemas.InvalidSchema` for a bad schema.
    """

    def __init__(
        self,
        template: str | None = None,
        *,
        schema: SchemaLike | None = None,
        scope: Literal["resource", "thread"] = "resource",
    ) -> None:
        if template is not None and schema is not None:
            raise ValueError("working memory has a template or a schema, not both")
        if scope not in ("resource", "thread"):
            raise ValueError(f"working memory is that of a 'resource' or of a 'thread', not of {scope!r}")
        self.template = DEFAULT_TEMPLATE if template is None and schema is None else template
        self.scope = scope
        memory: Mapping[str, Any] = {"type": "string"}
        outer: dict[str, Any] = {}
        if schema is not None:
            memory, outer = _split(json_text.parse(schema_text(schema)))
        self.tool = Tool(
            name=TOOL_NAME,
            description=_DESCRIPTION,
            input_schema={
                "type": "object",
                "properties": {"memory": memory},
                "required": ["memory"],
                "additionalProperties": False,
                **outer,
            },
            execute=_noted,
            idempotent=True,
        )

    def content(self, args: str) -> str:
        """What the working memory is after a call of its tool with these arguments, JSON text: the text it
        was given, or the JSON text of the object."""
        memory = json_text.parse_stored(args)["memory"]
        return json_text.scrub(memory if isinstance(memory, str) else json_text.dump(memory))

    def __repr__(self) -> str:
        return f"<WorkingMemory of a {self.scope}>"


async def _noted(args: Mapping[str, Any], ctx: Any) -> dict[str, bool]:
    """What is noted becomes durable with this result: the server writes both."""
    return {"success": True}


def _split(schema: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A schema without its definitions, and these: references to them are read from the outermost schema."""
    if schema.get("type") != "object":
        raise ValueError("the schema of a working memory is that of an object: give it the type 'object'")
    for reference in _references(schema):
        if not reference.startswith(tuple(f"#/{name}/" for name in _DEFINITIONS)):
            raise ValueError(
                f"the schema of a working memory may refer to its $defs only, not to {reference!r}"
            )
    outer = {name: schema[name] for name in _DEFINITIONS if name in schema}
    return {key: value for key, value in schema.items() if key not in outer and key != "$schema"}, outer


def _references(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [reference for item in schema for reference in _references(item)]
    if not isinstance(schema, dict):
        return []
    own = [value for key, value in schema.items() if key == "$ref" and isinstance(value, str)]
    return own + _references(list(schema.values()))
