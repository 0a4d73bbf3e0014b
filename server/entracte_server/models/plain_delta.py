"""The shapes nearly every record of a stream has, decoded to what matters of them.

A record is plain when all it brings is a piece of text, of thinking, or of one call's arguments.
Decoding it to these types takes half the time of decoding everything; whatever else a record may hold
makes the decoder refuse it, and then it goes the general way.
"""

import msgspec


class ArgsFunction(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    arguments: str


class ArgsPiece(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A piece that can only continue a call."""

    index: int
    function: ArgsFunction


class PlainDelta(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ArgsPiece] | None = None
    role: str | None = None
    refusal: None = None
    function_call: None = None


class PlainChoice(msgspec.Struct, gc=False):
    """Fields that are only ever None here are those that would change the meaning."""

    delta: PlainDelta
    index: int = 0
    finish_reason: None = None
    message: None = None
    usage: None = None
    error: None = None


class PlainChunk(msgspec.Struct, gc=False):
    choices: tuple[PlainChoice]
    usage: None = None
    error: None = None
    citations: None = None


decode_plain = msgspec.json.Decoder(PlainChunk).decode
