"""What a run used and what it cost, with its sub-agents."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from entracte_server.agents.stopping import Price
from entracte_server.domain.results import Usage
from entracte_server.domain.runs import CallRow, StepRecord

if TYPE_CHECKING:
    from entracte_server.engine.run import RunExecution


def total(run: "RunExecution") -> Usage:
    """Tokens."""
    found = Usage()
    for record in run.steps:
        found = found + record.whole_usage
    for call in run.calls.values():
        child = run.children.get(call.call_id)
        used = call.usage if child is None else child.total()
        if used is not None:
            found = found + used
    return found


def cost(run: "RunExecution") -> float:
    """Millionths, with the models that judge and structure. A model without a price costs more than any
    limit."""
    prices = run.services.app.prices
    found = 0.0
    for record in run.steps:
        for model, usage in _spent(record):
            found += _micros(model, usage, prices)
    for call in run.calls.values():
        child = run.children.get(call.call_id)
        found += call.cost if child is None else child.cost()
    return found


def added(call: CallRow, spent: Mapping[str, Usage], prices: Mapping[str, Price]) -> CallRow:
    """A call with what models used on it, by their names."""
    return msgspec.structs.replace(
        call,
        usage=sum(spent.values(), call.usage or Usage()),
        cost=call.cost + sum(_micros(model, usage, prices) for model, usage in spent.items()),
    )


def _micros(model: str, usage: Usage, prices: Mapping[str, Price]) -> float:
    price = prices.get(model)
    return float("inf") if price is None else price.micros(usage)


def _spent(record: StepRecord) -> Iterator[tuple[str, Usage]]:
    """What each model used on a step."""
    yield record.model, record.usage
    if record.structured is not None and record.structured.model:
        yield record.structured.model, record.structured.usage
    if record.check is not None:
        yield from record.check.spent.items()
