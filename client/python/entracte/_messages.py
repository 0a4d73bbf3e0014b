"""Messages: what callers write and what results contain.

Wherever messages are taken, four forms will do: a text (one user message), a list of texts, dicts
with `role` and `content`, and `Message` records:

    "Refund order 7"
    ["Refund order 7", "It arrived broken"]
    [{"role": "user", "content": "Refund order 7"}]
    [{"role": "user", "content": [
        {"type": "text", "text": "What is this?"},
        {"type": "image", "image": "https://example.org/cat.png"},
    ]}]

Parts of a dict message, by `type`: `text` (`text`); `image` (`image`: a URL, a data URL, base64 or
bytes; `media_type`); `file` (`file`, likewise; `media_type`, `filename`); `tool-call`
(`tool_call_id`, `tool_name`, `args`); `tool-result` (`tool_call_id`, `tool_name`, `result`,
`is_error`); `reasoning` (`text`, `signature`, `redacted`, `provider_metadata`). `mime_type` is
accepted for `media_type`.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

from entracte._enums import Role


@dataclass(frozen=True, slots=True)
class TextPart:
    """Plain text. `provider_metadata` goes back to the provider unchanged."""

    type: ClassVar[Literal["text"]] = "text"
    text: str
    provider_metadata: Any = None


@dataclass(frozen=True, slots=True)
class ImagePart:
    """A picture: its `url` (handed to the model's provider, the server fetches nothing) or its
    `data` with a `media_type` such as `image/png`."""

    type: ClassVar[Literal["image"]] = "image"
    url: str = ""
    data: bytes = b""
    media_type: str = ""


@dataclass(frozen=True, slots=True)
class FilePart:
    """A file: its `url` (handed to the model's provider) or its `data` with a `media_type`."""

    type: ClassVar[Literal["file"]] = "file"
    url: str = ""
    data: bytes = b""
    media_type: str = ""
    filename: str = ""


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """A tool call the model made. `provider_metadata` goes back to the provider unchanged."""

    type: ClassVar[Literal["tool-call"]] = "tool-call"
    tool_call_id: str
    tool_name: str
    args: Any
    provider_metadata: Any = None


@dataclass(frozen=True, slots=True)
class ToolResultPart:
    """The answer to a tool call. Every tool call in a history needs exactly one."""

    type: ClassVar[Literal["tool-result"]] = "tool-result"
    tool_call_id: str
    tool_name: str
    result: Any
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class ReasoningPart:
    """What the model thought before it spoke. `signature`, `redacted` and `provider_metadata` go
    back to the provider unchanged."""

    type: ClassVar[Literal["reasoning"]] = "reasoning"
    text: str = ""
    signature: str | None = None
    redacted: str | None = None
    provider_metadata: Any = None


MessagePart = TextPart | ImagePart | FilePart | ToolCallPart | ToolResultPart | ReasoningPart
"""Any part of a message; `part.type` tells which."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation. `metadata` is kept beside it and never shown to a model; `id` is
    made by the server where empty."""

    role: Role
    parts: tuple[MessagePart, ...]
    metadata: Any = None
    id: str = ""

    @property
    def text(self) -> str:
        """The text parts, one after the other."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))


MessageLike = str | Mapping[str, Any] | Message
"""One message in any of its forms; a text means a user message."""

MessagesLike = MessageLike | Sequence[MessageLike]
"""Messages in any of their forms."""


def messages_from(value: MessagesLike, role: Role = "user") -> list[Message]:
    """The messages meant by any of the accepted forms; texts get `role`.

    Raises TypeError or ValueError, naming what is wrong, for anything else.
    """
    items: Iterable[Any]
    if isinstance(value, str | Mapping | Message):
        items = [value]
    elif isinstance(value, Iterable):
        items = value
    else:
        raise TypeError(f"messages are a text, a message or a list of these, not {type(value).__name__}")
    return [_message_from(item, role) for item in items]


def _message_from(value: Any, role: Role) -> Message:
    if isinstance(value, Message):
        return value
    if isinstance(value, str):
        return Message(role, (TextPart(value),))
    if not isinstance(value, Mapping):
        raise TypeError(f"a message is a text, a dict or a Message, not {type(value).__name__}")
    _only(value, ("role", "content", "metadata", "id"), "a message")
    content = value.get("content")
    if isinstance(content, str):
        parts: tuple[MessagePart, ...] = (TextPart(content),)
    elif isinstance(content, Iterable) and not isinstance(content, Mapping):
        parts = tuple(_part_from(part) for part in content)
    else:
        raise TypeError("a message's content is a text or a list of parts")
    return Message(value.get("role", role), parts, value.get("metadata"), value.get("id", ""))


def _part_from(value: Any) -> MessagePart:
    if isinstance(value, TextPart | ImagePart | FilePart | ToolCallPart | ToolResultPart | ReasoningPart):
        return value
    if isinstance(value, str):
        return TextPart(value)
    if not isinstance(value, Mapping):
        raise TypeError(f"a part of a message is a text or a dict, not {type(value).__name__}")
    kind = value.get("type", "text")
    fields = {key: item for key, item in value.items() if key != "type"}
    if "mime_type" in fields:
        fields["media_type"] = fields.pop("mime_type")
    if kind in ("image", "file"):
        return _media_part(kind, fields)
    plain: dict[str, type[Any]] = {
        "text": TextPart,
        "tool-call": ToolCallPart,
        "tool-result": ToolResultPart,
        "reasoning": ReasoningPart,
    }
    if kind not in plain:
        raise ValueError(f"a part's type is one of {', '.join([*plain, 'image', 'file'])}, not {kind!r}")
    try:
        return cast(MessagePart, plain[kind](**fields))
    except TypeError as error:
        raise TypeError(f"a part of type {kind}: {error}") from None


def _media_part(kind: str, fields: dict[str, Any]) -> ImagePart | FilePart:
    names = (kind, "url", "data", "media_type", *(["filename"] if kind == "file" else []))
    _only(fields, names, f"a part of type {kind}")
    given = [fields[name] for name in (kind, "url", "data") if fields.get(name)]
    if len(given) != 1:
        raise ValueError(f"a part of type {kind} needs one of {kind!r}, 'url' and 'data'")
    url, data = _url_or_bytes(given[0], kind)
    media_type = fields.get("media_type", "")
    if data and not media_type:
        media_type = _sniffed(data)
        if not media_type:
            raise ValueError(f"a part of type {kind} given as bytes needs a media_type")
    if kind == "image":
        return ImagePart(url, data, media_type)
    return FilePart(url, data, media_type, fields.get("filename", ""))


def _url_or_bytes(value: Any, kind: str) -> tuple[str, bytes]:
    if isinstance(value, bytes | bytearray | memoryview):
        return "", bytes(value)
    text = str(value)
    if ":" in text:
        return text, b""
    try:
        return "", base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError(f"a text for a part of type {kind} is a URL, a data URL or base64") from None


_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
)


def _sniffed(data: bytes) -> str:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((media_type for magic, media_type in _MAGIC if data.startswith(magic)), "")


def _only(value: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    unknown = [key for key in value if key not in known]
    if unknown:
        raise TypeError(f"{what} has no field {unknown[0]!r}; it has {', '.join(known)}")
