"""The Python in the page about sub-agents runs."""

import ast
from typing import Any

import pytest

from entracte_server import App
from entracte_server.agents.hooks import Hook
from tests.delegation.support import agent, counting, delegate, says, serving
from tests.project.test_docs import run, snippets


async def test_the_page(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    author, watching, deciding, hooks = snippets("docs/sub-agents.md")
    tools = {name: counting(name, []) for name in ("search", "order")}
    app = run(author, **tools)["app"]
    assert set(app.agents) == {"assistant"}
    assert set(app.every_agent) == {"assistant", "researcher", "buyer"}
    made = run(hooks)
    kinds = {made[name].kind for name in ("sober", "last_turn_only", "checked")}
    assert kinds == {"delegation_start", "message_filter", "delegation_complete"}
    named = {
        "on_delegation_start": made["sober"],
        "message_filter": made["last_turn_only"],
        "on_delegation_complete": made["checked"],
    }
    assert all(isinstance(it, Hook) for it in named.values())

    gated = counting("order", [], gated=True)
    buyer = agent("buyer", [says("One"), [{"tool": "order", "args": {}}], says("bought")], tools=[gated])
    script = [[delegate("buyer")], says("Two."), [delegate("buyer")], says("Done.")]
    root = agent("assistant", script, agents=[buyer], **named)
    async with serving(App(agents=[root]), str(tmp_path / "db")) as client:
        for code in (watching, deciding):
            block = compile(code, "snippet", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            await eval(block, {"client": client})
    said = [line for line in capsys.readouterr().out.splitlines() if "[" not in line or "order" in line]
    assert said == ["buyer: One", "assistant: Two.", "['buyer'] order {}"]
