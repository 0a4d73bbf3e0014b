"""The agents of the benchmark, one for each behaviour of the mock.

Run: `entracte serve bench.app:app`, with the provider `mock` set to the mock's base URL (see
`bench.systems`).
"""

from __future__ import annotations

from bench.entracte_target import agent_id
from bench.mock_backend import MODELS
from entracte_server import Agent, App, tool


@tool(requires_approval=True)
async def gated(amount: int) -> dict[str, int]:
    """Does what a person has approved."""
    return {"done": amount}


app = App(
    agents=[
        Agent(id=agent_id(model), model=f"mock/{model}", instructions="Do what is asked.", tools=[gated])
        for model in MODELS
    ]
)
