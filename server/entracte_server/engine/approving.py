"""Whether a person must approve a tool call: the strictest of the tool, the agent and the run holds.

Nothing here lets a call pass because it could not be judged: a predicate that is not registered any
more, and a predicate or expression that fails, mean that a person is asked.
"""

from collections.abc import Mapping
from typing import Any

import structlog

from entracte_server.agents.agent import Agent
from entracte_server.agents.approval import (
    ApprovalPredicate,
    ApprovalRequest,
    covers,
    expressions_for,
)
from entracte_server.agents.expressions import (
    ExpressionFailed,
    InvalidExpression,
    Values,
    compile_expression,
)
from entracte_server.agents.tools import Arguments, Tool
from entracte_server.domain import json_text
from entracte_server.domain.options import ApprovalRules, ClientTool, RunOptions

_log = structlog.get_logger(__name__)


class Approving:
    """The policies of one run. `predicates` are those of the app."""

    def __init__(
        self,
        agent: Agent,
        options: RunOptions,
        predicates: Mapping[str, ApprovalPredicate],
        run_id: str,
    ) -> None:
        self._agent_id = agent.id
        self._run_id = run_id
        self._predicates = predicates
        self._context = options.request_context
        nothing = ApprovalRules()
        self._rules = [
            rules for rules in (options.require_tool_approval, agent.approval) if rules not in (None, nothing)
        ]

    def needed(
        self,
        tool_name: str,
        tool: Tool | ClientTool,
        arguments: Arguments,
        request_context: Mapping[str, Any],
    ) -> bool:
        """Whether a call with these validated arguments has to wait for an approval."""
        if isinstance(tool, Tool) and tool.needs_approval(arguments):
            return True
        return any(
            rules is not None
            and (covers(rules, tool_name) or self._judged(rules, tool_name, arguments.text, request_context))
            for rules in self._rules
        )

    def _judged(
        self, rules: ApprovalRules, tool_name: str, text: str, request_context: Mapping[str, Any]
    ) -> bool:
        expressions = expressions_for(rules, tool_name)
        if expressions:
            values = Values(tool_name, text, self._context)
            if any(self._expressed(item, values) for item in expressions):
                return True
        if not rules.predicates:
            return False
        args = json_text.parse(text)
        request = ApprovalRequest(tool_name, args, request_context, self._agent_id, self._run_id)
        return any(self._predicated(name, request) for name in rules.predicates)

    def _expressed(self, expression: str, values: Values) -> bool:
        try:
            return compile_expression(expression).holds(values)
        except (ExpressionFailed, InvalidExpression) as error:
            self._failed("expression", str(error))
            return True

    def _predicated(self, name: str, request: ApprovalRequest) -> bool:
        predicate = self._predicates.get(name)
        if predicate is None:
            self._failed(f"predicate {name}", "it is not registered")
            return True
        try:
            return bool(predicate(request))
        except (
            BaseException
        ) as error:  # SystemExit, too: a policy that cannot be had must not stop the server
            self._failed(f"predicate {name}", repr(error)[:500])
            return True

    def _failed(self, what: str, why: str) -> None:
        _log.warning("approval_not_judged", run_id=self._run_id, policy=what, error=why[:500])
