"""MCP servers over HTTP: what is listed, called, gated and refused, and what becomes of results."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import mcp.client
import pytest

from entracte import Client, InvalidArgument, ToolsetUnavailable
from entracte_server import Agent, App, ApprovalPolicy, McpToolset, StopWhen, tool
from entracte_server.engine import mcp_connection
from entracte_server.testing import scripted, serve
from tests.toolsets import mcp_files
from tests.toolsets.mcp_files import journal


def calling(name: str, args: dict[str, Any]) -> Any:
    def play(request: Any) -> Sequence[dict[str, Any]]:
        if any(message.role == "tool" for message in request.messages):
            return [{"text": "done"}]
        return [{"tool": name, "id": "c", "args": args}]

    return scripted(play)


def told(model: Any) -> tuple[str, str]:
    """Kind and text of the result that the model was told last."""
    [part] = model.requests[-1].messages[-1].parts
    return part.kind, part.output


@asynccontextmanager
async def serving(app: App, store: Path | None = None) -> AsyncIterator[Client]:
    async with serve(app, store=store) as server, Client(server.address) as client:
        yield client


def app_of(model: Any, *toolsets: McpToolset, **settings: Any) -> App:
    return App(agents=[Agent(id="agent", model=model, **settings)], toolsets=toolsets)


async def test_what_is_listed(tmp_path: Path) -> None:
    """Under names that the model can use, with the server's descriptions and schemas; as far as they are
    wanted. One session serves many runs."""
    model = calling("files__read", {"path": "a"})
    async with mcp_files.over_http(mcp_files.make(tmp_path)) as url:
        app = app_of(model, McpToolset("files", url=url), McpToolset("few", url=url, only=["re?d", "show"]))
        async with serving(app) as client:
            agent = client.agent("agent")
            result = await agent.generate("go", toolsets=["files"])
            assert [item.result for item in result.tool_results] == ["text of a"]
            assert result.text == "done"
            specs = {spec.name: spec for spec in model.requests[0].tools}
            names = [
                "write",
                "append",
                "hang",
                "fail",
                "refuse",
                "learn",
                "ask",
                "key",
                "show",
                "large",
                "read",
            ]
            odd = "dir_list_all-173bc67b"
            assert list(specs) == [f"files__{name}" for name in (*names, odd)]
            assert specs["files__read"].description == "Reads a file."
            assert '"path"' in specs["files__read"].input_schema
            await agent.generate("go", toolsets=["few"])
            assert [spec.name for spec in model.requests[-1].tools] == ["few__show", "few__read"]
            options: Any = {"toolsets": ["few", "files"], "active_tools": ["few__read", "files__read"]}
            await agent.generate("go", **options, tool_choice={"tool": "files__read"})
            assert [spec.name for spec in model.requests[-1].tools] == ["few__read", "files__read"]
            with pytest.raises(InvalidArgument, match="the agent has no tool 'files__nothing'"):
                await agent.generate("go", toolsets=["files"], active_tools=["files__nothing"])
    assert journal(tmp_path) == [["read", "a"]] * 2


async def test_an_agent_stops_when_a_tool_of_a_server_was_called(tmp_path: Path) -> None:
    """Which tools there are is not known when the agent is made."""
    async with mcp_files.over_http(mcp_files.make(tmp_path)) as url:
        files = McpToolset("files", url=url)
        stops = {"toolsets": ["files"], "stop_when": StopWhen(tool_called="files__read")}
        async with serving(app_of(calling("files__read", {"path": "a"}), files, **stops)) as client:
            result = await client.agent("agent").generate("go")
            assert (result.stop_cause, len(result.steps)) == ("stop-when", 1)
        with pytest.raises(ValueError, match="there is no tool 'others__read'"):
            app_of("a/b", files, toolsets=["files"], stop_when=StopWhen(tool_called="others__read"))


RESULTS: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "read": ({"path": "a"}, ("json", '"text of a"')),
    "write": ({"path": "a", "text": "bc"}, ("json", '{"path":"a","written":2}')),
    "show": (
        {},
        (
            "json",
            '{"content":[{"type":"text","text":"a dot"},'
            '{"type":"image","media_type":"image/png","data":"iVBORw=="}]}',
        ),
    ),
    "fail": ({"why": "no such file"}, ("error", "no such file")),
    "refuse": ({}, ("error", "not today")),
    "ask": ({}, ("error", "licitation")),
    "large": ({"size": 5_000_000}, ("error", "cannot be used: larger than 4194304 bytes")),
    "large ": ({"size": 9_000_000}, ("error", "8388608 byte")),
    "read ": ({"path": 7}, ("error", "The arguments do not fit the schema of files__read")),
}


@pytest.fixture(params=["auto", "legacy"])
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Sessions that begin with a handshake, as those of servers made before 2026 do, and others."""
    monkeypatch.setattr(mcp_connection, "Client", partial(mcp.client.Client, mode=request.param))
    return str(request.param)


