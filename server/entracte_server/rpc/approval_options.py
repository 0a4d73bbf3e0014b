"""The approval policy of a request, checked and put into the form it is stored in."""

from collections.abc import Iterable, Sequence

from entracte.v1 import options_pb2
from entracte_server.agents.agent import App
from entracte_server.agents.expressions import InvalidExpression, compile_expression
from entracte_server.domain.errors import invalid
from entracte_server.domain.options import ApprovalExpression, ApprovalRules
from entracte_server.rpc.registered import check_registered

MAX_NAMES = 256
"""Names of a kind, and patterns. They are gone through on the event loop, before each call."""

MAX_PATTERNS_LENGTH = 4000
"""Of all patterns together, those of expressions among them, in characters."""

MAX_EXPRESSIONS = 16
MAX_EXPRESSIONS_LENGTH = 4000
"""Of all expressions of a request together, in characters."""

_FIELD = "options.require_tool_approval"


def approval_from(app: App, options: options_pb2.GenerateOptions) -> ApprovalRules | None:
    """The policy of a request; None where it has none. Raises `Refusal`."""
    if not options.HasField("require_tool_approval"):
        return None
    policy = options.require_tool_approval
    which = policy.WhichOneof("policy")
    if which is None:
        raise invalid(_FIELD, "needs all or rules")
    if which == "all":
        return ApprovalRules(all=policy.all)
    rules = policy.rules
    for kind in ("names", "patterns", "predicates", "toolsets"):
        if len(getattr(rules, kind)) > MAX_NAMES:
            raise invalid(f"{_FIELD}.rules.{kind}", f"at most {MAX_NAMES}")
    patterns = (*rules.patterns, *(item.tool for item in rules.expressions))
    if sum(map(len, patterns)) > MAX_PATTERNS_LENGTH:
        limit = f"at most {MAX_PATTERNS_LENGTH} characters together, with those of expressions"
        raise invalid(f"{_FIELD}.rules.patterns", limit)
    check_registered(f"{_FIELD}.rules.toolsets", "toolset", rules.toolsets, app.toolsets)
    check_registered(f"{_FIELD}.rules.predicates", "predicate", rules.predicates, app.approval_predicates)
    return ApprovalRules(
        names=tuple(rules.names),
        patterns=tuple(rules.patterns),
        toolsets=tuple(rules.toolsets),
        predicates=tuple(rules.predicates),
        expressions=tuple(_expressions(rules.expressions)),
    )


def _expressions(
    given: Sequence[options_pb2.ToolApprovalExpression],
) -> Iterable[ApprovalExpression]:
    field = f"{_FIELD}.rules.expressions"
    if len(given) > MAX_EXPRESSIONS:
        raise invalid(field, f"at most {MAX_EXPRESSIONS}")
    if sum(len(item.expression) for item in given) > MAX_EXPRESSIONS_LENGTH:
        raise invalid(field, f"at most {MAX_EXPRESSIONS_LENGTH} characters together")
    for i, item in enumerate(given):
        try:
            compile_expression(item.expression)
        except InvalidExpression as error:
            raise invalid(f"{field}[{i}].expression", str(error)) from None
        yield ApprovalExpression(item.tool or "*", item.expression)
