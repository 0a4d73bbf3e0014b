"""Commands at a terminal: a person is asked, and what they say is done."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pydantic
import pytest

from entracte import Client, Run
from entracte_server import Agent, App, ToolContext, ask_user, tool
from entracte_server.testing import TestServer, scripted, serve
from tests.cli.support import Terminal

CHOICES = [{"label": "Tests", "description": "add some"}, {"label": "Docs"}, {"label": "Both"}]


@tool(requires_approval=True)
async def refund(cents: int) -> dict[str, int]:
    """Pays back."""
    return {"cents": cents}


class Confirm(pydantic.BaseModel):
    """What the person says."""

    ok: bool
    times: int
    note: str = ""


@tool(resume_schema=Confirm)
async def wipe(path: str, ctx: ToolContext[Confirm]) -> dict[str, Any]:
    """Deletes a folder."""
    if not ctx.resumed:
        ctx.suspend({"folder": path})
    return {"wiped": ctx.resume_data.ok, "times": ctx.resume_data.times}


def agent(agent_id: str, *steps: list[dict[str, Any]]) -> Agent:
    model = scripted([*steps], position="transcript")
    return Agent(id=agent_id, model=model, instructions="Help.", tools=[refund, wipe, ask_user])


def asking(**question: Any) -> list[list[dict[str, Any]]]:
    """The steps of a run that asks a question."""
    return [[{"tool": "ask_user", "args": {"question": "Which?", **question}}], [{"text": "Thank you."}]]


def paying() -> list[list[dict[str, Any]]]:
    """The steps of a run that asks for approval."""
    return [[{"tool": "refund", "args": {"cents": 500}}], [{"text": "All done."}]]


@pytest.fixture
async def server() -> AsyncIterator[TestServer]:
    slow: list[dict[str, Any]] = [{"text": "Slowly "}]
    for _ in range(100):
        slow += [{"delay": 100}, {"text": "on "}]
    app = App(
        agents=[
            agent("payer", *paying(), *paying(), *paying()),
            agent(
                "asker",
                *asking(options=CHOICES),
                *asking(options=CHOICES, allow_free_text=True),
                *asking(options=CHOICES, selection_mode="multi_select"),
                *asking(),
                [{"tool": "wipe", "args": {"path": "/tmp/x"}}],
                [{"text": "Wiped."}],
            ),
            agent("slow", slow),
        ]
    )
    async with serve(app) as running:
        yield running


async def test_a_chat_with_approvals(server: TestServer) -> None:
    async with Terminal("chat", "payer", "--address", server.address) as terminal:
        await terminal.expect("> ")
        terminal.send("Refund me")
        shown = await terminal.expect("[l]eave: ")
        assert "refund asks for approval:" in shown
        assert "Pays back." in shown
        assert '"cents": 500' in shown
        terminal.send("what?")
        shown = await terminal.expect("[l]eave: ")
        assert "Type a, d, e or l." in shown
        terminal.send("e")
        await terminal.expect('Arguments [{"cents":500}]: ')
        terminal.send('{"cents": "many"}')
        shown = await terminal.expect("[l]eave: ")
        assert "That does not fit:" in shown
        assert "edited_args/cents" in shown
        terminal.send("e")
        await terminal.expect("]: ")
        terminal.send('{"cents": 400}')
        shown = await terminal.expect("> ")
        assert "✓ refund approved" in shown
        assert '← refund {"cents": 400}' in shown
        assert "All done." in shown

        terminal.send("And again")
        await terminal.expect("[l]eave: ")
        terminal.send("no")
        await terminal.expect("Reason, for the model: ")
        terminal.send("too much")
        shown = await terminal.expect("> ")
        assert "← refund declined: too much" in shown

        terminal.send("Once more")
        await terminal.expect("[l]eave: ")
        terminal.send("y")
        shown = await terminal.expect("> ")
        assert "✓ refund approved" in shown
        terminal.press("^D")
        assert await terminal.ended() == 0


async def test_calls_that_are_left_stay(server: TestServer) -> None:
    async with Terminal("chat", "payer", "--address", server.address) as terminal:
        await terminal.expect("> ")
        terminal.send("Refund me")
        await terminal.expect("[l]eave: ")
        terminal.send("l")
        await terminal.expect("entracte inbox approve ")
        await terminal.expect("> ")
        terminal.send("Refund me")
        await terminal.expect("[l]eave: ")
        await asyncio.sleep(0.3)  # a prompt is there a moment before it is read
        terminal.press("^C")
        await terminal.expect("entracte inbox approve ")
        await terminal.expect("> ")
        terminal.press("^D")
        assert await terminal.ended() == 0
    assert [run.state for run in await runs_of(server)] == ["suspended", "suspended"]


async def test_questions_are_asked_until_the_answer_fits(server: TestServer) -> None:
    async with Terminal("chat", "asker", "--address", server.address) as terminal:

        async def answer(question: str, *texts: str) -> str:
            """Send the texts in answer to a question; what is shown at the end."""
            terminal.send("Hi")
            for text in texts:
                await terminal.expect(question)
                terminal.send(text)
            return await terminal.expect("> ")

        await terminal.expect("> ")
        shown = await answer("Number (1-3): ", "4", "Nonsense", "", "2")
        assert "User answered: Docs" in shown
        shown = await answer("Number, or a text: ", "Neither")
        assert "User answered: Neither" in shown
        shown = await answer("Numbers, separated by commas: ", "9", "1,9", "", "1, 3")
        assert "User answered: Tests, Both" in shown
        shown = await answer("Answer: ", "", "The main repo")  # the server refuses the blank one
        assert "User answered: The main repo" in shown

        terminal.send("Hi")  # now a tool with a schema of its own
        await terminal.expect('"folder": "/tmp/x"')
        await terminal.expect("ok [y/N]: ")
        terminal.send("y")
        await terminal.expect("times: ")
        terminal.send("often")
        await terminal.expect("times: ")
        terminal.send("3")
        await terminal.expect("Give note? [y/N]: ")
        terminal.send("n")
        shown = await terminal.expect("> ")
        assert '← wipe {"wiped": true, "times": 3}' in shown
        assert "Wiped." in shown
        terminal.press("^D")
        assert await terminal.ended() == 0


async def test_an_answer_is_stopped_and_the_chat_goes_on(server: TestServer) -> None:
    async with Terminal("chat", "slow", "--address", server.address) as terminal:
        await terminal.expect("> ")
        terminal.send("Hi")
        await terminal.expect("Slowly on")
        terminal.press("^C")
        await terminal.expect("Stopped.")
        await terminal.expect("> ")
        terminal.press("^D")
        assert await terminal.ended() == 0
    (run,) = await runs_of(server)
    assert run.state == "cancelled"


async def test_a_run_that_is_left_goes_on(server: TestServer) -> None:
    async with Terminal("generate", "slow", "Hi", "--address", server.address) as terminal:
        await terminal.expect("Slowly on")
        terminal.press("^C")
        await terminal.expect("To follow it: entracte runs watch ")
        assert await terminal.ended() == 130
    (run,) = await runs_of(server)
    assert run.state == "running"


async def test_a_question_is_answered_from_the_inbox(server: TestServer) -> None:
    async with Client(server.address) as client:
        result = await client.agent("asker").generate("Hi")
    call = result.pending_calls[0].pending_call_id
    async with Terminal("inbox", "answer", call, "--address", server.address) as terminal:
        shown = await terminal.expect("Number (1-3): ")
        assert "1. Tests - add some" in shown
        terminal.send("1")
        await terminal.expect("Thank you.")
        assert await terminal.ended() == 0


async def runs_of(server: TestServer) -> list[Run]:
    async with Client(server.address) as client:
        return [run async for run in client.runs.list()]