async def test_what_becomes_of_results(tmp_path: Path, protocol: str) -> None:
    """Structured content, texts and images as JSON; the server's own errors, what is asked of the user
    (refused) and what is too much as errors, for the model to see."""
    async with mcp_files.over_http(mcp_files.make(tmp_path)) as url:
        toolset = McpToolset("files", url=url)
        for name, (args, (kind, words)) in RESULTS.items():
            model = calling(f"files__{name.strip()}", args)
            async with serving(app_of(model, toolset, toolsets=["files"])) as client:
                result = await client.agent("agent").generate("go")
                assert result.text == "done"
                assert told(model)[0] == kind, (name, told(model))
                assert words in told(model)[1][:10_000], name
        model = calling("files__key", {})
        async with serving(app_of(model, toolset, toolsets=["files"])) as client:
            await client.agent("agent").generate("go")
            assert re.fullmatch(r'{"result":"[0-9A-Z]{26}"}', told(model)[1])


@pytest.mark.parametrize("protocol", ["legacy"], indirect=True)
async def test_a_server_that_says_that_its_list_has_changed(tmp_path: Path, protocol: str) -> None:
    """The next run has the new one, without waiting for the old one to be too old. The run itself has not."""
    model = calling("files__learn", {})
    async with (
        mcp_files.over_http(mcp_files.make(tmp_path)) as url,
        serving(app_of(model, McpToolset("files", url=url), toolsets=["files"])) as client,
    ):
        await client.agent("agent").generate("go")
        assert told(model) == ("json", '{"result":"learned"}')
        before, after = ([spec.name for spec in request.tools] for request in model.requests)
        assert before == after
        async with asyncio.timeout(20):
            while [spec.name for spec in model.requests[-1].tools] != [*before, "files__learned"]:
                await client.agent("agent").generate("go")  # the word comes on a stream of its own


GATES: dict[str, tuple[dict[str, Any], bool]] = {
    "not at all": ({}, False),
    "every call": ({"require_approval": True}, True),
    "by pattern": ({"require_approval": ["wr*"]}, True),
    "by another pattern": ({"require_approval": ["re*"]}, False),
    "by an expression": (
        {"require_approval": ApprovalPolicy(expressions={"write": "args.path.startsWith('/etc')"})},
        True,
    ),
    "by an expression that says no": (
        {"require_approval": ApprovalPolicy(expressions={"write": "args.path == '/'"})},
        False,
    ),
    "by an expression that fails": (
        {"require_approval": ApprovalPolicy(expressions={"*": "args.nothing"})},
        True,
    ),
}


