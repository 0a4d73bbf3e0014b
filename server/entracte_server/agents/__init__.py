"""What authors write: agents, tools, the built-in question."""

from entracte_server.agents.agent import Agent, App
from entracte_server.agents.approval import ApprovalPolicy, ApprovalRequest
from entracte_server.agents.ask_user import ask_user
from entracte_server.agents.context import ToolContext
from entracte_server.agents.expiry import DefaultAnswer
from entracte_server.agents.scorers import LlmScorer, Sampled, Score, ScorerInput, ToolUse, scorer
from entracte_server.agents.tools import Tool, tool
from entracte_server.agents.toolsets import Toolset

__all__ = [
    "Agent",
    "App",
    "ApprovalPolicy",
    "ApprovalRequest",
    "DefaultAnswer",
    "LlmScorer",
    "Sampled",
    "Score",
    "ScorerInput",
    "Tool",
    "ToolContext",
    "ToolUse",
    "Toolset",
    "ask_user",
    "scorer",
    "tool",
]
