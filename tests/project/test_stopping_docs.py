"""The Python in the page on what ends a run does what the page says."""

from entracte import Client
from entracte_server import Agent, App, RunView, ScorerInput, StepInfo, ToolCallInfo, ToolChoice
from entracte_server.domain.options import ModelSettings
from entracte_server.testing import scripted, serve
from tests.project.test_docs import run, snippets

PAGE = "docs/stopping.md"


async def test_the_caller() -> None:
    caller, *_ = snippets(PAGE)
    model = scripted([[{"text": "It is FINAL."}, {"tool": "nobody", "id": "c", "args": {}}]])
    agent = Agent(id="researcher", model=model, tools=[], toolsets=[])
    scope = run(caller.replace('StopWhen(tool_called="publish"),', ""))
    async with serve(App(agents=[agent])) as server, Client(server.address) as client:
        await scope["research"](client)
    assert model.calls == 1


def test_the_apps() -> None:
    _, stopping, checking, hooks = snippets(PAGE)
    app = run(stopping)["app"]
    assert [condition.kind for condition in app.agents["researcher"].stop_when] == ["cost", "predicate"]
    scope = run(checking)
    assert scope["app"].agents["writer"].is_task_complete.scorers == ("has_sources",)
    assert scope["has_sources"](ScorerInput("r", "a", "see http://x")) == 1.0
    assert set(run(hooks)) >= {"cheap_at_first", "nudge", "no_weekend_refunds"}


async def test_the_hooks() -> None:
    hooks = run(snippets(PAGE)[3])
    view = RunView("r", "a", {"weekend": True})
    step = StepInfo(view, 1, 1, (), (), (), "m", (), ToolChoice(), ModelSettings(), {})
    assert (await hooks["cheap_at_first"](step)).model == "openai/gpt-5-nano"
    assert (await hooks["no_weekend_refunds"](ToolCallInfo(view, "c", "refund", {}))).output == {
        "status": "closed"
    }
