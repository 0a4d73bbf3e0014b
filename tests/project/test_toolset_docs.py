"""The Python in the pages about approvals and toolsets runs."""

import ast
import re
from types import SimpleNamespace
from typing import Any

from entracte._options_codec import to_options
from entracte_server import App, Tool, Toolset
from entracte_server.agents.expressions import compile_expression
from tests.project.test_docs import ROOT, run, snippets


def _tool(name: str) -> Tool:
    return Tool(name=name, input_schema={"type": "object"}, execute=lambda args, ctx: None)


async def _sent(code: str, **names: Any) -> Any:
    """The options that a snippet of a caller sends."""
    sent: list[Any] = []

    async def generate(words: str, **options: Any) -> None:
        sent.append(to_options(options))

    agent = SimpleNamespace(generate=generate)
    compiled = compile(code, "snippet", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    await eval(compiled, {"agent": agent, "client": SimpleNamespace(agent=lambda _: agent), **names})
    [options] = sent
    return options


async def test_the_policies() -> None:
    agent, caller, predicate = snippets("docs/approvals.md")
    made = run(agent, refund=_tool("refund"), send_mail=_tool("send_mail"))["support"]
    assert [item.tool for item in made.approval.expressions] == ["refund", "send_*"]
    app = run(predicate, support=made, local_hour=lambda zone: 3)["app"]
    assert isinstance(app, App)
    request = SimpleNamespace(request_context={"timezone": "UTC"})
    assert app.approval_predicates["after_hours"](request) is True  # type: ignore[arg-type]
    [expression] = (await _sent(caller)).require_tool_approval.rules.expressions
    assert (expression.tool, expression.expression) == ("refund", "args.amount_cents > 1000")


def test_the_expressions() -> None:
    page = (ROOT / "docs/approvals.md").read_text("utf-8")
    [block] = re.findall(r"^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    for line in block.splitlines():
        compile_expression(line)


async def test_the_toolsets() -> None:
    server, caller, servers = snippets("docs/toolsets.md")
    scope = run(server, refund=_tool("refund"), invoice=_tool("invoice"))
    assert isinstance(scope["billing"], Toolset)
    assert list(scope["billing"].tools) == ["billing__refund", "billing__invoice"]
    assert scope["app"].agents["accounts"].toolsets == ("billing",)
    assert list((await _sent(caller)).toolsets) == ["billing"]
    app = run(servers, token="secret")["app"]
    files, tracker = app.toolsets["files"], app.toolsets["tracker"]
    assert (files.demand("write_file"), files.is_idempotent("read_file")) == (True, True)
    assert (files.demand("read_file"), files.is_idempotent("write_file")) == (False, False)
    assert tracker.headers == {"Authorization": "Bearer secret"}
    assert [tracker.demand("create_issue")({"project": name}) for name in ("sandbox", "x")] == [False, True]
    assert not tracker.takes("delete_issue")
