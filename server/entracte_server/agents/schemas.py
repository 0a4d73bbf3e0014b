"""JSON Schemas: checking that something is one, and checking values against one."""

import functools
from collections.abc import Mapping
from typing import Any

import jsonschema
import jsonschema.validators
import referencing
import referencing.exceptions
import referencing.jsonschema
from jsonschema.protocols import Validator

from entracte_server.agents import bounded
from entracte_server.domain import json_text
from entracte_server.domain.data import Data

MAX_VIOLATIONS = 20

MAX_SCHEMA_BYTES = 256 * 1024
"""Largest text of a schema, in bytes of UTF-8."""

OVER_LIMITS = "cannot be checked within the limits of this server"


class Violation(Data, frozen=True):
    """One thing that is wrong with a value. `pointer` is a JSON Pointer (empty: the whole value)."""

    pointer: str
    message: str


class InvalidSchema(ValueError):
    """The text is not a JSON Schema that can be used; the message says why."""


class InvalidValue(ValueError):
    """A value that does not fit its schema."""

    def __init__(self, violations: tuple[Violation, ...]) -> None:
        self.violations = violations
        super().__init__(
            "; ".join(f"{v.pointer or 'value'}: {v.message}" for v in violations) or "invalid value"
        )


def pointer(path: Any) -> str:
    """A JSON Pointer (RFC 6901) from the keys and indices on the way."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


_NO_REMOTE: referencing.Registry[Any] = referencing.Registry()
"""Knows nothing and fetches nothing."""


_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def _references(schema: Any) -> list[str]:
    found: list[str] = []
    stack = [schema]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            for key, value in item.items():
                if key in _REFERENCES and isinstance(value, str):
                    found.append(value)
                else:
                    stack.append(value)
        elif isinstance(item, list):
            stack.extend(item)
    return found


def _looks_back_over_patterns(schema: Any) -> bool:
    """Whether `unevaluatedProperties` and `patternProperties` both occur in `schema`."""
    found: set[str] = set()
    stack = [schema]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            found.update(item.keys() & {"unevaluatedProperties", "patternProperties"})
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return len(found) == 2


_IN_PLACE = ("not", "if", "then", "else")
_IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_IN_PLACE_MAPS = ("dependentSchemas", "dependencies")


def _applied_in_place(schema: dict[str, Any], targets: Mapping[str, Any]) -> list[Any]:
    """The schemas that `schema` applies to the very value it is applied to."""
    found = [targets[schema[key]] for key in _REFERENCES if isinstance(schema.get(key), str)]
    found += [schema[key] for key in _IN_PLACE if key in schema]
    for key in _IN_PLACE_LISTS:
        found += schema[key] if isinstance(schema.get(key), list) else ()
    for key in _IN_PLACE_MAPS:
        found += schema[key].values() if isinstance(schema.get(key), dict) else ()
    return [item for item in found if isinstance(item, dict)]


def _has_circle(targets: Mapping[str, Any]) -> bool:
    """Whether references lead from a schema back to itself without going on to a part of the value:
    applying it would never end."""
    done: set[int] = set()
    for start in targets.values():
        path: list[tuple[int, list[Any]]] = []
        entered: set[int] = set()
        following = [start] if isinstance(start, dict) else []
        while True:
            if following:
                item = following.pop()
                if id(item) in entered:
                    return True
                if id(item) not in done:
                    entered.add(id(item))
                    path.append((id(item), following))
                    following = _applied_in_place(item, targets)
            elif path:
                left, following = path.pop()
                entered.discard(left)
                done.add(left)
            else:
                break
    return False


@functools.lru_cache(maxsize=256)
def compile_schema(text: str) -> Validator:
    """A validator for the JSON Schema `text` (draft 2020-12 unless it says otherwise).

    Nothing is ever fetched: a reference that leaves the document is refused. So are texts over
    `MAX_SCHEMA_BYTES`, schemas of too many parts (some 2,000), references in a circle, and patterns
    that RE2 does not know (look-around, back-references): checking is bounded, see `bounded`. Raises
    `InvalidSchema`.
    """
    if len(text) > MAX_SCHEMA_BYTES or len(text.encode("utf-8", "replace")) > MAX_SCHEMA_BYTES:
        raise InvalidSchema(f"the schema is larger than {MAX_SCHEMA_BYTES // 1024} KiB")
    try:
        schema = json_text.parse(text)
    except json_text.InvalidJson as error:
        raise InvalidSchema(str(error)) from None
    if not isinstance(schema, dict):
        raise InvalidSchema("a JSON Schema is an object")
    references = list(dict.fromkeys(_references(schema)))
    for reference in references:
        if not reference.startswith("#"):
            raise InvalidSchema(f"the reference {reference[:200]!r} leaves the document; inline it")
    if not isinstance(schema.get("$schema", ""), str):
        raise InvalidSchema("/$schema: not a string")
    plain: Any = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        with bounded.limited():
            wrong = bounded.schema_error(plain, schema)
    except bounded.OverBudget:
        raise InvalidSchema(f"the schema {OVER_LIMITS}") from None
    except (RecursionError, referencing.exceptions.Unresolvable) as error:
        raise InvalidSchema(str(error)[:200] or "too deep") from None
    if wrong is not None:
        why = wrong.message[:500]
        if isinstance(wrong.cause, bounded.UnusablePattern):
            why += f": {wrong.cause}"
        raise InvalidSchema(f"{pointer(wrong.absolute_path) or 'schema'}: {why}")
    if _looks_back_over_patterns(schema):
        raise InvalidSchema("unevaluatedProperties together with patternProperties is not supported")
    specification = referencing.jsonschema.specification_with(plain.ID_OF(plain.META_SCHEMA))
    root = specification.create_resource(schema)
    try:
        # Crawled once, here: a resolver that has to look for anchors does so again at each reference.
        resolver = _NO_REMOTE.with_resource(root.id() or "", root).crawl().resolver(root.id() or "")
    except ValueError:
        raise InvalidSchema("an $id in it is not a URI") from None
    targets: dict[str, Any] = {}
    for reference in references:
        try:
            targets[reference] = resolver.lookup(reference).contents
        except (referencing.exceptions.Unresolvable, ValueError, KeyError):
            raise InvalidSchema(f"the reference {reference[:200]!r} points nowhere") from None
    if _has_circle(targets):
        raise InvalidSchema("its references lead in a circle")
    validator: Validator = bounded.bounded(plain)(schema, registry=_NO_REMOTE, _resolver=resolver)
    return validator


def check(text: str, value: Any) -> None:
    """Raises `InvalidValue` unless `value` fits the JSON Schema `text`.

    A check that takes more than `bounded.MAX_STEPS`, or that fails for another reason than the value,
    is given up; its value counts as invalid.
    """
    validator = compile_schema(text)
    violations = []
    try:
        with bounded.limited():
            for error in validator.iter_errors(value):
                violations.append(Violation(pointer(error.absolute_path), error.message[:500]))
                if len(violations) == MAX_VIOLATIONS:
                    break
    except bounded.OverBudget:
        raise InvalidValue((Violation("", OVER_LIMITS),)) from None
    except bounded.UnusablePattern as error:
        raise InvalidValue((Violation("", f"cannot be checked: {error}"),)) from None
    except BaseException as error:
        # Numbers beyond all floats, for one. The extension modules below `jsonschema` have a root of
        # exceptions of their own, which is not below Exception.
        if not isinstance(error, Exception) and type(error).__module__ != "pyo3_runtime":
            raise
        raise InvalidValue((Violation("", "cannot be checked"),)) from None
    if violations:
        raise InvalidValue(tuple(violations))