async def test_who_is_asked(tmp_path: Path) -> None:
    """By the rules of the server, which no agent lifts."""
    async with mcp_files.over_http(mcp_files.make(tmp_path)) as url:
        for case, (settings, waits) in GATES.items():
            model = calling("files__write", {"path": "/etc/a"})
            nothing = ApprovalPolicy(expressions={"*": "false"})
            app = app_of(
                model,
                McpToolset("files", url=url, **settings),
                toolsets=["files"],
                require_tool_approval=nothing,
            )
            async with serving(app) as client:
                result = await client.agent("agent").generate("go", require_tool_approval=False)
                assert [call.kind for call in result.pending_calls] == ["approval"] * waits, case
                for call in result.pending_calls:
                    assert call.tool_description == "Writes a file."
                    result = await client.agent("agent").approve(
                        call, edited_args={"path": "/b", "text": "c"}
                    )
                assert result.text == "done"
        waited = sum(waits for _, waits in GATES.values())
    entered = journal(tmp_path)
    assert entered.count(["write", "/b", "c"]) == waited
    assert entered.count(["write", "/etc/a", ""]) == len(GATES) - waited


async def test_a_list_is_pinned_and_a_call_that_was_shown_is_what_is_made(tmp_path: Path) -> None:
    """The run's tools stay as they were listed, in other processes too. A tool that its server has changed
    since a call was shown is shown again, under a new id, and then made."""
    store = tmp_path / "db"
    asking: Any = {"require_approval": ["write"]}
    model = calling("files__write", {"path": "a"})
    async with mcp_files.over_http(mcp_files.make(tmp_path)) as url:
        async with serving(app_of(model, McpToolset("files", url=url, **asking)), store) as client:
            [call] = (await client.agent("agent").generate("go", toolsets=["files"])).pending_calls
        before = model.requests[0].tools
    (tmp_path / "changed").touch()
    async with mcp_files.over_http(mcp_files.make(tmp_path)) as url:
        model = calling("files__write", {"path": "a"})
        app = app_of(model, McpToolset("files", url=url, **asking))
        async with serving(app, store) as client:
            result = await client.agent("agent").approve(call)
            [again] = result.pending_calls
            assert (again.kind, again.args) == ("approval", call.args)
            assert again.pending_call_id != call.pending_call_id
            assert again.tool_description == "Writes a file and tells everybody."
            assert journal(tmp_path) == []
        async with serving(app, store) as client:  # and holds over another restart
            result = await client.agent("agent").approve(again)
            assert result.text == "done"
            assert [item.result for item in result.tool_results] == [{"path": "a", "written": 0}]
            assert [spec.description for spec in model.requests[0].tools] == [
                spec.description for spec in before
            ]
            await client.agent("agent").generate("go", toolsets=["files"])
            assert model.requests[-1].tools[0].description == "Writes a file and tells everybody."
    assert journal(tmp_path) == [["write", "a", ""]]


async def test_a_tool_that_changed_and_needs_nobody_is_called(tmp_path: Path) -> None:
    """In a run that goes on after its server was redeployed."""
    store = tmp_path / "db"

    def model() -> Any:
        def play(request: Any) -> Sequence[dict[str, Any]]:
            done = sum(message.role == "tool" for message in request.messages)
            name = ["files__read", "files__write"][done] if done < 2 else ""
            return [{"tool": name, "args": {"path": "a"}}] if name else [{"text": "done"}]

        return scripted(play)

    asking: Any = {"require_approval": ["read"]}
    async with (
        mcp_files.over_http(mcp_files.make(tmp_path)) as url,
        serving(app_of(model(), McpToolset("files", url=url, **asking)), store) as client,
    ):
        [call] = (await client.agent("agent").generate("go", toolsets=["files"])).pending_calls
    (tmp_path / "changed").touch()
    async with (
        mcp_files.over_http(mcp_files.make(tmp_path)) as url,
        serving(app_of(model(), McpToolset("files", url=url, **asking)), store) as client,
    ):
        assert (await client.agent("agent").approve(call)).text == "done"
    assert journal(tmp_path) == [["read", "a"], ["write", "a", ""]]


