"""The Python in the docs runs."""

import ast
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

import entracte_server
from entracte import Client, Memory, PendingCallExpiry, Thread
from entracte._options_codec import to_options
from entracte_server import Agent, App, Score, ScorerInput, SemanticRecall, Tool
from entracte_server.app.cli import main
from entracte_server.domain.expiry import Expiry
from entracte_server.domain.options import ScorerChoice
from entracte_server.testing import scripted, serve
from examples import support

ROOT = Path(__file__).resolve().parents[2]


def snippets(page: str, containing: str = "") -> list[str]:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return [block for block in blocks if containing in block]


def run(code: str, **names: Any) -> dict[str, Any]:
    scope: dict[str, Any] = {name: getattr(entracte_server, name) for name in entracte_server.__all__}
    scope.update(names)
    exec(compile(code, "snippet", "exec"), scope)
    return scope


async def test_the_client_in_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    [code] = snippets("README.md", "Client(")
    async with serve(support.app) as server:
        code = code.replace("localhost:50051", server.address).replace("asyncio.run(main())", "")
        await run(code)["main"]()
    said = capsys.readouterr().out
    assert "Order 9, the teapot, is lost by the carrier." in said
    assert "Done: 129.00 are on their way to you." in said


def test_the_agent_in_the_readme_is_the_one_that_new_writes(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["new", str(tmp_path / "hello")])
    assert done.exit_code == 0, done.output
    [code] = snippets("README.md", "App(")
    assert (tmp_path / "hello" / "agents.py").read_text().endswith(code)


def test_the_tools_in_the_authors_guide() -> None:
    scope: dict[str, Any] = {}
    for code in snippets("docs/writing-agents.md"):
        if "entracte_server.testing" not in code:
            scope.update(run(code, **scope))
    tools = {name: thing for name, thing in scope.items() if isinstance(thing, Tool)}
    assert set(tools) == {"look_up_order", "refund", "query", "wipe", "buy", "ask_user"}
    assert isinstance(scope["app"], App)
    refund = tools["refund"]
    assert refund.idempotent
    assert refund.needs_approval(refund.validate('{"order_id":"7","amount_cents":9900}'))
    assert not refund.needs_approval(refund.validate('{"order_id":"7","amount_cents":100}'))


