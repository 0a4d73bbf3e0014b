"""Entracte: a gRPC service that runs LLM agents which stop and wait for people.

This is what authors of agents use; everything in `__all__` is public.
"""

from entracte_server.agents import Agent, App, Tool, ToolContext, ask_user, tool
from entracte_server.domain.options import ModelSettings, ToolChoice

__version__ = "0.1.0"

__all__ = ["Agent", "App", "ModelSettings", "Tool", "ToolChoice", "ToolContext", "ask_user", "tool"]
