"""JSON Schema validators whose work is bounded, whoever wrote the schema and the value.

`jsonschema` matches patterns by backtracking, follows references as often as they are met and compares
every pair of items. The validators here give the same answers and messages, with these differences:
patterns are matched in linear time by RE2, items are told apart in linear time, and all work counts
against a budget.
"""

import contextlib
import contextvars
import functools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import jsonschema.validators
import re2
import referencing.jsonschema
from jsonschema.protocols import Validator

from entracte_server.domain import json_text

MAX_DEPTH = 180
"""Deepest nesting of keywords applied within keywords. Far enough from what the interpreter bears: running
into that inside the extension modules that `jsonschema` builds upon cannot be caught like an error."""

MAX_STEPS = 100_000
"""Most steps one check may take. A step is a schema or keyword applied to a value that is not large."""

_UNIT = 10_000
"""Characters of a value that are worth one more step."""

_PATTERN_UNIT = 2_000
"""Instructions of a pattern, times characters it is matched with, that are worth one more step."""

_PATTERN_MEMORY = 2 * 1024 * 1024


class OverBudget(Exception):
    """The check would take more steps than it may, or go deeper."""


class UnusablePattern(ValueError):
    """A regular expression that is none, or that cannot be matched in linear time."""


class _Budget:
    def __init__(self, steps: int) -> None:
        self.left = steps
        self.depth = 0
        self.weight = 1
        self.sizes: dict[int, int] = {}

    def size(self, value: Any) -> int:
        """About the length of `value` as text; every part counts as 100 at least."""
        if isinstance(value, str):
            return 100 + len(value)
        if not isinstance(value, (dict, list)):
            return 100
        known = self.sizes.get(id(value))
        if known is None:
            known = 100 + sum(map(self.size, value))
            if isinstance(value, dict):
                known += sum(map(self.size, value.values()))
            self.sizes[id(value)] = known
        return known


_budget: contextvars.ContextVar[_Budget | None] = contextvars.ContextVar("schema_budget", default=None)


@contextlib.contextmanager
def limited(steps: int | None = None) -> Iterator[None]:
    """Within, validators of this module may take `steps` (`MAX_STEPS`); then they raise `OverBudget`."""
    token = _budget.set(_Budget(MAX_STEPS if steps is None else steps))
    try:
        yield
    finally:
        _budget.reset(token)


def _charge(steps: int) -> None:
    budget = _budget.get()
    if budget is not None:
        budget.left -= steps
        if budget.left < 0:
            raise OverBudget


def _escape(found: re.Match[str]) -> str:
    r"""RE2 writes `\u00e9` as `\x{00e9}`."""
    escape = found[0]
    return f"\\x{{{escape[2:]}}}" if len(escape) == 6 else escape


