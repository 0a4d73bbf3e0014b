"""An MCP server for tests, made with the official package: over standard input and output, or with a port
over HTTP. It keeps a journal in a folder, and files there tell it what to do."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations


def journal(folder: Path) -> list[list[Any]]:
    """What was called with what, in order."""
    path = folder / "journal"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def make(folder: Path) -> MCPServer:
    server = MCPServer("files")

    def enter(name: str, *args: Any) -> None:
        with (folder / "journal").open("a") as file:
            file.write(json.dumps([name, *args]) + "\n")

    async def read(path: str) -> str:
        """Reads a file."""
        enter("read", path)
        return f"text of {path}"

    async def write(path: str, text: str = "") -> dict[str, Any]:
        enter("write", path, text)
        return {"path": path, "written": len(text)}

    async def hang(path: str) -> str:
        """Never comes back, unless told to."""
        enter("hang", path)
        while not (folder / "go").exists():  # noqa: ASYNC110 - told from outside
            await asyncio.sleep(0.01)
        return "at last"

    async def append(path: str) -> str:
        """Does no harm when it is done twice."""
        enter("append", path)
        if len([entry for entry in journal(folder) if entry[0] == "append"]) == 1:
            os._exit(3)
        return "appended"

    async def show() -> list[Any]:
        """Text and an image."""
        return ["a dot", Image(data=b"\x89PNG", format="png")]

    async def fail(why: str) -> str:
        """Fails."""
        raise ToolError(why)

    async def refuse() -> str:
        """An error of the protocol, with the code that the package has for lost connections."""
        raise MCPError(-32000, "not today")

    async def learn(ctx: Context[Any]) -> str:
        """From now on, there is another tool."""
        server.add_tool(read, name="learned", structured_output=False)
        await ctx.session.send_tool_list_changed()
        return "learned"

    async def ask(ctx: Context[Any]) -> str:
        """Asks the client's user, which is refused."""
        return str(await ctx.session.elicit_form("Which?", {"type": "object", "properties": {}}))

    async def large(size: int) -> str:
        """Too much."""
        return "x" * size

    async def key(ctx: Context[Any]) -> str:
        """The call's idempotency key."""
        meta: Any = ctx.request_context.meta
        return str(meta["entracte.dev/idempotency-key"])

    changed = (folder / "changed").exists()
    hints = ToolAnnotations(read_only_hint=True, idempotent_hint=True)
    words = "Writes a file and tells everybody." if changed else "Writes a file."
    server.add_tool(write, description=words, annotations=hints)
    if not (folder / "gone").exists():
        server.add_tool(append)
    for body in (hang, fail, refuse, learn, ask, key):
        server.add_tool(body, annotations=hints)
    server.add_tool(show, structured_output=False)
    server.add_tool(large, structured_output=False)
    for name in ("read", "dir/list.all"):  # the latter is no name that models can use
        server.add_tool(read, name=name, structured_output=False)
    return server


@asynccontextmanager
async def over_http(server: MCPServer, port: int = 0) -> AsyncIterator[str]:
    """The server in this process: its URL."""
    config = uvicorn.Config(
        server.streamable_http_app(),
        port=port,
        log_level="critical",
        lifespan="on",
        timeout_graceful_shutdown=1,
    )
    running = uvicorn.Server(config)
    task = asyncio.create_task(running._serve())
    while not running.started:
        assert not task.done(), task.result()
        await asyncio.sleep(0.01)
    try:
        found = running.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{found}/mcp"
    finally:
        running.should_exit = True
        await task


if __name__ == "__main__":
    made = make(Path(sys.argv[1]))
    made.run("streamable-http", port=int(sys.argv[2])) if len(sys.argv) > 2 else made.run()
