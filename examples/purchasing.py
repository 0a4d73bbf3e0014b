"""An agent with sub-agents: `entracte serve examples.purchasing:app`.

The assistant asks a researcher for prices and has a buyer order things; each order waits for a person,
inside the buyer, and is decided like any other call. Scripts play the parts of the models unless
`ENTRACTE_EXAMPLE_MODEL` names a `provider/model`.
"""

import json
import os
from typing import Any

from entracte_server import Agent, App, tool
from entracte_server.domain.messages import ToolResultPart
from entracte_server.models.base import Model, ModelRequest
from entracte_server.models.scripted import ScriptedModel, ScriptStep

PRICES = {"teapot": 2_400, "kettle": 12_900, "lamp": 8_900}


@tool(idempotent=True)
async def look_up_price(item: str) -> dict[str, Any]:
    """What an item costs, in cents."""
    if item not in PRICES:
        raise LookupError(f"there is no {item}; there are {', '.join(PRICES)}")
    return {"item": item, "price_cents": PRICES[item]}


@tool(requires_approval=True)
async def order(item: str, count: int) -> dict[str, Any]:
    """Order something. A person has to approve it."""
    return {"ordered": item, "count": count, "paid_cents": PRICES[item] * count}


def _since_asked(request: ModelRequest) -> tuple[str, list[Any]]:
    """What the model was asked last, and what its tools have returned since then."""
    asked, results = "", list[Any]()
    for message in request.messages:
        if message.role == "user":
            asked, results = message.text, []
        results += [json.loads(part.output) for part in message.parts if isinstance(part, ToolResultPart)]
    return asked, results


def _research(request: ModelRequest) -> list[dict[str, Any]]:
    asked, results = _since_asked(request)
    if not results:
        item = next((name for name in PRICES if name in asked), "teapot")
        return [{"tool": "look_up_price", "args": {"item": item}}]
    return [{"text": f"A {results[0]['item']} costs {results[0]['price_cents'] / 100:.2f}."}]


def _buy(request: ModelRequest) -> list[dict[str, Any]]:
    asked, results = _since_asked(request)
    if not results:
        item = next((name for name in PRICES if name in asked), "teapot")
        return [{"tool": "order", "args": {"item": item, "count": 2 if "two" in asked else 1}}]
    if "ordered" not in results[0]:
        return [{"text": "Nothing was ordered: it was not approved."}]
    return [{"text": f"Ordered: {results[0]['count']} {results[0]['ordered']}."}]


def _assist(request: ModelRequest) -> list[dict[str, Any]]:
    asked, results = _since_asked(request)
    if not results:
        return [{"tool": "agent-researcher", "args": {"prompt": f"What does it cost? {asked}"}}]
    if len(results) == 1 and "buy" in asked.lower():
        return [{"tool": "agent-buyer", "args": {"prompt": asked}}]
    return [{"text": " ".join(results)}]


def _model(name: str, script: ScriptStep) -> str | Model:
    return os.environ.get("ENTRACTE_EXAMPLE_MODEL") or ScriptedModel([script], name=f"scripted/{name}")


researcher = Agent(
    id="researcher",
    description="Finds out what things cost.",
    instructions="Look prices up. Answer in one sentence.",
    model=_model("researcher", _research),
    tools=[look_up_price],
)
buyer = Agent(
    id="buyer",
    description="Orders what it is told to.",
    instructions="Order what you are asked to, and say what came of it in one sentence.",
    model=_model("buyer", _buy),
    tools=[order],
)
assistant = Agent(
    id="assistant",
    name="Purchasing",
    instructions="Find out the price first, then have things bought only where that is asked for.",
    model=_model("assistant", _assist),
    agents=[researcher, buyer],
)

app = App(agents=[assistant])
