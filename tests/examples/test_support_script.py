"""The script behind the example agent goes by the conversation, not by a counter."""

import json
from typing import Any

import pytest

from entracte_server.domain.messages import Message, ToolCallPart, ToolResultPart, text_message
from entracte_server.models.base import ModelRequest
from examples.support import support
from examples.support_script import answer


def after(said: str, *results: tuple[str, Any, str]) -> ModelRequest:
    messages = [text_message("user", said)]
    for index, (tool, output, kind) in enumerate(results):
        call, text = f"c{index}", output if kind == "error" else json.dumps(output)
        messages.append(Message("assistant", (ToolCallPart(call, tool, "{}"),)))
        messages.append(Message("tool", (ToolResultPart(call, tool, text, kind),)))  # type: ignore[arg-type]
    return ModelRequest(messages)


def text(request: ModelRequest) -> str:
    return " ".join(part["text"] for part in answer(request) if "text" in part)


def calls(request: ModelRequest) -> list[tuple[str, Any]]:
    return [(part["tool"], part["args"]) for part in answer(request) if "tool" in part]


KETTLE = {"order_id": "7", "item": "kettle", "total_cents": 12_900, "state": "arrived broken"}


def test_it_asks_which_order_is_meant() -> None:
    [(tool, args)] = calls(after("I want my money back"))
    assert tool == "ask_user"
    assert [option["label"] for option in args["options"]] == ["7", "8", "9"]


def test_it_looks_up_what_was_answered_and_asks_to_refund_the_whole_price() -> None:
    asked = ("ask_user", {"answer": "7"}, "json")
    assert calls(after("I want my money back", asked)) == [("look_up_order", {"order_id": "7"})]
    looked_up = ("look_up_order", KETTLE, "json")
    refund = ("refund", {"order_id": "7", "amount_cents": 12_900})
    assert calls(after("I want my money back", asked, looked_up)) == [refund]


def test_a_question_about_an_order_ends_with_its_state() -> None:
    request = after("Where is order 7?", ("look_up_order", KETTLE, "json"))
    assert calls(request) == []
    assert "arrived broken" in text(request)


def test_it_passes_on_why_something_was_declined() -> None:
    denied = ("refund", {"status": "declined", "reason": "too late"}, "denied")
    assert "too late" in text(after("Refund order 7", denied))


def test_it_tells_what_went_wrong() -> None:
    assert "no order 12" in text(after("Refund order 12", ("look_up_order", "there is no order 12", "error")))


@pytest.mark.parametrize(("closed", "words"), [(True, "is closed"), (False, "stays open")])
def test_closing_an_account(closed: bool, words: str) -> None:
    assert calls(after("Please close my account")) == [("close_account", {"customer": "Ada"})]
    result = ("close_account", {"customer": "Ada", "closed": closed}, "json")
    assert words in text(after("Please close my account", result))


def test_it_says_what_it_can_do() -> None:
    assert "orders 7, 8 and 9" in text(after("Hello"))


def test_every_tool_it_calls_is_one_of_the_agents() -> None:
    for said in ("money back", "order 7", "close my account"):
        for tool, args in calls(after(said)):
            support.tools[tool].validate(json.dumps(args))