async def test_the_expiries_in_the_docs() -> None:
    tools, agent, calls = snippets("docs/expiry.md")
    scope = run(tools)
    assert (scope["buy"].expiry, scope["sign"].expiry) == (Expiry(3600.0), Expiry(600.0, "fail"))
    made = eval(agent, scope)
    assert made.expiry == Expiry(2 * 86400.0)
    assert made.tools["ask_user"].expiry == Expiry(300.0, "answer", '"Do as you think best."')
    asked: list[Any] = []

    async def generate(words: str, **options: Any) -> None:
        asked.append(to_options(options).pending_call_expiry)

    names = {"agent": SimpleNamespace(generate=generate), "PendingCallExpiry": PendingCallExpiry}
    code = compile(calls, "snippet", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    await eval(code, names)
    assert [(expiry.after.seconds, list(expiry.default_answers)) for expiry in asked] == [
        (3600, []),
        (3600, ["ask_user"]),
    ]


async def test_structured_output_in_the_docs(capsys: pytest.CaptureFixture[str]) -> None:
    one, author, growing, second = snippets("docs/structured-output.md")
    made = run(author)["agent"].structured_output.options
    assert json.loads(made.fallback_value) == {"title": "?", "urgent": True}
    cities = scripted([[{"text": '["Oslo","Bergen"]'}]], name="openai/gpt-5-nano")
    model = scripted([[{"text": '{"name":"Oslo","people":724290}'}], [{"text": '["Moss"]'}]])
    agents = [
        Agent(id="a", model=model),
        Agent(id="b", model=model, structured_output=entracte_server.StructuredOutput({}, model=cities)),
    ]
    async with serve(App(agents=agents)) as server, Client(server.address) as client:
        names: dict[str, Any] = {"agent": client.agent("a")}
        for code in (one, growing, second):
            made = compile(code, "snippet", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            await eval(made, names)
    said = [line for line in capsys.readouterr().out.splitlines() if "[info" not in line]
    assert said == ["Oslo", "Moss", "['Moss']", "done: ['Moss']"]
    assert names["result"].object == ["Oslo", "Bergen"]


async def test_the_test_in_the_authors_guide() -> None:
    async def pay_back(order_id: str, amount_cents: int, *, idempotency_key: str) -> SimpleNamespace:
        return SimpleNamespace(id=idempotency_key)

    payments = SimpleNamespace(refund=pay_back)
    [refund] = snippets("docs/writing-agents.md", "async def refund")
    [code] = snippets("docs/writing-agents.md", "entracte_server.testing")
    await run(code, refund=run(refund, payments=payments)["refund"])["test_a_large_refund_needs_approval"]()


async def test_the_scorers_in_the_docs() -> None:
    code, judge, served, calls, reading = snippets("docs/scorers.md")
    scope = run(code)
    score = scope["brevity"](ScorerInput("r", "a", "word " * 100))
    assert score == Score(0.5, "100 words")
    scope |= run(judge, **scope)
    app = run(served, **scope)["app"]
    assert set(app.scorers) == {"brevity", "helpful"}
    assert app.agents["sales"].scorers == (
        ScorerChoice("tone", "helpful", 0.1),
        ScorerChoice("length", "brevity"),
    )
    asked: list[Any] = []

    async def generate(words: str, **options: Any) -> None:
        asked.append(dict(to_options(options).scorers))

    block = compile(calls, "snippet", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    await eval(block, {"agent": SimpleNamespace(generate=generate)})
    assert [sorted(scorers) for scorers in asked] == [["brevity", "helpful"], ["tone"], ["helpful"]]

    async def get(run_id: str) -> SimpleNamespace:
        return SimpleNamespace(follow_ups=[])

    block = compile(reading, "snippet", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    await eval(block, {"client": SimpleNamespace(runs=SimpleNamespace(get=get)), "run_id": "r"})


async def test_the_threads_in_the_docs(capsys: pytest.CaptureFixture[str]) -> None:
    code, removing = snippets("docs/threads.md")
    async with serve(support.app) as server, Client(server.address) as client:
        await client.agent("support").generate("Hello", memory=Memory(Thread("t1", "Hats"), "ada"))
        await run(code)["tidy"](client, "ada")
        assert [thread.thread_id async for thread in client.threads.list()] == ["t1"]
        await client.agent("support").generate("Refund order 7", memory=Memory("t2", "ada"))
        for resource in ("ada", "sub-agent:researcher:ada"):
            await client.threads.update_working_memory("likes hats", resource_id=resource)
        await run(removing)["forget"](client, "ada", "researcher")
        assert [thread async for thread in client.threads.list()] == []
        for resource in ("ada", "sub-agent:researcher:ada"):
            noted = await client.threads.working_memory(resource_id=resource)
            assert (noted.content, noted.version) == ("", 0)
    printed = capsys.readouterr().out.splitlines()
    assert any(line.startswith("t1 Hats ") for line in printed)
    assert any(line.startswith("assistant support ") for line in printed)


async def test_the_page_on_semantic_recall() -> None:
    of_agent, ask, own = snippets("docs/semantic-recall.md")
    assert run(of_agent)["app"].agents["support"].memory.semantic_recall.embedder.name == "all-MiniLM-L6-v2"
    embedder = run(own)["Lengths"]()
    model = scripted([[{"text": "Yes."}]])
    memory = entracte_server.Memory(last_messages=2, semantic_recall=SemanticRecall(embedder))
    async with (
        serve(App(agents=[Agent(id="support", model=model, memory=memory)])) as server,
        Client(server.address) as client,
    ):
        for thread, question in (("t", "Is it red?"), ("s", "Is it red? "), ("s", "Is it blue?")):
            assert await run(ask)["ask"](client, "ada", thread, question) == "Yes."
    told = [message.text for message in model.requests[-1].messages]
    assert told.count("Is it red?") == told.count("Is it red? ") == 1


async def test_working_memory_and_titles_in_the_docs(capsys: pytest.CaptureFixture[str]) -> None:
    page = "docs/memory.md"
    [author] = snippets(page, "WorkingMemory(")
    [rename] = snippets(page, "WorkingMemoryChanged")
    [opening] = snippets(page, "on_title_generated")
    made = run(author)["support"]
    assert made.memory.working_memory.template.startswith("# Customer")
    model = scripted([[{"text": "Hello, Ada."}], [{"text": "Greetings"}]])
    agents = [Agent(id="support", model=model, memory=made.memory)]
    async with serve(App(agents=agents)) as server, Client(server.address) as client:
        await client.threads.update_working_memory("- Name: Ada", resource_id="ada")
        await run(rename)["rename"](client, "ada", "Ada", "Bea")
        assert (await client.threads.working_memory(resource_id="ada")).content == "- Name: Bea"
        assert await run(opening)["open_chat"](client, "ada", "t1", "Hello") == "Hello, Ada."
    assert "This is about: Greetings" in capsys.readouterr().out


async def test_the_options_in_the_page_on_observability() -> None:
    call, of_agent = snippets("docs/observability.md")
    asked: list[Any] = []

    async def generate(words: str, **options: Any) -> None:
        asked.append(to_options(options))

    code = compile(call, "snippet", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    await eval(code, {"agent": SimpleNamespace(generate=generate)})
    assert asked[0].telemetry.function_id == "refunds"
    assert list(asked[0].tracing_options.tags) == ["beta"]
    made = run(of_agent)["support"]
    assert made.telemetry.record_outputs
    assert made.tracing_options.metadata == {"team": "returns"}
