"""Patterns of what a testee may write, and values with gaps. The README lists both."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

_HOLE = re.compile(r"\$\{(\w+)\}")
_SUFFIX = re.compile(r"(Error|Exception)$")


def filled(value: Any, known: Mapping[str, Any]) -> Any:
    """A value of a scenario with its gaps filled: `"$name"`, `"... ${name} ..."`, `{"$repeat": {...}}`."""
    if isinstance(value, str):
        if value.startswith("$") and value[1:] in known:
            return known[value[1:]]
        return _HOLE.sub(lambda found: str(known[found[1]]), value)
    if isinstance(value, list):
        return [filled(item, known) for item in value]
    if isinstance(value, dict):
        if "$repeat" in value:
            parts = value["$repeat"]
            return f"{parts.get('before', '')}{parts['text'] * parts['times']}{parts.get('after', '')}"
        return {key: filled(item, known) for key, item in value.items()}
    return value


def number_of(text: str) -> Any:
    """The value of a JSON text in which no digit is lost and 1 is 1.0."""
    return json.loads(text, parse_int=Decimal, parse_float=Decimal)


def at(value: Any, path: str) -> Any:
    """What a path of keys and positions leads to: `ok.pending_calls.0.args`; `*` is the last one."""
    for key in path.split("."):
        if isinstance(value, Sequence) and not isinstance(value, str):
            value = value[-1 if key == "*" else int(key)]
        else:
            value = value[key]
    return value


def plain(value: Any) -> Any:
    """A value without what means the same as nothing, for comparing."""
    if isinstance(value, dict):
        if is_jvalue(value):
            return value["text"]
        found = {key: plain(item) for key, item in value.items()}
        return {key: item for key, item in found.items() if item not in (None, "", [], {})}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def is_jvalue(value: Any) -> bool:
    """Whether this is a JSON value as the protocol writes it."""
    return isinstance(value, dict) and value.keys() == {"text", "native"}


def spoiled(value: Any) -> Iterator[str]:
    """The JSON values in a line whose native form is another than their text."""
    if is_jvalue(value):
        if number_of(value["text"]) != number_of(value["native"]):
            yield f"{value['text'][:200]} came out as {value['native'][:200]}"
    elif isinstance(value, dict):
        for item in value.values():
            yield from spoiled(item)
    elif isinstance(value, list):
        for item in value:
            yield from spoiled(item)


def camel(reason: str) -> str:
    """The class of a reason."""
    return "".join(word.capitalize() for word in reason.split("_"))


def refusal(reason: str) -> dict[str, Any]:
    """The pattern of an error with a reason."""
    return {"kind": "entracte", "reason": reason, "class": camel(reason)}


def differences(pattern: Any, found: Any, path: str = "") -> Iterator[str]:
    """Where `found` does not fit a pattern; nothing where it does."""
    if isinstance(pattern, dict):
        operators = [key for key in pattern if key.startswith("$")]
        for key in operators:
            yield from _OPERATORS[key](pattern[key], found, path)
        for key, expected in pattern.items():
            if key not in operators:
                actual = found.get(key) if isinstance(found, dict) else None
                if key == "class" and isinstance(actual, str):
                    actual = _SUFFIX.sub("", actual)
                yield from differences(expected, actual, f"{path}.{key}")
    elif isinstance(pattern, list):
        if len(pattern) != len(found or ()):
            yield f"{path}: {len(pattern)} elements were expected, not {_short(found)}"
        else:
            for index, expected in enumerate(pattern):
                yield from differences(expected, found[index], f"{path}.{index}")
    elif pattern in (None, ""):
        if found not in (None, ""):
            yield f"{path}: {_short(found)} where nothing was expected"
    elif pattern != found or isinstance(pattern, bool) != isinstance(found, bool):
        yield f"{path}: {_short(pattern)} was expected, not {_short(found)}"


def fits(pattern: Any, found: Any) -> bool:
    """Whether there are no differences."""
    return next(differences(pattern, found), None) is None


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) < 800 else f"{text[:600]}...{text[-150:]}"


def _json(expected: str, found: Any, path: str) -> Iterator[str]:
    if not is_jvalue(found):
        yield f"{path}: the JSON {expected[:200]} was expected, not {_short(found)}"
    elif number_of(found["text"]) != number_of(expected):
        yield f"{path}: the JSON {expected[:200]} was expected, not {found['text'][:200]}"


def _exactly(expected: str, found: Any, path: str) -> Iterator[str]:
    if not is_jvalue(found) or found["text"] != expected:
        yield f"{path}: exactly the text {expected[:200]} was expected, not {_short(found)}"


def _present(expected: bool, found: Any, path: str) -> Iterator[str]:
    if (found not in (None, "", [], {})) != expected:
        yield f"{path}: {_short(found)} where {'something' if expected else 'nothing'} was expected"


def _length(expected: int, found: Any, path: str) -> Iterator[str]:
    if len(found or ()) != expected:
        yield f"{path}: {expected} elements were expected, not {len(found or ())}"


def _minimum(expected: float, found: Any, path: str) -> Iterator[str]:
    if not isinstance(found, (int, float)) or found < expected:
        yield f"{path}: at least {expected} was expected, not {_short(found)}"


def _contains(expected: Any, found: Any, path: str) -> Iterator[str]:
    if isinstance(found, str):
        if expected not in found:
            yield f"{path}: {expected!r} was expected in {_short(found)}"
    elif not any(fits(expected, item) for item in found or ()):
        yield f"{path}: nothing like {_short(expected)} is in {_short(found)}"


def _not(expected: Any, found: Any, path: str) -> Iterator[str]:
    if fits(expected, found):
        yield f"{path}: it was not to be like {_short(expected)}"


def _any_of(expected: Sequence[Any], found: Any, path: str) -> Iterator[str]:
    if not any(fits(item, found) for item in expected):
        yield f"{path}: one of {_short(expected)} was expected, not {_short(found)}"


def _types(expected: Sequence[str], found: Any, path: str) -> Iterator[str]:
    types = [item["type"] for item in found]
    if types != list(expected):
        yield f"{path}: the types {list(expected)} were expected, not {types}"


def _in_order(expected: Sequence[Any], found: Any, path: str) -> Iterator[str]:
    rest = iter(found or ())
    for pattern in expected:
        if not any(fits(pattern, item) for item in rest):
            yield f"{path}: {_short(pattern)} does not come in its turn in {_short(found)}"
            return


_OPERATORS: dict[str, Callable[[Any, Any, str], Iterator[str]]] = {
    "$json": _json,
    "$exactly": _exactly,
    "$present": _present,
    "$length": _length,
    "$min": _minimum,
    "$contains": _contains,
    "$not": _not,
    "$any_of": _any_of,
    "$types": _types,
    "$in_order": _in_order,
}
