"""Models behind OpenAI's Responses API, used without its memory."""

from typing import Any

from entracte_server.models.base import ModelRequest
from entracte_server.models.openai_model import OpenAIModel
from entracte_server.models.response_body import AnswerReader
from entracte_server.models.responses_assembler import ResponsesAssembler
from entracte_server.models.responses_request import responses_body, responses_warnings


class OpenAIResponsesModel(OpenAIModel):
    """See `OpenAIModel`."""

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        return responses_body(request, self._model, self._provider)

    def _warnings(self, request: ModelRequest) -> tuple[str, ...]:
        return responses_warnings(request, self._provider)

    def _reader(self, request: ModelRequest, secrets: tuple[str, ...]) -> AnswerReader:
        return ResponsesAssembler(
            self._provider.name,
            request.reserved_ids,
            include_raw=request.include_raw,
            secrets=secrets,
        )
