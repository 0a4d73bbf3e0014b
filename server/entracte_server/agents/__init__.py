"""What authors write: agents, tools, the built-in question."""

from entracte_server.agents.agent import Agent, App
from entracte_server.agents.approval import ApprovalPolicy, ApprovalRequest
from entracte_server.agents.ask_user import ask_user
from entracte_server.agents.context import ToolContext
from entracte_server.agents.expiry import DefaultAnswer
from entracte_server.agents.hooks import (
    CheckInfo,
    Delegation,
    DelegationDone,
    DelegationInfo,
    DelegationVerdict,
    Hook,
    Iteration,
    IterationInfo,
    RunView,
    Skip,
    StepInfo,
    StepView,
    StopInfo,
    ToolCallDone,
    ToolCallInfo,
    hook,
)
from entracte_server.agents.mcp import McpToolset
from entracte_server.agents.memory import Memory, SemanticRecall
from entracte_server.agents.processors import (
    LanguageDetector,
    Moderation,
    PiiFilter,
    Processor,
    PromptInjectionDetector,
    StreamBatcher,
    SystemPromptScrubber,
    TokenLimiter,
    UnicodeNormalizer,
)
from entracte_server.agents.remote import remote_tool as remote_tool
from entracte_server.agents.scorers import LlmScorer, Sampled, Score, ScorerInput, ToolUse, scorer
from entracte_server.agents.stopping import Price, StopWhen, TaskCheck
from entracte_server.agents.structured import StructuredOutput
from entracte_server.agents.tools import Tool, tool
from entracte_server.agents.toolsets import Toolset
from entracte_server.agents.working_memory import WorkingMemory

__all__ = [
    "Agent",
    "App",
    "ApprovalPolicy",
    "ApprovalRequest",
    "CheckInfo",
    "DefaultAnswer",
    "Delegation",
    "DelegationDone",
    "DelegationInfo",
    "DelegationVerdict",
    "Hook",
    "Iteration",
    "IterationInfo",
    "LanguageDetector",
    "LlmScorer",
    "McpToolset",
    "Memory",
    "Moderation",
    "PiiFilter",
    "Price",
    "Processor",
    "PromptInjectionDetector",
    "RunView",
    "Sampled",
    "Score",
    "ScorerInput",
    "SemanticRecall",
    "Skip",
    "StepInfo",
    "StepView",
    "StopInfo",
    "StopWhen",
    "StreamBatcher",
    "StructuredOutput",
    "SystemPromptScrubber",
    "TaskCheck",
    "TokenLimiter",
    "Tool",
    "ToolCallDone",
    "ToolCallInfo",
    "ToolContext",
    "ToolUse",
    "Toolset",
    "UnicodeNormalizer",
    "WorkingMemory",
    "ask_user",
    "hook",
    "remote_tool",
    "scorer",
    "tool",
]