@functools.lru_cache(maxsize=128)
def compile_pattern(pattern: str) -> Any:
    """`pattern` as an object of RE2. Raises `UnusablePattern`, which names it."""
    _charge(20 + len(pattern) // 10)
    options = re2.Options()
    options.max_mem = _PATTERN_MEMORY
    options.log_errors = False
    text = re.sub(r"\\(?:u[0-9a-fA-F]{4}|.)", _escape, json_text.scrub(pattern), flags=re.DOTALL)
    try:
        return re2.compile(text, options)
    except re2.error as error:
        why = error.args[0] if error.args else "it cannot be compiled"
        why = why.decode("utf-8", "replace") if isinstance(why, bytes) else str(why)
        raise UnusablePattern(
            f"the pattern {pattern[:200]!r} cannot be matched in linear time: {why[:200]}"
        ) from None


def _matches(pattern: str, text: str) -> bool:
    compiled = compile_pattern(pattern)
    _charge(1 + len(text) * compiled.programsize // _PATTERN_UNIT)
    return compiled.search(json_text.scrub(text)) is not None


def _pattern(validator: Any, pattern: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if validator.is_type(instance, "string") and not _matches(pattern, instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, subschema in patterns.items():
        for key, value in instance.items():
            if _matches(pattern, key):
                yield from validator.descend(value, subschema, path=key, schema_path=pattern)


def _additional_properties(validator: Any, extra: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if not validator.is_type(instance, "object"):
        return
    properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    extras = [
        key
        for key in instance
        if key not in properties and not any(_matches(pattern, key) for pattern in patterns)
    ]
    if validator.is_type(extra, "object"):
        for key in extras:
            yield from validator.descend(instance[key], extra, path=key)
    elif not extra and extras:
        names = ", ".join(map(repr, sorted(extras)))
        if patterns:
            verb = "does" if len(extras) == 1 else "do"
            known = ", ".join(map(repr, sorted(patterns)))
            yield jsonschema.ValidationError(f"{names} {verb} not match any of the regexes: {known}")
        else:
            verb = "was" if len(extras) == 1 else "were"
            yield jsonschema.ValidationError(
                f"Additional properties are not allowed ({names} {verb} unexpected)"
            )


def canonical(value: Any) -> str:
    """One text for all values that JSON Schema calls equal, and for no other: 1 is 1.0, and not true."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, list):
        return f"[{','.join(map(canonical, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(sorted(f'{json.dumps(k)}:{canonical(v)}' for k, v in value.items()))}}}"
    return json.dumps(value)


def _unique_items(validator: Any, unique: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if not unique or not validator.is_type(instance, "array"):
        return
    budget = _budget.get()
    if budget is not None:
        _charge(budget.size(instance) // 100)  # every part of every item is looked at
    if len(set(map(canonical, instance))) < len(instance):
        yield jsonschema.ValidationError(f"{instance!r} has non-unique elements")


_OWN: dict[str, Callable[..., Iterator[Any]]] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
}
_WHOLE_VALUE_EACH = ("dependentSchemas", "dependencies")
_LOOK_BACK = ("unevaluatedItems", "unevaluatedProperties")


def _counted(name: str, keyword: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        budget = _budget.get()
        if budget is not None:
            entries = len(value) if isinstance(value, (list, dict, str)) else 1
            large = budget.size(instance) // _UNIT if entries else 0
            if name in _LOOK_BACK:
                budget.weight = max(budget.weight, 1 + large)
            if isinstance(value, list) or name in _WHOLE_VALUE_EACH:
                large = entries * budget.size(instance) // _UNIT
            _charge(1 + entries // 16 + large)
            if budget.depth == MAX_DEPTH:
                raise OverBudget
            budget.depth += 1
        try:
            for error in keyword(validator, value, instance, schema) or ():
                _charge(len(error.message) // _UNIT)
                yield error
        finally:
            if budget is not None:
                budget.depth -= 1

    return counted


def _is_boolean(checker: Any, instance: Any) -> bool:
    """Also called for each schema that `unevaluated...` looks back at, which nothing else counts."""
    budget = _budget.get()
    if budget is not None:
        _charge(budget.weight)
    return isinstance(instance, bool)


@functools.cache
def bounded(plain: Any) -> Any:
    """The validator class `plain` of `jsonschema` with its work bounded, and that of schemas within."""
    keywords = {name: _counted(name, _OWN.get(name, keyword)) for name, keyword in plain.VALIDATORS.items()}
    extend: Any = jsonschema.validators.extend
    cls = extend(plain, keywords, type_checker=plain.TYPE_CHECKER.redefine("boolean", _is_boolean))

    def evolve(self: Any, **changes: Any) -> Any:
        schema = changes.get("schema", self.schema)
        _charge(1 + (len(schema) // 16 if isinstance(schema, dict) else 0))
        kind = cls
        if isinstance(schema, dict) and isinstance(schema.get("$schema"), str):
            dialect = {"$schema": schema["$schema"]}
            kind = bounded(jsonschema.validators.validator_for(dialect, default=plain))
        return kind(
            schema,
            format_checker=self.format_checker,
            registry=self._registry,
            _resolver=changes.get("_resolver", self._resolver),
        )

    cls.evolve = evolve
    return cls


_FORMATS = jsonschema.FormatChecker(formats=())


@_FORMATS.checks("regex", raises=UnusablePattern)
def _is_pattern(value: object) -> bool:
    return not isinstance(value, str) or compile_pattern(value) is not None


def schema_error(plain: Any, schema: Any) -> Any:
    """What the meta-schema of `plain` finds wrong with `schema` first: a `ValidationError`, or None."""
    checker: Validator = bounded(plain)(
        plain.META_SCHEMA, format_checker=_FORMATS, registry=referencing.jsonschema.EMPTY_REGISTRY
    )
    return next(iter(checker.iter_errors(schema)), None)
