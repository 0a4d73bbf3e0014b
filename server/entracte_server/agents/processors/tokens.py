"""Limits in tokens, counted on this machine: the vocabularies are in the package of the tokenizer."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import pydantic

from entracte_server.agents.processors.base import Processor
from entracte_server.agents.processors.views import Answer, LlmRequest, StreamInfo
from entracte_server.domain.chunks import Payload, TextDelta
from entracte_server.domain.messages import (
    AnyPart,
    FilePart,
    ImagePart,
    Message,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

Encoding = Literal["o200k_base", "cl100k_base"]

PER_MESSAGE = 4
"""Tokens that a message takes apart from its content, as OpenAI's models count."""

PER_PICTURE = 1000
"""What an image or a file is counted as."""


_CONTEXT = 100
"""Characters before a piece of text that tell how it is split."""


def count(texts: Sequence[str], encoding: Encoding = "o200k_base") -> list[int]:
    """The tokens of each text. The first call for an encoding builds its tables, which holds up the whole
    process for seconds."""
    import toktok

    found: list[int] = toktok.batch_count(texts, encoding, 1)
    return found


def truncate(text: str, most: int, encoding: Encoding = "o200k_base") -> str:
    """The beginning of a text that has at most so many tokens."""
    import toktok

    cut: str = toktok.truncate(text, most, encoding)[0]
    return cut


def _text(part: AnyPart) -> str:
    match part:
        case TextPart() | ReasoningPart():
            return part.text
        case ToolCallPart():
            return f"{part.tool_name} {part.args}"
        case ToolResultPart():
            return part.output
        case _:
            return ""


def count_messages(messages: Sequence[Message], encoding: Encoding) -> list[int]:
    """The tokens of each message, about."""
    counted = count([" ".join(_text(part) for part in message.parts) for message in messages], encoding)
    return [
        tokens + PER_MESSAGE + PER_PICTURE * sum(isinstance(p, (ImagePart, FilePart)) for p in message.parts)
        for tokens, message in zip(counted, messages, strict=True)
    ]


class TokenLimiter(Processor):
    """Keeps requests, or answers, within a number of tokens.

    As an input processor it limits what is sent in one model call. `truncate` leaves out the oldest turns:
    system messages, the last message of a user and what follows it stay, and a call goes with its result.
    What is left may still be over the limit; then, as with `block`, the run stops.
    As an output processor it limits the text of one answer. `truncate` cuts it off while it streams, `block`
    stops the run.

    Args:
        encoding: `o200k_base` (the default; GPT-4o and later) or `cl100k_base`. For other models it is an
            estimate: leave a tenth of room. Its tables are built when the server starts, which takes
            seconds.

    Parameters:
        limit: The most tokens.
        strategy: `truncate` (the default) or `block`.
    """

    name = "token-limit"

    class Parameters(pydantic.BaseModel):
        """See the class."""

        model_config = pydantic.ConfigDict(extra="forbid")

        limit: int = pydantic.Field(default=8000, ge=1)
        strategy: Literal["truncate", "block"] = "truncate"

    parameters: Parameters

    def __init__(
        self, *, encoding: Encoding = "o200k_base", name: str | None = None, **parameters: Any
    ) -> None:
        if encoding not in get_args(Encoding):
            raise ValueError(f"there is no encoding {encoding!r}; use {', '.join(get_args(Encoding))}")
        self.encoding: Encoding = encoding
        super().__init__(name=name, **parameters)

    def load(self) -> None:
        """Builds the tables."""
        count([""], self.encoding)

    def configured(self) -> None:
        truncates = self.parameters.strategy == "truncate"
        self.can_rewrite, self.can_veto = truncates, not truncates
        self.switched_off = frozenset({"process_output_step" if truncates else "process_output_stream"})
        self._answer = (0, 0)
        self._left = 0
        self._before = ""

    # Plain functions: what is long is counted in a thread.

    def process_llm_request(self, request: LlmRequest) -> LlmRequest | None:
        """Leaves out turns, or stops."""
        limit = self.parameters.limit
        messages = request.messages
        tokens = count_messages(messages, self.encoding)
        total = sum(tokens)
        if total <= limit:
            return None
        kept = set(range(len(messages)))
        if self.parameters.strategy == "truncate":
            for turn in _turns(messages):
                if total <= limit:
                    break
                total -= sum(tokens[index] for index in turn)
                kept.difference_update(turn)
        if total > limit:
            self.abort(
                f"The request has about {total} tokens; {limit} are allowed.",
                metadata={"tokens": total, "limit": limit},
            )
        return request.replace(messages=tuple(m for index, m in enumerate(messages) if index in kept))

    def process_output_stream(self, parts: list[Payload], info: StreamInfo) -> list[Payload]:
        """Cuts text off."""
        if self._answer != (info.number, info.attempt):
            self._answer, self._left, self._before = (info.number, info.attempt), self.parameters.limit, ""
        out: list[Payload] = []
        for part in parts:
            if not isinstance(part, TextDelta):
                out.append(part)
            elif self._left >= 0:
                text = self._cut(part.text)
                if text:
                    out.append(TextDelta(part.id, text))
        return out

    def _cut(self, text: str) -> str:
        """As much of the next piece as is allowed. Words go on over the ends of pieces, so they are counted
        with what was before."""
        encoding, before = self.encoding, self._before
        known, tokens = count([before, before + text], encoding)
        if tokens - known > self._left:
            self.warn(f"The answer was cut off after {self.parameters.limit} tokens.")
            text = truncate(before + text, known + self._left, encoding)[len(before) :]
            self._left = -1
        else:
            self._left -= tokens - known
        self._before = (before + text)[-_CONTEXT:]
        return text

    def process_output_step(self, answer: Answer) -> None:
        """Stops."""
        tokens = count([answer.text], self.encoding)[0]
        if tokens > self.parameters.limit:
            self.abort(
                f"The answer has {tokens} tokens; {self.parameters.limit} are allowed.",
                metadata={"tokens": tokens, "limit": self.parameters.limit},
            )


def _turns(messages: Sequence[Message]) -> list[list[int]]:
    """What can be left out, the oldest first: a message, or an assistant's with the results of its calls."""
    users = [index for index, message in enumerate(messages) if message.role == "user"]
    last = users[-1] if users else len(messages)
    turns: list[list[int]] = []
    for index, message in enumerate(messages[:last]):
        if message.role == "system":
            continue
        if message.role == "tool" and turns:
            turns[-1].append(index)
        else:
            turns.append([index])
    return turns
