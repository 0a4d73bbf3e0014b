"""Plays the model's part in `examples.support` where there is no key: a few rules over what was said.

A script is a list of steps, and a step may be a function of the request. This one is a single
function that looks at the conversation, so it goes on rightly after any pause or restart.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from entracte_server.domain.messages import TextPart, ToolResultPart
from entracte_server.models.base import ModelRequest
from entracte_server.models.scripted import ScriptedModel

Parts = list[dict[str, Any]]

_ORDER = re.compile(r"\b(\d+)\b")
_REFUND = re.compile(r"refund|money back|pay back|broken", re.IGNORECASE)
_CLOSE = re.compile(r"(close|delete|cancel)\b.*\baccount", re.IGNORECASE)


def scripted_model() -> ScriptedModel:
    """A model for the support agent; it speaks at a reader's pace."""
    return ScriptedModel([answer], name="scripted/support", position="transcript", pace=0.02)


def answer(request: ModelRequest) -> Parts:
    """What the model says next."""
    said, results = _turn(request)
    if results:
        return _go_on(said, results[-1], results)
    if _CLOSE.search(said):
        return [{"tool": "close_account", "args": {"customer": "Ada"}}]
    order = _ORDER.search(said)
    if order is not None:
        return [
            {"text": f"Let me look at order {order[1]}."},
            {"tool": "look_up_order", "args": {"order_id": order[1]}},
        ]
    if _REFUND.search(said):
        return [
            {"text": "I am sorry to hear that. One question first."},
            {
                "tool": "ask_user",
                "args": {
                    "question": "Which order is it about?",
                    "options": [{"label": "7"}, {"label": "8"}, {"label": "9"}],
                },
            },
        ]
    return [
        {
            "text": "Hello! I can look up your orders 7, 8 and 9, pay one back, or close your account."
            " This is a script that knows a few sentences: try 'my kettle arrived broken', 'refund order"
            " 8', 'where is order 9' or 'close my account'."
        }
    ]


def _go_on(said: str, last: ToolResultPart, results: Sequence[ToolResultPart]) -> Parts:
    if last.kind == "denied":
        reason = _value(last).get("reason") or "no reason given"
        return [{"text": f"I could not do that. The answer was no: {reason}"}]
    if last.kind == "error":
        return [{"text": f"That did not work: {last.output}."}]
    value = _value(last)
    if last.tool_name == "ask_user":
        return [{"tool": "look_up_order", "args": {"order_id": str(value["answer"])}}]
    if last.tool_name == "look_up_order":
        wanted = _REFUND.search(said) or any(result.tool_name == "ask_user" for result in results)
        if not wanted:
            return [{"text": f"Order {value['order_id']}, the {value['item']}, is {value['state']}."}]
        return [
            {
                "text": f"The {value['item']} cost {_money(value['total_cents'])}."
                " I ask for that to be paid back."
            },
            {"tool": "refund", "args": {"order_id": value["order_id"], "amount_cents": value["total_cents"]}},
        ]
    if last.tool_name == "refund":
        return [{"text": f"Done: {_money(value['refunded_cents'])} are on their way to you."}]
    if value.get("closed"):
        return [{"text": f"The account of {value['customer']} is closed. Goodbye!"}]
    return [{"text": "Good, the account stays open."}]


def _turn(request: ModelRequest) -> tuple[str, list[ToolResultPart]]:
    """The last thing the user said, and the tool results since then."""
    said, results = "", list[ToolResultPart]()
    for message in request.messages:
        if message.role == "user":
            said = " ".join(part.text for part in message.parts if isinstance(part, TextPart))
            results.clear()
        else:
            results.extend(_results(message.parts))
    return said, results


def _results(parts: Sequence[Any]) -> Iterator[ToolResultPart]:
    return (part for part in parts if isinstance(part, ToolResultPart))


def _value(result: ToolResultPart) -> dict[str, Any]:
    try:
        value = json.loads(result.output)
    except ValueError:
        return {"reason": result.output}
    return value if isinstance(value, dict) else {"reason": value}


def _money(cents: int) -> str:
    return f"{cents / 100:.2f}"
