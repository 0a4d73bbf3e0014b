"""A customer support agent: `entracte serve examples.support:app`.

It looks up orders, pays money back (a person approves larger sums), asks when it does not know
which order is meant, and closes accounts once somebody confirmed that. With `OPENAI_API_KEY` set it
talks to OpenAI; `ENTRACTE_EXAMPLE_MODEL` names any other `provider/model`. Without a key a script
plays the model's part.
"""

import os
from typing import Annotated, Any

from pydantic import BaseModel, Field

from entracte_server import Agent, App, ToolContext, ask_user, tool
from examples.support_script import scripted_model

APPROVAL_OVER_CENTS = 5_000

ORDERS: dict[str, dict[str, Any]] = {
    "7": {"order_id": "7", "item": "kettle", "total_cents": 12_900, "state": "arrived broken"},
    "8": {"order_id": "8", "item": "lamp", "total_cents": 8_900, "state": "delivered"},
    "9": {"order_id": "9", "item": "teapot", "total_cents": 2_400, "state": "lost by the carrier"},
}

OrderId = Annotated[str, Field(description="The number of the order, for example 7.")]


class Question(BaseModel):
    """What a person is asked before an account is closed."""

    question: str


class Confirm(BaseModel):
    """What the person says."""

    ok: bool


@tool(idempotent=True)
async def look_up_order(order_id: OrderId) -> dict[str, Any]:
    """Read an order: what was bought, what it cost, where it is."""
    if order_id not in ORDERS:
        raise LookupError(f"there is no order {order_id}; the customer's orders are {', '.join(ORDERS)}")
    return ORDERS[order_id]


@tool(requires_approval=lambda args: args.amount_cents > APPROVAL_OVER_CENTS, idempotent=True)
async def refund(
    order_id: OrderId,
    amount_cents: Annotated[int, Field(gt=0, description="What to pay back, in cents.")],
    ctx: ToolContext,
) -> dict[str, Any]:
    """Pay an order back."""
    # A real one hands the key to the payment service, which recognises a repeat by it.
    return {"order_id": order_id, "refunded_cents": amount_cents, "payment": ctx.idempotency_key}


@tool(suspend_schema=Question, resume_schema=Confirm)
async def close_account(customer: str, ctx: ToolContext[Confirm]) -> dict[str, Any]:
    """Close a customer's account for good."""
    if not ctx.resumed:
        ctx.suspend(Question(question=f"Close the account of {customer} and delete what is in it?"))
    return {"customer": customer, "closed": ctx.resume_data.ok}


def _model() -> Any:
    named = os.environ.get("ENTRACTE_EXAMPLE_MODEL")
    if named is None and os.environ.get("OPENAI_API_KEY"):
        named = "openai/gpt-5-mini"
    return named or scripted_model()


support = Agent(
    id="support",
    name="Support",
    description="Looks up orders, pays back, closes accounts.",
    model=_model(),
    instructions=(
        "You help customers of a kitchen shop. Their orders have the numbers 7, 8 and 9. Ask with"
        " ask_user, offering the numbers as options, when you do not know which one is meant. Look an"
        " order up before you pay it back, and pay back its whole price. The customer's name is Ada."
        " Answer in one or two plain sentences."
    ),
    tools=[look_up_order, refund, close_account, ask_user],
    max_steps=8,
)

app = App(agents=[support])
