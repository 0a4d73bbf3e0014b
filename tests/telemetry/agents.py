"""An agent whose tool uses OpenTelemetry itself, as its author would."""

from opentelemetry import metrics, trace

from entracte_server import Agent, App, tool
from entracte_server.testing import scripted

tracer = trace.get_tracer("shop")
orders = metrics.get_meter("shop").create_counter("shop.orders")


@tool
def look(order: str) -> str:
    """Looks an order up."""
    with tracer.start_as_current_span("query", attributes={"shop.order": order}):
        orders.add(1)
        return "lost"


app = App(
    agents=[
        Agent(
            id="shop",
            model=scripted([[{"tool": "look", "id": "c1", "args": {"order": "7"}}], [{"text": "Lost."}]]),
            tools=[look],
        )
    ]
)
