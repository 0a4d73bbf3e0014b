"""Policies: which tool calls a person must approve first, as data."""

import fnmatch
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from entracte_server.agents.expressions import InvalidExpression, Values, compile_expression
from entracte_server.agents.toolsets import SEPARATOR
from entracte_server.domain import json_text
from entracte_server.domain.data import Data
from entracte_server.domain.options import ApprovalExpression, ApprovalRules


class ApprovalRequest(Data, frozen=True):
    """A tool call that a predicate judges. `args` are its arguments as JSON values, `request_context`
    the caller's values; `tool_name` is the name the model uses."""

    tool_name: str
    args: Mapping[str, Any]
    request_context: Mapping[str, Any]
    agent_id: str
    run_id: str


ApprovalPredicate = Callable[[ApprovalRequest], bool]


class ApprovalPolicy:
    """Which calls a person must approve, beyond what the tools themselves ask for: every call that any
    of these covers.

    Args:
        all: Every call.
        names: The tools of these names.
        patterns: The tools whose names fit: `*` any characters, `?` one, `[abc]` one of these.
        toolsets: The tools of these toolsets.
        predicates: Calls for which a predicate says so, by the names under which the app has them
            (`App(approval_predicates=...)`).
        expressions: Calls for which an expression holds, by pattern over the tools' names:
            `{"refund": "args.amount_cents > 5000"}`. The language is CEL.

    A predicate or expression that fails covers the call. Raises `ValueError` for an expression that
    cannot be used.
    """

    def __init__(
        self,
        *,
        all: bool = False,
        names: Iterable[str] = (),
        patterns: Iterable[str] = (),
        toolsets: Iterable[str] = (),
        predicates: Iterable[str] = (),
        expressions: Mapping[str, str] | None = None,
    ) -> None:
        for what, given in (
            ("names", names),
            ("patterns", patterns),
            ("toolsets", toolsets),
            ("predicates", predicates),
        ):
            if isinstance(given, str):
                raise ValueError(f"{what}: give a list of names, not the text {given!r}")
        self.rules = ApprovalRules(
            all=all,
            names=tuple(names),
            patterns=tuple(patterns),
            toolsets=tuple(toolsets),
            predicates=tuple(predicates),
            expressions=tuple(ApprovalExpression(*item) for item in (expressions or {}).items()),
        )
        _check_expressions(self.rules)

    @classmethod
    def of(cls, rules: ApprovalRules) -> "ApprovalPolicy":
        """The policy of rules as they are stored. Raises `ValueError`."""
        policy = cls()
        policy.rules = rules
        _check_expressions(rules)
        return policy

    def __repr__(self) -> str:
        return f"<ApprovalPolicy {self.rules}>"


def _check_expressions(rules: ApprovalRules) -> None:
    for item in rules.expressions:
        try:
            compile_expression(item.expression)
        except InvalidExpression as error:
            raise ValueError(f"expressions: {item.tool!r}: {error}") from None


def checked_predicates(predicates: Mapping[str, ApprovalPredicate] | None) -> dict[str, ApprovalPredicate]:
    """The predicates of an app. Raises `ValueError` for one without a name, and for a coroutine
    function: its answer would always be a coroutine, which is true."""
    checked = dict(predicates or {})
    for name, predicate in checked.items():
        if not name:
            raise ValueError("approval_predicates: a predicate needs a name")
        if not callable(predicate) or inspect.iscoroutinefunction(predicate):
            raise ValueError(f"approval_predicates: {name!r} must be a plain function")
    return checked


def covers(rules: ApprovalRules, tool_name: str) -> bool:
    """Whether rules cover every call of a tool, whatever its arguments."""
    return (
        rules.all
        or tool_name in rules.names
        or any(fnmatch.fnmatchcase(tool_name, pattern) for pattern in rules.patterns)
        or any(tool_name.startswith(toolset + SEPARATOR) for toolset in rules.toolsets)
    )


def expressions_for(rules: ApprovalRules, tool_name: str) -> list[str]:
    """The expressions over the calls of a tool."""
    return [item.expression for item in rules.expressions if fnmatch.fnmatchcase(tool_name, item.tool)]


def demand_of(rules: ApprovalRules, tool_name: str) -> bool | Callable[[Any], bool]:
    """What rules without predicates mean for one tool: a `requires_approval` of its own, which raises
    where it cannot be judged."""
    if covers(rules, tool_name):
        return True
    expressions = expressions_for(rules, tool_name)
    if not expressions:
        return False

    def judge(args: Any) -> bool:
        values = Values(tool_name, json_text.dump(args), None)
        return any(compile_expression(text).holds(values) for text in expressions)

    return judge
