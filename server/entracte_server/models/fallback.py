"""A list of models of which the next is asked when one fails."""

from collections.abc import AsyncIterator, Sequence

from entracte_server.models.base import Model, ModelError, ModelEvent, ModelRequest
from entracte_server.models.streams import closing


class FallbackModel:
    """Asks the first model; where it fails before anything of its answer was seen, the next.

    Each model has its own retries first. Once something was seen the error goes on to the caller,
    and its `resume_with` is a model made of the rest of the list, for a new attempt of the step.
    When all have failed the last one's error is raised. A list in the list counts as its models.
    Name and request body are the first model's.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        if not models:
            raise ValueError("a fallback list needs at least one model")
        flat: list[Model] = []
        for model in models:
            flat.extend(model._models if isinstance(model, FallbackModel) else [model])
        self._models: tuple[Model, ...] = tuple(flat)

    @property
    def name(self) -> str:
        return self._models[0].name

    def request_body(self, request: ModelRequest) -> str:
        return self._models[0].request_body(request)

    async def stream(self, request: ModelRequest) -> AsyncIterator[list[ModelEvent]]:
        for index, model in enumerate(self._models):
            rest = self._models[index + 1 :]
            seen = False
            try:
                async with closing(model.stream(request)) as batches:
                    async for batch in batches:
                        seen = True
                        yield batch
                return
            except ModelError as error:
                if not rest:
                    raise
                if seen:
                    error.resume_with = rest[0] if len(rest) == 1 else FallbackModel(rest)
                    raise
