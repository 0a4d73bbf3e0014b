"""Messages: what people and models said, in the one form every model dialect is rendered from."""

from typing import Literal

from entracte_server.domain import json_text
from entracte_server.domain.data import Data

Role = Literal["system", "user", "assistant", "tool"]


class Part(Data, frozen=True, tag_field="type"):
    """A piece of a message."""


class TextPart(Part, frozen=True, tag="text"):
    """Text. `provider_metadata` goes back to the provider unchanged."""

    text: str
    provider_metadata: str | None = None


class ReasoningPart(Part, frozen=True, tag="reasoning"):
    """Thinking. `signature`, `redacted` and `provider_metadata` go back to the provider unchanged."""

    text: str
    signature: str | None = None
    redacted: str | None = None
    provider_metadata: str | None = None


class ImagePart(Part, frozen=True, tag="image"):
    """An image by URL (handed to the model as it is, never fetched here) or as bytes."""

    url: str = ""
    data: bytes = b""
    media_type: str = ""


class FilePart(Part, frozen=True, tag="file"):
    """A file by URL (never fetched here) or as bytes."""

    url: str = ""
    data: bytes = b""
    media_type: str = ""
    filename: str = ""


class ToolCallPart(Part, frozen=True, tag="tool-call"):
    """A call the model made. `args` is the JSON text of an object, as the model wrote it.
    `provider_metadata` goes back to the provider unchanged."""

    tool_call_id: str
    tool_name: str
    args: str
    provider_metadata: str | None = None


ResultKind = Literal["json", "text", "error", "denied"]


class ToolResultPart(Part, frozen=True, tag="tool-result"):
    """The answer to a call. `output` is JSON text when `kind` is `json` or `denied`, plain text
    otherwise."""

    tool_call_id: str
    tool_name: str
    output: str
    kind: ResultKind = "json"

    @property
    def text(self) -> str:
        """What a provider is sent: of a value that is a text the text itself, of any other its JSON text."""
        if self.kind == "json" and self.output.lstrip().startswith('"'):
            try:
                return str(json_text.parse_stored(self.output))
            except ValueError:  # a processor made something else of it
                return self.output
        return self.output


AnyPart = TextPart | ReasoningPart | ImagePart | FilePart | ToolCallPart | ToolResultPart


class Message(Data, frozen=True):
    """One turn. `metadata` is JSON text; models never see it."""

    role: Role
    parts: tuple[AnyPart, ...]
    metadata: str | None = None
    id: str = ""

    @property
    def text(self) -> str:
        """Its text, without anything else it may have."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))


def text_message(role: Role, text: str) -> Message:
    """A message of one text."""
    return Message(role, (TextPart(text),))
