"""Commands without a terminal: what they print, and their exit codes."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from entracte import Client
from entracte.v1 import inbox_service_pb2, pending_call_pb2, run_service_pb2
from entracte_server import Agent, App, DefaultAnswer, Score, ScorerInput, ask_user, scorer, tool
from entracte_server.app.cli.output import clean
from entracte_server.app.running import running
from entracte_server.app.settings import Settings
from entracte_server.models.scripted import ScriptedModel
from entracte_server.testing import TestServer, scripted, serve
from tests.cli.support import entracte
from tests.client.fake import FakeServer, Refuse

MULTI = {
    "question": "Which?",
    "options": [{"label": "Tests"}, {"label": "Docs"}],
    "selection_mode": "multi_select",
}


@tool(requires_approval=True)
async def refund(cents: int) -> dict[str, int]:
    """Pays back."""
    return {"cents": cents}


def agent(agent_id: str, *steps: list[dict[str, Any]]) -> Agent:
    # A script is read by the conversation, so that each run starts at its beginning.
    model = scripted([*steps], position="transcript")
    return Agent(id=agent_id, model=model, instructions="Help.", tools=[refund, ask_user])


@pytest.fixture
async def server() -> AsyncIterator[TestServer]:
    """A server with an agent for each kind of stop."""
    app = App(
        agents=[
            agent("talker", [{"text": "Hello there."}]),
            agent(
                "payer",
                [{"text": "Wait. "}, {"tool": "refund", "args": {"cents": 5}}],
                [{"text": "Paid."}],
            ),
            agent("asker", [{"tool": "ask_user", "args": MULTI}], [{"text": "Thanks."}]),
            agent("failing", [{"error": "broken", "status": 400}]),
        ]
    )
    async with serve(app) as running:
        yield running


async def waiting(server: TestServer) -> str:
    """The id of the call that waits."""
    result = await entracte("inbox", "list", "--json", address=server.address)
    (call,) = json.loads(result.stdout)
    return str(call["pending_call_id"])


async def test_generate_prints_the_text_alone_on_stdout(server: TestServer) -> None:
    result = await entracte("generate", "talker", "Hi", address=server.address)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "Hello there.\n", "")


async def test_generate_prints_one_document(server: TestServer) -> None:
    result = await entracte("generate", "talker", "-", "--json", address=server.address, stdin="Hi")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["text"] == "Hello there."
    assert document["finish_reason"] == "stop"
    assert "Hi" in [part["text"] for message in document["messages"] for part in message["parts"]]


async def test_a_run_that_parks_says_how_to_go_on(server: TestServer) -> None:
    result = await entracte("generate", "payer", "Hi", "--address", server.address)
    assert result.exit_code == 0
    assert result.stdout == "Wait. \n"
    call = await waiting(server)
    assert '→ refund {"cents": 5}' in result.stderr
    assert f"entracte inbox approve {call} --address {server.address}" in result.stderr


async def test_until_when_a_call_waits() -> None:
    """And what happens then, where a run parks and where it is shown."""
    steps = [{"tool": "refund", "args": {"cents": 5}}, {"tool": "ask_user", "args": {"question": "Why?"}}]
    tools = [refund.expiring(3600, "fail"), ask_user.expiring(7200, DefaultAnswer("no reason"))]
    app = App(agents=[Agent(id="payer", model=scripted([steps]), tools=tools)])
    async with serve(app) as server:
        parked = await entracte("generate", "payer", "Hi", address=server.address)
        assert re.search(r"until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d; then its run fails", parked.stderr)
        assert "; then the answer is no reason" in parked.stderr
        [run] = json.loads((await entracte("runs", "list", "--json", address=server.address)).stdout)
        shown = await entracte("runs", "show", run["run_id"], address=server.address)
        assert "; then its run fails" in shown.stdout
        listed = json.loads((await entracte("inbox", "list", "--json", address=server.address)).stdout)
        assert {(call["on_expiry"], call["default_answer"]) for call in listed} == {
            ("fail", None),
            ("answer", "no reason"),
        }


async def test_a_failed_run_is_exit_code_1(server: TestServer) -> None:
    result = await entracte("generate", "failing", "Hi", address=server.address)
    assert result.exit_code == 1
    assert "error:" in result.stderr
    result = await entracte("generate", "failing", "Hi", "--json", address=server.address)
    assert result.exit_code == 1
    assert json.loads(result.stdout)["error"]["kind"]


async def test_a_refused_request_is_exit_code_1(server: TestServer) -> None:
    result = await entracte("generate", "nobody", "Hi", address=server.address)
    assert result.exit_code == 1
    assert "error: " in result.stderr
    assert "nobody" in result.stderr
    result = await entracte("runs", "show", "nothing", address=server.address)
    assert result.exit_code == 1


async def test_wrong_usage_is_exit_code_2(server: TestServer) -> None:
    for words in (
        ["generate"],
        ["runs", "list", "--state", "asleep"],
        ["inbox", "submit", "x"],
        ["inbox", "submit", "x", "1", "--error", "no"],
        ["inbox", "submit", "x", "{"],
        ["inbox", "answer", "x", "a", "--value", "1"],
        ["inbox", "approve", "x", "--nonsense"],
    ):
        result = await entracte(*words, address=server.address)
        assert result.exit_code == 2, words


async def test_an_unreachable_server_is_exit_code_3() -> None:
    for words in (["generate", "talker", "Hi"], ["chat", "talker"], ["runs", "list"], ["inbox", "list"]):
        result = await entracte(*words, address="127.0.0.1:1", stdin="Hi\n")
        assert result.exit_code == 3, words
        assert "no server answers at 127.0.0.1:1" in result.stderr


async def test_runs_are_listed_shown_and_watched(server: TestServer) -> None:
    result = await entracte("runs", "list", address=server.address)
    assert result.stdout == "No runs.\n"
    await entracte("generate", "talker", "Hi", "--run-id", "first", address=server.address)
    await entracte("generate", "failing", "Hi", "--run-id", "second", address=server.address)
    result = await entracte("runs", "list", address=server.address)
    heading, second, first = result.stdout.splitlines()
    assert heading.split()[:3] == ["RUN", "AGENT", "STATE"]
    assert second.split()[:3] == ["second", "failing", "failed"]
    assert first.split()[:3] == ["first", "talker", "succeeded"]
    result = await entracte("runs", "list", "--state", "succeeded", "--json", address=server.address)
    assert [run["run_id"] for run in json.loads(result.stdout)] == ["first"]
    result = await entracte("runs", "list", "--limit", "1", "--json", address=server.address)
    assert [run["run_id"] for run in json.loads(result.stdout)] == ["second"]

    result = await entracte("runs", "show", "first", address=server.address)
    assert "succeeded" in result.stdout
    assert result.stdout.endswith("Hello there.\n")
    result = await entracte("runs", "show", "first", "--json", address=server.address)
    assert json.loads(result.stdout)["result"]["text"] == "Hello there."

    result = await entracte("runs", "watch", "first", address=server.address)
    assert (result.exit_code, result.stdout) == (0, "Hello there.\n")
    result = await entracte("runs", "watch", "first", "--json", "--after", "2", address=server.address)
    chunks = [json.loads(line) for line in result.stdout.splitlines()]
    assert [chunk["sequence"] for chunk in chunks] == list(range(3, 3 + len(chunks)))
    assert chunks[-1]["type"] == "finish"
    result = await entracte("runs", "watch", "second", address=server.address)
    assert result.exit_code == 1
    last = chunks[-1]["sequence"]
    result = await entracte("runs", "watch", "first", "--after", str(last), address=server.address)
    assert (result.exit_code, result.stdout) == (0, "")


async def test_runs_are_cancelled_and_deleted(server: TestServer) -> None:
    await entracte("generate", "payer", "Hi", "--run-id", "r1", address=server.address)
    result = await entracte("runs", "delete", "r1", address=server.address)
    assert result.exit_code == 1
    result = await entracte("runs", "cancel", "r1", "--reason", "enough", address=server.address)
    assert result.stdout == "r1 is cancelled.\n"
    result = await entracte("runs", "cancel", "r1", "--json", address=server.address)
    assert json.loads(result.stdout)["state"] == "cancelled"
    result = await entracte("runs", "delete", "r1", address=server.address)
    assert (result.exit_code, result.stdout) == (0, "r1 is deleted.\n")


async def test_a_call_is_approved(server: TestServer) -> None:
    await entracte("generate", "payer", "Hi", "--run-id", "r1", address=server.address)
    call = await waiting(server)
    result = await entracte("inbox", "list", address=server.address)
    assert call in result.stdout
    assert 'refund asks for approval: {"cents": 5}' in result.stdout
    result = await entracte("inbox", "approve", call, "--edit", '{"cents": "x"}', address=server.address)
    assert result.exit_code == 1
    assert "edited_args" in result.stderr
    words = ["approve", call, "--edit", '{"cents": 3}', "--follow", "--comment", "less"]
    result = await entracte("inbox", *words, address=server.address)
    assert result.exit_code == 0
    assert result.stdout == "Approved: refund of run r1.\nPaid.\n"
    assert '← refund {"cents": 3}' in result.stderr
    result = await entracte("inbox", "approve", call, address=server.address)
    assert result.exit_code == 1
    assert "verb: approve" in result.stderr
    result = await entracte("inbox", "list", address=server.address)
    assert result.stdout == "Nothing waits.\n"
    result = await entracte("inbox", "list", "--decided", address=server.address)
    assert "approve by" in result.stdout


async def test_a_call_is_declined(server: TestServer) -> None:
    await entracte("generate", "payer", "Hi", address=server.address)
    words = ["decline", await waiting(server), "--reason", "no", "--reason-data", '{"a":1}', "--json"]
    result = await entracte("inbox", *words, address=server.address)
    decision = json.loads(result.stdout)
    assert (decision["verb"], decision["reason"], decision["reason_data"]) == ("decline", "no", {"a": 1})


async def test_a_question_is_answered(server: TestServer) -> None:
    await entracte("generate", "asker", "Hi", address=server.address)
    call = await waiting(server)
    result = await entracte("inbox", "answer", call, address=server.address)
    assert result.exit_code == 2  # nobody to ask
    result = await entracte("inbox", "answer", call, "Nothing", address=server.address)
    assert result.exit_code == 1
    assert "resume_data" in result.stderr
    words = ["answer", call, "Tests", "Docs", "--json", "--follow"]
    result = await entracte("inbox", *words, address=server.address)
    first, *chunks = [json.loads(line) for line in result.stdout.splitlines()]
    assert first["data"] == ["Tests", "Docs"]
    assert chunks[-1]["type"] == "finish"


async def test_chat_reads_lines_and_keeps_the_conversation(server: TestServer) -> None:
    result = await entracte("chat", "talker", address=server.address, stdin="Hi\n\nAgain\n")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == "Hello there."
    listed = await entracte("runs", "list", "--json", address=server.address)
    latest = json.loads(listed.stdout)[0]["run_id"]
    shown = await entracte("runs", "show", latest, "--json", address=server.address)
    messages = json.loads(shown.stdout)["result"]["messages"]
    said = [message["parts"][0]["text"] for message in messages if message["role"] == "user"]
    assert said == ["Hi", "Again"]


async def test_options_of_a_run_are_sent() -> None:
    async with FakeServer().running() as fake:
        result = await entracte(
            "generate", "support", "Hi", "--run-id", "r1", "--max-steps", "3", "--thread", "t1",
            "--resource", "u1", "--approve-tools", "pay_*", "--approve-tools", "refund",
            address=fake.address, ENTRACTE_API_KEY="secret",
        )  # fmt: skip
        assert result.stdout == "Hello, world!\n"
        (request,) = fake.asked("Stream")
        assert fake.metadata[0]["authorization"] == "Bearer secret"
    options = request.options
    assert (options.run_id, options.max_steps) == ("r1", 3)
    assert (options.memory.thread.id, options.memory.resource) == ("t1", "u1")
    assert list(options.require_tool_approval.rules.names) == ["refund"]
    assert list(options.require_tool_approval.rules.patterns) == ["pay_*"]


async def test_a_client_tools_result_is_handed_in() -> None:
    async with FakeServer().running() as fake:
        await entracte("inbox", "submit", "p1", '{"n": 1.0}', address=fake.address)
        await entracte("inbox", "submit", "p1", "-", address=fake.address, stdin="[1]")
        await entracte("inbox", "submit", "p1", "--error", "broke", address=fake.address)
        first, second, third = fake.asked("SubmitToolResult")
    assert first.result.text == '{"n": 1.0}'
    assert second.result.text == "[1]"
    assert third.error == "broke"


async def test_the_inbox_is_watched() -> None:
    async def watch(_: Any, context: Any) -> None:
        response = inbox_service_pb2.WatchPendingCallsResponse(snapshot_complete=True)
        call = pending_call_pb2.PendingCall(pending_call_id="p1", tool_name="refund")
        call.args.text = '{"cents":5}'
        response.opened.append(call)
        await context.write(response)
        await context.write(inbox_service_pb2.WatchPendingCallsResponse(closed_pending_call_ids=["p1"]))
        await Refuse(grpc.StatusCode.PERMISSION_DENIED, "ROLE_REQUIRED").do(context)

    async with FakeServer().running() as fake:
        fake.handlers["WatchPendingCalls"] = watch
        plain = await entracte("inbox", "watch", address=fake.address)
        lines = await entracte("inbox", "watch", "--json", address=fake.address)
    assert plain.exit_code == 1
    shown = plain.stdout.splitlines()
    assert shown[0].startswith("+ p1  refund")
    assert shown[-1] == "- p1"
    first, second = [json.loads(line) for line in lines.stdout.splitlines()]
    assert first["opened"][0]["args"] == {"cents": 5}
    assert second["closed"] == ["p1"]


async def test_runs_of_more_than_a_page_are_listed() -> None:
    async def runs(request: Any, _: Any) -> Any:
        start = int(request.page_token or 0)
        response = run_service_pb2.ListRunsResponse(next_page_token=str(start + 2))
        for number in range(start, start + 2):
            response.runs.add(run_id=f"run{number}")
        return response

    async with FakeServer().running() as fake:
        fake.handlers["ListRuns"] = runs
        result = await entracte("runs", "list", "--limit", "5", "--json", address=fake.address)
    assert [run["run_id"] for run in json.loads(result.stdout)] == ["run0", "run1", "run2", "run3", "run4"]


async def test_versions_are_printed() -> None:
    result = await entracte("version")
    assert "entracte-server 0.1.0" in result.stdout
    document = json.loads((await entracte("version", "--json")).stdout)
    assert document["entracte"] == "0.1.0"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain köln 🎉\n\ttext", "plain köln 🎉\n\ttext"),
        ("\x1b[2J\x1b[1;1Happroved", "\\u001b[2J\\u001b[1;1Happroved"),
        ("a\rb", "ab"),
        ("\x9b31m", "\\u009b31m"),
        ("pay \u202e00.1", "pay \\u202e00.1"),
        ("a\u2028b\x00", "a\\u2028b\\u0000"),
    ],
)
def test_what_others_say_cannot_rewrite_the_screen(text: str, shown: str) -> None:
    assert clean(text) == shown


async def test_escapes_of_a_model_do_not_reach_the_terminal() -> None:
    app = App(agents=[agent("rogue", [{"text": "\x1b[2Jclean slate"}])])
    async with serve(app) as server:
        result = await entracte("generate", "rogue", "Hi", address=server.address)
    assert result.stdout == "\\u001b[2Jclean slate\n"


async def test_a_command_that_does_not_fit_says_which_does(server: TestServer) -> None:
    await entracte("generate", "asker", "Hi", address=server.address)
    call = await waiting(server)
    result = await entracte("inbox", "approve", call, "--address", server.address)
    assert result.exit_code == 1
    at = f"--address {server.address}"
    fitting = f"This fits:\n  entracte inbox answer {call} {at}\n  entracte inbox decline {call} {at}\n"
    assert result.stderr.endswith(fitting)


async def test_a_violation_is_told_once(server: TestServer) -> None:
    await entracte("generate", "payer", "Hi", address=server.address)
    words = ["approve", await waiting(server), "--edit", '{"cents": "x"}']
    result = await entracte("inbox", *words, address=server.address)
    assert result.stderr.count("edited_args/cents") == 1


async def test_a_run_is_shown_with_a_paragraph_for_each_step(server: TestServer) -> None:
    await entracte("generate", "payer", "Hi", "--run-id", "r1", address=server.address)
    await entracte("inbox", "approve", await waiting(server), "--follow", address=server.address)
    result = await entracte("runs", "show", "r1", address=server.address)
    assert result.stdout.endswith("\n\nWait. \n\nPaid.\n")


async def test_a_run_is_shown_with_its_scores() -> None:
    @scorer
    async def tone(given: ScorerInput) -> Score:
        return Score(0.25, "rather\nterse")

    app = App(agents=[Agent(id="talker", model=scripted([[{"text": "Hello."}]]), scorers=[tone])])
    async with serve(app) as server, Client(server.address) as client:
        result = await client.agent("talker").generate("Hi")
        await client.runs.follow_ups(result.run_id, timeout=20)
        shown = await entracte("runs", "show", result.run_id, address=server.address)
        assert "\nscore: tone 0.25 rather terse\n" in shown.stdout
        shown = await entracte("runs", "show", result.run_id, "--json", address=server.address)
        assert [job["score"] for job in json.loads(shown.stdout)["follow_ups"]] == [0.25]


async def test_serving_on_a_taken_address_says_so(server: TestServer, tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "entracte_server.app.cli", "serve", "examples.support:app",
        "--address", server.address, "--store", f"sqlite:///{tmp_path}/entracte.db", "--scripted",
        cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        out, err = await asyncio.wait_for(process.communicate(), 20)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 1
    assert (out, err.decode()) == (b"", f"error: the address {server.address} is in use\n")


async def test_what_new_writes_asks_for_an_approval(tmp_path: Path) -> None:
    folder = tmp_path / "hello"
    result = await entracte("new", str(folder))
    assert result.stdout.endswith(f"Next: cd {folder} && entracte serve agents:app --scripted script.json\n")
    again = await entracte("new", str(folder))
    assert again.exit_code == 2
    scope: dict[str, Any] = {}
    exec((folder / "agents.py").read_text(), scope)
    model = ScriptedModel.from_file(folder / "script.json")
    async with running(
        scope["app"],
        Settings(address="127.0.0.1:0", store=f"sqlite:///{tmp_path}/entracte.db"),
        stand_in=lambda _: model,
    ) as it:
        address = f"127.0.0.1:{it.server.port}"
        client = (folder / "client.py").read_text().replace("127.0.0.1:50051", address)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", client, "Write to Ada", stdout=subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(process.communicate(), 20)
        assert "waits for approval: send_mail {'to': 'ada@example.com'" in out.decode()
        [command] = [line for line in out.decode().splitlines() if line.startswith("  entracte ")]
        result = await entracte(*command.split()[1:], address=address)
    assert result.stdout.endswith("The mail to Ada is out.\n")
