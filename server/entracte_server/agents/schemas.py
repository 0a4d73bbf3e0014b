"""JSON Schemas: checking that something is one, and checking values against one."""

import functools
from typing import Any

import jsonschema
import jsonschema.validators
import referencing
import referencing.exceptions
import referencing.jsonschema
from jsonschema.protocols import Validator

from entracte_server.domain import json_text
from entracte_server.domain.data import Data

MAX_VIOLATIONS = 20


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


def _references(schema: Any) -> list[str]:
    found: list[str] = []
    stack = [schema]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            for key, value in item.items():
                if key in ("$ref", "$dynamicRef", "$recursiveRef") and isinstance(value, str):
                    found.append(value)
                else:
                    stack.append(value)
        elif isinstance(item, list):
            stack.extend(item)
    return found


@functools.lru_cache(maxsize=1024)
def compile_schema(text: str) -> Validator:
    """A validator for the JSON Schema `text` (draft 2020-12 unless it says otherwise).

    Nothing is ever fetched: a reference that leaves the document is refused. Raises `InvalidSchema`.
    """
    try:
        schema = json_text.parse(text)
    except json_text.InvalidJson as error:
        raise InvalidSchema(str(error)) from None
    if not isinstance(schema, dict):
        raise InvalidSchema("a JSON Schema is an object")
    for reference in _references(schema):
        if not reference.startswith("#"):
            raise InvalidSchema(f"the reference {reference[:200]!r} leaves the document; inline it")
    cls = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        cls.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise InvalidSchema(f"{pointer(error.absolute_path) or 'schema'}: {error.message[:500]}") from None
    except (RecursionError, referencing.exceptions.Unresolvable) as error:
        raise InvalidSchema(str(error)[:200] or "too deep") from None
    validator: Validator = cls(schema, registry=_NO_REMOTE)
    root = referencing.jsonschema.DRAFT202012.create_resource(schema)
    resolver = _NO_REMOTE.resolver_with_root(root)
    for reference in _references(schema):
        try:
            resolver.lookup(reference)
        except (referencing.exceptions.Unresolvable, ValueError, KeyError):
            raise InvalidSchema(f"the reference {reference[:200]!r} points nowhere") from None
    return validator


def check(text: str, value: Any) -> None:
    """Raises `InvalidValue` unless `value` fits the JSON Schema `text`."""
    validator = compile_schema(text)
    violations = []
    try:
        for error in validator.iter_errors(value):
            violations.append(Violation(pointer(error.absolute_path), error.message[:500]))
            if len(violations) == MAX_VIOLATIONS:
                break
    except (RecursionError, referencing.exceptions.Unresolvable) as error:
        raise InvalidValue((Violation("", f"cannot be checked: {str(error)[:200]}"),)) from None
    if violations:
        raise InvalidValue(tuple(violations))
