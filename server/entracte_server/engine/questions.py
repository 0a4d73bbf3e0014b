"""Questions to models beside a run's own: of scorers, of processors."""

from collections.abc import Sequence

from entracte_server.domain.messages import TextPart
from entracte_server.domain.results import Usage
from entracte_server.domain.runs import StepRecord
from entracte_server.engine.answer import Answer
from entracte_server.models.base import Model, ModelError, ModelRequest
from entracte_server.models.streams import closing


async def ask(models: Sequence[Model], request: ModelRequest, spent: dict[str, Usage]) -> str:
    """The text of an answer; each model is asked when the one before it failed. What they used is added to
    `spent`, by their names. Raises the last one's `ModelError`."""
    for position, model in enumerate(models):
        answer = Answer()
        try:
            async with closing(model.stream(request)) as batches:
                async for batch in batches:
                    answer.add(batch)
            if answer.finish is not None:
                spent[model.name] = spent.get(model.name, Usage()) + answer.finish.usage
            if (fault := answer.fault()) is not None:
                raise ModelError(fault)
        except ModelError:
            if position == len(models) - 1:
                raise
            continue
        return step_text(answer.record(step=0, attempt=0, message_id="", model=model.name))
    raise AssertionError("there is at least one model to ask")


def step_text(record: StepRecord) -> str:
    """The text of a step's answer."""
    return "".join(part.text for part in record.parts if isinstance(part, TextPart))
