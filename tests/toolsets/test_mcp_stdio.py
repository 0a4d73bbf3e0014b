"""MCP servers that are programs: started on demand, killed in the middle of a call, ended with the
server."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import mcp.client
import pytest

from entracte import Client, PendingCall, ToolsetUnavailable
from entracte_server import Agent, App, McpToolset
from entracte_server.engine import mcp_connection
from entracte_server.testing import scripted, serve
from tests.stores import default_store
from tests.toolsets.mcp_files import journal
from tests.toolsets.test_mcp_http import calling, told

ROOT = Path(__file__).resolve().parents[2]
SERVER = [sys.executable, "-m", "tests.toolsets.mcp_files"]


def program(folder: Path, **settings: Any) -> McpToolset:
    return McpToolset("files", command=[*SERVER, str(folder)], cwd=ROOT, **settings)


def app_of(model: Any, toolset: McpToolset, **settings: Any) -> App:
    agent = Agent(id="agent", model=model, toolsets=["files"], **settings)
    return App(agents=[agent, Agent(id="other", model=scripted([[{"text": "fine"}]]))], toolsets=[toolset])


@asynccontextmanager
async def serving(app: App, store: str | Path) -> AsyncIterator[Client]:
    async with serve(app, store=store) as server, Client(server.address) as client:
        yield client


async def entered(folder: Path, *entry: Any) -> None:
    """Until the server was called so."""
    async with asyncio.timeout(30):
        while [*entry] not in journal(folder):  # noqa: ASYNC110 - written by another process
            await asyncio.sleep(0.01)


def processes(folder: Path) -> list[int]:
    """The server's processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"tests.toolsets.mcp_files" in words and os.fsencode(folder) in words:
            found.append(int(path.parent.name))
    return found


async def waiting(client: Client, run_id: str) -> PendingCall:
    """The call that the run waits for, as soon as it does."""
    async with asyncio.timeout(30):
        while not (calls := (await client.runs.get(run_id)).pending_calls):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    [call] = calls
    return call


@pytest.mark.usefixtures("each_store")
async def test_a_gated_call_over_a_restart(tmp_path: Path) -> None:
    """Nothing of the session is durable: the next process starts the program anew, with the tools that the
    run had. The program ends with its server."""
    store = default_store().get("store") or str(tmp_path / "db")
    model = calling("files__write", {"path": "a"})
    toolset = program(tmp_path, require_approval=True)
    async with serving(app_of(model, toolset), store) as client:
        [call] = (await client.agent("agent").generate("go")).pending_calls
        assert len(processes(tmp_path)) == 1
    assert processes(tmp_path) == []
    async with serving(app_of(model, toolset), store) as client:
        assert processes(tmp_path) == []
        result = await client.agent("agent").approve(call)
        assert [item.result for item in result.tool_results] == [{"path": "a", "written": 0}]
        assert result.text == "done"
    assert processes(tmp_path) == []
    assert journal(tmp_path) == [["write", "a", ""]]


def hanging(times: int = 1) -> Any:
    """A model that calls `hang` in each of its first steps."""

    def play(request: Any) -> Sequence[dict[str, Any]]:
        done = sum(message.role == "tool" for message in request.messages)
        return [{"tool": "files__hang", "args": {"path": str(done)}}] if done < times else [{"text": "done"}]

    return scripted(play)


async def test_a_server_that_is_killed_in_the_middle_of_a_call(tmp_path: Path) -> None:
    """A person is asked what became of it, for nobody knows; the server's own hints count for nothing.
    Other runs are not concerned. The server is started again for the next call."""
    async with serving(app_of(hanging(2), program(tmp_path)), tmp_path / "db") as client:
        agent = client.agent("agent")
        stream = agent.stream("go", run_id="r1")
        running = asyncio.create_task(stream.result())
        await entered(tmp_path, "hang", "0")
        assert (await client.agent("other").generate("go")).text == "fine"
        [pid] = processes(tmp_path)
        os.kill(pid, signal.SIGKILL)
        result = await running
        [call] = result.pending_calls
        assert (call.kind, call.tool_name, call.args) == ("recovery", "files__hang", {"path": "0"})
        (tmp_path / "go").touch()
        result = await agent.approve(call)  # run it again
        assert [item.result for item in result.tool_results] == [{"result": "at last"}] * 2
        assert result.text == "done"
    assert journal(tmp_path) == [["hang", "0"], ["hang", "0"], ["hang", "1"]]


