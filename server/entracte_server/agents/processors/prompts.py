"""Instructions that are not to be repeated to users."""

import re
from collections.abc import Iterable
from typing import Literal

import pydantic

from entracte_server.agents.processors.base import Processor
from entracte_server.agents.processors.views import Answer

_WORD = re.compile(r"\w+")


def leaked(text: str, secrets: Iterable[str], words: int) -> list[tuple[int, int]]:
    """The places of a text that repeat so many words in a row of one of `secrets`, whatever their case and
    what stands between them."""
    known: set[tuple[str, ...]] = set()
    for secret in secrets:
        own = [match[0].casefold() for match in _WORD.finditer(secret)]
        # Of a short instruction, all of it.
        length = min(words, max(len(own), 3))
        known.update(tuple(own[i : i + length]) for i in range(len(own) - length + 1))
    lengths = {len(run) for run in known}
    matches = list(_WORD.finditer(text))
    said = [match[0].casefold() for match in matches]
    places: list[tuple[int, int]] = []
    for start in range(len(said)):
        for length in lengths:
            if start + length <= len(said) and tuple(said[start : start + length]) in known:
                begin, end = matches[start].start(), matches[start + length - 1].end()
                if places and begin <= places[-1][1]:
                    places[-1] = (places[-1][0], max(end, places[-1][1]))
                else:
                    places.append((begin, end))
    return places


class SystemPromptScrubber(Processor):
    """Keeps answers from repeating the system messages word for word.

    Parameters:
        strategy: `redact` (the default) replaces what is repeated, `block` stops the run, `warn` adds a
            warning to the result.
        words: So many words in a row count as repeated. Default 8; of a shorter instruction, all of it.
        replacement: What stands in its place. Default `[instructions]`.
        retry: With `block`, whether the answer is sent back to the model, within `max_processor_retries`.
    """

    name = "system-prompt"

    class Parameters(pydantic.BaseModel):
        """See the class."""

        model_config = pydantic.ConfigDict(extra="forbid")

        strategy: Literal["redact", "block", "warn"] = "redact"
        words: int = pydantic.Field(default=8, ge=3, le=100)
        replacement: str = pydantic.Field(default="[instructions]", max_length=100)
        retry: bool = False

    parameters: Parameters

    def configured(self) -> None:
        strategy = self.parameters.strategy
        self.can_rewrite, self.can_veto = strategy == "redact", strategy == "block"

    # A plain function: what is long is searched in a thread.

    def process_output_step(self, answer: Answer) -> Answer | None:
        """Looks for repetitions in the text and the thinking."""
        secrets = [message.text for message in answer.messages if message.role == "system"]
        texts = {"text": answer.text, "reasoning_text": answer.reasoning_text}
        found = {name: leaked(text, secrets, self.parameters.words) for name, text in texts.items()}
        if not any(found.values()):
            return None
        message = "The answer repeats its instructions."
        if self.parameters.strategy == "block":
            self.abort(message, retry=self.parameters.retry)
        if self.parameters.strategy == "warn":
            self.warn(message)
            return None
        return answer.replace(**{name: self._scrubbed(text, found[name]) for name, text in texts.items()})

    def _scrubbed(self, text: str, places: Iterable[tuple[int, int]]) -> str:
        pieces: list[str] = []
        position = 0
        for begin, end in places:
            pieces += (text[position:begin], self.parameters.replacement)
            position = end
        return "".join((*pieces, text[position:]))
