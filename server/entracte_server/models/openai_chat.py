"""Models behind the OpenAI chat-completions interface."""

from typing import Any

from entracte_server.models.assembler import AnswerAssembler
from entracte_server.models.base import ModelRequest
from entracte_server.models.openai_model import OpenAIModel
from entracte_server.models.openai_request import chat_body, request_warnings
from entracte_server.models.response_body import AnswerReader


class OpenAIChatModel(OpenAIModel):
    """See `OpenAIModel`."""

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        return chat_body(request, self._model, self._provider)

    def _warnings(self, request: ModelRequest) -> tuple[str, ...]:
        return request_warnings(request, self._provider)

    def _reader(self, request: ModelRequest, secrets: tuple[str, ...]) -> AnswerReader:
        return AnswerAssembler(
            request.reserved_ids,
            include_raw=request.include_raw,
            think_tags=self._provider.think_tags,
            finish_optional=self._provider.finish_optional,
            secrets=secrets,
        )
