"""JSON Schemas of plain Python functions, from their annotations and docstrings."""

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

_PLAIN: Mapping[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Any: {},
    object: {},
    list: {"type": "array"},
    dict: {"type": "object"},
}


def schema_of(function: Callable[..., Any], *, skip: Sequence[str] = ()) -> dict[str, Any]:
    """The JSON Schema of a function's arguments, an object schema, without those of `skip`.

    Understood: str, int, float, bool, None, Any, list[T], dict[str, T], tuple[T, ...], Literal,
    unions, TypedDict, and Annotated[T, "what it is"]. A parameter without a default is required.
    Raises TypeError, naming the parameter, for anything else.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    described = _described_parameters(inspect.getdoc(function) or "")
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name in skip:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"parameter {name!r} of {function.__name__} cannot be given by name")
        try:
            schema = _schema_of_type(hints.get(name, Any))
        except TypeError as error:
            raise TypeError(f"parameter {name!r} of {function.__name__}: {error}") from None
        if name in described and "description" not in schema:
            schema["description"] = described[name]
        if parameter.default is parameter.empty:
            required.append(name)
        elif isinstance(parameter.default, str | int | float | bool | None):
            schema["default"] = parameter.default
        properties[name] = schema
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def description_of(function: Callable[..., Any]) -> str:
    """What the docstring says before it comes to the parameters."""
    text = inspect.getdoc(function) or ""
    return _PARAMETERS.split(text, maxsplit=1)[0].strip()


def _schema_of_type(hint: Any) -> dict[str, Any]:
    if hint in _PLAIN:
        return dict(_PLAIN[hint])
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is typing.Annotated:
        schema = _schema_of_type(arguments[0])
        texts = [text for text in arguments[1:] if isinstance(text, str)]
        return {**schema, "description": " ".join(texts)} if texts else schema
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema_of_type(argument) for argument in arguments]}
    if typing.is_typeddict(hint):
        return _schema_of_typed_dict(hint)
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        key, value = arguments
        if key is not str:
            raise TypeError("keys of a JSON object are str")
        return {"type": "object", "additionalProperties": _schema_of_type(value)}
    if origin is tuple and (len(arguments) != 2 or arguments[1] is not Ellipsis):
        raise TypeError("of tuples only tuple[T, ...] has a JSON Schema here")
    if inspect.isclass(origin) and issubclass(origin, Sequence):
        return {"type": "array", "items": _schema_of_type(arguments[0])}
    raise TypeError(f"{hint!r} has no JSON Schema here: describe the tool with an input_schema")


def _schema_of_typed_dict(hint: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(hint, include_extras=True)
    properties = {}
    for name, inner in hints.items():
        plain = get_args(inner)[0] if get_origin(inner) in (typing.Required, typing.NotRequired) else inner
        properties[name] = _schema_of_type(plain)
    return {
        "type": "object",
        "properties": properties,
        "required": sorted(hint.__required_keys__),
        "additionalProperties": False,
    }


_PARAMETERS = re.compile(
    r"(?m)^(?:Args|Arguments|Parameters|Returns|Raises):[ \t]*$|^:(?:param|return|raises)"
)
_SECTION = re.compile(r"(?m)^(?:Args|Arguments|Parameters):[ \t]*\n((?:[ \t]+\S.*\n?|[ \t]*\n)+)")
_FIELD = re.compile(r"(?m)^:param (?:[^:\n]* )?(\w+):[ \t]*(.*(?:\n[ \t]+\S.*)*)")
_ITEM = re.compile(r"(\w+)(?:[ \t]*\([^)\n]*\))?:[ \t]*(.*)")


def _described_parameters(text: str) -> dict[str, str]:
    """Descriptions by parameter, from `Args:` with indented `name: ...` or from `:param name: ...`."""
    found = {name: " ".join(words.split()) for name, words in _FIELD.findall(text)}
    section = _SECTION.search(text)
    if section is None:
        return found
    lines = [line for line in section.group(1).splitlines() if line.strip()]
    indent = min(len(line) - len(line.lstrip()) for line in lines)
    current = ""
    for line in lines:
        item = _ITEM.match(line.strip()) if len(line) - len(line.lstrip()) == indent else None
        if item is not None:
            current = item.group(1)
            found[current] = item.group(2).strip()
        elif current:
            found[current] = f"{found[current]} {line.strip()}".strip()
    return found