async def test_a_process_that_stops_in_the_middle_of_a_call(tmp_path: Path) -> None:
    """The next one asks what became of it, as it does for any tool."""
    store = tmp_path / "db"
    async with serving(app_of(hanging(), program(tmp_path)), store) as client:
        stream = client.agent("agent").stream("go", run_id="r1")
        following = asyncio.create_task(stream.result())
        await entered(tmp_path, "hang", "0")
        following.cancel()
    async with serving(app_of(hanging(), program(tmp_path)), store) as client:
        call = await waiting(client, "r1")
        assert call.kind == "recovery"
        result = await client.agent("agent").decline(call)
        assert result.text == "done"
    assert journal(tmp_path) == [["hang", "0"]]


async def test_a_lost_call_of_a_tool_that_may_be_called_again(tmp_path: Path) -> None:
    """It is, with nobody asked: once."""
    toolset = program(tmp_path, idempotent=["app*", "hang"])
    model = calling("files__append", {"path": "a"})
    async with serving(app_of(model, toolset), tmp_path / "db") as client:
        result = await client.agent("agent").generate("go")
        assert [item.result for item in result.tool_results] == [{"result": "appended"}]
    assert journal(tmp_path) == [["append", "a"]] * 2


async def test_a_cancelled_run_and_a_call_that_takes_too_long(tmp_path: Path) -> None:
    toolset = program(tmp_path, timeout=0.3)
    model = hanging()
    async with serving(app_of(model, toolset), tmp_path / "db") as client:
        (tmp_path / "go").touch()
        assert (await client.agent("agent").generate("go")).text == "done"  # the program is there now
        (tmp_path / "go").unlink()
        assert (await client.agent("agent").generate("go")).text == "done"
        assert told(model) == ("error", "The tool files__hang did not end within 0.3 s.")
    toolset = program(tmp_path)
    async with serving(app_of(hanging(), toolset), tmp_path / "db") as client:
        (tmp_path / "journal").unlink()
        running = asyncio.create_task(client.agent("agent").generate("go", run_id="r1"))
        await entered(tmp_path, "hang", "0")
        await client.runs.cancel("r1")
        assert (await running).finish_reason == "aborted"


PROGRAMS = {
    "there is none": (["/nonexistent/program"], "its program cannot be started"),
    "it ends": (["true"], "it cannot be reached"),
    "it says something else": (["cat", "/dev/null"], "it cannot be reached"),
    "it says nothing": (["sleep", "60"], "it did not list its tools within 0.5 s"),
}


async def test_programs_that_are_no_servers(tmp_path: Path) -> None:
    """Refused, with a reason that says nothing of this machine."""
    for case, (command, words) in PROGRAMS.items():
        toolset = McpToolset("files", command=command, connect_timeout=0.5)
        async with serving(app_of(hanging(), toolset), tmp_path / "db") as client:
            with pytest.raises(ToolsetUnavailable) as refused:
                await client.agent("agent").generate("go")
            assert f"cannot be listed: {words}." in str(refused.value), case
            assert (await client.agent("other").generate("go")).text == "fine"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_server_over_http_that_is_killed_in_the_middle_of_a_call(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same, and calls of other tools before and after are none the worse."""
    monkeypatch.setattr(mcp_connection, "Client", partial(mcp.client.Client, mode=mode))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    @asynccontextmanager
    async def server() -> AsyncIterator[asyncio.subprocess.Process]:
        process = await asyncio.create_subprocess_exec(
            *SERVER, str(tmp_path), str(port), cwd=ROOT, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            async with asyncio.timeout(40):
                while True:
                    try:
                        _, writer = await asyncio.open_connection("127.0.0.1", port)
                    except OSError:
                        await asyncio.sleep(0.02)
                    else:
                        writer.close()
                        break
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    toolset = McpToolset("files", url=f"http://127.0.0.1:{port}/mcp")
    async with serving(app_of(hanging(2), toolset), tmp_path / "db") as client:
        async with server() as process:
            running = asyncio.create_task(client.agent("agent").generate("go"))
            await entered(tmp_path, "hang", "0")
            process.kill()
            [call] = (await running).pending_calls
            assert call.kind == "recovery"
        (tmp_path / "go").touch()
        async with server():
            result = await client.agent("agent").submit_tool_result(call, "it was done")
            assert [item.result for item in result.tool_results] == ["it was done", {"result": "at last"}]
    assert journal(tmp_path) == [["hang", "0"], ["hang", "1"]]
