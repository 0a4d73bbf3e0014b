"""Characters whose two UTF-16 halves arrive in two pieces."""

_LAST_HIGH = "\udbff"


class SurrogateJoiner:
    """Puts split surrogate pairs together, per text, and replaces halves that stay alone by U+FFFD.

    A text is named by a key. Its last half, if a second may still follow, is held back.
    """

    def __init__(self) -> None:
        self._held: dict[object, str] = {}

    def join(self, key: object, piece: str) -> str:
        """What of the text can be shown now that `piece` has arrived."""
        if self._held:
            piece = self._held.pop(key, "") + piece
        elif piece.isascii():
            return piece
        if piece and "\ud800" <= piece[-1] <= _LAST_HIGH:
            self._held[key] = piece[-1]
            piece = piece[:-1]
        return piece.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def flush(self, key: object) -> str:
        """What the end of the text leaves: U+FFFD for a half held back, else nothing."""
        return "�" if self._held and self._held.pop(key, "") else ""
