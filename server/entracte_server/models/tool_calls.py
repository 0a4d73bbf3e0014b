"""What every model adapter does with a tool call: ids that are ours to keep, arguments as text."""

import re
from typing import Any

from ulid import ULID

from entracte_server.domain import json_text
from entracte_server.domain.chunks import ToolCall

_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def mint_call_id() -> str:
    """A tool call id nobody has used."""
    return f"call_{ULID()}"


def scrub_json(text: str) -> str:
    """JSON `text` in which lone surrogates, written out or as escapes, are U+FFFD; else unchanged."""
    text = json_text.scrub(text)
    if _SURROGATE_ESCAPE.search(text) is None:
        return text
    return _ESCAPE.sub(lambda match: "\\ufffd" if match[1] else match[0], text)


def read_args(text: str) -> tuple[str | None, str | None]:
    """The arguments that `text` stands for, as JSON text of an object, or what is wrong with it.

    Exactly one of the two is None. Nothing, blanks and `null` mean no arguments: `{}`. The text is
    kept as the model wrote it, apart from blanks around it and lone surrogates.
    """
    text = scrub_json(text.strip())
    if text in ("", "null", "{}"):
        return "{}", None
    try:
        value: Any = json_text.parse(text)
    except json_text.InvalidJson as error:
        return None, f"the arguments are not valid JSON: {error}"
    if not isinstance(value, dict):
        return None, f"the arguments are not a JSON object but {_kind(value)}"
    return text, None


def finished_call(
    tool_call_id: str, tool_name: str, args_text: str, provider_metadata: str | None = None
) -> ToolCall:
    """The complete call for the text of arguments a model sent."""
    args, error = read_args(args_text)
    if error is None:
        return ToolCall(tool_call_id, tool_name, args, provider_metadata=provider_metadata)
    return ToolCall(
        tool_call_id,
        tool_name,
        None,
        invalid_args=json_text.scrub(args_text),
        args_error=error,
        provider_metadata=provider_metadata,
    )


def _kind(value: Any) -> str:
    match value:
        case list():
            return "an array"
        case str():
            return "a string"
        case bool():
            return "a boolean"
        case _:
            return "a number"
