"""Conditions over a tool call in CEL, the Common Expression Language, within limits.

An expression sees `args` (the call's arguments, an object), `tool` (the tool's name) and
`request_context` (the caller's values, an object), and says true or false. There is nothing in it that
loops: work grows with the length of the expression times the size of what it looks at, and both are
capped. Patterns are RE2's, written out in the expression.
"""

import functools
import re
from typing import TYPE_CHECKING, Any

from entracte_server.agents import bounded
from entracte_server.domain import json_text

if TYPE_CHECKING:
    from cel_expr_python import cel

MAX_LENGTH = 1000
"""Longest expression, in characters. How deep one may nest is up to the parser: 32 levels."""

MAX_INPUT = 16 * 1024
"""Most characters of JSON, of all variables together, that an expression looks at."""

MAX_PATTERN = 1000
"""Largest pattern, in instructions of RE2."""

MAX_MATCHING = 4_000_000
"""Instructions of patterns, times characters of JSON, that all expressions over one call may go through."""

_ENVIRONMENT = """
name: approval
stdlib:
  exclude_macros: [all, exists, exists_one, filter, map]
"""

_MATCHES = re.compile(r"\bmatches\b")
_LITERAL = r"""(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|[rR]'[^'\n]*'|[rR]"[^"\n]*")"""
_MATCHES_LITERAL = re.compile(rf"\.\s*matches\s*\(\s*({_LITERAL})\s*\)")
_PLACE = re.compile(r"<input>:(-?\d+):(-?\d+): (.*)")


class InvalidExpression(ValueError):
    """The text is not an expression that can be used; the message says why."""


class ExpressionFailed(Exception):
    """The expression says neither true nor false of these values; the message says why."""


class Values:
    """What expressions see of one call. `args` and `request_context` are JSON texts of objects."""

    __slots__ = ("data", "fault", "matched", "size")

    def __init__(self, tool: str, args: str, request_context: str | None) -> None:
        texts = args, request_context or "{}"
        self.fault = ""
        self.data: dict[str, Any] = {}
        self.size = sum(map(len, texts))
        self.matched = 0
        if self.size > MAX_INPUT:
            self.fault = f"more than {MAX_INPUT} characters of JSON"
        elif any("\\u0000" in text for text in texts):
            # The library takes a text to end at a NUL, so that what comes after it would not be judged.
            self.fault = "a NUL in a text"
        else:
            values = map(json_text.parse, texts)
            self.data = {"tool": tool, "args": next(values), "request_context": next(values)}


class Expression:
    """A compiled expression. Make one with `compile_expression`."""

    __slots__ = ("_compiled", "_instructions")

    def __init__(self, compiled: "cel.Expression", instructions: int) -> None:
        self._compiled = compiled
        self._instructions = instructions

    def holds(self, values: Values) -> bool:
        """What the expression says of a call. Raises `ExpressionFailed`."""
        if values.fault:
            raise ExpressionFailed(values.fault)
        values.matched += self._instructions * values.size
        if values.matched > MAX_MATCHING:
            raise ExpressionFailed("patterns that take too long for so much JSON")
        try:
            value = self._compiled.eval(data=values.data).value()
        except Exception as error:  # values that CEL has no form for, such as halves of surrogate pairs
            raise ExpressionFailed(str(error)[:500]) from None
        if not isinstance(value, bool):  # an error is a text
            raise ExpressionFailed(f"not true or false but {str(value)[:500]}")
        return value


@functools.cache
def _environment() -> "cel.Env":
    from cel_expr_python import cel  # 20 ms, and only some agents need it

    values = cel.Type.Map(cel.Type.STRING, cel.Type.DYN)
    return cel.NewEnv(
        config=cel.NewEnvConfigFromYaml(_ENVIRONMENT),
        variables={"args": values, "request_context": values, "tool": cel.Type.STRING},
    )


@functools.lru_cache(maxsize=256)
def compile_expression(text: str) -> Expression:
    """Compile and check an expression. Raises `InvalidExpression`: too long, too deep, not CEL, an
    unknown name, a macro that loops, a pattern that is not written out, or not a condition."""
    if not text.strip():
        raise InvalidExpression("the expression is empty")
    if len(text) > MAX_LENGTH:
        raise InvalidExpression(
            f"the expression has {len(text)} characters, at most {MAX_LENGTH} are allowed"
        )
    environment = _environment()
    try:
        compiled = environment.compile(text)
    except Exception as error:
        raise InvalidExpression(_reason(str(error))) from None
    kind = compiled.return_type().name()
    if kind not in ("BOOL", "DYN"):
        raise InvalidExpression(f"the expression is not a condition but of type {kind.lower()}")
    return Expression(compiled, _checked_patterns(environment, text))


def _checked_patterns(environment: "cel.Env", text: str) -> int:
    """The size of all patterns together. One from a call's arguments could be made so that matching takes
    minutes."""
    literals = [found[1] for found in _MATCHES_LITERAL.finditer(text)]
    if len(literals) != len(_MATCHES.findall(text)):
        raise InvalidExpression("write a pattern out where it is used: args.path.matches('^/etc/')")
    total = 0
    for literal in literals:
        try:
            pattern = bounded.compile_pattern(str(environment.compile(literal).eval().value()))
        except bounded.UnusablePattern as error:
            raise InvalidExpression(str(error)) from None
        if pattern.programsize > MAX_PATTERN:
            raise InvalidExpression(f"the pattern {literal[:200]} is too large")
        total += pattern.programsize
    return total


def _reason(text: str) -> str:
    found = _PLACE.search(text)
    if "recursion" in text:
        return "the expression is nested too deeply"
    if found is None:
        return text.splitlines()[0][:300] if text else "not CEL"
    column, message = found[2], found[3]
    message = message.removeprefix("Syntax error: ").split(" expecting {")[0].split(" (in container")[0][:300]
    return f"at character {column}: {message}"
