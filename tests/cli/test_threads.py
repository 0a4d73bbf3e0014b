"""`entracte threads`, and `--thread` of `chat` and `generate`."""

import json
from typing import Any

from entracte import Client
from entracte_server import Agent, App, tool
from entracte_server.testing import scripted, serve
from tests.cli.support import entracte


@tool(requires_approval=True)
async def refund(cents: int) -> dict[str, int]:
    """Pays back."""
    return {"cents": cents}


def app() -> App:
    """An agent that answers, and one that asks first."""

    def pay(request: Any) -> list[dict[str, Any]]:
        if request.messages[-1].role == "tool":
            return [{"text": "Paid.\x1b[2J"}]
        return [{"text": "Wait. "}, {"tool": "refund", "id": "c", "args": {"cents": 5}}]

    return App(
        agents=[
            Agent(id="talker", model=scripted(lambda request: [{"text": f"Heard {len(request.messages)}."}])),
            Agent(id="payer", model=scripted(pay), tools=[refund]),
        ]
    )


OF_ADA = ("--thread", "hats", "--resource", "ada")


async def test_threads_are_listed_shown_and_deleted() -> None:
    async with serve(app()) as server:
        address = server.address
        assert (await entracte("threads", "list", address=address)).stdout == "No threads.\n"
        await entracte("generate", "talker", "Hi", *OF_ADA, address=address)
        parked = await entracte("generate", "payer", "Pay", *OF_ADA, "--run-id", "r1", address=address)
        assert parked.exit_code == 0
        heading, row = (await entracte("threads", "list", address=address)).stdout.splitlines()
        assert heading.split() == ["THREAD", "RESOURCE", "MESSAGES", "AGE", "RUN", "TITLE"]
        assert row.split()[:3] == ["hats", "ada", "4"]
        assert "suspended" in row
        listed = await entracte("threads", "list", "--resource", "ada", "--json", address=address)
        assert [thread["thread_id"] for thread in json.loads(listed.stdout)] == ["hats"]
        listed = await entracte("threads", "list", "--resource", "bea", address=address)
        assert listed.stdout == "No threads.\n"

        shown = (await entracte("threads", "show", "hats", address=address)).stdout
        assert "r1 (suspended)" in shown
        shown = (await entracte("threads", "show", "hats", "--json", address=address)).stdout
        assert json.loads(shown)["active_run_id"] == "r1"

        refused = await entracte("generate", "talker", "And?", *OF_ADA, address=address)
        assert refused.exit_code == 1
        assert "run_id: r1" in refused.stderr
        refused = await entracte("threads", "delete", "hats", address=address)
        assert refused.exit_code == 1
        deleted = await entracte("threads", "delete", "hats", "--force", address=address)
        assert deleted.stdout == "hats is deleted.\nrun r1 is cancelled.\n"
        missing = await entracte("threads", "show", "hats", address=address)
        assert missing.exit_code == 1


async def test_what_agents_noted_is_shown() -> None:
    async with serve(app()) as server, Client(server.address) as client:
        address = server.address
        nothing = await entracte("threads", "memory", "--resource", "ada", address=address)
        assert nothing.stdout == "Nothing is noted.\n"
        await client.threads.update_working_memory("# Ada\n- likes hats\x1b[2J", resource_id="ada")
        shown = await entracte("threads", "memory", "--resource", "ada", address=address)
        assert shown.stdout.startswith("# Ada\n- likes hats")
        assert "\x1b" not in shown.stdout
        shown = await entracte("threads", "memory", "--resource", "ada", "--json", address=address)
        assert json.loads(shown.stdout)["version"] == 1
        cleared = await entracte("threads", "memory", "--resource", "ada", "--clear", address=address)
        assert cleared.stdout == "Nothing is noted.\n"
        assert (await client.threads.working_memory(resource_id="ada")).content == ""
        assert (await entracte("threads", "memory", "hats", address=address)).exit_code == 1
        assert (await entracte("threads", "memory", address=address)).exit_code == 2


async def test_messages_are_shown() -> None:
    async with serve(app()) as server:
        address = server.address
        empty = await entracte("threads", "messages", "hats", address=address)
        assert empty.exit_code == 1
        await entracte("generate", "payer", "Pay", *OF_ADA, address=address)
        waiting = await entracte("threads", "messages", "hats", address=address)
        assert '→ refund {"cents": 5}\n  ← waits' in waiting.stdout
        listed = json.loads((await entracte("inbox", "list", "--json", address=address)).stdout)
        call = listed[0]["pending_call_id"]
        await entracte("inbox", "approve", call, "--follow", address=address)
        shown = (await entracte("threads", "messages", "hats", address=address)).stdout
        first, *_ = shown.splitlines()
        assert first.startswith("1. user local  ")
        assert '  Wait. \n  → refund {"cents": 5}\n  ← {"cents": 5}\n3. assistant payer' in shown
        assert shown.endswith("  Paid.\\u001b[2J\n")
        last = await entracte("threads", "messages", "hats", "--limit", "1", address=address)
        assert last.stdout.startswith("3. assistant payer")
        words = ["threads", "messages", "hats", "--first", "--limit", "1", "--role", "assistant", "--json"]
        [message] = json.loads((await entracte(*words, address=address)).stdout)
        assert (message["position"], message["parts"][1]["state"]) == (2, "result")


async def test_a_chat_on_a_thread_is_kept_by_the_server() -> None:
    """It goes on where it was left; the other half of what names a conversation is asked for."""
    async with serve(app()) as server:
        for heard in ("Heard 1.\nHeard 3.\n", "Heard 5.\nHeard 7.\n"):
            said = await entracte("chat", "talker", *OF_ADA, address=server.address, stdin="Hi\nHo\n")
            assert said.stdout == heard
        for half in (["--thread", "hats"], ["--resource", "ada"]):
            wrong = await entracte("generate", "talker", "Hi", *half, address=server.address)
            assert wrong.exit_code == 2
            assert "go together" in wrong.stderr
