"""Fewer and larger chunks."""

import pydantic

from entracte_server.agents.processors.base import Processor
from entracte_server.agents.processors.views import StreamInfo
from entracte_server.domain.chunks import Payload, ReasoningDelta, TextDelta


class StreamBatcher(Processor):
    """Joins the deltas of an answer's text and thinking to larger ones.

    Parameters:
        size: A delta goes out when it has so many characters, or when something else follows. Default 200.
    """

    name = "batch-stream"
    can_rewrite = True

    class Parameters(pydantic.BaseModel):
        """See the class."""

        model_config = pydantic.ConfigDict(extra="forbid")

        size: int = pydantic.Field(default=200, ge=1, le=100_000)

    parameters: Parameters

    def configured(self) -> None:
        self._answer = (0, 0)
        self._waiting: TextDelta | ReasoningDelta | None = None

    async def process_output_stream(self, parts: list[Payload], info: StreamInfo) -> list[Payload]:
        """Joins."""
        if self._answer != (info.number, info.attempt):
            self._answer, self._waiting = (info.number, info.attempt), None
        out: list[Payload] = []
        pieces: list[str] = []
        waiting = self._waiting
        length = 0
        if waiting is not None:
            pieces, length = [waiting.text], len(waiting.text)
        for part in parts:
            joins = isinstance(part, (TextDelta, ReasoningDelta))
            if waiting is not None and not (joins and type(part) is type(waiting) and part.id == waiting.id):
                out.append(type(waiting)(waiting.id, "".join(pieces)))
                waiting, pieces, length = None, [], 0
            if not isinstance(part, (TextDelta, ReasoningDelta)):
                out.append(part)
                continue
            waiting = part
            pieces.append(part.text)
            length += len(part.text)
            if length >= self.parameters.size:
                out.append(type(part)(part.id, "".join(pieces)))
                waiting, pieces, length = None, [], 0
        self._waiting = type(waiting)(waiting.id, "".join(pieces)) if waiting is not None else None
        return out

    async def end_output_stream(self, info: StreamInfo) -> list[Payload]:
        """What still waits."""
        waiting, self._waiting = self._waiting, None
        return [waiting] if waiting is not None else []