async def test_a_tool_that_is_gone(tmp_path: Path) -> None:
    """The model is told, whoever approved the call."""
    store = tmp_path / "db"
    model = calling("files__append", {"path": "a"})
    for gone in (False, True):
        if gone:
            (tmp_path / "gone").touch()
        async with (
            mcp_files.over_http(mcp_files.make(tmp_path)) as url,
            serving(app_of(model, McpToolset("files", url=url, require_approval=True)), store) as client,
        ):
            agent = client.agent("agent")
            if not gone:
                [call] = (await agent.generate("go", toolsets=["files"])).pending_calls
            else:
                assert (await agent.approve(call)).text == "done"
                assert told(model) == ("error", "The server of files has no tool 'append' any more.")
    assert journal(tmp_path) == []


async def test_a_server_that_is_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that asks for it is refused, others are not; a call of a run that has it is an error for the
    model, and made when it is there again. A repeated request is answered all the same."""
    monkeypatch.setattr(mcp_connection, "LIST_AGE", 0.0)
    model = calling("files__write", {"path": "a"})
    async with mcp_files.over_http(mcp_files.make(tmp_path)) as url:
        port = int(url.rpartition(":")[2].partition("/")[0])
    toolset = McpToolset("files", url=url, require_approval=True)
    async with serving(app_of(model, toolset)) as client:
        agent = client.agent("agent")
        with pytest.raises(ToolsetUnavailable, match="of the toolset 'files' cannot be listed") as refused:
            await agent.generate("go", toolsets=["files"])
        assert refused.value.metadata["toolset"] == "files"
        assert "127.0.0.1" not in str(refused.value)
        assert (await agent.generate("go")).text == "done"
        async with mcp_files.over_http(mcp_files.make(tmp_path), port):
            result = await agent.generate("go", toolsets=["files"], request_id="r1")
            [call] = result.pending_calls
        with pytest.raises(ToolsetUnavailable):
            await agent.generate("go", toolsets=["files"], request_id="r2")
        repeated = await agent.generate("go", toolsets=["files"], request_id="r1")
        assert repeated.run_id == call.run_id
        result = await agent.approve(call)
        assert result.text == "done"
        assert told(model)[0] == "error"
        assert "cannot be" in told(model)[1]
        assert "The call was not made." in told(model)[1]
        async with mcp_files.over_http(mcp_files.make(tmp_path), port):
            [call] = (await agent.generate("go", toolsets=["files"])).pending_calls
            await agent.approve(call)
    assert journal(tmp_path) == [["write", "a", ""]]


@tool(name="files__read")
async def clashing(path: str) -> str:
    """A tool of an agent."""
    return path


async def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    async with mcp_files.over_http(mcp_files.make(tmp_path)) as url:
        app = app_of(calling("x", {}), McpToolset("files", url=url), tools=[clashing])
        async with serving(app) as client:
            words = "the toolset 'files' has a tool 'files__read', and so has the agent"
            with pytest.raises(InvalidArgument, match=words):
                await client.agent("agent").generate("go", toolsets=["files"])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: McpToolset("x"), "give a command or a url"),
        (lambda: McpToolset("x", command=["a"], url="http://a"), "give a command or a url"),
        (lambda: McpToolset("x", command="a b"), "command is a list"),
        (lambda: McpToolset("x", command=[]), "command is a list"),
        (lambda: McpToolset("x", command=["a"], headers={"a": "b"}), "headers go with a url"),
        (lambda: McpToolset("x", url="http://a", env={"a": "b"}), "env and cwd go with a command"),
        (lambda: McpToolset("x", url="ftp://a"), "must begin with http:// or https://"),
        (lambda: McpToolset("x", url="http://a", only="a"), "only is a list of patterns"),
        (lambda: McpToolset("x", url="http://a", idempotent="a"), "idempotent is a list of patterns"),
        (lambda: McpToolset("x", url="http://a", connect_timeout=0), "must be more than 0"),
        (lambda: McpToolset("x__y", url="http://a"), "toolset name 'x__y'"),
        (
            lambda: McpToolset("x", url="http://a", require_approval=ApprovalPolicy(predicates=["p"])),
            "takes no toolsets and no predicates",
        ),
    ],
)
def test_what_authors_cannot_make(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        make()
