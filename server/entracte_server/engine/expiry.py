"""When a pending call expires, and what happens then: settled when the call is shown, and kept with it.

Tool, agent and request may each say something. The tool's word replaces the agent's, and that of one
question replaces the tool's. The request's counts when it is earlier: a caller may shorten what the
author allows, never lengthen it. What was declared together with the time that counts is what happens.
Nothing is ever approved: where an answer is declared that does not fit what the call waits for, the
call is declined.
"""

import math

import structlog

from entracte_server.agents import schemas
from entracte_server.agents.agent import Agent
from entracte_server.agents.tools import Tool
from entracte_server.domain import json_text
from entracte_server.domain.chunks import PendingKind
from entracte_server.domain.expiry import Expiry, ExpirySource, OnExpiry, RunExpiry
from entracte_server.domain.options import ClientTool

_log = structlog.get_logger(__name__)

EXPIRED = "expired"
"""The code of an outcome that fails the run."""


def expiry_of(
    kind: PendingKind,
    tool_name: str,
    tool: Tool | ClientTool | None,
    *,
    agent: Agent,
    asked: RunExpiry | None,
    question: Expiry | None = None,
    resume_schema: str | None = None,
) -> tuple[int, OnExpiry] | None:
    """How many milliseconds a call that is about to be shown may wait, and what happens then; None when
    it waits for ever. `question` is what the tool said with what it asks, `asked` what the caller said.
    """
    own = question or (tool.expiry if isinstance(tool, Tool) else None)
    declared = own or agent.expiry
    source: ExpirySource
    if asked is not None and (declared is None or asked.after < declared.after):
        after, action, source = asked.after, asked.action, "request"
        answer = asked.answers.get(tool_name)
    elif declared is not None:
        after, action, source = declared.after, declared.action, "agent" if own is None else "tool"
        answer = declared.answer
    else:
        return None
    if action == "answer" and not _takes(kind, tool, source, resume_schema, answer):
        action = "decline"
    return math.ceil(after * 1000), OnExpiry(action, source, answer if action == "answer" else None)


def _takes(
    kind: PendingKind,
    tool: Tool | ClientTool | None,
    source: ExpirySource,
    resume_schema: str | None,
    answer: str | None,
) -> bool:
    """Whether a call can be given a declared answer."""
    if answer is None:
        return False
    if kind == "client-tool":  # only the caller knows what such a tool returns
        return source == "request"
    if kind != "suspension" or not isinstance(tool, Tool):
        return False
    try:
        if resume_schema is not None:
            schemas.check(resume_schema, json_text.parse(answer))
        tool.parse_resume(answer)
    except Exception as error:  # a model's validators are their author's code
        _log.info("default_answer_does_not_fit", tool=tool.name, error=str(error)[:500])
        return False
    return True
