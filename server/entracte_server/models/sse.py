"""Server-sent events, decoded from bytes as they arrive.

Everything is done on bytes and only whole events are handed on, so a character that two reads
share needs no care.
"""

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Largest event held in memory before the stream is given up."""

_BOM = b"\xef\xbb\xbf"

Event = tuple[str, bytes]
"""The event's name ("" where it has none) and its data."""


class EventTooLarge(ValueError):
    """An event grew over the decoder's limit; the message names it."""


class SseDecoder:
    """Turns the bytes of an event stream, in pieces of any size, into events.

    Line ends may be LF, CRLF or CR; comments, `id:`, `retry:` and events without data or with
    blank data are dropped.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._limit = max_event_bytes
        self._pieces: list[bytes] = []
        self._size = 0
        self._after_cr = False
        self._start: bytes | None = b""

    def feed(self, data: bytes) -> list[Event]:
        """The events that `data` completes. Raises `EventTooLarge`."""
        if self._start is not None:
            data = self._start + data
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._start = data
                return []
            self._start = None
            data = data.removeprefix(_BOM)
        if self._after_cr:
            if not data:
                return []
            # The CR that ended the last read was taken for a line end: its LF is the same one.
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if not data:
            return []
        if self._pieces:
            # Joined only when an event is complete, so that one event in many pieces stays linear.
            closes = b"\n\n" in data or (data[0] == 10 and self._pieces[-1][-1] == 10)
            self._pieces.append(data)
            if not closes:
                self._grow(len(data))
                return []
            data = b"".join(self._pieces)
            self._pieces.clear()
            self._size = 0
        blocks = data.split(b"\n\n")
        rest = blocks.pop()
        if rest:
            self._pieces.append(rest)
            self._grow(len(rest))
        events: list[Event] = []
        for block in blocks:
            if block.startswith(b"data: ") and b"\n" not in block:
                content = block[6:]
                if content and not content.isspace():
                    events.append(("", content))
            elif (event := _parse(block)) is not None:
                events.append(event)
        return events

    def close(self) -> list[Event]:
        """The event that the end of the body left without its blank line, if there is one.

        The standard drops it; providers are known to end their last event like that.
        """
        rest = (self._start or b"") + b"".join(self._pieces)
        self._pieces.clear()
        self._start = None
        event = _parse(rest)
        return [] if event is None else [event]

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self._limit:
            raise EventTooLarge(f"an event of the stream is larger than {self._limit} bytes")


def _parse(block: bytes) -> Event | None:
    name = ""
    lines: list[bytes] = []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        if field == b"data":
            lines.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.removeprefix(b" ").decode("utf-8", "replace")
    data = b"\n".join(lines)
    return (name, data) if data and not data.isspace() else None
