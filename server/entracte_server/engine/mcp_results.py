"""What an MCP server says, as data of ours: its tools, and what a call came to."""

import hashlib
import re
from collections.abc import Iterable
from typing import Any

import mcp_types as mcp
import structlog

from entracte_server.agents import schemas
from entracte_server.agents.mcp import McpToolset
from entracte_server.agents.tools import NAME
from entracte_server.agents.toolsets import SEPARATOR
from entracte_server.domain import json_text
from entracte_server.domain.options import PinnedTool

MAX_DESCRIPTION = 16 * 1024
"""Longest description of a tool, in characters; what goes beyond it is cut."""

_log = structlog.get_logger(__name__)


def qualified(toolset: str, remote: str) -> str:
    """The name in a run of a tool that its server calls `remote`. Where that is no name that models can
    use, it gets one that is, with a digest, so that no two tools share it."""
    name = f"{toolset}{SEPARATOR}{remote}"
    if NAME.fullmatch(name):
        return name
    digest = hashlib.sha256(remote.encode("utf-8", "replace")).hexdigest()[:8]
    room = 64 - len(toolset) - len(SEPARATOR) - 1 - len(digest)
    return f"{toolset}{SEPARATOR}{re.sub(r'[^A-Za-z0-9_-]', '_', remote)[:room]}-{digest}"


def definitions(toolset: McpToolset, listed: Iterable[mcp.Tool]) -> dict[str, PinnedTool]:
    """The tools of a toolset by their names in a run. One whose schema cannot be used is left out."""
    found: dict[str, PinnedTool] = {}
    for tool in listed:
        if not toolset.takes(tool.name):
            continue
        name = qualified(toolset.name, tool.name)
        try:
            schema = json_text.dump(tool.input_schema)
            schemas.compile_schema(schema)
            if tool.input_schema.get("type", "object") != "object":
                raise schemas.InvalidSchema("the schema is not of type object")
            if name in found:
                raise schemas.InvalidSchema("the server lists the tool twice")
        except ValueError as error:
            why = str(error)[:500]
            _log.warning("mcp_tool_left_out", toolset=toolset.name, tool=tool.name[:200], error=why)
            continue
        description = json_text.scrub(tool.description or tool.title or "")[:MAX_DESCRIPTION]
        found[name] = PinnedTool(toolset.name, name, tool.name, description, schema)
    return found


def value_of(result: mcp.CallToolResult) -> Any:
    """The JSON value of what a call gave: structured content alone where all else is text, one text as a
    text, nothing as null; else the parts, with structured content beside them."""
    only_text = all(isinstance(block, mcp.TextContent) for block in result.content)
    if result.structured_content is not None and only_text:
        return result.structured_content
    if result.structured_content is None and len(result.content) == 1 and only_text:
        return text_of(result)
    if result.structured_content is None and not result.content:
        return None
    parts: dict[str, Any] = {"content": [_part(block) for block in result.content]}
    if result.structured_content is not None:
        parts["structured_content"] = result.structured_content
    return parts


def text_of(result: mcp.CallToolResult) -> str:
    """The texts of what a call gave."""
    return "\n".join(block.text for block in result.content if isinstance(block, mcp.TextContent))


def _part(block: mcp.ContentBlock) -> dict[str, Any]:
    match block:
        case mcp.TextContent():
            return {"type": "text", "text": block.text}
        case mcp.ImageContent():
            return {"type": "image", "media_type": block.mime_type, "data": block.data}
        case mcp.AudioContent():
            return {"type": "audio", "media_type": block.mime_type, "data": block.data}
        case mcp.ResourceLink():
            link = {"type": "resource_link", "uri": str(block.uri), "name": block.name}
            return {**link, **_named(media_type=block.mime_type, description=block.description)}
        case mcp.EmbeddedResource():
            held = block.resource
            resource = {"type": "resource", "uri": str(held.uri), **_named(media_type=held.mime_type)}
            if isinstance(held, mcp.TextResourceContents):
                return {**resource, "text": held.text}
            return {**resource, "data": held.blob}


def _named(**values: str | None) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}
